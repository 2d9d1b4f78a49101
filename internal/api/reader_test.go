package api

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
	"github.com/coordsvc/coordsvc/internal/coordination"
)

func TestReaderNamesWhatIsWrongWithABody(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body    string
		pointer string
		detail  string
		broken  bool
	}{
		"an empty body":                {"", "", "the body ends where", true},
		"only white space":             {" \n\t", "", "the body ends where", true},
		"no object":                    {`[]`, "", "must be an object, not an array", false},
		"null":                         {`null`, "", "must be an object, not null", false},
		"truncated in an object":       {`{"instance_id":"a"`, "/instance_id", `a comma or '}'`, true},
		"truncated in a string":        {`{"instance_id":"a`, "/instance_id", "the end of a string", true},
		"truncated in an array":        {`{"subscriptions":["a","b`, "/subscriptions/1", "the end of a string", true},
		"truncated after a comma":      {`{"subscriptions":["a",`, "/subscriptions/1", "the body ends", true},
		"truncated in a literal":       {`{"is_leader":tru`, "/is_leader", "a JSON value", true},
		"truncated in a number":        {`{"load_factor":1.`, "/load_factor", "a digit", true},
		"trailing data":                {`{"instance_id":"a"} {}`, "", "goes on after its end at byte 20", true},
		"a comma too many":             {`{"instance_id":"a",}`, "", "a quoted key", true},
		"a comma too many in an array": {`{"subscriptions":["a",]}`, "/subscriptions/1", "a JSON value", true},
		"a missing colon":              {`{"instance_id" "a"}`, "/instance_id", "a colon", true},
		"a key that stands twice":      {`{"instance_id":"a","instance_id":"b"}`, "/instance_id", "stands twice", false},
		"an escaped key that does":     {`{"instance_id":"a","instance\u005fid":"b"}`, "/instance_id", "stands twice", false},
		"an unknown key that does":     {`{"x":1,"x":2}`, "/x", "stands twice", false},
		"a label that does":            {`{"labels":{"a/b":"1","a/b":"2"}}`, "/labels/a~1b", "stands twice", false},
		"NaN":                          {`{"load_factor":NaN}`, "/load_factor", "is 'N' where a JSON value should be", true},
		"Infinity":                     {`{"load_factor":-Infinity}`, "/load_factor", "a digit", true},
		"a number beyond 64 bits":      {`{"load_factor":1e999}`, "/load_factor", "finite", false},
		"a leading zero":               {`{"in_flight_count":01}`, "/in_flight_count", "leading zero", true},
		"a fraction for an integer":    {`{"in_flight_count":1.0}`, "/in_flight_count", "without a fraction", false},
		"an integer beyond 64 bits":    {`{"in_flight_count":9223372036854775808}`, "/in_flight_count", "64 bits", false},
		"a string for an integer":      {`{"in_flight_count":"1"}`, "/in_flight_count", "must be an integer, not a string", false},
		"a number for a string":        {`{"instance_id":1}`, "/instance_id", "must be a string, not a number", false},
		"a boolean for an array":       {`{"subscriptions":true}`, "/subscriptions", "must be an array of strings, not a boolean", false},
		"a string for an array":        {`{"subscriptions":"a"}`, "/subscriptions", "must be an array of strings, not a string", false},
		"an object in an array":        {`{"subscriptions":["a",{"b":[]}]}`, "/subscriptions/1", "must be a string, not an object", false},
		"null in an array":             {`{"subscriptions":[null]}`, "/subscriptions/0", "must be a string, not null", false},
		"an array for an object":       {`{"labels":[]}`, "/labels", "must be an object, not an array", false},
		"a number for a label":         {`{"labels":{"a~b":1}}`, "/labels/a~0b", "must be a string, not a number", false},
		"a string for a boolean":       {`{"is_leader":"true"}`, "/is_leader", "must be true or false, not a string", false},
		"a number for a timestamp":     {`{"timestamp":1785153600}`, "/timestamp", "must be a string, not a number", false},
		"bytes that are not UTF-8":     {"{\"instance_id\":\"a\xff\"}", "/instance_id", "not UTF-8", true},
		"a key that is not UTF-8":      {"{\"a\xff\":1}", "", "not UTF-8", true},
		"half of a surrogate pair":     {`{"instance_id":"\ud83d"}`, "/instance_id", "surrogate", true},
		"the wrong half":               {`{"instance_id":"\ud83d\ud83d"}`, "/instance_id", "surrogate", true},
		"an unknown escape":            {`{"instance_id":"\x"}`, "/instance_id", "not one of JSON's", true},
		"a raw newline in a string":    {"{\"instance_id\":\"a\nb\"}", "/instance_id", "control character", true},
		"brackets 100,000 deep":        {`{"labels":` + strings.Repeat("[", 100_000), "/labels", "nests deeper than 32", true},
		"an unknown key 100,000 deep":  {`{"x":` + strings.Repeat(`{"a":[`, 50_000), "/x", "nests deeper than 32", true},
		"one level too deep":           {`{"x":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "}", "/x", "nests deeper than 32", true},
		"a mess in an unknown key":     {`{"x":[1,{"a":]}`, "/x", "a JSON value", true},
		"mismatched brackets":          {`{"x":[1}`, "/x", "a comma or the end", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r reader
			var hb coordination.Heartbeat
			err := r.decodeHeartbeat([]byte(tt.body), &hb)
			var broken *brokenError
			if errors.As(err, &broken) {
				assert.True(t, tt.broken, "broken: %v", err)
				assert.Equal(t, tt.pointer, broken.pointer)
				assert.Contains(t, broken.detail, tt.detail)
				return
			}
			var wrong *typeError
			require.ErrorAs(t, err, &wrong)
			assert.False(t, tt.broken, "not broken: %v", err)
			require.Len(t, wrong.fields, 1)
			assert.Equal(t, tt.pointer, wrong.fields[0].Pointer)
			assert.Contains(t, wrong.fields[0].Detail, tt.detail)
		})
	}
}

func TestReaderListsAllWrongTypesTogetherUpToALimit(t *testing.T) {
	t.Parallel()
	var r reader
	var hb coordination.Heartbeat
	err := r.decodeHeartbeat([]byte(`{"instance_id":1,"is_leader":"x","subscriptions":["a",2],"load_factor":[]}`), &hb)
	var wrong *typeError
	require.ErrorAs(t, err, &wrong)
	pointers := make([]string, 0, len(wrong.fields))
	for _, f := range wrong.fields {
		pointers = append(pointers, f.Pointer)
	}
	assert.Equal(t, []string{"/instance_id", "/is_leader", "/subscriptions/1", "/load_factor"}, pointers)

	err = r.decodeHeartbeat([]byte(`{"subscriptions":[`+strings.Repeat("1,", 5000)+`1]}`), &hb)
	require.ErrorAs(t, err, &wrong)
	assert.Len(t, wrong.fields, maxFaults)
}

func TestReaderReadsWhatIsRight(t *testing.T) {
	t.Parallel()
	var r reader
	var hb coordination.Heartbeat
	body := `{ "instance_id" : "w\u00f6rker\/1 \ud83d\ude00\n" , "group":null,"timestamp":"2026-07-27T14:00:00.5+02:00",
		"subscriptions":["b","a","b","名前"],"in_flight_count":0,"is_leader":true,"load_factor":-0.5e1,
		"incarnation":"i","labels":{"zone":"eu","":"x"},"INSTANCE_ID":7,"future":{"a":[{},[],[1,2.5e-3,"x",null,true,false]]}}`
	require.NoError(t, r.decodeHeartbeat([]byte(body), &hb))
	assert.Equal(t, "wörker/1 😀\n", hb.InstanceID)
	assert.Equal(t, "default", hb.Group)
	assert.Equal(t, "2026-07-27T12:00:00.5Z", hb.Timestamp.UTC().Format("2006-01-02T15:04:05.9Z"))
	assert.Equal(t, []string{"b", "a", "名前"}, hb.Subscriptions)
	assert.True(t, hb.HasSubscriptions)
	assert.True(t, hb.HasInFlight)
	assert.True(t, hb.IsLeader)
	assert.InDelta(t, -5, hb.LoadFactor, 0)
	assert.Equal(t, "i", hb.Incarnation)
	assert.Equal(t, map[string]string{"zone": "eu", "": "x"}, hb.Labels)
}

func TestReaderTellsPresentFromAbsent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body                    string
		subscriptions, inFlight bool
	}{
		"both":    {`{"subscriptions":[],"in_flight_count":0}`, true, true},
		"neither": {`{}`, false, false},
		"null":    {`{"subscriptions":null,"in_flight_count":null}`, false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r reader
			var hb coordination.Heartbeat
			require.NoError(t, r.decodeHeartbeat([]byte(tt.body), &hb))
			assert.Equal(t, tt.subscriptions, hb.HasSubscriptions)
			assert.Equal(t, tt.inFlight, hb.HasInFlight)
		})
	}
}

func TestReaderFindsRepetitionsAmongManyKeys(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"labels":{`)
	for i := range 2000 {
		b.WriteString(`"k` + strconv.Itoa(i) + `":"v",`)
	}
	body := b.String()
	var r reader
	var hb coordination.Heartbeat
	require.NoError(t, r.decodeHeartbeat([]byte(body+`"last":"v"},"labels2":1}`), &hb))
	err := r.decodeHeartbeat([]byte(body+`"k7":"v"},"labels2":1,"labels2":2}`), &hb)
	var wrong *typeError
	require.ErrorAs(t, err, &wrong)
	require.Len(t, wrong.fields, 2)
	assert.Equal(t, "/labels/k7", wrong.fields[0].Pointer)
	assert.Equal(t, "/labels2", wrong.fields[1].Pointer)
}

func TestReaderKeepsNothingOfTheBuffer(t *testing.T) {
	t.Parallel()
	data := []byte(`{"instance_id":"worker","incarnation":"first","labels":{"zone":"eu"},"subscriptions":["a","b"],"group":"orders"}`)
	var r reader
	var hb coordination.Heartbeat
	require.NoError(t, r.decodeHeartbeat(data, &hb))
	before, err := json.Marshal(hb)
	require.NoError(t, err)
	for i := range data {
		data[i] = '#'
	}
	after, err := json.Marshal(hb)
	require.NoError(t, err)
	assert.JSONEq(t, string(before), string(after))

	data = []byte(`{"instance_id":"w","intent":"graceful","metadata":{"a": [1]}}`)
	var s apigen.ShutdownRequest
	require.NoError(t, r.decode(data, &s))
	for i := range data {
		data[i] = '#'
	}
	assert.JSONEq(t, `{"a":[1]}`, string(*s.Metadata))
	assert.NotContains(t, string(*s.Metadata), " ")
}

func TestBatchNamesTheHeartbeatByItsPlace(t *testing.T) {
	t.Parallel()
	var r reader
	items, err := r.decodeBatch([]byte(`{"heartbeats":[{"instance_id":"a"},{"instance_id":"b","in_flight_count":"x"},7]}`), 10)
	require.NoError(t, err)
	require.Len(t, items, 3)
	require.NoError(t, items[0].err)
	for i, pointer := range map[int]string{1: "/heartbeats/1/in_flight_count", 2: "/heartbeats/2"} {
		var wrong *typeError
		require.ErrorAs(t, items[i].err, &wrong)
		require.Len(t, wrong.fields, 1)
		assert.Equal(t, pointer, wrong.fields[0].Pointer)
	}

	items, err = r.decodeBatch([]byte(`{"more":{},"heartbeats":[{"instance_id":"a"},{"instance_id":"b","timestamp":"2026-07-27T12:00:00"}]}`), 2)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.NoError(t, items[0].err)
	require.ErrorIs(t, items[1].err, coordination.ErrInvalid)

	for name, body := range map[string]string{
		"too many": `{"heartbeats":[{},{},{}]}`, "missing": `{}`, "null": `{"heartbeats":null}`,
	} {
		_, err = r.decodeBatch([]byte(body), 2)
		var invalid *coordination.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		assert.Equal(t, "/heartbeats", invalid.Fields[0].Pointer, name)
	}
}

func TestDurationsThatDoNotFitBecomeTheNearest(t *testing.T) {
	t.Parallel()
	assert.EqualValues(t, math.MaxInt64, duration(1e300))
	assert.EqualValues(t, math.MinInt64, duration(-1e300))
	assert.EqualValues(t, 1_500_000_000, duration(1.5))
	assert.EqualValues(t, 0, duration(0))
}

// FuzzReader holds the reader against encoding/json: what ours takes is JSON, and what is JSON ours takes, but
// for what it refuses on purpose. Both read the same from it.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"instance_id":"a","subscriptions":["x","y"],"in_flight_count":3,"load_factor":0.5,"is_leader":true,"labels":{"a":"b"}}`,
		`{"x":[[{"y":[1,-2.5e+7,null]}]],"group":"\u00e9\ud83d\ude00"}`, `{"instance_id":"a",}`, `[1,2]`, `{"a":01}`, "{\"\xff\":1}", `{"timestamp":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r reader
		var hb coordination.Heartbeat
		err := r.decodeHeartbeat(data, &hb)
		var broken *brokenError
		if !errors.As(err, &broken) && !json.Valid(data) {
			t.Fatalf("took what is not JSON: %q (%v)", data, err)
		}
		if broken != nil && json.Valid(data) && !refusedOnPurpose(broken.detail) {
			t.Fatalf("refused JSON %q: %v", data, err)
		}
		if err != nil {
			return
		}
		var theirs struct {
			InstanceID    *string           `json:"instance_id"`
			Subscriptions *[]string         `json:"subscriptions"`
			InFlightCount *int64            `json:"in_flight_count"`
			LoadFactor    *float64          `json:"load_factor"`
			Labels        map[string]string `json:"labels"`
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(data, &keys); err != nil {
			t.Fatalf("not an object: %q: %v", data, err)
		}
		exact, err := json.Marshal(map[string]json.RawMessage{
			"instance_id": orNullJSON(keys["instance_id"]), "subscriptions": orNullJSON(keys["subscriptions"]),
			"in_flight_count": orNullJSON(keys["in_flight_count"]), "load_factor": orNullJSON(keys["load_factor"]),
			"labels": orNullJSON(keys["labels"]),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(exact, &theirs); err != nil {
			t.Fatalf("encoding/json refuses the types of %q: %v", data, err)
		}
		assert.Equal(t, value(theirs.InstanceID), hb.InstanceID)
		assert.Equal(t, theirs.InFlightCount != nil, hb.HasInFlight)
		assert.Equal(t, value(theirs.InFlightCount), hb.InFlightCount)
		assert.InDelta(t, value(theirs.LoadFactor), hb.LoadFactor, 0)
		assert.Equal(t, theirs.Subscriptions != nil, hb.HasSubscriptions)
		assert.Equal(t, coordination.FoldDuplicates(value(theirs.Subscriptions)), hb.Subscriptions)
		assert.Len(t, hb.Labels, len(theirs.Labels))
	})
}

func orNullJSON(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// refusedOnPurpose are the things that encoding/json lets pass.
func refusedOnPurpose(detail string) bool {
	for _, why := range []string{"nests deeper", "not UTF-8", "surrogate"} {
		if strings.Contains(detail, why) {
			return true
		}
	}
	return false
}
