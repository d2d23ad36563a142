package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/spelling"
	"github.com/mailboxmq/mailbox/internal/strictjson"
)

// decodeStrictly reads one JSON object into the struct that target points to.
// Field names are those of the json tags, byte by byte. A field that is unknown
// or given twice, a value of another type, null, text that is not UTF-8 and
// anything after the object are ErrEncoding. Errors repeat names of fields, but never
// values.
//
// Fields are strings, integers, durations, booleans, pointers to these for what may be
// absent, maps of strings, byte slices (base64 with padding), slices of strings,
// structs and slices of structs.
func decodeStrictly(data []byte, target any) error {
	if !utf8.Valid(data) {
		return schemaError("body", "is not valid UTF-8")
	}
	d := strictDecoder{strictjson.Reader{Data: data}}
	if err := d.object(reflect.ValueOf(target).Elem(), "body"); err != nil {
		return err
	}
	if d.Peek(); d.At < len(data) {
		return schemaError("body", "has data after the object")
	}
	return nil
}

func schemaError(field, detail string) error {
	return &driver.Error{Code: driver.ErrEncoding, Op: "read", Field: field, Detail: detail}
}

type strictDecoder struct{ strictjson.Reader }

// fieldsOf returns the indexes of the fields of a struct type, and of those embedded in it, by
// their names in JSON.
func fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := fieldTables.Load(t); ok {
		return known.(map[string][]int)
	}
	table := make(map[string][]int)
	for _, field := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			table[name] = field.Index
		}
	}
	known, _ := fieldTables.LoadOrStore(t, table)
	return known.(map[string][]int)
}

var fieldTables sync.Map

var durationType = reflect.TypeFor[duration]()

// malformed is the error at the current position.
func (d *strictDecoder) malformed(field string) error {
	return schemaError(field, fmt.Sprintf("is not valid JSON (byte %d of the request)", d.At+1))
}

// text reads a string at its opening quote.
func (d *strictDecoder) text(field string) (string, error) {
	text, err := d.Text()
	switch {
	case errors.Is(err, strictjson.ErrSurrogate):
		return "", schemaError(field, "has half of a surrogate pair")
	case err != nil:
		return "", d.malformed(field)
	}
	return string(text), nil
}

// scalar reads a string, a json.Number, a bool or null, which is nil.
func (d *strictDecoder) scalar(field string) (any, error) {
	switch c := d.Peek(); {
	case c == '"':
		return d.text(field)
	case c == '-' || '0' <= c && c <= '9':
		number, ok := d.Number()
		if !ok {
			return nil, d.malformed(field)
		}
		return json.Number(number), nil
	case d.Word("true"):
		return true, nil
	case d.Word("false"):
		return false, nil
	case d.Word("null"):
		return nil, nil
	case c == '{' || c == '[':
		return json.Delim(c), nil // no field of a single value has this type
	}
	return nil, d.malformed(field)
}

// elements calls each for every element between two delimiters, with the reader before
// the element.
func (d *strictDecoder) elements(open, end byte, field, what string, each func() error) error {
	if !d.Take(open) {
		if _, err := d.scalar(field); err != nil {
			return err
		}
		return schemaError(field, "want "+what)
	}
	if d.Take(end) {
		return nil
	}
	for {
		if err := each(); err != nil {
			return err
		}
		if d.Take(end) {
			return nil
		}
		if !d.Take(',') {
			return d.malformed(field)
		}
	}
}

func (d *strictDecoder) object(target reflect.Value, field string) error {
	fields := fieldsOf(target.Type())
	seen := make(map[string]bool, len(fields))
	return d.elements('{', '}', field, "an object", func() error {
		key, err := d.key(field, seen)
		if err != nil {
			return err
		}
		index, known := fields[key]
		if !known {
			return schemaError(field, unknownField(key, fields))
		}
		return d.value(target.FieldByIndex(index), key)
	})
}

// otherNames are common names of fields in other systems.
var otherNames = map[string]string{
	"queue": "topic", "name": "topic", "body": "payload_b64", "message": "payload_b64", "data": "payload_b64", "key": "idem_key",
	"dedup_key": "idem_key", "id": "msg_id", "message_id": "msg_id", "attributes": "attrs", "max": "max_messages", "timeout": "wait_ms",
	"max_deliveries": "max_attempts",
}

