package api

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/coordsvc/coordsvc/internal/api/apigen"
)

const (
	// maxDepth is how deeply a body may nest, its own object counted.
	maxDepth = 32
	// maxFaults bounds how many wrong fields one answer lists; a hostile body could have thousands.
	maxFaults = 20
	// scannedKeys is up to where an object's keys are compared one with another to find repetitions; above, a map is used.
	scannedKeys = 16
)

// reader walks once over one JSON text (RFC 8259), without recursion. Values of a wrong type are collected, so that
// one answer names them all; a text that is not JSON ends the reading: broken is set and every further step does nothing.
//
// Keys must match exactly and stand once in every object that is read (not merely skipped): which of two counts would
// differ between readers.
type reader struct {
	data []byte
	pos  int
	// path leads to the value at the cursor; the decoders go four levels deep at most.
	path  [6]step
	depth int
	// keys are those seen in the open objects; each object knows where its own begin.
	keys   [][]byte
	faults []apigen.FieldError
	broken *brokenError
}

// step is one token of a JSON pointer: an object's raw key between its quotes (nil before the first), or an index.
type step struct {
	name   []byte
	index  int
	object bool
	// firstKey is where this object's keys begin in reader.keys; seen takes over when there are many.
	firstKey int
	seen     map[string]struct{}
}

// brokenError says why a body is not JSON that can be read.
type brokenError struct {
	pointer string
	detail  string
}

func (e *brokenError) Error() string { return e.detail }

// typeError lists values of a wrong type or keys that stand twice.
type typeError struct{ fields []apigen.FieldError }

func (e *typeError) Error() string {
	parts := make([]string, len(e.fields))
	for i, f := range e.fields {
		parts[i] = strings.TrimSpace(f.Pointer + " " + f.Detail)
	}
	return strings.Join(parts, "; ")
}

// reset makes r ready for another body.
func (r *reader) reset(data []byte) {
	*r = reader{data: data, keys: r.keys[:0]}
}

// end is the verdict once the body's value has been read.
func (r *reader) end() error {
	if r.broken == nil {
		r.peek()
		if r.pos < len(r.data) {
			r.depth = 0
			r.breakf("the body goes on after its end at byte %d; send one JSON object", r.pos)
		}
	}
	if r.broken != nil {
		return r.broken
	}
	if len(r.faults) > 0 {
		return &typeError{r.faults}
	}
	return nil
}

func (r *reader) breakf(format string, args ...any) {
	if r.broken == nil {
		r.broken = &brokenError{pointer: r.pointer(), detail: fmt.Sprintf(format, args...)}
	}
}

func (r *reader) unexpected(want string) {
	if r.pos >= len(r.data) {
		r.breakf("the body ends where %s should be", want)
		return
	}
	c, _ := utf8.DecodeRune(r.data[r.pos:])
	r.breakf("byte %d is %q where %s should be", r.pos, c, want)
}

func (r *reader) fault(detail string) {
	if r.broken == nil && len(r.faults) < maxFaults {
		r.faults = append(r.faults, apigen.FieldError{Pointer: r.pointer(), Detail: detail})
	}
}

