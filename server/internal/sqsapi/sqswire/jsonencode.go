package sqswire

import (
	"encoding/base64"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/internal/strictjson"
)

// appendJSON appends s as an object, without the members that are empty.
func appendJSON(b []byte, s structure) []byte {
	m, list := membersOf(s)
	defer m.release()
	b = append(b, '{')
	first := true
	for i := range list {
		member := &list[i]
		if isEmpty(member) && !member.written {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, '"'), member.name...), '"', ':')
		b = appendJSONValue(b, member)
	}
	return append(b, '}')
}

// appendJSONValue appends the value of a member that is not empty.
func appendJSONValue(b []byte, m *member) []byte {
	switch value := m.value.(type) {
	case attributeMap:
		return appendTextMap(b, *value.of)
	case tagMap:
		return appendTextMap(b, *value.of)
	case *map[string]MessageAttributeValue:
		b = append(b, '{')
		var room [typicalKeys]string
		var attribute MessageAttributeValue
		for i, name := range sortedKeys(room[:0], *value) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendKey(b, name)
			attribute = (*value)[name]
			b = appendJSON(b, &attribute)
		}
		return append(b, '}')
	case structureList:
		b = append(b, '[')
		for i := range value.length() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, value.at(i))
		}
		return append(b, ']')
	default:
		return appendPlain(b, m.value)
	}
}

// appendPlain appends a value that is neither a structure nor a map. It has the same
// form in both kinds of JSON.
func appendPlain(b []byte, value any) []byte {
	switch value := value.(type) {
	case *string:
		return appendQuoted(b, *value)
	case **string:
		return appendQuoted(b, **value)
	case **int:
		return strconv.AppendInt(b, int64(**value), 10)
	case *int64:
		return strconv.AppendInt(b, *value, 10)
	case **int64:
		return strconv.AppendInt(b, **value, 10)
	case *bool:
		return strconv.AppendBool(b, *value)
	case *[]byte:
		return appendBlob(b, *value)
	case *[]string:
		b = append(b, '[')
		for i, text := range *value {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, text)
		}
		return append(b, ']')
	case *[][]byte:
		b = append(b, '[')
		for i, blob := range *value {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendBlob(b, blob)
		}
		return append(b, ']')
	default:
		return append(b, "null"...)
	}
}

func appendTextMap(b []byte, texts map[string]string) []byte {
	b = append(b, '{')
	var room [typicalKeys]string
	for i, name := range sortedKeys(room[:0], texts) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendKey(b, name)
		b = appendQuoted(b, texts[name])
	}
	return append(b, '}')
}

// typicalKeys is at least the number of keys of most maps.
const typicalKeys = 16

// sortedKeys appends the keys of a map to room in order, so that the same answer
// is always the same bytes.
func sortedKeys[V any](room []string, m map[string]V) []string {
	for key := range m {
		room = append(room, key)
	}
	slices.Sort(room)
	return room
}

func appendBlob(b, blob []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, blob)
	return append(b, '"')
}

func appendKey(b []byte, name string) []byte { return append(appendQuoted(b, name), ':') }

// appendQuoted appends a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendQuoted(b []byte, text string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(text); {
		c, size := text[i], 1
		if c < utf8.RuneSelf && strictjson.Plain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			b = appendEscape(append(b, text[start:i]...), c)
			start = i + 1
		} else {
			var r rune
			if r, size = utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && size == 1 {
				b = append(append(b, text[start:i]...), "\uFFFD"...)
				start = i + 1
			}
		}
		i += size
	}
	return append(append(b, text[start:]...), '"')
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	default:
		const hex = "0123456789abcdef"
		return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xF])
	}
}
