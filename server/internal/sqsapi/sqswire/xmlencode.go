package sqswire

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

const (
	xmlProlog    = `<?xml version="1.0"?>`
	xmlNamespace = ` xmlns="http://queue.amazonaws.com/doc/2012-11-05/"`
)

// appendXML appends the members of s that are not empty. Lists and maps are
// flattened: each element has the name of elements, without a list around them.
func appendXML(b []byte, s structure) []byte {
	m, list := membersOf(s)
	defer m.release()
	for i := range list {
		if !isEmpty(&list[i]) || list[i].written {
			b = appendXMLMember(b, &list[i])
		}
	}
	return b
}

// appendXMLMember appends a member that is not empty.
func appendXMLMember(b []byte, m *member) []byte {
	switch value := m.value.(type) {
	case *string:
		return appendElement(b, m.element, *value)
	case **string:
		return appendElement(b, m.element, **value)
	case **int:
		return appendElement(b, m.element, strconv.Itoa(**value))
	case *int64:
		return appendElement(b, m.element, strconv.FormatInt(*value, 10))
	case **int64:
		return appendElement(b, m.element, strconv.FormatInt(**value, 10))
	case *bool:
		return appendElement(b, m.element, strconv.FormatBool(*value))
	case *[]byte:
		return appendBlobElement(b, m.element, *value)
	case *[]string:
		for _, text := range *value {
			b = appendElement(b, m.element, text)
		}
	case *[][]byte:
		for _, blob := range *value {
			b = appendBlobElement(b, m.element, blob)
		}
	case attributeMap:
		return appendPairElements(b, m.element, "Name", *value.of)
	case tagMap:
		return appendPairElements(b, m.element, "Key", *value.of)
	case *map[string]MessageAttributeValue:
		var room [typicalKeys]string
		var attribute MessageAttributeValue
		for _, name := range sortedKeys(room[:0], *value) {
			b = appendElement(appendOpen(b, m.element), "Name", name)
			attribute = (*value)[name]
			b = appendXML(appendOpen(b, "Value"), &attribute)
			b = appendClose(appendClose(b, "Value"), m.element)
		}
	case structureList:
		for i := range value.length() {
			b = appendXML(appendOpen(b, m.element), value.at(i))
			b = appendClose(b, m.element)
		}
	}
	return b
}

func appendPairElements(b []byte, element, key string, texts map[string]string) []byte {
	var room [typicalKeys]string
	for _, name := range sortedKeys(room[:0], texts) {
		b = appendElement(appendOpen(b, element), key, name)
		b = appendElement(b, "Value", texts[name])
		b = appendClose(b, element)
	}
	return b
}

func appendOpen(b []byte, element string) []byte {
	return append(append(append(b, '<'), element...), '>')
}

func appendClose(b []byte, element string) []byte {
	return append(append(append(b, '<', '/'), element...), '>')
}

func appendElement(b []byte, element, text string) []byte {
	return appendClose(appendXMLText(appendOpen(b, element), text), element)
}

func appendBlobElement(b []byte, element string, blob []byte) []byte {
	return appendClose(base64.StdEncoding.AppendEncode(appendOpen(b, element), blob), element)
}

// plainInXML has the bytes that stand for themselves in text: ASCII without markup and
// control characters.
var plainInXML = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '&' && c != '<' && c != '>' && c != '"'
	}
	return plain
}()

// appendXMLText appends text. A carriage return must be escaped, because parsers turn a
// bare one into a line feed. Characters that XML cannot express become U+FFFD; SQS
// clients cannot have sent them.
func appendXMLText(b []byte, text string) []byte {
	start := 0
	for i := 0; i < len(text); {
		if plainInXML[text[i]] {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		var replacement string
		switch {
		case r == '&':
			replacement = "&amp;"
		case r == '<':
			replacement = "&lt;"
		case r == '>':
			replacement = "&gt;"
		case r == '"':
			replacement = "&quot;"
		case r == '\r':
			replacement = "&#xD;"
		case !allowedCharacter(r, size):
			replacement = "\uFFFD"
		}
		if replacement != "" {
			b = append(append(b, text[start:i]...), replacement...)
			start = i + size
		}
		i += size
	}
	return append(b, text[start:]...)
}
