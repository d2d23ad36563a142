package envelope

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
)

// An Envelope is everything about a message but its payload. See the package
// documentation for its JSON form and for what its hashes cover.
//
// An Envelope is a plain value: it may be copied, and read by many goroutines at
// once.
type Envelope struct {
	// ID is given by the queue.
	ID    string
	Topic string
	// SentAt is kept to the millisecond.
	SentAt      time.Time
	IdemKey     string
	PayloadHash Hash
	Attributes  map[string]string
	// CorrelationID follows the message through logs. A signature is over the one that
	// the sender gave; it is empty if there was none.
	CorrelationID string
	// ReplyTo and Group are those of the message. They are covered by a signature, and
	// are not part of the JSON form: set them from the delivery before Verify.
	ReplyTo, Group string
	Shard          int
	// Attempt is which delivery this is, from 1; 0 before the first.
	Attempt   int
	HashChain Hash
	// Signature is zero if the envelope is not signed.
	Signature Signature
}

const (
	// chainTag keeps a hash chain from being the hash of anything else.
	chainTag = "mailbox envelope v1\n"
	// timeLayout is the one form of a time.
	timeLayout = "2006-01-02T15:04:05.000Z"
	// maxIDBytes is generous: a ULID has 26, a UUID 36.
	maxIDBytes = 128
)

// Seal fixes the message: it cuts SentAt to the millisecond in UTC, and sets
// PayloadHash and HashChain. A signature that was there does not fit any more
// and is removed.
//
// It returns ErrInvalid, naming the field, if Topic, SentAt, IdemKey, Attributes
// or CorrelationID is outside the limits of package driver; the envelope is
// unchanged then. It does not block.
func (e *Envelope) Seal(payload []byte) error {
	sentAt := e.SentAt.UTC().Truncate(time.Millisecond)
	if err := e.check(sentAt); err != nil {
		return err
	}
	e.SentAt = sentAt
	e.PayloadHash = HashPayload(payload)
	e.HashChain = e.chain()
	e.Signature = Signature{}
	return nil
}

// Verify reports whether this is the message that was sent: the payload has the
// hash in PayloadHash, and Topic, SentAt, IdemKey, PayloadHash and Attributes
// give HashChain. With trusted keys it also demands a signature by one of them;
// without, a signature is not looked at, because there is nothing to check it
// with.
//
// It returns nil or an *driver.Error with code ErrIntegrity whose Field names
// what does not fit. It does not block, and without keys it does not allocate.
func (e *Envelope) Verify(payload []byte, trusted ...ed25519.PublicKey) error {
	if HashPayload(payload) != e.PayloadHash {
		return e.integrityError("payload_hash", "the payload is not the one that was sent")
	}
	chain := e.chain()
	if chain != e.HashChain {
		return e.integrityError("hash_chain", "topic, ts, idem_key, payload_hash or attrs is not what was sent")
	}
	if len(trusted) > 0 {
		_, err := e.verifySignature(&chain, trusted)
		return err
	}
	return nil
}

// VerifySigned is Verify with at least one trusted key, and returns the version of the
// signature: SignatureV1 or SignatureV2. Demand version 2 unless senders of before are
// still about. It says nothing about the age of the message: see CheckFresh.
func (e *Envelope) VerifySigned(payload []byte, trusted ...ed25519.PublicKey) (version int, err error) {
	if err := e.Verify(payload); err != nil {
		return 0, err
	}
	chain := e.HashChain // Verify has compared it
	return e.verifySignature(&chain, trusted)
}

// integrityError names the message and what does not fit. It never contains a
// payload or an attribute.
func (e *Envelope) integrityError(field, detail string) error {
	return &driver.Error{Code: driver.ErrIntegrity, Op: "verify", Queue: e.Topic, MessageID: e.ID, Field: field, Detail: detail}
}

// chain computes the hash chain from the fields. The usual envelope fits into a
// buffer on the stack; only large attributes cost an allocation.
func (e *Envelope) chain() Hash {
	var buffer [1 << 10]byte
	return blake3.Sum256(e.appendChained(buffer[:0]))
}

// appendChained appends the bytes that the hash chain is the hash of.
func (e *Envelope) appendChained(b []byte) []byte {
	b = append(b, chainTag...)
	b = appendText(b, e.Topic)
	b = binary.BigEndian.AppendUint32(b, uint32(len(timeLayout)))
	b = e.SentAt.UTC().AppendFormat(b, timeLayout)
	b = appendText(b, e.IdemKey)
	b = binary.BigEndian.AppendUint32(b, uint32(HashTextLen))
	b = e.PayloadHash.append(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Attributes)))
	var keys [MaxAttributes]string
	for _, key := range sortedKeys(keys[:0], e.Attributes) {
		b = appendText(b, key)
		b = appendText(b, e.Attributes[key])
	}
	return b
}

func appendText(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// sortedKeys appends the keys of m to keys, which brings the memory, in order.
func sortedKeys(keys []string, m map[string]string) []string {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// MaxAttributes and MaxAttributeBytes bound the attributes of an envelope: those that a
// message can be sent with, and those that it gets when it is forwarded as a dead letter
// (driver.AttributeDeadReason and the others).
const (
	MaxAttributes     = driver.MaxAttributes + 4
	MaxAttributeBytes = driver.MaxAttributeBytes + 8<<10
)

// check returns ErrInvalid if a field that Seal takes is outside its limits.
// Everything must be valid UTF-8 above all: JSON carries nothing else, and what
// it cannot carry could not be verified on the other side.
func (e *Envelope) check(sentAt time.Time) error {
	if year := sentAt.Year(); year < 1970 || year > 9999 {
		return sealError("ts", "is not between the years 1970 and 9999")
	}
	if err := driver.CheckName(e.Topic); err != nil {
		return sealError("topic", detailOf(err))
	}
	// The seam knows the limits of the rest; only its names are others.
	texts := driver.Outgoing{DedupKey: e.IdemKey, Attributes: e.Attributes, CorrelationID: e.CorrelationID, ReplyTo: e.ReplyTo, Group: e.Group}
	if err := texts.Check(&driver.Traits{
		DedupWindow: math.MaxInt64, Groups: true, MaxAttributes: MaxAttributes, MaxAttributeBytes: MaxAttributeBytes,
	}); err != nil {
		names := map[string]string{"DedupKey": "idem_key", "Attributes": "attrs", "CorrelationID": "corr_id", "ReplyTo": "reply_to", "Group": "group"}
		if seam, ok := errors.AsType[*driver.Error](err); ok {
			return sealError(names[seam.Field], seam.Detail)
		}
		return err
	}
	return nil
}

func detailOf(err error) string {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Detail
	}
	return err.Error()
}
