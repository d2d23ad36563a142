package sqsbox

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// messageID is the id of the message that SQS knows by a UUID: the same 128 bits,
// written as a ULID. It does not tell the time. A server that is not SQS may have ULIDs.
func messageID(uuid string) string {
	if _, err := ident.Parse(uuid); err == nil {
		return uuid
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
	if err != nil || len(raw) != len(ulid.ULID{}) {
		hash := sha256.Sum256([]byte(uuid)) // an id of some other kind
		raw = hash[:len(ulid.ULID{})]
	}
	return ulid.ULID(raw).String()
}

// maxToken is how long a group or a dedup id can be at SQS.
const maxToken = 128

// noGroup is the group, at SQS, of messages that have none.
const noGroup = "mailbox.none"

// token is a group or a dedup key as SQS takes it: itself where that can be, and
// otherwise a hash, which the second result says.
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

// sealed makes the receipt of a delivery. Place says which backend handed it out,
// and Nonce is a checksum, so that a receipt that somebody changed is noticed here:
// of the handle SQS itself would notice it, of the rest it would not.
func sealed(queue, handle string, backend uint64) driver.Receipt {
	return driver.Receipt{Handle: handle, Place: backend, Nonce: checksum(queue, handle, backend)}
}

// intact reports whether sealed made a receipt for this queue, in any process.
func intact(queue string, r driver.Receipt) bool {
	return r.Handle != "" && r.Nonce == checksum(queue, r.Handle, r.Place)
}

func checksum(queue, handle string, backend uint64) uint64 {
	hash := sha256.New()
	var number [8]byte
	for i := range number {
		number[i] = byte(backend >> (8 * i))
	}
	_, _ = hash.Write(number[:]) // a hash takes everything
	_, _ = hash.Write([]byte(queue + "\x00" + handle))
	sum := hash.Sum(nil)
	var nonce uint64
	for i := range 8 {
		nonce = nonce<<8 | uint64(sum[i])
	}
	return nonce | 1 // never zero, which would look like none
}

// newIdentity tells one backend from all others.
func newIdentity() uint64 { return ident.Nonce() | 1 }
