package sqsbox

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// messageID returns the id of a message from its UUID at SQS: the same 128 bits,
// written as a ULID. It carries no time. Servers other than SQS may use ULIDs already.
func messageID(uuid string) string {
	if _, err := ident.Parse(uuid); err == nil {
		return uuid
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil || len(raw) != len(ulid.ULID{}) {
		hash := sha256.Sum256([]byte(uuid)) // neither a ULID nor a UUID
		raw = hash[:len(ulid.ULID{})]
	}
	return ulid.ULID(raw).String()
}

// maxToken bounds the length of a group or a dedup id at SQS.
const maxToken = 128

// noGroup is the MessageGroupId of messages without a group in a FIFO queue.
const noGroup = "mailbox.none"

// token returns a group or a dedup key in the form that SQS accepts: unchanged if
// possible, and otherwise a hash. The second result tells which.
func token(text string) (written string, same bool) {
	same = text != "" && len(text) <= maxToken && text != noGroup
	for i := 0; same && i < len(text); i++ {
		same = '!' <= text[i] && text[i] <= '~'
	}
	if same {
		return text, true
	}
	hash := sha256.Sum256([]byte(text))
	return "mailbox." + hex.EncodeToString(hash[:]), false
}

// sealed returns the receipt of a delivery. Place identifies the backend that received
// it. Nonce is a checksum that detects a changed receipt: SQS itself would detect a
// changed handle, but not the rest.
func sealed(queue, handle string, backend uint64) driver.Receipt {
	return driver.Receipt{Handle: handle, Place: backend, Nonce: checksum(queue, handle, backend)}
}

// intact reports whether sealed made the receipt for this queue, in any process.
func intact(queue string, r driver.Receipt) bool {
	return r.Handle != "" && r.Nonce == checksum(queue, r.Handle, r.Place)
}

func checksum(queue, handle string, backend uint64) uint64 {
	hash := sha256.New()
	var number [8]byte
	for i := range number {
		number[i] = byte(backend >> (8 * i))
	}
	_, _ = hash.Write(number[:]) // a hash never fails
	_, _ = hash.Write([]byte(queue + "\x00" + handle))
	sum := hash.Sum(nil)
	var nonce uint64
	for i := range 8 {
		nonce = nonce<<8 | uint64(sum[i])
	}
	return nonce | 1 // never zero, which means that there is no nonce
}

// newIdentity returns a random number that identifies a backend.
func newIdentity() uint64 { return ident.Nonce() | 1 }
