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

// An Envelope is everything about a message except its body. See the package
// documentation for its JSON form and for what its hashes cover.
//
// An Envelope is a plain value: it may be copied, and read by many goroutines at
// once.
type Envelope struct {
	// ID is set by the queue.
	ID    string
	Queue string
	// SentAt has a precision of milliseconds.
	SentAt     time.Time
	DedupKey   string
	BodyHash   Hash
	Attributes map[string]string
	// CorrelationID follows the message through logs. A signature is over the one that
	// the sender gave; it is empty if there was none.
	CorrelationID string
	// ReplyTo and Group are those of the message. They are covered by a signature, and
	// are not part of the JSON form: set them from the delivery before Verify.
	ReplyTo, Group string
	Shard          int
	// Attempt is the number of the delivery, from 1; 0 before the first.
	Attempt   int
	HashChain Hash
	// Signature is zero if the envelope is not signed.
	Signature Signature
}

const (
	// chainTag separates hash chains from other hashes.
	chainTag = "mailbox envelope v1\n"
	// timeLayout is the only form of a time.
	timeLayout = "2006-01-02T15:04:05.000Z"
	// maxIDBytes is generous: a ULID has 26, a UUID 36.
	maxIDBytes = 128
)

// Seal fixes the message: it truncates SentAt to milliseconds in UTC, and sets
// BodyHash and HashChain. An existing signature is no longer valid
// and is removed.
//
// It returns ErrInvalid, naming the field, if Queue, SentAt, DedupKey, Attributes
// or CorrelationID is outside the limits of package driver; then the envelope is
// unchanged. It does not block.
func (e *Envelope) Seal(payload []byte) error {
	sentAt := e.SentAt.UTC().Truncate(time.Millisecond)
	if err := e.check(sentAt); err != nil {
		return err
	}
	e.SentAt = sentAt
	e.BodyHash = HashBody(payload)
	e.HashChain = e.chain()
	e.Signature = Signature{}
	return nil
}

// Verify checks that this is the message that was sent: the body has the
// hash in BodyHash, and Queue, SentAt, DedupKey, BodyHash and Attributes
// give HashChain. With trusted keys it also demands a signature by one of them;
// without, it ignores a signature, because there is no key to check it
// with.
//
// It returns nil or a *driver.Error with code ErrIntegrity whose Field names
// the wrong field. It does not block, and without keys it does not allocate.
func (e *Envelope) Verify(payload []byte, trusted ...ed25519.PublicKey) error {
	if HashBody(payload) != e.BodyHash {
		return e.integrityError("payload_hash", "the body is not the one that was sent")
	}
	chain := e.chain()
	if chain != e.HashChain {
		return e.integrityError("hash_chain", "topic, ts, idem_key, payload_hash or attrs was changed")
	}
	if len(trusted) > 0 {
		_, err := e.verifySignature(&chain, trusted)
		return err
	}
	return nil
}

// VerifySigned is Verify with at least one trusted key, and returns the version of the
// signature: 1 or SignatureV2. Demand version 2 unless older senders are
// still in use. It does not check the age of the message: see CheckFresh.
func (e *Envelope) VerifySigned(payload []byte, trusted ...ed25519.PublicKey) (version int, err error) {
	if err := e.Verify(payload); err != nil {
		return 0, err
	}
	chain := e.HashChain // Verify has compared it
	return e.verifySignature(&chain, trusted)
}

// integrityError names the message and the wrong field. It never contains a
// body or an attribute.
func (e *Envelope) integrityError(field, detail string) error {
	return &driver.Error{Code: driver.ErrIntegrity, Op: "verify", Queue: e.Queue, MessageID: e.ID, Field: field, Detail: detail}
}

// chain computes the hash chain from the fields. A typical envelope fits into a
// buffer on the stack; only large attributes cost an allocation.
func (e *Envelope) chain() Hash {
	var buffer [1 << 10]byte
	return blake3.Sum256(e.appendChained(buffer[:0]))
}

// appendChained appends the input of the hash chain.
func (e *Envelope) appendChained(b []byte) []byte {
	b = append(b, chainTag...)
	b = appendText(b, e.Queue)
	b = binary.BigEndian.AppendUint32(b, uint32(len(timeLayout)))
	b = appendTime(b, e.SentAt)
	b = appendText(b, e.DedupKey)
	b = binary.BigEndian.AppendUint32(b, uint32(hashTextLen))
	b = e.BodyHash.append(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Attributes)))
	var keys [maxAttributes]string
	for _, key := range sortedKeys(keys[:0], e.Attributes) {
		b = appendText(b, key)
		b = appendText(b, e.Attributes[key])
	}
	return b
}

// appendTime appends t in UTC as timeLayout says. Sealing formats a time for every
// message, and AppendFormat takes several times as long.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, timeLayout)
	}
	hour, minute, second := t.Clock()
	b = append(appendDigits(b, year, 4), '-')
	b = append(appendDigits(b, int(month), 2), '-')
	b = append(appendDigits(b, day, 2), 'T')
	b = append(appendDigits(b, hour, 2), ':')
	b = append(appendDigits(b, minute, 2), ':')
	b = append(appendDigits(b, second, 2), '.')
	return append(appendDigits(b, t.Nanosecond()/int(time.Millisecond), 3), 'Z')
}

// appendDigits appends n with leading zeros.
func appendDigits(b []byte, n, digits int) []byte {
	start := len(b)
	for range digits {
		b = append(b, '0')
	}
	for i := len(b) - 1; i >= start; i-- {
		b[i] += byte(n % 10)
		n /= 10
	}
	return b
}

func appendText(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// sortedKeys appends the sorted keys of m to keys, which provides the memory.
func sortedKeys(keys []string, m map[string]string) []string {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// maxAttributes and maxAttributeBytes bound the attributes of an envelope: those that a
// message can be sent with, and those that it gets when it is forwarded as a dead letter
// (driver.AttributeDeadReason and the others).
const (
	maxAttributes     = driver.MaxAttributes + 4
	maxAttributeBytes = driver.MaxAttributeBytes + 8<<10
)

// check returns ErrInvalid if a field that Seal covers is outside its limits.
// Everything must be valid UTF-8: JSON carries nothing else, and text that
// it cannot carry could not be verified by the receiver.
func (e *Envelope) check(sentAt time.Time) error {
	if year := sentAt.Year(); year < 1970 || year > 9999 {
		return sealError("ts", "is not between the years 1970 and 9999")
	}
	if err := driver.CheckName(e.Queue); err != nil {
		return sealError("topic", detailOf(err))
	}
	// Package driver checks the other limits, under its own names of the fields.
	texts := driver.Outgoing{DedupKey: e.DedupKey, Attributes: e.Attributes, CorrelationID: e.CorrelationID, ReplyTo: e.ReplyTo, Group: e.Group}
	if err := texts.Check(&driver.Traits{
		DedupWindow: math.MaxInt64, Groups: true, MaxAttributes: maxAttributes, MaxAttributeBytes: maxAttributeBytes,
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
