package mailbox

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// replaced is what encoding/json writes in place of a byte that is not UTF-8. It
// writes a U+FFFD that is in a string as the character itself, so a body without
// this escape was not changed, and finding that out costs one search.
var replaced = []byte(`\ufffd`)

// checkUTF8 returns an error if encoding/json would change a string in v, which
// it has encoded before. It is for bodies that have the escape in them: a type
// that encodes itself, or a string of backslashes, may have it rightly.
func checkUTF8(v reflect.Value) error {
	if !v.IsValid() {
		return nil
	}
	if v.CanInterface() {
		encoder := v.Interface()
		if v.CanAddr() { // then encoding/json uses methods of the pointer too
			encoder = v.Addr().Interface()
		}
		switch own := encoder.(type) {
		case json.Marshaler:
			return nil // what it has written is copied
		case encoding.TextMarshaler:
			if v.Kind() == reflect.Pointer && v.IsNil() {
				return nil
			}
			text, err := own.MarshalText()
			if err != nil {
				return err
			}
			return checkText(string(text))
		}
	}
	switch v.Kind() {
	case reflect.String:
		return checkText(v.String())
	case reflect.Pointer, reflect.Interface:
		return checkUTF8(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil // base64
		}
		for i := range v.Len() {
			if err := checkUTF8(v.Index(i)); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if err := checkUTF8(key); err != nil {
				return fmt.Errorf("a key: %w", err)
			}
			if err := checkUTF8(value); err != nil {
				return fmt.Errorf("key %v: %w", key, err)
			}
		}
	case reflect.Struct:
		return checkFields(v)
	}
	return nil
}

// checkFields is checkUTF8 for the fields of a struct that are encoded.
func checkFields(v reflect.Value) error {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() && !field.Anonymous || field.Tag.Get("json") == "-" {
			continue
		}
		if err := checkUTF8(v.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", field.Name, err)
		}
	}
	return nil
}

func checkText(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("string %q is not valid UTF-8", text)
	}
	return nil
}
