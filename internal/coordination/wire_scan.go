package coordination

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deeply a message may nest, its own object counted.
const MaxDepth = 32

// scanner walks over one JSON text (RFC 8259) without recursion. It stops at the first fault and stays there:
// once fault is set every step does nothing.
type scanner struct {
	data []byte
	pos  int
	// depth counts the containers the reader itself has open around the cursor.
	depth int
	fault string
}

func (s *scanner) failf(format string, args ...any) {
	if s.fault == "" {
		s.fault = fmt.Sprintf(format, args...)
	}
}

// unexpected records that the cursor stands at something other than what would be right.
func (s *scanner) unexpected(want string) {
	switch {
	case s.pos >= len(s.data):
		s.failf("is not JSON: it ends where %s should be", want)
	default:
		r, _ := utf8.DecodeRune(s.data[s.pos:])
		s.failf("is not JSON: byte %d is %q where %s should be", s.pos, r, want)
	}
}

// peek skips white space and returns the byte at the cursor, 0 at the end or after a fault.
func (s *scanner) peek() byte {
	if s.fault != "" {
		return 0
	}
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// take steps over c if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.pos >= len(s.data) {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) must(c byte, want string) {
	if !s.take(c) {
		s.unexpected(want)
	}
}

// open steps into a container; it fails at the depth limit.
func (s *scanner) open(c byte) {
	s.must(c, strconv.QuoteRune(rune(c)))
	s.depth++
	if s.depth > MaxDepth {
		s.failf("nests deeper than %d levels", MaxDepth)
	}
}

// more steps over the comma before the next element, or out of the container at its end.
func (s *scanner) more(first bool, closing byte) bool {
	if s.take(closing) {
		s.depth--
		return false
	}
	if !first {
		s.must(',', fmt.Sprintf("a comma or %q", closing))
	}
	return s.fault == ""
}

// kind names the value at the cursor for a message.
func (s *scanner) kind() string {
	switch s.peek() {
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
	}
	return "a number"
}

// key reads an object's key and the colon behind it.
func (s *scanner) key() string {
	if s.peek() != '"' {
		s.unexpected("a quoted key")
		return ""
	}
	name := s.str()
	s.must(':', "a colon")
	return name
}

// str reads a string.
func (s *scanner) str() string {
	raw, escaped := s.rawString()
	if !escaped || s.fault != "" {
		return string(raw)
	}
	return unescape(raw)
}

// rawString steps over a string, checks it in full and returns what stands between its quotes.
func (s *scanner) rawString() (raw []byte, escaped bool) {
	s.must('"', "a string")
	start := s.pos
	for s.fault == "" {
		if s.pos >= len(s.data) {
			s.unexpected("the end of a string")
			break
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.data[start : s.pos-1], escaped
		case c == '\\':
			escaped = true
			s.escape()
		case c < 0x20:
			s.failf("is not JSON: byte %d is a control character inside a string", s.pos)
		default:
			s.pos++
		}
	}
	return nil, false
}

// escape steps over one escape sequence. A lone surrogate is refused: it is no character, and what one reader
// makes of it differs from the next.
func (s *scanner) escape() {
	at := s.pos
	s.pos++
	if s.pos >= len(s.data) {
		s.unexpected("an escape sequence")
		return
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return
	case 'u':
		s.pos++
	default:
		s.unexpected("an escape sequence")
		return
	}
	r, ok := hex4(s.data[s.pos:])
	if !ok {
		s.failf("is not JSON: byte %d begins an escape that lacks its four hexadecimal digits", at)
		return
	}
	s.pos += 4
	if !utf16.IsSurrogate(r) {
		return
	}
	low, ok := lowSurrogate(s.data[s.pos:])
	if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
		s.failf("holds half of a surrogate pair at byte %d; send whole characters", at)
		return
	}
	s.pos += 6
}

func lowSurrogate(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	return hex4(b[2:])
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape resolves the escapes of a string that rawString has checked.
func unescape(raw []byte) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			continue
		}
		i++
		if raw[i] != 'u' {
			out = append(out, shortEscape(raw[i]))
			continue
		}
		r, _ := hex4(raw[i+1:])
		i += 4
		if utf16.IsSurrogate(r) {
			low, _ := lowSurrogate(raw[i+1:])
			r = utf16.DecodeRune(r, low)
			i += 6
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

func shortEscape(c byte) byte {
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

// number steps over a number and returns its text. One that no double can hold is refused: readers turn it
// into infinity.
func (s *scanner) number() string {
	s.peek()
	start := s.pos
	s.takeByte('-')
	if !s.takeByte('0') {
		s.digits()
	}
	integer := true
	if s.takeByte('.') {
		integer = false
		s.digits()
	}
	if s.takeByte('e') || s.takeByte('E') {
		integer = false
		_ = s.takeByte('+') || s.takeByte('-')
		s.digits()
	}
	if s.fault != "" {
		return ""
	}
	text := string(s.data[start:s.pos])
	// An integer of fewer than 300 digits fits any double.
	if !integer || len(text) > 300 {
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			s.failf("holds a number at byte %d that is out of the range of a double", start)
		}
	}
	return text
}

func (s *scanner) takeByte(c byte) bool {
	if s.fault != "" || s.pos >= len(s.data) || s.data[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) digits() {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	if s.pos == start {
		s.unexpected("a digit")
	}
}

// literal steps over true, false or null if it is next.
func (s *scanner) literal(word string) bool {
	if s.peek() != word[0] || len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

// skip steps over one value of any kind and checks it in full.
func (s *scanner) skip() {
	// objects has one bit for every container opened here: 1 for an object, 0 for an array.
	var objects uint64
	level, first := 0, false
	for s.fault == "" {
		if level > 0 {
			closing := byte(']')
			if objects&1 == 1 {
				closing = '}'
			}
			if !s.more(first, closing) {
				first = false
				objects >>= 1
				level--
				if level == 0 {
					return
				}
				continue
			}
			if closing == '}' {
				s.skipKey()
			}
		}
		first = false
		switch s.peek() {
		case '{', '[':
			objects <<= 1
			if s.peek() == '{' {
				objects |= 1
			}
			s.open(s.peek())
			level++
			first = true
		default:
			s.skipScalar()
			if level == 0 {
				return
			}
		}
	}
}

func (s *scanner) skipKey() {
	if s.peek() != '"' {
		s.unexpected("a quoted key")
		return
	}
	s.rawString()
	s.must(':', "a colon")
}

func (s *scanner) skipScalar() {
	switch c := s.peek(); {
	case c == '"':
		s.rawString()
	case c == '-' && s.pos+1 < len(s.data) && s.data[s.pos+1] == 'I', c == 'N', c == 'I':
		s.failf("is not JSON: byte %d begins NaN or Infinity, which JSON does not have; send a finite number", s.pos)
	case c == '-' || isDigit(c):
		s.number()
	case !s.literal("true") && !s.literal("false") && !s.literal("null"):
		s.unexpected("a value")
	}
}
