package sqsapi

import (
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"
)

// messageID returns the id of a message in the form of a UUID, which some clients
// require. It has the same 128 bits as the ULID of other surfaces.
func messageID(id string) string {
	parsed, err := ulid.ParseStrict(id)
	if err != nil {
		return id
	}
	return uuid.UUID(parsed).String()
}

// sequenceNumber returns the 128 bits of a message's id as a decimal number. Both grow
// within a queue.
func sequenceNumber(id string) string {
	parsed, err := ulid.ParseStrict(id)
	if err != nil {
		return ""
	}
	high, low := binary.BigEndian.Uint64(parsed[:8]), binary.BigEndian.Uint64(parsed[8:])
	const chunk = 1e19 // the largest power of ten in 64 bits
	top, high := high/chunk, high%chunk
	middle, low := bits.Div64(high, low, chunk)
	var text [40]byte
	b := text[:0]
	if top > 0 {
		b = strconv.AppendUint(b, top, 10)
		b = appendPadded(b, middle)
	} else if middle > 0 {
		b = strconv.AppendUint(b, middle, 10)
	} else {
		return strconv.FormatUint(low, 10)
	}
	return string(appendPadded(b, low))
}

// appendPadded appends a number as nineteen digits, with leading zeros.
func appendPadded(b []byte, n uint64) []byte {
	const digits = 19
	var text [digits]byte
	for i := digits - 1; i >= 0; i-- {
		text[i] = byte('0' + n%10)
		n /= 10
	}
	return append(b, text[:]...)
}
