package sqswire

import "strings"

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
		if err := checkAttributeValue("Message (user) attribute", name, &value); err != nil {
			return err
		}
	}
	return nil
}

// CheckSystemAttributes checks the system attributes of a message to be sent.
// Errors are an *Error.
func CheckSystemAttributes(attributes map[string]MessageSystemAttributeValue) error {
	for _, name := range sortedKeys(nil, attributes) {
		value := attributes[name]
		if name != TraceHeader {
			return InvalidParameterValue.Withf("Message system attribute name '%.300s' is invalid.", name)
		}
		if value.DataType != TypeString {
			return InvalidParameterValue.Withf("The message system attribute '%s' has an invalid message attribute type, the set of supported types is String.", name)
		}
		if err := checkAttributeValue("Message (system) attribute", name, &value); err != nil {
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
		return InvalidParameterValue.Withf("Length of message attribute name must be less than %d bytes.", maxAttributeName)
	case strings.ContainsFunc(name, notInAttributeName):
		return InvalidParameterValue.Withf("The message attribute name '%s' is invalid. Attribute name can contain A-Z, a-z, 0-9, underscore (_), hyphen (-), and period (.) characters.", name)
	case strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."):
		return InvalidParameterValue.Withf("You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal use.")
	case name[0] == '.':
		return InvalidParameterValue.Withf("Message attribute name can not start with '.' character.")
	case name[len(name)-1] == '.':
		return InvalidParameterValue.Withf("Message attribute name can not end with '.' character.")
	case strings.Contains(name, ".."):
		return InvalidParameterValue.Withf("Message attribute name can not have successive '.' characters.")
	default:
		return nil
	}
}

func notInAttributeName(r rune) bool {
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
	case value.DataType == "":
		return InvalidParameterValue.Withf("The message attribute '%s' must contain a non-empty message attribute type.", name)
	case len(value.DataType) > maxAttributeType:
		return InvalidParameterValue.Withf("Length of message attribute type must be less than %d bytes.", maxAttributeType)
	case strings.ContainsFunc(value.DataType, notInAttributeName):
		return invalidType(name)
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
		return invalidType(name)
	}
}

func invalidType(name string) *Error {
	return InvalidParameterValue.Withf("The message attribute '%s' has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String.", name)
}

// emptyValue says that there is no value in the field that belongs to the type.
func emptyValue(what, name string, value *MessageAttributeValue, field string) *Error {
	if value.StringValue != nil && *value.StringValue != "" || len(value.BinaryValue) > 0 {
		return InvalidParameterValue.Withf("The message attribute '%s' with type '%s' must use field '%s'.", name, value.DataType, field)
	}
	return InvalidParameterValue.Withf("%s '%s' must contain a non-empty value of type '%s'.", what, name, value.DataType)
}

func checkText(what, name string, value *MessageAttributeValue) *Error {
	switch {
	case value.StringValue == nil || *value.StringValue == "":
		return emptyValue(what, name, value, "String")
	case !allowedText(*value.StringValue):
		return InvalidMessageContents.Default()
	case value.Kind() == TypeNumber && !isNumber(*value.StringValue):
		return InvalidParameterValue.Withf("Can't cast the value of message (user) attribute '%s' to a number.", name)
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
	// magnitude is the exponent of the first digit that counts.
	magnitude := exponent - len(fraction) + len(digits) - 1
	significant := strings.TrimRight(digits, "0")
	return significant == "" || len(significant) <= 38 && -128 <= magnitude && magnitude <= 126
}

// splitExponent splits 12e-3 into 12 and -3. Exponents of more than four digits
// are of no number that is allowed.
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
