package sqswire

import "strconv"

// requireMembers checks that a request has all required members. As on AWS, errors in
// both protocols use the Query names for members of entries: element is the name of those
// in the list that s is from, and position is that of s, 0 for the request itself.
func requireMembers(s structure, element string, position int) *Error {
	m, list := membersOf(s)
	defer m.release()
	for i := range list {
		member := &list[i]
		if member.required && isEmpty(member) {
			path := ""
			if position > 0 {
				path = element + "." + strconv.Itoa(position) + "."
			}
			return missing(path, member.name)
		}
		entries, ok := member.value.(structureList)
		if !ok {
			continue
		}
		for n := range entries.length() {
			if err := requireMembers(entries.at(n), member.element, n+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// missing returns the error of AWS for a missing member; it differs between members.
func missing(path, name string) *Error {
	switch name {
	case "QueueUrl":
		return QueueDoesNotExist.Default()
	case "QueueName":
		return InvalidParameterValue.Withf("Value for parameter QueueName is invalid. Reason: Must specify a queue name.")
	default:
		return MissingParameter.Withf("The request must contain the parameter %s%s.", path, name)
	}
}

// isEmpty reports whether a member has no value.
func isEmpty(m *member) bool {
	switch value := m.value.(type) {
	case *string:
		return *value == ""
	case **string:
		return *value == nil
	case **int:
		return *value == nil
	case **int64:
		return *value == nil
	case *[]byte:
		return *value == nil
	case *[]string:
		return len(*value) == 0
	case *[][]byte:
		return len(*value) == 0
	case attributeMap:
		return len(*value.of) == 0
	case tagMap:
		return len(*value.of) == 0
	case *map[string]MessageAttributeValue:
		return len(*value) == 0
	case structureList:
		return value.length() == 0
	default:
		return false // numbers and booleans are never missing
	}
}
