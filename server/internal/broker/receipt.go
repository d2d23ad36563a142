package broker

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// A sealed receipt is the base64 of
//
//	1      version
//	key    4 bytes: id of the key of the MAC
//	token  16 bytes: the token that took the delivery
//	taken  7 bytes: when, in Unix microseconds
//	place  8 bytes
//	nonce  8 bytes
//	mac    16 bytes
//
// without padding, followed by the unchanged handle of the backend's receipt. The MAC
// covers all of it and the backend's name of the queue. The handle is outside the base64
// so that it can be sliced out without an allocation.
const (
	receiptVersion = 1

	receiptKeyAt    = 1
	receiptTokenAt  = receiptKeyAt + 4
	receiptTakenAt  = receiptTokenAt + 16
	receiptPlaceAt  = receiptTakenAt + 7
	receiptNonceAt  = receiptPlaceAt + 8
	receiptMACAt    = receiptNonceAt + 8
	receiptHeadSize = receiptMACAt + 16
	receiptTextSize = receiptHeadSize / 3 * 4
)

// receiptKeyInfo separates the keys of receipts from keys for other purposes.
const receiptKeyInfo = "mbx-receipt"

// A sealer seals receipts with keys that it derives from those of a ring. The
// daemons that share a ring accept each other's receipts.
type sealer struct {
	ring *capability.KeyRing
	keys sync.Map // capability.KeyID to *[32]byte
}

// A receiptOwner is the token that took a delivery, and when.
type receiptOwner struct {
	token capability.TokenID
	at    time.Time
}

// current returns the key that seals; nil if the ring is empty.
func (s *sealer) current() (capability.KeyID, *[32]byte) {
	key := s.ring.Current()
	return key.ID(), s.derive(key)
}

// key returns the key with an id, nil if the ring has none.
func (s *sealer) key(id capability.KeyID) *[32]byte {
	if known, ok := s.keys.Load(id); ok {
		return known.(*[32]byte)
	}
	for _, key := range s.ring.Keys() {
		if key.ID() == id {
			return s.derive(key)
		}
	}
	return nil
}

func (s *sealer) derive(key capability.Key) *[32]byte {
	if key.IsZero() {
		return nil
	}
	if known, ok := s.keys.Load(key.ID()); ok {
		return known.(*[32]byte)
	}
	derived, err := hkdf.Key(sha256.New, key.Reveal(), nil, receiptKeyInfo, 32)
	if err != nil {
		return nil
	}
	known, _ := s.keys.LoadOrStore(key.ID(), (*[32]byte)(derived))
	return known.(*[32]byte)
}

// append appends the sealed form of r to b.
func (s *sealer) append(b []byte, id capability.KeyID, key *[32]byte, queue string, r driver.Receipt, by receiptOwner) []byte {
	var head [receiptHeadSize]byte
	head[0] = receiptVersion
	binary.BigEndian.PutUint32(head[receiptKeyAt:], uint32(id))
	copy(head[receiptTokenAt:], by.token[:])
	var taken [8]byte
	binary.BigEndian.PutUint64(taken[:], uint64(by.at.UnixMicro()))
	copy(head[receiptTakenAt:receiptPlaceAt], taken[1:])
	binary.BigEndian.PutUint64(head[receiptPlaceAt:], r.Place)
	binary.BigEndian.PutUint64(head[receiptNonceAt:], r.Nonce)
	mac := receiptMAC(key, head[:receiptMACAt], queue, r.Handle)
	copy(head[receiptMACAt:], mac[:])
	b = base64.RawURLEncoding.AppendEncode(b, head[:])
	return append(b, r.Handle...)
}

// readReceipt returns the parts of a sealed receipt; ok is false for text that does not
// have the form of one.
func readReceipt(text string) (head [receiptHeadSize]byte, handle string, ok bool) {
	if len(text) < receiptTextSize {
		return head, "", false
	}
	var encoded [receiptTextSize]byte
	copy(encoded[:], text)
	n, err := base64.RawURLEncoding.Decode(head[:], encoded[:])
	return head, text[receiptTextSize:], err == nil && n == len(head) && head[0] == receiptVersion
}

// malformedReceipt is the refusal of text that does not have the form of a receipt. Its
// code is that of every receipt that names no delivery.
func malformedReceipt(op, queue string) error {
	return &driver.Error{
		Code: driver.ErrReceiptExpired, Op: op, Queue: queue, Field: "receipt",
		Detail: "is malformed; want the receipt of a delivery, unchanged",
	}
}

// open returns the receipt in text; ok is false if it was not sealed for this queue with
// a key of the ring.
func (s *sealer) open(text, queue string) (r driver.Receipt, by receiptOwner, ok bool) {
	head, handle, ok := readReceipt(text)
	if !ok {
		return r, by, false
	}
	key := s.key(capability.KeyID(binary.BigEndian.Uint32(head[receiptKeyAt:])))
	if key == nil {
		return r, by, false
	}
	mac := receiptMAC(key, head[:receiptMACAt], queue, handle)
	if subtle.ConstantTimeCompare(mac[:], head[receiptMACAt:]) != 1 {
		return r, by, false
	}
	var taken [8]byte
	copy(taken[1:], head[receiptTakenAt:receiptPlaceAt])
	by = receiptOwner{capability.TokenID(head[receiptTokenAt:receiptTakenAt]), time.UnixMicro(int64(binary.BigEndian.Uint64(taken[:])))}
	r = driver.Receipt{
		Handle: handle,
		Place:  binary.BigEndian.Uint64(head[receiptPlaceAt:]),
		Nonce:  binary.BigEndian.Uint64(head[receiptNonceAt:]),
	}
	return r, by, true
}

// receiptMAC returns BLAKE3 over the key and the receipt. BLAKE3 does not allow length
// extension, so a key in front is as safe as its keyed mode, which would allocate.
func receiptMAC(key *[32]byte, head []byte, queue, handle string) [16]byte {
	var buffer [512]byte
	b := append(buffer[:0], receiptKeyInfo...)
	b = append(b, key[:]...)
	b = append(b, head...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(queue)))
	b = append(b, queue...)
	b = append(b, handle...)
	sum := blake3.Sum256(b)
	return [16]byte(sum[:16])
}
