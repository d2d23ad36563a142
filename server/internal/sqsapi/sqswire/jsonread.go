package sqswire

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/internal/strictjson"
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
	strictjson.Reader
	// deep counts the objects and arrays that are open.
	deep int
	err  *Error
}

// readJSON reads a document into s.
func readJSON(data []byte, s structure) *Error {
	if !utf8.Valid(data) {
		return Serialization.Withf("The request is not encoded as UTF-8.")
	}
	r := jsonReader{Reader: strictjson.Reader{Data: data}}
	if r.Peek() == 0 && r.At == len(data) {
		return nil // clients omit the body if there are no parameters
	}
	r.structure(s)
	if r.err == nil && (r.Peek() != 0 || r.At < len(data)) {
		r.malformed()
	}
	return r.err
}

func (r *jsonReader) fail(err *Error) {
	if r.err == nil {
		r.err = err
	}
	r.At = len(r.Data)
}

func (r *jsonReader) malformed() {
	r.fail(Serialization.Withf("The request is not valid JSON at offset %d.", r.At))
}

// mistyped records that a value does not have the type of the API.
func (r *jsonReader) mistyped(want string) {
	var have string
	switch c := r.Peek(); {
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

// null consumes null, which means the same as a missing value.
func (r *jsonReader) null() bool { return r.Peek() == 'n' && r.Word("null") }

// object calls value for each key of an object, with the reader before the
// value.
func (r *jsonReader) object(want string, value func(key []byte)) {
	if !r.open('{', want) {
		return
	}
	defer r.close()
	if r.Take('}') {
		return
	}
	for n := 0; r.few(n); n++ {
		if r.Peek() != '"' {
			r.malformed()
			return
		}
		key := r.bytes()
		if r.err == nil && !r.Take(':') {
			r.malformed()
		}
		if r.err != nil {
			return
		}
		value(key)
		if r.Take('}') {
			return
		}
		if !r.Take(',') {
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
	if r.Take(']') {
		return
	}
	for n := 0; r.few(n); n++ {
		element()
		if r.Take(']') {
			return
		}
		if !r.Take(',') {
			r.malformed()
		}
	}
}

func (r *jsonReader) open(c byte, want string) bool {
	if !r.Take(c) {
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
	switch c := r.Peek(); {
	case c == '"':
		r.bytes()
	case c == '{':
		r.object("", func([]byte) { r.skip() })
	case c == '[':
		r.array("", r.skip)
	case c == '-' || '0' <= c && c <= '9':
		r.numeral()
	case c == 't' && r.Word("true"), c == 'f' && r.Word("false"), c == 'n' && r.Word("null"):
	default:
		r.malformed()
	}
}

// text reads a string.
func (r *jsonReader) text() string {
	if r.Peek() != '"' {
		r.mistyped("a String")
		return ""
	}
	return string(r.bytes())
}

// blob reads a string of base64.
func (r *jsonReader) blob() []byte {
	if r.Peek() != '"' {
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
// the document. Messages must not contain half of a surrogate pair.
func (r *jsonReader) bytes() []byte {
	text, err := r.Text()
	switch {
	case errors.Is(err, strictjson.ErrSurrogate):
		r.fail(InvalidMessageContents.Default())
	case err != nil:
		r.malformed()
	}
	return text
}

// numeral consumes a number and returns its text.
func (r *jsonReader) numeral() []byte {
	text, ok := r.Number()
	if !ok {
		r.malformed()
	}
	return text
}

// integer reads a whole number of 32 bits, or one that is written as a string.
func (r *jsonReader) integer() int32 {
	var n int32
	var whole bool
	var text []byte
	switch c := r.Peek(); {
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
