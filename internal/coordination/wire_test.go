package coordination

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type wireVector struct {
	Type       string          `json:"type"`
	Input      json.RawMessage `json:"input"`
	OK         bool            `json:"ok"`
	Error      string          `json:"error"`
	Normalized map[string]any  `json:"normalized"`
}

func readLines[T any](t *testing.T, path string) []T {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for line := range bytes.Lines(file) {
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%s line %d: %v", path, len(all)+1, err)
		}
		all = append(all, one)
	}
	return all
}

// recode decodes one message of the given type and encodes it again.
func recode(kind string, data []byte) ([]byte, error) {
	switch kind {
	case "heartbeat":
		h, err := DecodeHeartbeat(data)
		return EncodeHeartbeat(h), err
	case "shutdown":
		n, err := DecodeShutdown(data)
		return EncodeShutdown(n), err
	case "work_assignment":
		a, err := DecodeAssignment(data)
		return EncodeAssignment(a), err
	}
	return nil, errors.New("no such type: " + kind)
}

// TestWireVectors: what the original accepts is accepted and printed as the original prints it; what it refuses is
// refused with the field named.
func TestWireVectors(t *testing.T) {
	vectors := readLines[wireVector](t, "testdata/wire.jsonl")
	if len(vectors) != 86 {
		t.Fatalf("%d vectors, want 86", len(vectors))
	}
	for i, v := range vectors {
		out, err := recode(v.Type, v.Input)
		if !v.OK {
			checkRefusal(t, i, v, err)
			continue
		}
		if err != nil {
			t.Errorf("vector %d: %s refused: %v", i, v.Input, err)
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("vector %d: encoded %s: %v", i, out, err)
		}
		// The original prints the defaults of absent keys, which this service must not: only a present key
		// can end a drain. It ignores labels, which this service carries on.
		for key, missing := range map[string]any{"subscriptions": []any{}, "in_flight_count": 0.0} {
			if _, present := got[key]; !present && v.Normalized[key] != nil {
				got[key] = missing
			}
		}
		if labels, ok := got["labels"]; ok {
			if v.Type != "heartbeat" || !reflect.DeepEqual(labels, map[string]any{"version": "1.4.2"}) {
				t.Errorf("vector %d: labels are %v", i, labels)
			}
			delete(got, "labels")
		}
		if !reflect.DeepEqual(got, v.Normalized) {
			t.Errorf("vector %d: %s\n got %v\nwant %v", i, v.Input, got, v.Normalized)
		}
	}
}

func checkRefusal(t *testing.T, i int, v wireVector, err error) {
	t.Helper()
	var invalid *InvalidError
	if !errors.As(err, &invalid) || !errors.Is(err, ErrInvalid) || len(invalid.Fields) != 1 {
		t.Errorf("vector %d: %s: %v, want one wrong field", i, v.Input, err)
		return
	}
	field := invalid.Fields[0]
	if key, missing := strings.CutPrefix(v.Error, "KeyError: "); missing {
		if want := (FieldError{"/" + strings.Trim(key, "'"), "is required"}); field != want {
			t.Errorf("vector %d: %+v, want %+v", i, field, want)
		}
		return
	}
	var input map[string]any
	if err := json.Unmarshal(v.Input, &input); err != nil {
		t.Fatal(err)
	}
	if _, present := input[strings.TrimPrefix(field.Pointer, "/")]; !present {
		t.Errorf("vector %d: %+v names a key that %s does not have", i, field, v.Input)
	}
}

