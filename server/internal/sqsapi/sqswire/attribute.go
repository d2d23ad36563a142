package sqswire

import (
	"slices"
	"strings"
	"unicode"
)

const (
	maxAttributeName = 256
	maxAttributeType = 256
)

// The types of attributes, before the dot.
const (
	TypeString = "String"
	TypeNumber = "Number"
	TypeBinary = "Binary"
)

// TraceHeader is the system attribute that can be sent.
const TraceHeader = "AWSTraceHeader"

// Kind returns the type without its label: TypeString, TypeNumber, TypeBinary, or
// something that CheckAttributes refuses.
func (v *MessageAttributeValue) Kind() string {
	kind, _, _ := strings.Cut(v.DataType, ".")
	return kind
}

// How AWS calls message attributes and system attributes in errors.
const (
	userAttribute   = "(user)"
	systemAttribute = "system"
)

// CheckAttributes checks names, types and values of message attributes. Errors
// are an *Error.
func CheckAttributes(attributes map[string]MessageAttributeValue) error {
	if len(attributes) > MaxAttributes {
		return InvalidParameterValue.Withf("Number of message attributes [%d] exceeds the allowed maximum [%d].", len(attributes), MaxAttributes)
	}
	for _, name := range sortedKeys(nil, attributes) {
		if err := checkAttributeName(name); err != nil {
			return err
		}
		value := attributes[name]
		if err := checkAttributeValue(userAttribute, name, &value); err != nil {
			return err
		}
	}
	return nil
}

// CheckSystemAttributes checks the system attributes of a message that is sent.
// Errors are an *Error.
func CheckSystemAttributes(attributes map[string]MessageSystemAttributeValue) error {
	for _, name := range sortedKeys(nil, attributes) {
		value := attributes[name]
		if name != TraceHeader {
			return InvalidParameterValue.Withf("Message system attribute name '%.300s' is invalid.", name)
		}
		if value.DataType != "" && value.DataType != TypeString {
			return InvalidParameterValue.Withf("The message system attribute '%s' has an invalid message attribute type, the set of supported types is String.", name)
		}
		if err := checkAttributeValue(systemAttribute, name, &value); err != nil {
			return err
		}
	}
	return nil
}

// LegalAttributeName reports whether a message attribute may have this name.
func LegalAttributeName(name string) bool { return checkAttributeName(name) == nil }

func checkAttributeName(name string) *Error {
	lower := strings.ToLower(name)
	switch {
	case name == "":
		return InvalidParameterValue.Withf("The request must contain non-empty message (user) attribute names.")
	case len(name) > maxAttributeName:
		return InvalidParameterValue.Withf("Message (user) attribute name must be shorter than %d bytes.", maxAttributeName)
	case strings.ContainsFunc(name, notInAttributeName):
		return InvalidParameterValue.Withf("The message attribute name '%s' is invalid. Attribute name can contain A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.) characters.", name)
	case strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."):
		return InvalidParameterValue.Withf("You can't use message attribute names beginning with 'AWS.' or 'Amazon'. These strings are reserved for internal use.")
	case name[0] == '.':
		return InvalidParameterValue.Withf("Message (user) attribute name must not begin with character '.'.")
	case name[len(name)-1] == '.':
		return InvalidParameterValue.Withf("Message (user) attribute name must not end with character '.'.")
	case strings.Contains(name, ".."):
		return InvalidParameterValue.Withf("Message (user) attribute name must not have successive '.' characters.")
	default:
		return nil
	}
}

// notInAttributeName reports whether a character is not allowed in the name of an
// attribute. AWS accepts letters beyond ASCII, although its documentation does not say
// so.
func notInAttributeName(r rune) bool {
	return notInAttributeType(r) && !unicode.IsLetter(r)
}

func notInAttributeType(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
		return false
	default:
		return true
	}
}

