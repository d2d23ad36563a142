package sqswire

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxDepth is how deep a document may be nested. The API needs 5.
	maxDepth = 64
	// maxElements is how many elements one list or map may have. Without a
	// limit, elements of a few bytes would take much more memory each.
	maxElements = 4096
)

// A jsonReader reads one JSON document. It stops at the first error and keeps
// it; results after that are meaningless.
type jsonReader struct {
	data []byte
	at   int
	// deep counts the objects and arrays that are open.
	deep int
	err  *Error
}

// readJSON reads a document into s.
func readJSON(data []byte, s structure) *Error {
	if !utf8.Valid(data) {
		return Serialization.Withf("The request is not encoded as UTF-8.")
	}
	r := jsonReader{data: data}
	if r.peek() == 0 && r.at == len(data) {
		return nil // clients omit the body if there are no parameters
	}
	r.structure(s)
	if r.err == nil && (r.peek() != 0 || r.at < len(data)) {
		r.malformed()
	}
	return r.err
}

func (r *jsonReader) fail(err *Error) {
	if r.err == nil {
		r.err = err
	}
	r.at = len(r.data)
}

func (r *jsonReader) malformed() {
	r.fail(Serialization.Withf("The request is not valid JSON at offset %d.", r.at))
}

// mistyped records that a value does not have the type of the API.
func (r *jsonReader) mistyped(want string) {
	var have string
	switch c := r.peek(); {
	case c == '"':
		have = "STRING_VALUE"
	case c == '{':
		have = "START_OBJECT"
	case c == '[':
		have = "START_ARRAY"
	case c == 'n':
		have = "NULL_VALUE"
	case c == 't':
		have = "TRUE_VALUE"
	case c == 'f':
		have = "FALSE_VALUE"
	case c == '-' || '0' <= c && c <= '9':
		have = "NUMBER_VALUE"
	default:
		r.malformed()
		return
	}
	r.fail(Serialization.Withf("%s can not be converted to %s", have, want))
}

// peek skips space and returns the next byte without consuming it, 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take consumes the next byte if it is c.
func (r *jsonReader) take(c byte) bool {
	if r.peek() != c || r.at >= len(r.data) {
		return false
	}
	r.at++
	return true
}

// word consumes the next bytes if they are the given word.
func (r *jsonReader) word(w string) bool {
	r.peek()
	if len(r.data)-r.at < len(w) || string(r.data[r.at:r.at+len(w)]) != w {
		return false
	}
	r.at += len(w)
	return true
}

// null consumes null, which means the same as a missing value.
func (r *jsonReader) null() bool { return r.peek() == 'n' && r.word("null") }

// object calls value for each key of an object, with the reader before the
// value.
func (r *jsonReader) object(want string, value func(key []byte)) {
	if !r.open('{', want) {
		return
	}
	defer r.close()
	if r.take('}') {
		return
	}
	for n := 0; r.few(n); n++ {
		if r.peek() != '"' {
			r.malformed()
			return
		}
		key := r.bytes()
		if r.err == nil && !r.take(':') {
			r.malformed()
		}
		if r.err != nil {
			return
		}
		value(key)
		if r.take('}') {
			return
		}
		if !r.take(',') {
			r.malformed()
		}
	}
}

// array calls element for each element of an array, with the reader before it.
func (r *jsonReader) array(want string, element func()) {
	if !r.open('[', want) {
		return
	}
	defer r.close()
	if r.take(']') {
		return
	}
	for n := 0; r.few(n); n++ {
		element()
		if r.take(']') {
			return
		}
		if !r.take(',') {
			r.malformed()
		}
	}
}

func (r *jsonReader) open(c byte, want string) bool {
	if !r.take(c) {
		r.mistyped(want)
		return false
	}
	r.deep++
	if r.deep > maxDepth {
		r.fail(Serialization.Withf("The request is nested too deeply."))
		return false
	}
	return true
}

func (r *jsonReader) close() { r.deep-- }

// few reports whether an object or an array may have one more element.
func (r *jsonReader) few(n int) bool {
	if n >= maxElements {
		r.fail(Serialization.Withf("A list or map of the request has more than %d elements.", maxElements))
	}
	return r.err == nil
}

// skip skips the value of an unknown member.
func (r *jsonReader) skip() {
	switch c := r.peek(); {
	case c == '"':
		r.bytes()
	case c == '{':
		r.object("", func([]byte) { r.skip() })
	case c == '[':
		r.array("", r.skip)
	case c == '-' || '0' <= c && c <= '9':
		r.numeral()
	case c == 't' && r.word("true"), c == 'f' && r.word("false"), c == 'n' && r.word("null"):
	default:
		r.malformed()
	}
}

// text reads a string.
func (r *jsonReader) text() string {
	if r.peek() != '"' {
		r.mistyped("a String")
		return ""
	}
	return string(r.bytes())
}

