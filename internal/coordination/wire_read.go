package coordination

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxFieldErrors bounds how many wrong fields one error lists; a hostile message could have thousands.
const maxFieldErrors = 20

// fieldErrors collects what is wrong with one message.
type fieldErrors []FieldError

func (f *fieldErrors) add(pointer, detail string) {
	if len(*f) < maxFieldErrors {
		*f = append(*f, FieldError{Pointer: pointer, Detail: detail})
	}
}

func (f *fieldErrors) err() error {
	if len(*f) == 0 {
		return nil
	}
	return &InvalidError{Fields: *f}
}

// pointer escapes a key for a JSON pointer (RFC 6901).
func pointer(tokens ...string) string {
	var b strings.Builder
	for _, token := range tokens {
		b.WriteByte('/')
		token = strings.ReplaceAll(token, "~", "~0")
		b.WriteString(strings.ReplaceAll(token, "/", "~1"))
	}
	return b.String()
}

// wireReader reads the fields of one message. Wrong types are collected, so that one error names them all; a text
// that is not JSON ends the reading.
type wireReader struct {
	scan   scanner
	wrong  fieldErrors
	at     string
	known  uint32
	others map[string]struct{}
}

// read walks over the message's keys in names; field reads the value of names[i]. All other keys are checked and
// ignored, for a newer sender must not break an older receiver. A key that stands twice is refused: which of the
// two counts differs between readers.
func (r *wireReader) read(data []byte, names []string, field func(i int)) {
	r.scan.data = data
	if !utf8.Valid(data) {
		r.scan.failf("is not UTF-8 from byte %d on", validPrefix(data))
		return
	}
	if r.scan.peek() != '{' {
		r.scan.skip()
		r.scan.failf("must be a JSON object")
		return
	}
	r.scan.open('{')
	for first := true; r.scan.more(first, '}'); first = false {
		r.entry(names, field)
	}
	if r.scan.fault == "" {
		r.at = ""
	}
	r.scan.peek()
	if r.scan.pos < len(data) {
		r.scan.failf("goes on behind its end at byte %d; send one JSON object", r.scan.pos)
	}
}

func (r *wireReader) entry(names []string, field func(i int)) {
	r.at = ""
	key := r.scan.key()
	if r.scan.fault != "" {
		return
	}
	r.at = pointer(key)
	if r.repeated(names, key) {
		r.wrong.add(r.at, "stands twice; send it once")
		r.scan.skip()
		return
	}
	for i, name := range names {
		if name == key {
			field(i)
			return
		}
	}
	r.scan.skip()
}

func (r *wireReader) repeated(names []string, key string) bool {
	for i, name := range names {
		if name == key {
			seen := r.known&(1<<i) != 0
			r.known |= 1 << i
			return seen
		}
	}
	if r.others == nil {
		r.others = make(map[string]struct{})
	}
	_, seen := r.others[key]
	r.others[key] = struct{}{}
	return seen
}

// end is the verdict: what ended the reading, or else all wrong fields.
func (r *wireReader) end() error {
	if r.scan.fault != "" {
		return &InvalidError{Fields: []FieldError{{Pointer: r.at, Detail: r.scan.fault}}}
	}
	return r.wrong.err()
}

// require reports the keys that must be there and are not.
func (r *wireReader) require(missing bool, key string) {
	if !missing || r.scan.fault != "" {
		return
	}
	at := pointer(key)
	for _, f := range r.wrong {
		if f.Pointer == at {
			return
		}
	}
	r.wrong.add(at, "is required")
}

// absent steps over null, which means that the key is not there.
func (r *wireReader) absent() bool { return r.scan.literal("null") }

// mistyped records a value of the wrong type and steps over it.
func (r *wireReader) mistyped(at, want string) {
	kind := r.scan.kind()
	r.scan.skip()
	if r.scan.fault == "" {
		r.wrong.add(at, fmt.Sprintf("must be %s, not %s", want, kind))
	}
}

func (r *wireReader) text(to *string) {
	if r.absent() {
		return
	}
	if r.scan.peek() != '"' {
		r.mistyped(r.at, "a string")
		return
	}
	*to = r.scan.str()
}