func checkAttributeValue(what, name string, value *MessageAttributeValue) *Error {
	switch {
	case value.StringListValues != nil || value.BinaryListValues != nil:
		return UnsupportedOperation.Withf("Message attribute list values in SendMessage operation are not supported.")
	case value.DataType == "" && value.StringValue == nil && value.BinaryValue == nil:
		return InvalidParameterValue.Withf("The message %s attribute '%s' must contain a non-empty message attribute value.", what, name)
	case value.DataType == "":
		return InvalidParameterValue.Withf("The message %s attribute '%s' must contain a non-empty message attribute type.", what, name)
	case len(value.DataType) > maxAttributeType:
		return InvalidParameterValue.Withf("Message %s attribute type must be shorter than %d bytes.", what, maxAttributeType)
	case strings.ContainsFunc(value.DataType, notInAttributeType):
		return invalidType(what, name)
	}
	switch value.Kind() {
	case TypeString, TypeNumber:
		return checkText(what, name, value)
	case TypeBinary:
		if len(value.BinaryValue) == 0 {
			return emptyValue(what, name, value, "Binary")
		}
		return nil
	default:
		return invalidType(what, name)
	}
}

func invalidType(what, name string) *Error {
	return InvalidParameterValue.Withf("The type of message %s attribute '%s' is invalid. You must use only the following supported type prefixes: Binary, Number, String.", what, name)
}

// emptyValue returns the error for a missing value in the field that the type requires.
func emptyValue(what, name string, value *MessageAttributeValue, field string) *Error {
	if value.StringValue != nil && *value.StringValue != "" || len(value.BinaryValue) > 0 {
		return InvalidParameterValue.Withf("Message %s attribute '%s' with type '%s' must use field '%s'.", what, name, value.DataType, field)
	}
	return InvalidParameterValue.Withf("Message %s attribute '%s' must contain a non-empty value of type '%s'.", what, name, value.DataType)
}

func checkText(what, name string, value *MessageAttributeValue) *Error {
	switch {
	case value.StringValue == nil || *value.StringValue == "":
		return emptyValue(what, name, value, "String")
	case !allowedText(*value.StringValue):
		// Unlike in a body, the code is that of any other bad parameter.
		return InvalidParameterValue.Withf("%s", InvalidMessageContents.Default().Message)
	case value.Kind() == TypeNumber && !isNumber(*value.StringValue):
		return InvalidParameterValue.Withf("Can't cast the value of message %s attribute '%s' to a number.", what, name)
	default:
		return nil
	}
}

// isNumber reports whether text is a number of at most 38 digits, zero or from
// 10^-128 to 10^126.
func isNumber(text string) bool {
	if text != "" && (text[0] == '-' || text[0] == '+') {
		text = text[1:]
	}
	mantissa, exponent, ok := splitExponent(text)
	if !ok {
		return false
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if whole+fraction == "" || !isDigits(whole) || !isDigits(fraction) {
		return false
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	// magnitude is the exponent of the first significant digit.
	magnitude := exponent - len(fraction) + len(digits) - 1
	significant := strings.TrimRight(digits, "0")
	return significant == "" || len(significant) <= 38 && -128 <= magnitude && magnitude <= 126
}

// splitExponent splits 12e-3 into 12 and -3. Numbers with exponents of more than four
// digits are not allowed.
func splitExponent(text string) (mantissa string, exponent int, ok bool) {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return text, 0, true
	}
	digits, negative := strings.CutPrefix(text[i+1:], "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	if digits == "" || len(digits) > 4 || !isDigits(digits) {
		return "", 0, false
	}
	for _, digit := range digits {
		exponent = 10*exponent + int(digit-'0')
	}
	if negative {
		exponent = -exponent
	}
	return text[:i], exponent, true
}

func isDigits(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

// A Filter chooses attributes by the names that a receive asks for. The zero
// Filter chooses none.
type Filter struct {
	all      bool
	names    []string
	prefixes []string
}

// NewFilter returns the filter for names. All, .* and * stand for all, and
// abc.* for all names that begin with abc.
func NewFilter(names []string) Filter {
	var f Filter
	for _, name := range names {
		switch prefix, wild := strings.CutSuffix(name, ".*"); {
		case name == "All", name == "*", name == ".*":
			return Filter{all: true}
		case wild:
			f.prefixes = append(f.prefixes, prefix)
		default:
			f.names = append(f.names, name)
		}
	}
	return f
}

// Empty reports whether the filter chooses nothing.
func (f Filter) Empty() bool { return !f.all && f.names == nil && f.prefixes == nil }

// Matches reports whether the filter chooses the attribute.
func (f Filter) Matches(name string) bool {
	return f.all || slices.Contains(f.names, name) ||
		slices.ContainsFunc(f.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
