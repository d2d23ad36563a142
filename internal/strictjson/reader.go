// Package strictjson reads the tokens of JSON documents. It accepts only what the
// standard defines, and no half of a surrogate pair: package encoding/json would replace
// that silently, and accepts fields in any case and more than once.
package strictjson

import (
	"errors"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What can be wrong with a string.
var (
	ErrUnterminated = errors.New("unterminated string")
	ErrControl      = errors.New("unescaped control character in a string")
	ErrEscape       = errors.New("unknown escape")
	ErrHex          = errors.New(`want four hex digits after \u`)
	ErrSurrogate    = errors.New("unpaired surrogate")
)

// A Reader reads a document. It does not check that Data is UTF-8.
type Reader struct {
	Data []byte
	At   int // the position of the next byte
}

// Peek skips space and returns the next byte without consuming it, 0 at the end.
func (r *Reader) Peek() byte {
	for ; r.At < len(r.Data); r.At++ {
		switch c := r.Data[r.At]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// Take skips space and consumes the next byte if it is c.
func (r *Reader) Take(c byte) bool {
	if r.Peek() != c || r.At >= len(r.Data) {
		return false
	}
	r.At++
	return true
}

// Word skips space and consumes the next bytes if they are the given word.
func (r *Reader) Word(w string) bool {
	r.Peek()
	if len(r.Data)-r.At < len(w) || string(r.Data[r.At:r.At+len(w)]) != w {
		return false
	}
	r.At += len(w)
	return true
}

// Text reads a string at its opening quote. Without escapes the result is part of Data.
func (r *Reader) Text() ([]byte, error) {
	r.At++
	run := r.run()
	if r.At < len(r.Data) && r.Data[r.At] == '"' {
		r.At++
		return run, nil
	}
	return r.escaped(append(make([]byte, 0, len(run)+64), run...))
}

// run consumes the characters of a string up to the next one that is not Plain.
func (r *Reader) run() []byte {
	start, at := r.At, r.At
	for at < len(r.Data) && Plain[r.Data[at]] {
		at++
	}
	r.At = at
	return r.Data[start:at]
}

// Plain has the bytes that stand for themselves in a string: all but quotes,
// backslashes and control characters.
var Plain = func() (plain [256]bool) {
	for c := ' '; c < 256; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// escaped reads the rest of a string that has escapes, and appends it to text.
func (r *Reader) escaped(text []byte) ([]byte, error) {
	for r.At < len(r.Data) {
		switch r.Data[r.At] {
		case '"':
			r.At++
			return text, nil
		case '\\':
			r.At++
			c, err := r.escape()
			if err != nil {
				return nil, err
			}
			text = utf8.AppendRune(text, c)
		default:
			return nil, ErrControl
		}
		text = append(text, r.run()...)
	}
	return nil, ErrUnterminated
}

// escape reads what follows a backslash.
func (r *Reader) escape() (rune, error) {
	if r.At >= len(r.Data) {
		return 0, ErrUnterminated
	}
	c := r.Data[r.At]
	r.At++
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return r.codePoint()
	}
	return 0, ErrEscape
}

// codePoint reads the digits of \u, and those of the second surrogate.
func (r *Reader) codePoint() (rune, error) {
	first, ok := r.hex4()
	if !ok {
		return 0, ErrHex
	}
	if !utf16.IsSurrogate(first) {
		return first, nil
	}
	if r.At+1 < len(r.Data) && r.Data[r.At] == '\\' && r.Data[r.At+1] == 'u' {
		r.At += 2
		second, ok := r.hex4()
		if !ok {
			return 0, ErrHex
		}
		if c := utf16.DecodeRune(first, second); c != utf8.RuneError {
			return c, nil
		}
	}
	return 0, ErrSurrogate
}

func (r *Reader) hex4() (rune, bool) {
	if len(r.Data)-r.At < 4 {
		return 0, false
	}
	c, err := strconv.ParseUint(string(r.Data[r.At:r.At+4]), 16, 16)
	if err != nil {
		return 0, false
	}
	r.At += 4
	return rune(c), true
}

// Number reads a number at its first byte, and returns its text.
func (r *Reader) Number() (text []byte, ok bool) {
	start := r.At
	r.next('-')
	ok = r.next('0') || r.digits()
	if ok && r.next('.') {
		ok = r.digits()
	}
	if ok && (r.next('e') || r.next('E')) {
		if !r.next('+') {
			r.next('-')
		}
		ok = r.digits()
	}
	return r.Data[start:r.At], ok
}

// next consumes the next byte, which is not space, if it is c.
func (r *Reader) next(c byte) bool {
	if r.At < len(r.Data) && r.Data[r.At] == c {
		r.At++
		return true
	}
	return false
}

// digits consumes digits, and reports whether there was one.
func (r *Reader) digits() bool {
	first := r.At
	for r.At < len(r.Data) && '0' <= r.Data[r.At] && r.Data[r.At] <= '9' {
		r.At++
	}
	return r.At > first
}