// pointer is the JSON pointer of the value at the cursor.
func (r *reader) pointer() string {
	var b strings.Builder
	for _, s := range r.path[:r.depth] {
		if !s.object {
			b.WriteByte('/')
			b.WriteString(strconv.Itoa(s.index))
			continue
		}
		if s.name == nil {
			continue
		}
		b.WriteByte('/')
		name := strings.ToValidUTF8(unescape(s.name), "\uFFFD")
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// peek skips white space and returns the byte at the cursor, 0 at the end or once the text is broken.
func (r *reader) peek() byte {
	if r.broken != nil {
		return 0
	}
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

func (r *reader) take(c byte) bool {
	if r.peek() != c || r.pos >= len(r.data) {
		return false
	}
	r.pos++
	return true
}

// absent steps over null, which means that the field is not there.
func (r *reader) absent() bool { return r.peek() == 'n' && r.literal("null") }

// object steps into an object; false when the value is not one.
func (r *reader) object() bool {
	if r.peek() != '{' {
		r.mistyped("an object")
		return false
	}
	r.pos++
	r.path[r.depth] = step{index: -1, object: true, firstKey: len(r.keys)}
	r.depth++
	return true
}

// next moves to the value of the object's next key; false at the object's end.
func (r *reader) next() bool {
	s := &r.path[r.depth-1]
	for r.separated(s, '}') {
		s.name = nil
		if r.peek() != '"' {
			r.unexpected("a quoted key")
			return false
		}
		s.name, _ = r.rawString()
		if !r.take(':') {
			r.unexpected("a colon")
			return false
		}
		if !r.repeated(s) {
			return r.broken == nil
		}
		r.fault("stands twice; send it once")
		r.skip()
	}
	r.keys = r.keys[:s.firstKey]
	return false
}

// separated steps over the comma before the next element, or out of the container; s.index counts the elements.
func (r *reader) separated(s *step, closing byte) bool {
	if r.take(closing) {
		r.depth--
		return false
	}
	if s.index >= 0 && !r.take(',') {
		r.unexpected("a comma or " + strconv.QuoteRune(rune(closing)))
	}
	s.index++
	return r.broken == nil
}

// name is the key of the value at the cursor. Escapes in it are resolved; that is rare.
func (r *reader) name() []byte {
	raw := r.path[r.depth-1].name
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return []byte(unescape(raw))
}

// repeated tells whether the current key stood earlier in the same object.
func (r *reader) repeated(s *step) bool {
	name := r.name()
	if s.seen == nil {
		own := r.keys[s.firstKey:]
		for i := range own {
			if bytes.Equal(own[i], name) {
				return true
			}
		}
		if len(own) < scannedKeys {
			r.keys = append(r.keys, name)
			return false
		}
		s.seen = make(map[string]struct{}, 2*scannedKeys)
		for i := range own {
			s.seen[string(own[i])] = struct{}{}
		}
	}
	if _, twice := s.seen[string(name)]; twice {
		return true
	}
	s.seen[string(name)] = struct{}{}
	return false
}

// array steps into an array; false when the value is not one.
func (r *reader) array(of string) bool {
	if r.peek() != '[' {
		r.mistyped("an array of " + of)
		return false
	}
	r.pos++
	r.path[r.depth] = step{index: -1, firstKey: len(r.keys)}
	r.depth++
	return true
}

// element moves to the array's next element; false at its end.
func (r *reader) element() bool { return r.separated(&r.path[r.depth-1], ']') }

// mistyped records a value of the wrong type and steps over it.
func (r *reader) mistyped(want string) {
	kind := r.kind()
	at := len(r.faults)
	r.fault("must be " + want + ", not " + kind)
	r.skip()
	if r.broken != nil {
		r.faults = r.faults[:min(at, len(r.faults))]
	}
}

func (r *reader) kind() string {
	switch c := r.peek(); c {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// text reads a string.
func (r *reader) text() (string, bool) {
	if r.peek() != '"' {
		r.mistyped("a string")
		return "", false
	}
	raw, escaped := r.rawString()
	if r.broken != nil {
		return "", false
	}
	if escaped {
		return unescape(raw), true
	}
	return string(raw), true
}

// rawString steps over a string, checks all of it and returns what stands between the quotes.
func (r *reader) rawString() (raw []byte, escaped bool) {
	r.pos++
	start := r.pos
	unusual := false
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			raw = r.data[start:r.pos]
			if unusual && !utf8.Valid(raw) {
				r.breakf("the string at byte %d is not UTF-8", start)
			}
			r.pos++
			return raw, escaped
		case c == '\\':
			escaped = true
			if !r.escape() {
				return nil, false
			}
		case c < 0x20:
			r.breakf("byte %d is an unescaped control character in a string", r.pos)
			return nil, false
		default:
			unusual = unusual || c >= utf8.RuneSelf
			r.pos++
		}
	}
	r.unexpected("the end of a string")
	return nil, false
}

// escape steps over one escape; a surrogate must stand in a pair.
func (r *reader) escape() bool {
	if r.pos+1 < len(r.data) {
		switch r.data[r.pos+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			r.pos += 2
			return true
		case 'u':
			first, ok := hexRune(r.data[r.pos:])
			if !ok {
				break
			}
			r.pos += 6
			if !utf16.IsSurrogate(first) {
				return true
			}
			second, ok := hexRune(r.data[r.pos:])
			if !ok || utf16.DecodeRune(first, second) == utf8.RuneError {
				r.breakf("the escape before byte %d is half of a surrogate pair", r.pos)
				return false
			}
			r.pos += 6
			return true
		}
	}
	r.breakf("the escape at byte %d is not one of JSON's", r.pos)
	return false
}

// hexRune reads \uXXXX at the beginning of data.
func hexRune(data []byte) (rune, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	value, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(value), err == nil
}

// unescape resolves the escapes of a checked string.
func unescape(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 >= len(raw) {
			out = append(out, raw[i])
			i++
			continue
		}
		if raw[i+1] != 'u' {
			out = append(out, plainEscape(raw[i+1]))
			i += 2
			continue
		}
		c, _ := hexRune(raw[i:])
		i = min(i+6, len(raw))
		if utf16.IsSurrogate(c) {
			low, _ := hexRune(raw[i:])
			c = utf16.DecodeRune(c, low)
			i = min(i+6, len(raw))
		}
		out = utf8.AppendRune(out, c)
	}
	return string(out)
}

func plainEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// literal steps over true, false or null.
func (r *reader) literal(word string) bool {
	if r.broken != nil {
		return false
	}
	if len(r.data)-r.pos < len(word) || string(r.data[r.pos:r.pos+len(word)]) != word {
		r.unexpected("a JSON value")
		return false
	}
	r.pos += len(word)
	return true
}

func (r *reader) boolean() (value, ok bool) {
	switch r.peek() {
	case 't':
		return true, r.literal("true")
	case 'f':
		return false, r.literal("false")
	}
	r.mistyped("true or false")
	return false, false
}

// integer reads a whole number written as one: 5.0 and 5e0 are refused.
func (r *reader) integer() (int64, bool) {
	if !r.atNumber() {
		r.mistyped("an integer")
		return 0, false
	}
	raw := r.number()
	if r.broken != nil {
		return 0, false
	}
	value, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		r.fault("must be an integer of at most 64 bits, without a fraction or an exponent")
		return 0, false
	}
	return value, true
}

func (r *reader) float() (float64, bool) {
	if !r.atNumber() {
		r.mistyped("a number")
		return 0, false
	}
	raw := r.number()
	if r.broken != nil {
		return 0, false
	}
	value, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		r.fault("must be a finite number that 64 bits can hold")
		return 0, false
	}
	return value, true
}

