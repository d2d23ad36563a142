// Package cursor encodes how far a peek has looked at the messages of a queue in one state
// (driver.Query.Cursor). A backend keeps a position as numbers; callers see a text.
package cursor

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
)

// Encode returns the text of a position. It is not empty.
func Encode(marks []uint64) string {
	packed := []byte{version}
	for _, mark := range marks {
		packed = binary.AppendUvarint(packed, mark)
	}
	return base64.RawURLEncoding.EncodeToString(packed)
}

// version begins each cursor: a cursor of another form is refused rather than misread.
const version = 1

// Decode reads a position of n numbers. It returns nil if text is empty, which is the beginning, and
// ErrInvalid if text is not a position of n numbers, which may be one of a queue with other shards.
func Decode(text string, n int) ([]uint64, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > base64.RawURLEncoding.EncodedLen(1+n*binary.MaxVarintLen64) {
		return nil, invalid(text)
	}
	packed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(packed) == 0 || packed[0] != version {
		return nil, invalid(text)
	}
	marks := make([]uint64, n)
	packed = packed[1:]
	for i := range marks {
		mark, length := binary.Uvarint(packed)
		if length <= 0 {
			return nil, invalid(text)
		}
		marks[i], packed = mark, packed[length:]
	}
	if len(packed) > 0 {
		return nil, invalid(text)
	}
	return marks, nil
}

func invalid(text string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "peek", Field: "Cursor", Detail: fmt.Sprintf("%.40q is not a cursor of this queue; begin again without one", text)}
}
