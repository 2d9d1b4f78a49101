package coordination

import (
	"fmt"
	"time"
)

// timestampExample is what a refusal shows, so that the sender sees what would have been right.
const timestampExample = "2026-07-27T12:00:00.123456+00:00"

// ParseTimestamp reads an RFC 3339 timestamp and whatever Python's datetime.isoformat prints for an aware
// datetime: `T`, `t` or a space between date and time, seconds and minutes that may be missing, any number of
// fractional digits, and offsets Z, +HH, +HHMM, +HH:MM and +HH:MM:SS. The instant is kept to the
// microsecond (further digits are cut, not rounded, as Python does) in the sender's own offset.
//
// A timestamp without an offset is refused: guessing its zone would turn a wrong guess into clock skew.
func ParseTimestamp(s string) (time.Time, error) {
	p := timestampParser{text: s}
	year, month, day := p.date()
	p.separator()
	hour, minute, second, micros := p.clock()
	offset, offsetMicros := p.offset()
	switch {
	case p.fault != "":
	case p.at < len(s):
		p.shape()
	default:
		p.fault = calendarFault(year, month, day, hour, minute, second)
	}
	if p.fault != "" {
		return time.Time{}, fmt.Errorf("%s, for example %q", p.fault, timestampExample)
	}
	t := time.Date(year, time.Month(month), day, hour, minute, second, (micros-offsetMicros)*1000, zone(offset))
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return time.Time{}, fmt.Errorf("lies outside the years 0001 to 9999 in UTC; send a time near the present, for example %q", timestampExample)
	}
	return t, nil
}

// FormatTimestamp prints t as Python's isoformat does: microseconds unless they are 0, and a numeric offset.
func FormatTimestamp(t time.Time) string {
	return string(appendTimestamp(make([]byte, 0, len(timestampExample)), t))
}

func appendTimestamp(dst []byte, t time.Time) []byte {
	dst = t.AppendFormat(dst, "2006-01-02T15:04:05")
	if t.Nanosecond() >= 1000 {
		dst = t.AppendFormat(dst, ".000000")
	}
	_, offset := t.Zone()
	return appendOffset(dst, offset)
}

// appendOffset exists because the time package misprints offsets between -1 and -59 seconds.
func appendOffset(dst []byte, offset int) []byte {
	sign := byte('+')
	if offset < 0 {
		sign, offset = '-', -offset
	}
	dst = appendTwoDigits(append(dst, sign), offset/3600)
	dst = appendTwoDigits(append(dst, ':'), offset/60%60)
	if seconds := offset % 60; seconds != 0 {
		dst = appendTwoDigits(append(dst, ':'), seconds)
	}
	return dst
}

func appendTwoDigits(dst []byte, n int) []byte {
	return append(dst, byte('0'+n/10%10), byte('0'+n%10))
}

func zone(offset int) *time.Location {
	if offset == 0 {
		return time.UTC
	}
	return time.FixedZone("", offset)
}

// calendarFault says which part of a well-formed timestamp does not exist.
func calendarFault(year, month, day, hour, minute, second int) string {
	switch {
	case year < 1:
		return "has year 0000, which is out of range; send a year from 0001 to 9999"
	case month < 1 || month > 12:
		return fmt.Sprintf("has month %02d; months run from 01 to 12", month)
	case day < 1 || day > daysIn(year, month):
		return fmt.Sprintf("has day %02d; %04d-%02d has the days 01 to %d", day, year, month, daysIn(year, month))
	case hour > 23:
		return fmt.Sprintf("has hour %02d; hours run from 00 to 23", hour)
	case minute > 59:
		return fmt.Sprintf("has minute %02d; minutes run from 00 to 59", minute)
	case second == 60:
		return "has second 60: a leap second cannot be kept; send second 59 or the next minute"
	case second > 59:
		return fmt.Sprintf("has second %02d; seconds run from 00 to 59", second)
	}
	return ""
}

func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// timestampParser walks over one timestamp; after the first fault every step does nothing.
type timestampParser struct {
	text  string
	at    int
	fault string
}

func (p *timestampParser) shape() {
	if p.fault == "" {
		p.fault = "must be an RFC 3339 timestamp with an offset"
	}
}

// next returns the byte at the cursor, 0 at the end (a NUL in the text fits no rule either).
func (p *timestampParser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *timestampParser) take(c byte) bool {
	if p.fault != "" || p.next() != c {
		return false
	}
	p.at++
	return true
}

func (p *timestampParser) digits(n int) int {
	value := 0
	for range n {
		c := p.next()
		if p.fault != "" || !isDigit(c) {
			p.shape()
			return 0
		}
		value = value*10 + int(c-'0')
		p.at++
	}
	return value
}

func (p *timestampParser) date() (year, month, day int) {
	year = p.digits(4)
	p.must('-')
	month = p.digits(2)
	p.must('-')
	return year, month, p.digits(2)
}

func (p *timestampParser) must(c byte) {
	if !p.take(c) {
		p.shape()
	}
}

func (p *timestampParser) separator() {
	if p.fault == "" && p.at == len(p.text) {
		p.fault = "has no time of day and no offset; send date, time and offset"
	}
	if !p.take('T') && !p.take('t') && !p.take(' ') {
		p.shape()
	}
}

func (p *timestampParser) clock() (hour, minute, second, micros int) {
	hour = p.digits(2)
	if p.take(':') {
		minute = p.digits(2)
		if p.take(':') {
			second = p.digits(2)
			micros = p.fraction()
		}
	}
	return hour, minute, second, micros
}

// fraction reads the microseconds of an optional fraction; further digits are cut.
func (p *timestampParser) fraction() int {
	if !p.take('.') && !p.take(',') {
		return 0
	}
	micros, n := p.digits(1), 1
	for p.fault == "" && isDigit(p.next()) {
		if n < 6 {
			micros = micros*10 + int(p.next()-'0')
			n++
		}
		p.at++
	}
	for ; n < 6; n++ {
		micros *= 10
	}
	return micros
}

// offset reads the zone in seconds east of UTC; Python prints seconds and microseconds for zones that have them.
func (p *timestampParser) offset() (seconds, micros int) {
	if p.take('Z') || p.take('z') {
		return 0, 0
	}
	sign := 1
	switch {
	case p.fault != "":
		return 0, 0
	case p.at == len(p.text):
		p.fault = "has no offset; end it with Z or an offset like +02:00"
		return 0, 0
	case p.take('-'):
		sign = -1
	case !p.take('+'):
		p.shape()
		return 0, 0
	}
	hours, minutes := p.digits(2), 0
	switch {
	case p.take(':'):
		minutes = p.digits(2)
		if p.take(':') {
			seconds = p.digits(2)
			micros = p.fraction()
		}
	case isDigit(p.next()):
		minutes = p.digits(2)
	}
	if p.fault == "" && (hours > 23 || minutes > 59 || seconds > 59) {
		p.fault = "has an impossible offset; offsets run from -23:59 to +23:59"
	}
	return sign * (hours*3600 + minutes*60 + seconds), sign * micros
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
