package envelope

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/strictjson"
)

// A scanner reads the subset of JSON that envelopes use: objects, strings
// and counts. Package encoding/json is not strict enough for text that is
// hashed.
type scanner struct {
	strictjson.Reader
	field string // the current field, for errors
}

// parse reads data, one object with fields of these names and nothing after
// it. It calls read for each field, which must read the value.
func parse(data []byte, names []string, read func(s *scanner, name string) error) error {
	s := &scanner{Reader: strictjson.Reader{Data: data}}
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
	if s.Peek(); s.At != len(s.Data) {
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
	return decodeError(s.field, fmt.Sprintf("%s (at byte %d)", detail, s.At))
}

// object reads an object. After each key and its colon it calls member, which
// must read the value.
func (s *scanner) object(member func(key string) error) error {
	if !s.Take('{') {
		return s.wrong("want an object")
	}
	if s.Take('}') {
		return nil
	}
	for {
		key, err := s.text()
		if err != nil {
			return err
		}
		if !s.Take(':') {
			return s.wrong("want a colon")
		}
		if err := member(key); err != nil {
			return err
		}
		if s.Take('}') {
			return nil
		}
		if !s.Take(',') {
			return s.wrong("want a comma or the end of the object")
		}
	}
}

// count reads a number without sign, fraction or exponent that fits 32 bits.
func (s *scanner) count() (int, error) {
	s.Peek()
	start := s.At
	for s.At < len(s.Data) && '0' <= s.Data[s.At] && s.Data[s.At] <= '9' {
		s.At++
	}
	digits := string(s.Data[start:s.At])
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || len(digits) > 1 && digits[0] == '0' {
		return 0, s.wrong("want a whole number from 0 to " + strconv.Itoa(math.MaxInt32))
	}
	return int(n), nil
}

// text reads a string.
func (s *scanner) text() (string, error) {
	if s.Peek() != '"' {
		return "", s.wrong("want a string")
	}
	text, err := s.Text()
	switch {
	case err != nil:
		return "", s.wrong(err.Error())
	case !utf8.Valid(text):
		return "", s.wrong("a string is not valid UTF-8")
	}
	return string(text), nil
}

// fieldOf returns the field that an error of package driver names.
func fieldOf(err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Field
	}
	return ""
}
