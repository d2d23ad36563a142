package revocation

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// All records of a revocation file have the same length, so that a flipped bit
// cannot move the start of the next record, and no record crosses a disk sector.
const (
	recordBytes = 128
	sumDigits   = 8
	shareDigits = 16
	headText    = "mailbox revocations 1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame appends a record: the checksum of the rest in hex, a space, the text,
// spaces, a newline.
func frame(b []byte, text string) []byte {
	rest := fmt.Sprintf(" %-*s\n", recordBytes-sumDigits-2, text)
	return fmt.Appendf(b, "%0*x%s", sumDigits, crc32.Checksum([]byte(rest), castagnoli), rest)
}

func appendHead(b []byte) []byte { return frame(b, headText) }

func appendRecord(b []byte, r *Revocation) []byte {
	kind, subject := "token", r.Token.String()
	if r.Tenant != "" {
		kind, subject = "tenant", r.Tenant
	}
	until := int64(0)
	if !r.Until.IsZero() {
		until = r.Until.UnixMilli()
	}
	text := fmt.Sprintf("%s %s %d %d", kind, subject, r.At.UnixMilli(), until)
	if r.Share != 0 {
		text += fmt.Sprintf(" %0*x", shareDigits, r.Share)
	}
	return frame(b, text)
}

// MarshalText returns the line of a revocation file, for storing revocations
// elsewhere. The error is ErrInvalid.
func (r Revocation) MarshalText() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return appendRecord(nil, &r), nil
}

// UnmarshalText reads exactly what MarshalText returns. The error is ErrIntegrity.
func (r *Revocation) UnmarshalText(text []byte) error {
	parsed, ok := parseRecord(text, false)
	if !ok || len(text) != recordBytes {
		return &driver.Error{Code: driver.ErrIntegrity, Op: "capability", Field: "revocation", Detail: "record is damaged"}
	}
	*r = parsed
	return nil
}

// parseRecord reads the record, or the head, at the start of b. It accepts only the
// bytes that appendRecord writes.
func parseRecord(b []byte, head bool) (Revocation, bool) {
	if len(b) < recordBytes {
		return Revocation{}, false
	}
	b = b[:recordBytes]
	if head {
		return Revocation{}, bytes.Equal(b, appendHead(nil))
	}
	fields := strings.Fields(string(b[sumDigits:]))
	if len(fields) != 4 && len(fields) != 5 {
		return Revocation{}, false
	}
	var r Revocation
	var err error
	switch fields[0] {
	case "token":
		r.Token, err = capability.ParseTokenID(fields[1])
	case "tenant":
		r.Tenant = fields[1]
	}
	at, errAt := strconv.ParseInt(fields[2], 10, 64)
	until, errUntil := strconv.ParseInt(fields[3], 10, 64)
	var errShare error
	if len(fields) == 5 {
		r.Share, errShare = strconv.ParseUint(fields[4], 16, 64)
	}
	if err != nil || errAt != nil || errUntil != nil || errShare != nil {
		return Revocation{}, false
	}
	r.At = time.UnixMilli(at).UTC()
	if until != 0 {
		r.Until = time.UnixMilli(until).UTC()
	}
	return r, r.check() == nil && bytes.Equal(b, appendRecord(nil, &r))
}
