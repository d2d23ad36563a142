package sqswire

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxParameters is how many parameters a request may have. A batch of ten
// messages with ten attributes each needs about 400.
const maxParameters = 4096

// A parameter is one name=value of a URL or of a form.
type parameter struct{ name, value string }

// A form is the parameters of a request, sorted by name, so that those of one
// list or structure are together.
type form []parameter

// parseForm reads the parameters of a form and of a URL's query. If both have a
// parameter of the same name, that of the form counts.
func parseForm(body, query string) (form, *Error) {
	count := strings.Count(body, "&") + strings.Count(query, "&") + 2
	if count > maxParameters {
		return nil, MalformedInput.Withf("The request has more than %d parameters.", maxParameters)
	}
	f := make(form, 0, count)
	for _, part := range []string{body, query} {
		for pair := range strings.SplitSeq(part, "&") {
			if pair == "" {
				continue
			}
			name, value, _ := strings.Cut(pair, "=")
			name, nameErr := url.QueryUnescape(name)
			value, valueErr := url.QueryUnescape(value)
			if nameErr != nil || valueErr != nil {
				return nil, MalformedInput.Withf("A parameter of the request is not encoded as URLs are.")
			}
			if !utf8.ValidString(name) || !utf8.ValidString(value) {
				return nil, MalformedInput.Withf("A parameter of the request is not encoded as UTF-8.")
			}
			f = append(f, parameter{name, value})
		}
	}
	slices.SortStableFunc(f, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	return f, nil
}

// get returns the parameter of a name.
func (f form) get(name string) (string, bool) {
	i, found := slices.BinarySearchFunc(f, name, func(p parameter, name string) int { return strings.Compare(p.name, name) })
	if !found {
		return "", false
	}
	return f[i].value, true
}

// under returns the parameters whose names begin with prefix and a dot, with that
// part removed.
func (f form) under(prefix string) form {
	start, _ := slices.BinarySearchFunc(f, prefix, func(p parameter, prefix string) int {
		return compareBelow(p.name, prefix)
	})
	end := start
	for end < len(f) && compareBelow(f[end].name, prefix) == 0 {
		end++
	}
	if start == end {
		return nil
	}
	inner := make(form, end-start)
	for i, p := range f[start:end] {
		inner[i] = parameter{p.name[len(prefix)+1:], p.value}
	}
	return inner
}

// compareBelow compares name with the names that begin with prefix and a dot,
// and returns 0 for one of them.
func compareBelow(name, prefix string) int {
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return int(name[len(prefix)]) - '.'
	}
	if name <= prefix {
		return -1
	}
	return strings.Compare(name, prefix)
}

// An item is one element of a list: its number and the parameters under it. A
// plain value is one without a name.
type item struct {
	number uint64
	of     form
}

// items returns the elements of a list in the order of their numbers, which may
// have gaps. Clients use the name of the elements or that of the list, and may have
// another word before the number (Attribute.1, Attributes.entry.1). A single element
// needs no number.
func (f form) items(m *member) []item {
	for _, name := range []string{m.element, m.name} {
		inner := f.under(name)
		for _, word := range []string{"member", "entry"} {
			if worded := inner.under(word); worded != nil {
				inner = worded
			}
		}
		if inner != nil {
			return inner.numbered()
		}
		if value, ok := f.get(name); ok {
			if value == "" { // some clients send an empty list like this
				return []item{}
			}
			return []item{{of: form{{value: value}}}}
		}
	}
	return nil
}