func (r *reader) atNumber() bool {
	c := r.peek()
	return c == '-' || isDigit(c)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// number steps over a number and returns its text.
func (r *reader) number() []byte {
	start := r.pos
	r.takeByte('-')
	if r.takeByte('0') {
		if r.pos < len(r.data) && isDigit(r.data[r.pos]) {
			r.breakf("the number at byte %d has a leading zero", start)
		}
	} else {
		r.digits()
	}
	if r.takeByte('.') {
		r.digits()
	}
	if r.takeByte('e') || r.takeByte('E') {
		if !r.takeByte('-') {
			r.takeByte('+')
		}
		r.digits()
	}
	return r.data[start:r.pos]
}

func (r *reader) takeByte(c byte) bool {
	if r.broken != nil || r.pos >= len(r.data) || r.data[r.pos] != c {
		return false
	}
	r.pos++
	return true
}

func (r *reader) digits() {
	start := r.pos
	for r.broken == nil && r.pos < len(r.data) && isDigit(r.data[r.pos]) {
		r.pos++
	}
	if r.pos == start {
		r.unexpected("a digit")
	}
}

// raw steps over any object and returns its text as it came.
func (r *reader) raw() ([]byte, bool) {
	if r.peek() != '{' {
		r.mistyped("an object")
		return nil, false
	}
	start := r.pos
	r.skip()
	return r.data[start:r.pos], r.broken == nil
}

// skip steps over any value. It keeps one bit a level (set: an object), so that no depth of brackets costs stack.
func (r *reader) skip() {
	var objects uint64
	level := 0
	for r.broken == nil {
		switch c := r.peek(); c {
		case '{', '[':
			if level+r.depth >= maxDepth {
				r.breakf("the body nests deeper than %d levels", maxDepth)
				return
			}
			r.pos++
			level++
			objects <<= 1
			if c == '{' {
				objects |= 1
			}
			if !r.closed(objects) {
				r.skipKey(objects)
				continue
			}
			level--
			objects >>= 1
		default:
			r.scalar()
		}
		for r.broken == nil && level > 0 && !r.take(',') {
			if !r.closed(objects) {
				r.unexpected("a comma or the end of a container")
				return
			}
			level--
			objects >>= 1
		}
		if level == 0 {
			return
		}
		r.skipKey(objects)
	}
}

func (r *reader) closed(objects uint64) bool {
	if objects&1 == 1 {
		return r.take('}')
	}
	return r.take(']')
}

func (r *reader) skipKey(objects uint64) {
	if objects&1 == 0 || r.broken != nil {
		return
	}
	if r.peek() != '"' {
		r.unexpected("a quoted key")
		return
	}
	r.rawString()
	if r.broken == nil && !r.take(':') {
		r.unexpected("a colon")
	}
}

func (r *reader) scalar() {
	switch c := r.peek(); c {
	case '"':
		r.rawString()
	case 't':
		r.literal("true")
	case 'f':
		r.literal("false")
	case 'n':
		r.literal("null")
	default:
		if c != '-' && !isDigit(c) {
			r.unexpected("a JSON value")
			return
		}
		r.number()
	}
}
