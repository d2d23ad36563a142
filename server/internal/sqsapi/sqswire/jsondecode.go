package sqswire

// structure reads an object into s. Unknown members are skipped.
func (r *jsonReader) structure(s structure) {
	if r.null() {
		return
	}
	m, list := membersOf(s)
	defer m.release()
	r.object("a Structure", func(key []byte) {
		for i := range list {
			if isMember(&list[i], key) {
				r.member(&list[i])
				return
			}
		}
		r.skip()
	})
}

// isMember reports whether key names the member. The tags of CreateQueue are
// the only member that begins in lower case; many clients write it in upper case.
func isMember(m *member, key []byte) bool {
	return string(key) == m.name || m.name == "tags" && string(key) == "Tags"
}

// member reads the value of a member. No input has 64-bit numbers or booleans.
func (r *jsonReader) member(m *member) {
	if r.null() {
		return
	}
	switch value := m.value.(type) {
	case *string:
		*value = r.text()
	case **string:
		text := r.text()
		*value = &text
	case **int:
		n := int(r.integer())
		*value = &n
	case *[]byte:
		*value = r.blob()
	case *[]string:
		*value = []string{}
		r.array("a List", func() { *value = append(*value, r.text()) })
	case *[][]byte:
		*value = [][]byte{}
		r.array("a List", func() { *value = append(*value, r.blob()) })
	case attributeMap:
		r.texts(value.of)
	case tagMap:
		r.texts(value.of)
	case *map[string]MessageAttributeValue:
		r.values(value)
	case structureList:
		value.empty()
		r.array("a List", func() { r.structure(value.grow()) })
	}
}

func (r *jsonReader) texts(into *map[string]string) {
	*into = make(map[string]string)
	r.object("a Map", func(key []byte) {
		name := string(key)
		if !r.null() {
			(*into)[name] = r.text()
		}
	})
}

func (r *jsonReader) values(into *map[string]MessageAttributeValue) {
	*into = make(map[string]MessageAttributeValue)
	r.object("a Map", func(key []byte) {
		name := string(key)
		var value MessageAttributeValue
		r.structure(&value)
		(*into)[name] = value
	})
}
