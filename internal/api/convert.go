package api

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/coordsvc/coordsvc/internal/coordination"
	"github.com/coordsvc/coordsvc/internal/service"
)

// shown is a time as answers have it: UTC, to the microsecond.
func shown(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// orNull is null for the zero time.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = shown(t)
	return &t
}

// textOrNull is null for the empty string.
func textOrNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

// seconds is null for nil.
func seconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	s := d.Seconds()
	return &s
}

// duration turns seconds into a Duration; what does not fit becomes the nearest that does, for validation to judge.
func duration(s float64) time.Duration {
	ns := s * float64(time.Second)
	switch {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	}
	return time.Duration(math.Round(ns))
}

// each maps a slice; never nil, so that an empty list is [] in JSON.
func each[From, To any](from []From, convert func(From) To) []To {
	to := make([]To, len(from))
	for i := range from {
		to[i] = convert(from[i])
	}
	return to
}

// orEmpty makes nil an empty slice.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orEmptyMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// object is raw JSON that must be an object; nil is an empty one.
func object(raw []byte) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// value is what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// wrongFields collects what the entrance itself must judge, because nobody behind it could: the text of timestamps, and
// a group that is named but empty. All that is wrong is reported together.
type wrongFields []coordination.FieldError

func (w *wrongFields) add(pointer, detail string) {
	*w = append(*w, coordination.FieldError{Pointer: pointer, Detail: detail})
}

func (w wrongFields) err() error {
	if len(w) == 0 {
		return nil
	}
	return &coordination.InvalidError{Fields: w}
}

// time reads an optional timestamp; the zero time when it is absent.
func (w *wrongFields) time(pointer string, text *string) time.Time {
	if text == nil {
		return time.Time{}
	}
	t, err := coordination.ParseTimestamp(*text)
	if err != nil {
		w.add(pointer, err.Error())
	}
	return t
}

// group is the group that a request names, or the default one.
func (w *wrongFields) group(name *string) string {
	switch {
	case name == nil:
		return coordination.DefaultGroup
	case *name == "":
		w.add("/group", "is empty; name a group or leave it out")
	}
	return *name
}

// peerKey is the peer that a path names.
func peerKey(id string, group *string) (coordination.PeerKey, error) {
	var wrong wrongFields
	key := coordination.PeerKey{Group: wrong.group(group), InstanceID: id}
	return key, wrong.err()
}

// page is what a list was asked for. The service treats 0 as the default, which an explicit 0 is not.
func page(limit *int, cursor *string) (service.Page, error) {
	if limit != nil && *limit == 0 {
		return service.Page{}, invalid("/limit", "is 0; it must be from 1 to 1000")
	}
	return service.Page{Limit: value(limit), Cursor: value(cursor)}, nil
}

// known refuses values of an enumerated filter that do not exist: they would find nothing for a reason nobody sees.
func known[From interface {
	~string
	Valid() bool
}, To ~string](pointer string, values *[]From) ([]To, error) {
	if values == nil {
		return nil, nil
	}
	out := make([]To, 0, len(*values))
	for _, v := range *values {
		if !v.Valid() {
			return nil, invalid(pointer, fmt.Sprintf("%q is not one of those that there are", string(v)))
		}
		out = append(out, To(v))
	}
	return out, nil
}

// knownOne is known for a filter that takes one value.
func knownOne[From interface {
	~string
	Valid() bool
}, To ~string](pointer string, v *From) (To, error) {
	if v == nil {
		return "", nil
	}
	if !(*v).Valid() {
		return "", invalid(pointer, fmt.Sprintf("%q is not one of those that there are", string(*v)))
	}
	return To(*v), nil
}

// location is where a record that was made can be read.
func (a *API) location(collection, id string) string {
	return a.opts.BasePath + collection + "/" + url.PathEscape(id)
}

// sendJSON writes a body that is not the strict server's.
func (a *API) sendJSON(w http.ResponseWriter, status int, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(raw); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