// unknownField returns the detail for an unknown field, with the name that was probably
// meant.
func unknownField(key string, fields map[string][]int) string {
	names := slices.Sorted(maps.Keys(fields))
	detail := "unknown field " + shown(key) + "; "
	near := spelling.Nearest(key, names)
	if _, known := fields[otherNames[key]]; known {
		near = otherNames[key]
	}
	if near != "" {
		return detail + fmt.Sprintf("did you mean %q?", near)
	}
	if len(names) == 0 {
		return detail + "want none"
	}
	return detail + "want " + strings.Join(names, ", ")
}

// shown quotes a word of a request if it looks like a name. Anything else, such as a
// token in the wrong place or a body, is not repeated.
func shown(word string) string {
	const most = 40
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '/' || r == '.'
	}
	if len(word) > most || strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return fmt.Sprintf("of %d bytes", len(word))
	}
	return strconv.Quote(word)
}

// key reads the name of a field and the colon after it.
func (d *strictDecoder) key(field string, seen map[string]bool) (string, error) {
	if d.Peek() != '"' {
		return "", d.malformed(field)
	}
	key, err := d.text(field)
	switch {
	case err != nil:
		return "", err
	case seen[key]:
		return "", schemaError(field, "field "+shown(key)+" is given twice")
	case !d.Take(':'):
		return "", d.malformed(field)
	}
	seen[key] = true
	return key, nil
}

func (d *strictDecoder) value(target reflect.Value, field string) error {
	switch target.Kind() { //nolint:exhaustive // requests have no other kinds
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		return d.value(target.Elem(), field)
	case reflect.Struct:
		return d.object(target, field)
	case reflect.Map:
		return d.stringMap(target, field)
	case reflect.Slice:
		if target.Type().Elem().Kind() != reflect.Uint8 {
			return d.list(target, field)
		}
	}
	value, err := d.scalar(field)
	if err != nil {
		return err
	}
	return setScalar(target, value, field)
}

func setScalar(target reflect.Value, token any, field string) error {
	switch target.Kind() { //nolint:exhaustive // as above
	case reflect.String:
		text, ok := token.(string)
		if !ok {
			return schemaError(field, "want a string")
		}
		target.SetString(text)
	case reflect.Bool:
		value, ok := token.(bool)
		if !ok {
			return schemaError(field, "want true or false")
		}
		target.SetBool(value)
	case reflect.Int, reflect.Int64:
		number, ok := token.(json.Number)
		if !ok {
			return schemaError(field, "want a number")
		}
		if target.Type() == durationType {
			value, ok := parseDuration(number)
			if !ok {
				return schemaError(field, "want a number of milliseconds with at most six decimals and no exponent")
			}
			target.SetInt(int64(value))
			return nil
		}
		value, err := strconv.ParseInt(number.String(), 10, 64)
		if err != nil {
			return schemaError(field, "want a whole number of at most 63 bits")
		}
		target.SetInt(value)
	case reflect.Float64:
		number, _ := token.(json.Number)
		value, err := number.Float64()
		if err != nil {
			return schemaError(field, "want a number of 64 bits")
		}
		target.SetFloat(value)
	case reflect.Slice:
		text, ok := token.(string)
		if !ok {
			return schemaError(field, "want a string")
		}
		data, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || base64.StdEncoding.EncodedLen(len(data)) != len(text) {
			return schemaError(field, "want base64 with padding")
		}
		target.SetBytes(data)
	default:
		return schemaError(field, fmt.Sprintf("cannot be a %v", target.Kind()))
	}
	return nil
}

func (d *strictDecoder) list(target reflect.Value, field string) error {
	list := reflect.MakeSlice(target.Type(), 0, 0)
	err := d.elements('[', ']', field, "a list", func() error {
		element := reflect.New(target.Type().Elem()).Elem()
		if err := d.value(element, field); err != nil {
			return err
		}
		list = reflect.Append(list, element)
		return nil
	})
	target.Set(list)
	return err
}

func (d *strictDecoder) stringMap(target reflect.Value, field string) error {
	values, seen := make(map[string]string), make(map[string]bool)
	err := d.elements('{', '}', field, "an object", func() error {
		key, err := d.key(field, seen)
		if err != nil {
			return err
		}
		value, err := d.scalar(field)
		if err != nil {
			return err
		}
		text, ok := value.(string)
		if !ok {
			return schemaError(field, "want strings as values")
		}
		values[key] = text
		return nil
	})
	target.Set(reflect.ValueOf(values))
	return err
}
