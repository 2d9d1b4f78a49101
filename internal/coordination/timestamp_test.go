package coordination

import (
	"strings"
	"testing"
	"time"
)

func TestParseTimestamp(t *testing.T) {
	at := func(year int, month time.Month, day, hour, minute, second, nano int) time.Time {
		return time.Date(year, month, day, hour, minute, second, nano, time.UTC)
	}
	noon := at(2026, 7, 27, 12, 0, 0, 0)
	tests := []struct {
		in     string
		want   time.Time
		format string
	}{
		{"2026-07-27T12:00:00Z", noon, "2026-07-27T12:00:00+00:00"},
		{"2026-07-27t12:00:00z", noon, "2026-07-27T12:00:00+00:00"},
		{"2026-07-27 12:00:00+00:00", noon, "2026-07-27T12:00:00+00:00"},
		{"2026-07-27T12:00:00-00:00", noon, "2026-07-27T12:00:00+00:00"},
		{"2026-07-27T12:00Z", noon, "2026-07-27T12:00:00+00:00"},
		{"2026-07-27T12+00:00", noon, "2026-07-27T12:00:00+00:00"},
		{"2026-07-27T12:00:00+00", noon, "2026-07-27T12:00:00+00:00"},
		{"2026-07-27T14:00:00+0200", noon, "2026-07-27T14:00:00+02:00"},
		{"2026-07-27T05:30:00-06:30", noon, "2026-07-27T05:30:00-06:30"},
		{"2026-07-28T11:59:00+23:59", noon, "2026-07-28T11:59:00+23:59"},
		{"2026-07-26T12:01:00-23:59", noon, "2026-07-26T12:01:00-23:59"},
		{"2026-07-27T12:19:32+00:19:32", noon, "2026-07-27T12:19:32+00:19:32"},
		{"2026-07-27T11:59:30-00:00:30", noon, "2026-07-27T11:59:30-00:00:30"},
		{"2026-07-27T12:00:01+00:00:00.500000", noon.Add(500 * time.Millisecond), "2026-07-27T12:00:00.500000+00:00"},
		{"2026-07-27T12:00:00.5Z", noon.Add(500 * time.Millisecond), "2026-07-27T12:00:00.500000+00:00"},
		{"2026-07-27T12:00:00,25Z", noon.Add(250 * time.Millisecond), "2026-07-27T12:00:00.250000+00:00"},
		{"2026-07-27T12:00:00.123456Z", noon.Add(123456 * time.Microsecond), "2026-07-27T12:00:00.123456+00:00"},
		{"2026-07-27T12:00:00.123456789Z", noon.Add(123456 * time.Microsecond), "2026-07-27T12:00:00.123456+00:00"},
		{"2026-07-27T12:00:00.99999999999999999999Z", noon.Add(999999 * time.Microsecond), "2026-07-27T12:00:00.999999+00:00"},
		{"2026-07-27T12:00:00.0000009Z", noon, "2026-07-27T12:00:00+00:00"},
		{"2024-02-29T23:59:59Z", at(2024, 2, 29, 23, 59, 59, 0), "2024-02-29T23:59:59+00:00"},
		{"2000-02-29T00:00:00Z", at(2000, 2, 29, 0, 0, 0, 0), "2000-02-29T00:00:00+00:00"},
		{"0001-01-01T00:00:00Z", at(1, 1, 1, 0, 0, 0, 0), "0001-01-01T00:00:00+00:00"},
		{"9999-12-31T23:59:59.999999Z", at(9999, 12, 31, 23, 59, 59, 999999000), "9999-12-31T23:59:59.999999+00:00"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := ParseTimestamp(tt.in)
			if err != nil {
				t.Fatalf("ParseTimestamp: %v", err)
			}
			if !got.Equal(tt.want) {
				t.Errorf("ParseTimestamp = %s, want %s", got, tt.want)
			}
			if f := FormatTimestamp(got); f != tt.format {
				t.Errorf("FormatTimestamp = %s, want %s", f, tt.format)
			}
		})
	}
}

func TestParseTimestampRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", "RFC 3339"},
		{"a word", "yesterday", "RFC 3339"},
		{"seconds since the epoch", "1785153600", "RFC 3339"},
		{"no offset", "2026-07-27T12:00:00", "has no offset; end it with Z"},
		{"no offset behind a fraction", "2026-07-27T12:00:00.5", "has no offset"},
		{"a date alone", "2026-07-27", "has no time of day"},
		{"month 13", "2026-13-01T00:00:00Z", "month 13"},
		{"month 0", "2026-00-01T00:00:00Z", "month 00"},
		{"day 0", "2026-01-00T00:00:00Z", "day 00"},
		{"30 February", "2026-02-30T00:00:00Z", "2026-02 has the days 01 to 28"},
		{"29 February in a common year", "1900-02-29T00:00:00Z", "days 01 to 28"},
		{"31 April", "2026-04-31T00:00:00Z", "days 01 to 30"},
		{"32 December", "2026-12-32T00:00:00Z", "days 01 to 31"},
		{"hour 24", "2026-07-27T24:00:00Z", "hour 24"},
		{"hour 25", "2026-07-27T25:00:00Z", "hour 25"},
		{"minute 60", "2026-07-27T12:60:00Z", "minute 60"},
		{"a leap second", "2016-12-31T23:59:60Z", "leap second"},
		{"second 61", "2016-12-31T23:59:61Z", "second 61"},
		{"year 0", "0000-01-01T00:00:00Z", "year 0000"},
		{"before year 1 in UTC", "0001-01-01T00:00:00+00:01", "outside the years"},
		{"after year 9999 in UTC", "9999-12-31T23:59:00-00:01", "outside the years"},
		{"a five-digit year", "12026-07-27T12:00:00Z", "RFC 3339"},
		{"a negative year", "-026-07-27T12:00:00Z", "RFC 3339"},
		{"an offset of a day", "2026-07-27T12:00:00+24:00", "impossible offset"},
		{"offset minute 60", "2026-07-27T12:00:00+05:60", "impossible offset"},
		{"half an offset", "2026-07-27T12:00:00+0", "RFC 3339"},
		{"an empty fraction", "2026-07-27T12:00:00.Z", "RFC 3339"},
		{"a fraction of minutes", "2026-07-27T12:00.5Z", "RFC 3339"},
		{"trailing text", "2026-07-27T12:00:00Z ", "RFC 3339"},
		{"leading space", " 2026-07-27T12:00:00Z", "RFC 3339"},
		{"two separators", "2026-07-27T 12:00:00Z", "RFC 3339"},
		{"NUL", "2026-07-27T12:00:00\x00", "RFC 3339"},
		{"digits of another script", "２０２６-07-27T12:00:00Z", "RFC 3339"},
		{"basic format", "20260727T120000Z", "RFC 3339"},
		{"a zone's name", "2026-07-27T12:00:00 UTC", "RFC 3339"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseTimestamp(tt.in)
			if err == nil {
				t.Fatalf("ParseTimestamp(%q) = %s, want an error", tt.in, got)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), timestampExample) {
				t.Errorf("error %q does not say %q and what would be right", err, tt.want)
			}
		})
	}
}

func TestFormatTimestampCutsToMicroseconds(t *testing.T) {
	base := time.Date(2026, 7, 27, 12, 0, 0, 0, time.UTC)
	for nanos, want := range map[time.Duration]string{
		0:           "2026-07-27T12:00:00+00:00",
		999:         "2026-07-27T12:00:00+00:00",
		1000:        "2026-07-27T12:00:00.000001+00:00",
		1999:        "2026-07-27T12:00:00.000001+00:00",
		999_999_999: "2026-07-27T12:00:00.999999+00:00",
	} {
		if got := FormatTimestamp(base.Add(nanos)); got != want {
			t.Errorf("%d ns: %s, want %s", nanos, got, want)
		}
	}
}

func FuzzParseTimestamp(f *testing.F) {
	for _, seed := range []string{
		"2026-07-27T12:00:00.123456+00:00", "2026-07-27 12:00Z", "0001-01-01T00:00:00-23:59:59", "9999-12-31T23:59:60Z",
		"2026-07-27T12:00:00+00:00:00.000001", "2026-02-30T00:00:00Z", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := ParseTimestamp(s)
		if err != nil {
			return
		}
		text := FormatTimestamp(first)
		second, err := ParseTimestamp(text)
		if err != nil {
			t.Fatalf("%q reads as %q, which is refused: %v", s, text, err)
		}
		if !second.Equal(first) || FormatTimestamp(second) != text {
			t.Fatalf("%q reads as %q, which reads as %q", s, text, FormatTimestamp(second))
		}
		// RFC 3339 readers agree where the form is theirs.
		if std, err := time.Parse(time.RFC3339Nano, s); err == nil && !std.Truncate(time.Microsecond).Equal(first) {
			t.Fatalf("%q reads as %s, by RFC 3339 it is %s", s, first, std)
		}
	})
}
