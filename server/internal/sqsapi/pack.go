package sqsapi

import (
	"encoding/binary"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// pack returns a body with attributes behind it that are too long to stand beside
// it: name, type and value of each, with the length before each of the three. It is
// hardly longer than the three are, so that the largest message of SQS fits into a
// payload.
func pack(body string, attributes typed) []byte {
	size := len(body)
	for name, value := range attributes {
		size += len(name) + len(value.DataType) + len(value.BinaryValue) + 3*binary.MaxVarintLen32
		if value.StringValue != nil {
			size += len(*value.StringValue)
		}
	}
	b := append(make([]byte, 0, size), body...)
	for name, value := range attributes {
		b = appendField(b, name)
		b = appendField(b, value.DataType)
		if value.Kind() != sqswire.TypeBinary && value.StringValue != nil {
			b = appendField(b, *value.StringValue)
		} else { // also where somebody gave a text beside the bytes
			b = binary.AppendUvarint(b, uint64(len(value.BinaryValue)))
			b = append(b, value.BinaryValue...)
		}
	}
	return b
}

func appendField(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// unpack reads what pack put behind a body.
func unpack(b []byte) (typed, bool) {
	attributes := make(typed)
	for len(b) > 0 {
		var fields [3][]byte
		for i := range fields {
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return nil, false
			}
			fields[i], b = b[n:n+int(length)], b[n+int(length):]
		}
		value := sqswire.MessageAttributeValue{DataType: string(fields[1])}
		if value.Kind() == sqswire.TypeBinary {
			value.BinaryValue = fields[2]
		} else {
			text := string(fields[2])
			value.StringValue = &text
		}
		attributes[string(fields[0])] = value
	}
	return attributes, true
}