func TestEncodeWritesTheOriginalForm(t *testing.T) {
	start := time.Date(2026, 7, 27, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name, got, want string
	}{
		{
			"a heartbeat",
			string(EncodeHeartbeat(Heartbeat{
				Group: DefaultGroup, InstanceID: "worker-1", Timestamp: start.Add(123456 * time.Microsecond), Subscriptions: []string{"a", "b"},
				HasSubscriptions: true, InFlightCount: 5, HasInFlight: true, LoadFactor: 1,
			})),
			`{"instance_id":"worker-1","timestamp":"2026-07-27T12:00:00.123456+00:00","subscriptions":["a","b"],"in_flight_count":5,` +
				`"is_leader":false,"load_factor":1.0}`,
		},
		{
			"additive keys of a heartbeat",
			string(EncodeHeartbeat(Heartbeat{
				Group: "orders", InstanceID: "w", Timestamp: start, Incarnation: "pod-1", IsLeader: true, LoadFactor: 0.25,
				Labels: map[string]string{"version": "1.4.2", "a/b": "\"\\\n"},
			})),
			`{"instance_id":"w","timestamp":"2026-07-27T12:00:00+00:00","is_leader":true,"load_factor":0.25,"group":"orders",` +
				`"incarnation":"pod-1","labels":{"a/b":"\"\\\u000a","version":"1.4.2"}}`,
		},
		{
			"a shutdown notification",
			string(EncodeShutdown(Shutdown{
				Group: "orders", InstanceID: "w", Intent: IntentPreemption, InitiatedAt: start, ExpectedCompletionAt: start.Add(time.Second),
				HasSubscriptions: true, InFlightCount: 3, Metadata: []byte(`{"a":1}`), Incarnation: "pod-1",
			})),
			`{"instance_id":"w","intent":"preemption","initiated_at":"2026-07-27T12:00:00+00:00",` +
				`"expected_completion_at":"2026-07-27T12:00:01+00:00","subscriptions":[],"in_flight_count":3,"metadata":{"a":1},` +
				`"group":"orders","incarnation":"pod-1"}`,
		},
		{
			"a drain given as a timeout",
			string(EncodeShutdown(Shutdown{
				InstanceID: "w", Intent: IntentGraceful, InitiatedAt: start, DrainTimeout: 90 * time.Second, HasDrainTimeout: true,
			})),
			`{"instance_id":"w","intent":"graceful","initiated_at":"2026-07-27T12:00:00+00:00",` +
				`"expected_completion_at":"2026-07-27T12:01:30+00:00","in_flight_count":0,"metadata":{}}`,
		},
		{
			"an assignment",
			string(EncodeAssignment(Assignment{
				ID: "as-1", Group: "orders", TargetInstanceID: "w", Subscriptions: []string{"a"}, SourceInstanceID: "v", AssignedAt: start, Priority: -7,
			})),
			`{"target_instance_id":"w","subscriptions":["a"],"source_instance_id":"v","assigned_at":"2026-07-27T12:00:00+00:00",` +
				`"priority":-7,"id":"as-1","group":"orders"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got  %s\nwant %s", tt.got, tt.want)
			}
		})
	}
}

func TestEncodedFloatsStayFloats(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0.0", 1: "1.0", 0.75: "0.75", 0.0001: "0.0001", 0.00001: "1e-05", 1e15: "1000000000000000.0", 1e16: "1e+16", 1.5e300: "1.5e+300",
	} {
		if got := string(appendFloat(nil, f)); got != want {
			t.Errorf("%v is written as %s, want %s as Python does", f, got, want)
		}
	}
}

// beat builds a heartbeat text around the required keys.
func beat(rest string) string {
	return `{"instance_id":"w","timestamp":"2026-07-27T12:00:00Z"` + rest + `}`
}

func TestDecodeHeartbeatReadsEveryField(t *testing.T) {
	got, err := DecodeHeartbeat([]byte(beat(`, "subscriptions" : ["a","b","a","\u0062"],"in_flight_count":3,"is_leader":true,"load_factor":5e-1,
		"group":"orders","incarnation":"pod-1","labels":{"k/1":"v"},"later":{"a":[1,{"b":null}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	want := Heartbeat{
		Group: "orders", InstanceID: "w", Timestamp: time.Date(2026, 7, 27, 12, 0, 0, 0, time.UTC), Subscriptions: []string{"a", "b"},
		HasSubscriptions: true, InFlightCount: 3, HasInFlight: true, IsLeader: true, LoadFactor: 0.5, Incarnation: "pod-1",
		Labels: map[string]string{"k/1": "v"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDecodeTellsAbsentFromPresent(t *testing.T) {
	tests := []struct {
		rest                       string
		hasSubscriptions, inFlight bool
	}{
		{"", false, false},
		{`,"subscriptions":null,"in_flight_count":null,"is_leader":null,"load_factor":null,"group":null,"incarnation":null,"labels":null`, false, false},
		{`,"subscriptions":[]`, true, false},
		{`,"in_flight_count":0`, false, true},
		{`,"in_flight_count":-0,"subscriptions":[]`, true, true},
	}
	for _, tt := range tests {
		h, err := DecodeHeartbeat([]byte(beat(tt.rest)))
		if err != nil {
			t.Fatalf("%s: %v", tt.rest, err)
		}
		if h.HasSubscriptions != tt.hasSubscriptions || h.HasInFlight != tt.inFlight {
			t.Errorf("%s: subscriptions present %t, count present %t", tt.rest, h.HasSubscriptions, h.HasInFlight)
		}
		if h.Group != DefaultGroup {
			t.Errorf("%s: group %q", tt.rest, h.Group)
		}
	}
}

func TestDecodeShutdownKeepsWhatCame(t *testing.T) {
	n, err := DecodeShutdown([]byte(`{"instance_id":"w","intent":"graceful","initiated_at":"2026-07-27T12:00:00Z",
		"expected_completion_at":"2026-07-27T11:00:00Z","metadata":{ "a b" : [ 1 , "x \" y\\" ], "n":123456789012345678901 }}`))
	if err != nil {
		t.Fatal(err)
	}
	if !n.ExpectedCompletionAt.Before(n.InitiatedAt) {
		t.Errorf("window is %s to %s, want it as it came", n.InitiatedAt, n.ExpectedCompletionAt)
	}
	if want := `{"a b":[1,"x \" y\\"],"n":123456789012345678901}`; string(n.Metadata) != want {
		t.Errorf("metadata %s, want %s", n.Metadata, want)
	}
	if n.HasSubscriptions || n.Subscriptions != nil {
		t.Errorf("subscriptions %v, present %t, want none", n.Subscriptions, n.HasSubscriptions)
	}
}

func TestDecodeStrings(t *testing.T) {
	for text, want := range map[string]string{
		`"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t",
		`"\u00e9\u540D"`:     "é名",
		`"\ud83d\ude00!"`:    "😀!",
		`"\u0000"`:           "\x00",
		`"名前 <>&"`:           "名前 <>&",
		`""`:                 "",
	} {
		h, err := DecodeHeartbeat([]byte(beat(`,"incarnation":` + text)))
		if err != nil || h.Incarnation != want {
			t.Errorf("%s reads as %q, %v; want %q", text, h.Incarnation, err, want)
		}
	}
}

func TestDecodeHeartbeatRefuses(t *testing.T) {
	nest := func(open, inner, end string, levels int) string {
		return strings.Repeat(open, levels) + inner + strings.Repeat(end, levels)
	}
	tests := []struct{ name, in, pointer, detail string }{
		{"nothing", ``, "", "ends where a value"},
		{"white space", " \n", "", "ends where a value"},
		{"an array", `[]`, "", "must be a JSON object"},
		{"a string", `"x"`, "", "must be a JSON object"},
		{"null", `null`, "", "must be a JSON object"},
		{"a byte order mark", "\ufeff" + beat(""), "", "byte 0"},
		{"truncated", beat("")[:30], "", "ends where a colon"},
		{"truncated in a string", beat("")[:40], "/timestamp", "ends where the end of a string"},
		{"truncated behind a key", `{"instance_id"`, "", "ends where a colon"},
		{"trailing data", beat("") + " {}", "", "one JSON object"},
		{"a trailing NUL", beat("") + "\x00", "", "one JSON object"},
		{"a trailing comma", beat(","), "", "quoted key"},
		{"a missing comma", beat(` "is_leader":true`), "/timestamp", "a comma"},
		{"a bare key", `{instance_id:"w"}`, "", "quoted key"},
		{"single quotes", `{'instance_id':'w'}`, "", "quoted key"},
		{"a comment", beat(`/* */`), "/timestamp", "a comma"},
		{"a known key twice", beat(`,"is_leader":true,"is_leader":true`), "/is_leader", "twice"},
		{"a required key twice, once escaped", beat(`,"instance\u005fid":"v"`), "/instance_id", "twice"},
		{"an unknown key twice", beat(`,"x/y":1,"x/y":2`), "/x~1y", "twice"},
		{"NaN", beat(`,"load_factor":NaN`), "/load_factor", "NaN"},
		{"Infinity", beat(`,"load_factor":Infinity`), "/load_factor", "Infinity"},
		{"-Infinity", beat(`,"load_factor":-Infinity`), "/load_factor", "Infinity"},
		{"NaN in an unknown key", beat(`,"x":[NaN]`), "/x", "NaN"},
		{"a factor beyond a double", beat(`,"load_factor":1e999`), "/load_factor", "range of a double"},
		{"a number beyond a double in an unknown key", beat(`,"x":-1e999`), "/x", "range of a double"},
		{"a leading zero", beat(`,"in_flight_count":01`), "/in_flight_count", "a comma"},
		{"a leading plus", beat(`,"in_flight_count":+1`), "/in_flight_count", "a value"},
		{"a bare minus", beat(`,"in_flight_count":-`), "/in_flight_count", "a digit"},
		{"a bare point", beat(`,"load_factor":1.`), "/load_factor", "a digit"},
		{"an empty exponent", beat(`,"load_factor":1e`), "/load_factor", "a digit"},
		{"hexadecimal", beat(`,"in_flight_count":0x10`), "/in_flight_count", "a comma"},
		{"an id that is a number", `{"instance_id":7,"timestamp":"2026-07-27T12:00:00Z"}`, "/instance_id", "must be a string, not a number"},
		{"an id that is null", `{"instance_id":null,"timestamp":"2026-07-27T12:00:00Z"}`, "/instance_id", "is required"},
		{"a time that is a number", `{"instance_id":"w","timestamp":1785153600}`, "/timestamp", "must be a timestamp string"},
		{"a time without a zone", `{"instance_id":"w","timestamp":"2026-07-27T12:00:00"}`, "/timestamp", "no offset"},
		{"a count that is a string", beat(`,"in_flight_count":"3"`), "/in_flight_count", "must be an integer, not a string"},
		{"a count with a fraction", beat(`,"in_flight_count":3.5`), "/in_flight_count", "must be an integer"},
		{"a count written as a float", beat(`,"in_flight_count":5.0`), "/in_flight_count", "must be an integer"},
		{"a count of 2⁶³", beat(`,"in_flight_count":9223372036854775808`), "/in_flight_count", "64 bits"},
		{"a leader that is a number", beat(`,"is_leader":1`), "/is_leader", "must be true or false, not a number"},
		{"a leader in capitals", beat(`,"is_leader":True`), "/is_leader", "a value"},
		{"a factor that is a string", beat(`,"load_factor":"0.5"`), "/load_factor", "must be a number, not a string"},
		{"subscriptions that are a string", beat(`,"subscriptions":"a"`), "/subscriptions", "must be an array of strings, not a string"},
		{"a subscription that is a number", beat(`,"subscriptions":["a",1]`), "/subscriptions/1", "must be a string, not a number"},
		{"a subscription that is null", beat(`,"subscriptions":[null]`), "/subscriptions/0", "must be a string, not null"},
		{"labels that are an array", beat(`,"labels":["a"]`), "/labels", "must be an object of strings, not an array"},
		{"a label that is an object", beat(`,"labels":{"a/b~c":{}}`), "/labels/a~1b~0c", "must be a string, not an object"},
		{"a label twice", beat(`,"labels":{"a":"1","a":"2"}`), "/labels/a", "twice"},
		{"an empty group", beat(`,"group":""`), "/group", "is empty"},
		{"an incarnation that is a boolean", beat(`,"incarnation":true`), "/incarnation", "must be a string, not a boolean"},
		{"bytes that are not UTF-8", beat(`,"incarnation":"` + "\xff" + `"`), "", "not UTF-8 from byte 69"},
		{"a lone high surrogate", beat(`,"incarnation":"\ud83d"`), "/incarnation", "surrogate"},
		{"a lone low surrogate", beat(`,"incarnation":"\ude00"`), "/incarnation", "surrogate"},
		{"two high surrogates", beat(`,"incarnation":"\ud83d\ud83d"`), "/incarnation", "surrogate"},
		{"a lone surrogate in an unknown key", beat(`,"x":{"y":"\ud83d"}`), "/x", "surrogate"},
		{"an unknown escape", beat(`,"incarnation":"\x41"`), "/incarnation", "escape"},
		{"a short escape", beat(`,"incarnation":"\u12g4"`), "/incarnation", "hexadecimal"},
		{"a raw line feed", beat(`,"incarnation":"a` + "\n" + `"`), "/incarnation", "control character"},
		{"mismatched brackets", beat(`,"x":[{"a":1]`), "/x", `a comma or '}'`},
		{"depth 33", beat(`,"x":` + nest("[", "", "]", MaxDepth)), "/x", "deeper than 32"},
		{"depth 33 in objects", beat(`,"x":` + nest(`{"a":`, "1", "}", MaxDepth)), "/x", "deeper than 32"},
		{"a hundred thousand brackets", beat(`,"x":` + strings.Repeat("[", 100_000)), "/x", "deeper than 32"},
		{"a hundred thousand brackets alone", strings.Repeat("[", 100_000), "", "deeper than 32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := DecodeHeartbeat([]byte(tt.in))
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("error %v, want an InvalidError", err)
			}
			if !reflect.DeepEqual(h, Heartbeat{}) {
				t.Errorf("a refused heartbeat reads as %+v", h)
			}
			field := invalid.Fields[0]
			if len(invalid.Fields) != 1 || field.Pointer != tt.pointer || !strings.Contains(field.Detail, tt.detail) {
				t.Errorf("error %+v, want %s: …%s…", invalid.Fields, tt.pointer, tt.detail)
			}
		})
	}
}

func TestDecodeAcceptsTheDepthLimit(t *testing.T) {
	for _, inner := range []string{
		strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1),
		strings.Repeat(`{"a":[`, (MaxDepth-1)/2) + strings.Repeat(`]}`, (MaxDepth-1)/2),
		`[` + strings.Repeat(`[{}],`, 1000) + `{"a":[]}]`,
	} {
		if _, err := DecodeHeartbeat([]byte(beat(`,"x":` + inner))); err != nil {
			t.Errorf("%.40s…: %v", inner, err)
		}
	}
}

func TestDecodeNamesAllWrongFields(t *testing.T) {
	_, err := DecodeShutdown([]byte(`{"intent":"spot","initiated_at":"yesterday","subscriptions":[1,"a",{}],"in_flight_count":"7","metadata":[]}`))
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v, want an InvalidError", err)
	}
	var pointers []string
	for _, f := range invalid.Fields {
		pointers = append(pointers, f.Pointer)
	}
	want := []string{
		"/intent", "/initiated_at", "/subscriptions/0", "/subscriptions/2", "/in_flight_count", "/metadata", "/instance_id", "/expected_completion_at",
	}
	if !slices.Equal(pointers, want) {
		t.Errorf("pointers %v, want %v", pointers, want)
	}
}

func TestDecodeBoundsItsErrors(t *testing.T) {
	_, err := DecodeHeartbeat([]byte(beat(`,"subscriptions":[` + strings.Repeat("1,", 10_000) + `1]`)))
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Fields) != maxFieldErrors {
		t.Errorf("error %.200v, want %d fields", err, maxFieldErrors)
	}
}

func fuzzSeeds(f *testing.F, kind string) {
	f.Helper()
	file, err := os.ReadFile("testdata/wire.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(file) {
		var v wireVector
		if err := json.Unmarshal(line, &v); err != nil {
			f.Fatal(err)
		}
		if v.Type == kind {
			f.Add([]byte(v.Input))
		}
	}
	for _, seed := range []string{`{"a":[[[{}]]],"a":1}`, `{"x":"\ud83d\ude00\u0000"}`, `{"x":-1.5E+3}`, `[`, `{"x":NaN}`, "{\"x\":\"\xff\"}"} {
		f.Add([]byte(seed))
	}
}

// fuzzMessage states what holds for every input: a refusal is an InvalidError; what is accepted is JSON for the standard
// library too, and survives encoding; its encoding is stable.
func fuzzMessage[M any](t *testing.T, data []byte, decode func([]byte) (M, error), encode func(M) []byte) {
	first, err := decode(data)
	if err != nil {
		var invalid *InvalidError
		if !errors.As(err, &invalid) || len(invalid.Fields) == 0 {
			t.Fatalf("refused with %T %v", err, err)
		}
		return
	}
	if !json.Valid(data) {
		t.Fatalf("accepted %q, which is not JSON", data)
	}
	text := encode(first)
	second, err := decode(text)
	if err != nil {
		t.Fatalf("%q is encoded as %q, which is refused: %v", data, text, err)
	}
	if again := encode(second); !bytes.Equal(again, text) {
		t.Fatalf("%q is encoded as %q, then as %q", data, text, again)
	}
	if a, b := inUTC(first), inUTC(second); !reflect.DeepEqual(a, b) {
		t.Fatalf("%q reads as %+v, its encoding as %+v", data, a, b)
	}
}

// inUTC makes messages comparable: equal instants in equal offsets have different location pointers.
func inUTC(m any) any {
	switch m := m.(type) {
	case Heartbeat:
		m.Timestamp = m.Timestamp.UTC()
		return m
	case Shutdown:
		m.InitiatedAt, m.ExpectedCompletionAt = m.InitiatedAt.UTC(), m.ExpectedCompletionAt.UTC()
		return m
	case Assignment:
		m.AssignedAt = m.AssignedAt.UTC()
		return m
	}
	return m
}

func FuzzDecodeHeartbeat(f *testing.F) {
	fuzzSeeds(f, "heartbeat")
	f.Fuzz(func(t *testing.T, data []byte) { fuzzMessage(t, data, DecodeHeartbeat, EncodeHeartbeat) })
}

func FuzzDecodeShutdown(f *testing.F) {
	fuzzSeeds(f, "shutdown")
	f.Fuzz(func(t *testing.T, data []byte) { fuzzMessage(t, data, DecodeShutdown, EncodeShutdown) })
}

func FuzzDecodeAssignment(f *testing.F) {
	fuzzSeeds(f, "work_assignment")
	f.Fuzz(func(t *testing.T, data []byte) { fuzzMessage(t, data, DecodeAssignment, EncodeAssignment) })
}
