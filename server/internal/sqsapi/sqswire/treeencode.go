package sqswire

// Query clients that accept JSON get the answers of AWS from before the JSON
// protocol: all members, null for missing ones, maps as lists of names and values, and
// two lists in lower case.

// appendTree appends s as such an object.
func appendTree(b []byte, s structure) []byte {
	m, list := membersOf(s)
	defer m.release()
	b = append(b, '{')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendKey(b, treeName(list[i].name))
		if isEmpty(&list[i]) && !list[i].written {
			b = append(b, "null"...)
			continue
		}
		b = appendTreeValue(b, &list[i])
	}
	return append(b, '}')
}

func treeName(name string) string {
	switch name {
	case "Messages":
		return "messages"
	case "QueueUrls":
		return "queueUrls"
	default:
		return name
	}
}

// appendTreeValue appends the value of a member that is not empty.
func appendTreeValue(b []byte, m *member) []byte {
	switch value := m.value.(type) {
	case attributeMap:
		return appendPairs(b, "Name", *value.of)
	case tagMap:
		return appendPairs(b, "Key", *value.of)
	case *map[string]MessageAttributeValue:
		b = append(b, '[')
		var attribute MessageAttributeValue
		for i, name := range sortedKeys(nil, *value) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(append(b, `{"Name":`...), name)
			attribute = (*value)[name]
			b = appendTree(append(b, `,"Value":`...), &attribute)
			b = append(b, '}')
		}
		return append(b, ']')
	case structureList:
		b = append(b, '[')
		for i := range value.length() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendTree(b, value.at(i))
		}
		return append(b, ']')
	default:
		return appendPlain(b, m.value)
	}
}

// appendPairs appends a map as a list of pairs.
func appendPairs(b []byte, key string, texts map[string]string) []byte {
	b = append(b, '[')
	for i, name := range sortedKeys(nil, texts) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendKey(append(b, '{'), key)
		b = appendQuoted(b, name)
		b = appendQuoted(append(b, `,"Value":`...), texts[name])
		b = append(b, '}')
	}
	return append(b, ']')
}