// requiredText also tells a present empty string from a missing key.
func (r *wireReader) requiredText(to *string, present *bool) {
	*present = r.scan.peek() == '"'
	r.text(to)
}

func (r *wireReader) boolean(to *bool) {
	switch {
	case r.absent():
	case r.scan.literal("true"):
		*to = true
	case r.scan.literal("false"):
		*to = false
	default:
		r.mistyped(r.at, "true or false")
	}
}

// integer reads a whole number written as one: 5.0 and 5e0 are refused, as a generated client would.
func (r *wireReader) integer(to *int64) (present bool) {
	if r.absent() {
		return false
	}
	if !r.atNumber() {
		r.mistyped(r.at, "an integer")
		return true
	}
	text := r.scan.number()
	if r.scan.fault != "" {
		return true
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.wrong.add(r.at, "must be an integer of at most 64 bits, without a fraction or an exponent")
		return true
	}
	*to = value
	return true
}

func (r *wireReader) float(to *float64) {
	if r.absent() {
		return
	}
	if !r.atNumber() {
		r.mistyped(r.at, "a number")
		return
	}
	if text := r.scan.number(); r.scan.fault == "" {
		// The scanner has checked syntax and range.
		*to, _ = strconv.ParseFloat(text, 64)
	}
}

func (r *wireReader) atNumber() bool {
	c := r.scan.peek()
	if isDigit(c) {
		return true
	}
	return c == '-' && (r.scan.pos+1 >= len(r.scan.data) || r.scan.data[r.scan.pos+1] != 'I')
}

func (r *wireReader) timestamp(to *time.Time, present *bool) {
	if r.absent() {
		return
	}
	*present = true
	if r.scan.peek() != '"' {
		r.mistyped(r.at, "a timestamp string like "+strconv.Quote(timestampExample))
		return
	}
	value, err := ParseTimestamp(r.scan.str())
	if err != nil && r.scan.fault == "" {
		r.wrong.add(r.at, err.Error())
	}
	*to = value
}

// texts reads an array of strings and folds duplicates.
func (r *wireReader) texts(to *[]string) (present bool) {
	if r.absent() {
		return false
	}
	if r.scan.peek() != '[' {
		r.mistyped(r.at, "an array of strings")
		return true
	}
	r.scan.open('[')
	var values []string
	for n := 0; r.scan.more(n == 0, ']'); n++ {
		if r.scan.peek() != '"' {
			r.mistyped(r.at+"/"+strconv.Itoa(n), "a string")
			continue
		}
		values = append(values, r.scan.str())
	}
	*to = FoldDuplicates(values)
	return true
}

// labels reads an object of strings.
func (r *wireReader) labels() map[string]string {
	if r.absent() {
		return nil
	}
	if r.scan.peek() != '{' {
		r.mistyped(r.at, "an object of strings")
		return nil
	}
	r.scan.open('{')
	var labels map[string]string
	for first := true; r.scan.more(first, '}'); first = false {
		key := r.scan.key()
		if _, twice := labels[key]; twice && r.scan.fault == "" {
			r.wrong.add(r.at+pointer(key), "stands twice; send it once")
		}
		if r.scan.peek() != '"' {
			r.mistyped(r.at+pointer(key), "a string")
			continue
		}
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[key] = r.scan.str()
	}
	return labels
}

// object reads any JSON object and keeps its text without white space; an empty one is kept as nil.
func (r *wireReader) object(to *[]byte) {
	if r.absent() {
		return
	}
	if r.scan.peek() != '{' {
		r.mistyped(r.at, "an object")
		return
	}
	start := r.scan.pos
	r.scan.skip()
	if r.scan.fault != "" {
		return
	}
	if raw := compact(r.scan.data[start:r.scan.pos]); len(raw) > len("{}") {
		*to = raw
	}
}

// compact copies checked JSON without the white space between its tokens.
func compact(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	quoted := false
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case quoted && c == '\\':
			out = append(out, c)
			i++
			c = raw[i]
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		}
		out = append(out, c)
	}
	return out
}

// validPrefix is how many leading bytes are UTF-8.
func validPrefix(data []byte) int {
	at := 0
	for at < len(data) {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		at += n
	}
	return at
}