// numbered splits parameters by the numbers that their names begin with.
// Parameters without a number are one element together.
func (f form) numbered() []item {
	var items []item
	var plain form
	for len(f) > 0 {
		digits, _, _ := strings.Cut(f[0].name, ".")
		number, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			plain = append(plain, f[0])
			f = f[1:]
			continue
		}
		n := 0
		for n < len(f) && strings.HasPrefix(f[n].name, digits) && (len(f[n].name) == len(digits) || f[n].name[len(digits)] == '.') {
			f[n].name = strings.TrimPrefix(f[n].name[len(digits):], ".")
			n++
		}
		items = append(items, item{number, f[:n]})
		f = f[n:]
	}
	if plain != nil {
		items = append(items, item{of: plain})
	}
	slices.SortStableFunc(items, func(a, b item) int {
		switch {
		case a.number < b.number:
			return -1
		case a.number > b.number:
			return 1
		}
		return 0
	})
	return items
}

// first returns the first of the names that is present.
func (f form) first(names ...string) (string, bool) {
	for _, name := range names {
		if value, ok := f.get(name); ok {
			return value, true
		}
	}
	return "", false
}

// structure reads parameters into s. Unknown parameters are ignored.
func (f form) structure(s structure) *Error {
	m, list := membersOf(s)
	defer m.release()
	for i := range list {
		if err := f.member(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

// member reads one member, and leaves it unchanged if the parameter is missing.
func (f form) member(m *member) *Error {
	switch value := m.value.(type) {
	case *[]string:
		items := f.items(m)
		if items != nil {
			*value = make([]string, 0, len(items))
		}
		for _, it := range items {
			text, _ := it.of.get("")
			*value = append(*value, text)
		}
	case *[][]byte:
		for _, it := range f.items(m) {
			text, _ := it.of.get("")
			blob, err := queryBlob(m.name, text)
			if err != nil {
				return err
			}
			*value = append(*value, blob)
		}
	case attributeMap:
		return f.texts(m, value.of)
	case tagMap:
		return f.texts(m, value.of)
	case *map[string]MessageAttributeValue:
		return f.values(m, value)
	case structureList:
		for _, it := range f.items(m) {
			if err := it.of.structure(value.grow()); err != nil {
				return err
			}
		}
	default:
		if text, ok := f.get(m.element); ok {
			return scalar(m, text)
		}
	}
	return nil
}

// scalar reads a member that is a single parameter. No input has 64-bit numbers or
// booleans.
func scalar(m *member, text string) *Error {
	var err *Error
	switch value := m.value.(type) {
	case *string:
		*value = text
	case **string:
		*value = &text
	case **int:
		var n int
		n, err = queryInteger(m.name, text)
		*value = &n
	case *[]byte:
		*value, err = queryBlob(m.name, text)
	}
	return err
}

func (f form) texts(m *member, into *map[string]string) *Error {
	for _, it := range f.items(m) {
		name, ok := it.of.first("Name", "Key", "key")
		if !ok {
			return MissingParameter.Withf("The request must contain the parameter %s.Name.", m.element)
		}
		value, _ := it.of.first("Value", "value")
		if *into == nil {
			*into = make(map[string]string)
		}
		(*into)[name] = value
	}
	return nil
}

func (f form) values(m *member, into *map[string]MessageAttributeValue) *Error {
	for _, it := range f.items(m) {
		name, ok := it.of.first("Name", "key")
		if !ok {
			return MissingParameter.Withf("The request must contain the parameter %s.%d.Name.", m.element, it.number)
		}
		var value MessageAttributeValue
		inner := it.of.under("Value")
		if inner == nil {
			inner = it.of.under("value")
		}
		if err := inner.structure(&value); err != nil {
			return err
		}
		if *into == nil {
			*into = make(map[string]MessageAttributeValue)
		}
		(*into)[name] = value
	}
	return nil
}

func queryInteger(name, text string) (int, *Error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, InvalidParameterValue.Withf("Value %.64s for parameter %s is invalid. Reason: Must be an integer.", text, name)
	}
	return int(n), nil
}

func queryBlob(name, text string) ([]byte, *Error) {
	blob, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, InvalidParameterValue.Withf("The value for parameter %s is invalid. Reason: Must be base64.", name)
	}
	return blob, nil
}
