package sqswire

import (
	"crypto/md5" //nolint:gosec // it is the checksum that clients of SQS expect
	"encoding/binary"
	"encoding/hex"
)

// MD5OfBody returns the checksum of a message's body, in hexadecimal digits.
func MD5OfBody(body string) string {
	buffer, _ := buffers.Get().(*[]byte)
	*buffer = append((*buffer)[:0], body...)
	sum := md5.Sum(*buffer) //nolint:gosec // see above
	keep(buffer)
	return hexDigits(&sum)
}

func hexDigits(sum *[md5.Size]byte) string {
	var digits [2 * md5.Size]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:])
}

// The types of values in the checksum of attributes.
const (
	carriedAsText  = 1
	carriedAsBytes = 2
)

// MD5OfAttributes returns the checksum of message attributes or of system
// attributes, empty if there are none. It covers names, types and values in the order
// of names, each preceded by its length.
func MD5OfAttributes(attributes map[string]MessageAttributeValue) string {
	if len(attributes) == 0 {
		return ""
	}
	b := make([]byte, 0, 256)
	var room [typicalKeys]string
	for _, name := range sortedKeys(room[:0], attributes) {
		value := attributes[name]
		b = appendCounted(b, name)
		b = appendCounted(b, value.DataType)
		if value.Kind() == TypeBinary {
			b = appendCounted(append(b, carriedAsBytes), value.BinaryValue)
		} else {
			var text string
			if value.StringValue != nil {
				text = *value.StringValue
			}
			b = appendCounted(append(b, carriedAsText), text)
		}
	}
	sum := md5.Sum(b) //nolint:gosec // see above
	return hexDigits(&sum)
}

func appendCounted[T string | []byte](b []byte, text T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}