// blob reads a string of base64.
func (r *jsonReader) blob() []byte {
	if r.peek() != '"' {
		r.mistyped("a Blob")
		return nil
	}
	text := r.bytes()
	blob := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(blob, text)
	if err != nil && r.err == nil {
		r.fail(Serialization.Withf("A binary value is not valid base64."))
	}
	return blob[:n]
}

// bytes reads a string at its opening quote. Without escapes the result is part of
// the document.
func (r *jsonReader) bytes() []byte {
	r.at++
	run := r.run()
	if r.at < len(r.data) && r.data[r.at] == '"' {
		r.at++
		return run
	}
	return r.escaped(append(make([]byte, 0, len(run)+64), run...))
}

// run consumes the characters of a string up to the next one that is not in
// plainInJSON.
func (r *jsonReader) run() []byte {
	start, at := r.at, r.at
	for at < len(r.data) && plainInJSON[r.data[at]] {
		at++
	}
	r.at = at
	return r.data[start:at]
}

// plainInJSON has the bytes that stand for themselves in a string: all but quotes,
// backslashes and control characters.
var plainInJSON = func() (plain [256]bool) {
	for c := ' '; c < 256; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// escaped reads the rest of a string that has escapes, and appends it to text.
func (r *jsonReader) escaped(text []byte) []byte {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case '"':
			r.at++
			return text
		case '\\':
			r.at++
			text = r.escape(text)
		default:
			r.malformed()
			return nil
		}
		text = append(text, r.run()...)
	}
	r.malformed()
	return nil
}

// escape reads what follows a backslash.
func (r *jsonReader) escape(text []byte) []byte {
	if r.at >= len(r.data) {
		r.malformed()
		return nil
	}
	c := r.data[r.at]
	r.at++
	switch c {
	case '"', '\\', '/':
		return append(text, c)
	case 'b':
		return append(text, '\b')
	case 'f':
		return append(text, '\f')
	case 'n':
		return append(text, '\n')
	case 'r':
		return append(text, '\r')
	case 't':
		return append(text, '\t')
	case 'u':
		return utf8.AppendRune(text, r.codePoint())
	default:
		r.malformed()
		return nil
	}
}

// codePoint reads the digits of \u, and those of the second surrogate. Half a surrogate
// pair is not a character, and messages must not contain it.
func (r *jsonReader) codePoint() rune {
	c := r.hex4()
	if r.err != nil || !utf16.IsSurrogate(c) {
		return c
	}
	if r.at+1 < len(r.data) && r.data[r.at] == '\\' && r.data[r.at+1] == 'u' {
		r.at += 2
		if c = utf16.DecodeRune(c, r.hex4()); c != utf8.RuneError {
			return c
		}
	}
	r.fail(InvalidMessageContents.Default())
	return utf8.RuneError
}

func (r *jsonReader) hex4() rune {
	if len(r.data)-r.at < 4 {
		r.malformed()
		return 0
	}
	c, err := strconv.ParseUint(string(r.data[r.at:r.at+4]), 16, 16)
	if err != nil {
		r.malformed()
		return 0
	}
	r.at += 4
	return rune(c)
}

// numeral consumes a number and returns its text.
func (r *jsonReader) numeral() []byte {
	start := r.at
	digits := func() {
		first := r.at
		for r.at < len(r.data) && '0' <= r.data[r.at] && r.data[r.at] <= '9' {
			r.at++
		}
		if r.at == first {
			r.malformed()
		}
	}
	next := func(c byte) bool {
		if r.at < len(r.data) && r.data[r.at] == c {
			r.at++
			return true
		}
		return false
	}
	next('-')
	if !next('0') {
		digits()
	}
	if r.err == nil && next('.') {
		digits()
	}
	if r.err == nil && (next('e') || next('E')) {
		if !next('+') {
			next('-')
		}
		digits()
	}
	if r.err != nil {
		return nil
	}
	return r.data[start:r.at]
}

// integer reads a whole number of 32 bits, or one that is written as a string.
func (r *jsonReader) integer() int32 {
	var n int32
	var whole bool
	var text []byte
	switch c := r.peek(); {
	case c == '"':
		text = r.bytes()
		n, whole = wholeNumber(string(text))
	case c == '-' || '0' <= c && c <= '9':
		text = r.numeral()
		if n, whole = wholeNumber(string(text)); !whole {
			n, whole = wholeFloat(string(text))
		}
	default:
		r.mistyped("an Integer")
	}
	if r.err == nil && !whole {
		r.fail(Serialization.Withf("%.64q can not be converted to an Integer", text))
	}
	return n
}

func wholeNumber(text string) (int32, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err == nil
}

// wholeFloat parses a whole number that is written in another way: 10.0 or 1e1.
func wholeFloat(text string) (int32, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || f < math.MinInt32 || f > math.MaxInt32 {
		return 0, false
	}
	return int32(f), true
}
