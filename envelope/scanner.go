package envelope

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

// A scanner reads the subset of JSON that envelopes use: objects, strings
// and counts. Package encoding/json is not strict enough for text that is
// hashed: it accepts duplicate keys in any case, repairs invalid UTF-8, and
// ignores unknown fields.
type scanner struct {
	data  []byte
	at    int
	field string // the current field, for errors
}

// parse reads data, one object with fields of these names and nothing after
// it. It calls read for each field, which must read the value.
func parse(data []byte, names []string, read func(s *scanner, name string) error) error {
	s := &scanner{data: data}
	var seen uint // a bit for each of names
	err := s.object(func(key string) error {
		i := slices.Index(names, key)
		if i < 0 {
			return s.wrong("unknown field")
		}
		s.field = names[i]
		if seen&(1<<i) != 0 {
			return s.wrong("stands there twice")
		}
		seen |= 1 << i
		err := read(s, names[i])
		s.field = ""
		return err
	})
	if err != nil {
		return err
	}
	if s.space(); s.at != len(s.data) {
		return s.wrong("unexpected data after the object")
	}
	for i, name := range names {
		if seen&(1<<i) == 0 && name != optionalField {
			return decodeError(name, "is missing")
		}
	}
	return nil
}

// wrong returns an error about the current position.
func (s *scanner) wrong(detail string) error {
	return decodeError(s.field, fmt.Sprintf("%s (at byte %d)", detail, s.at))
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// next skips space and reports whether c follows, which it then skips too.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// object reads an object. After each key and its colon it calls member, which
// must read the value.
func (s *scanner) object(member func(key string) error) error {
	if !s.next('{') {
		return s.wrong("want an object")
	}
	if s.next('}') {
		return nil
	}
	for {
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.next(':') {
			return s.wrong("want a colon")
		}
		if err := member(key); err != nil {
			return err
		}
		if s.next('}') {
			return nil
		}
		if !s.next(',') {
			return s.wrong("want a comma or the end of the object")
		}
	}
}

// count reads a number without sign, fraction or exponent that fits 32 bits.
func (s *scanner) count() (int, error) {
	s.space()
	start := s.at
	for s.at < len(s.data) && '0' <= s.data[s.at] && s.data[s.at] <= '9' {
		s.at++
	}
	digits := string(s.data[start:s.at])
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || len(digits) > 1 && digits[0] == '0' {
		return 0, s.wrong("want a whole number from 0 to " + strconv.Itoa(math.MaxInt32))
	}
	return int(n), nil
}

// text reads a string.
func (s *scanner) text() (string, error) {
	if !s.next('"') {
		return "", s.wrong("want a string")
	}
	start := s.at
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			plain := s.data[start:s.at]
			if !utf8.Valid(plain) {
				return "", s.wrong("a string is not valid UTF-8")
			}
			s.at++
			return string(plain), nil
		case c == '\\':
			return s.escapedText(start)
		case c < ' ':
			return "", s.wrong("unescaped control character in a string")
		default:
			s.at++
		}
	}
	return "", s.wrong("unterminated string")
}

// escapedText reads the rest of a string that began at start, from its first
// escape on.
func (s *scanner) escapedText(start int) (string, error) {
	var b strings.Builder
	b.Write(s.data[start:s.at])
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			if !utf8.ValidString(b.String()) {
				return "", s.wrong("a string is not valid UTF-8")
			}
			s.at++
			return b.String(), nil
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
		case c < ' ':
			return "", s.wrong("unescaped control character in a string")
		default:
			b.WriteByte(c)
			s.at++
		}
	}
	return "", s.wrong("unterminated string")
}

// escape reads one escape, which is a character or one half of a pair with its
// other half.
func (s *scanner) escape() (rune, error) {
	s.at++ // the backslash
	if s.at == len(s.data) {
		return 0, s.wrong("unterminated string")
	}
	c := s.data[s.at]
	s.at++
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
		return s.codePoint()
	}
	return 0, s.wrong("unknown escape")
}

func (s *scanner) codePoint() (rune, error) {
	first, ok := s.codeUnit()
	if !ok {
		return 0, s.wrong("want four hex digits after \\u")
	}
	if !utf16.IsSurrogate(first) {
		return first, nil
	}
	if s.at+1 < len(s.data) && s.data[s.at] == '\\' && s.data[s.at+1] == 'u' {
		s.at += 2
		if second, ok := s.codeUnit(); ok {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				return r, nil
			}
		}
	}
	return 0, s.wrong("unpaired surrogate")
}

// codeUnit reads four hex digits.
func (s *scanner) codeUnit() (rune, bool) {
	if s.at+4 > len(s.data) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.data[s.at:s.at+4]), 16, 16)
	if err != nil {
		return 0, false
	}
	s.at += 4
	return rune(n), true
}

// fieldOf returns the field that an error of package driver names.
func fieldOf(err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Field
	}
	return ""
}
