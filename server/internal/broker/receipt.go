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
	"github.com/mailboxmq/mailbox/internal/keyring"
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
//
// The version names the MAC: 1 is BLAKE3, 2 is AES-CMAC, which takes less than half of the
// time. Earlier versions of the daemon open only 1.
const (
	receiptHashed   = 1
	receiptCiphered = 2

	receiptKeyAt    = 1
	receiptTokenAt  = receiptKeyAt + 4
	receiptTakenAt  = receiptTokenAt + 16
	receiptPlaceAt  = receiptTakenAt + 7
	receiptNonceAt  = receiptPlaceAt + 8
	receiptMACAt    = receiptNonceAt + 8
	receiptHeadSize = receiptMACAt + 16
	receiptTextSize = receiptHeadSize / 3 * 4
)

// receiptKeyInfo and receiptCipherInfo separate the keys of receipts from keys for other
// purposes, and from each other.
const (
	receiptKeyInfo    = "mbx-receipt"
	receiptCipherInfo = "mbx-receipt-aes"
)

// A sealer seals receipts with keys that it derives from those of a ring. The
// daemons that share a ring accept each other's receipts.
type sealer struct {
	ring    *keyring.Ring
	version byte     // of the receipts that it seals; it opens all versions
	keys    sync.Map // capability.KeyID to *receiptKey
}

// A receiptKey computes the MACs of all versions with one key of the ring.
type receiptKey struct {
	hash [32]byte
	cmac
}

// A receiptOwner is the token that took a delivery, and when.
type receiptOwner struct {
	token capability.TokenID
	at    time.Time
}

// current returns the key that seals; nil if the ring is empty.
func (s *sealer) current() (capability.KeyID, *receiptKey) {
	key := s.ring.Current()
	return key.ID(), s.derive(key)
}

// key returns the key with an id, nil if the ring has none.
func (s *sealer) key(id capability.KeyID) *receiptKey {
	if known, ok := s.keys.Load(id); ok {
		return known.(*receiptKey)
	}
	for _, key := range s.ring.Keys() {
		if key.ID() == id {
			return s.derive(key)
		}
	}
	return nil
}

func (s *sealer) derive(key keyring.Key) *receiptKey {
	if key.IsZero() {
		return nil
	}
	if known, ok := s.keys.Load(key.ID()); ok {
		return known.(*receiptKey)
	}
	hash, err := hkdf.Key(sha256.New, key.Reveal(), nil, receiptKeyInfo, 32)
	if err != nil {
		return nil
	}
	secret, err := hkdf.Key(sha256.New, key.Reveal(), nil, receiptCipherInfo, 16)
	if err != nil {
		return nil
	}
	derived := &receiptKey{hash: [32]byte(hash)}
	derived.cmac.init([16]byte(secret))
	known, _ := s.keys.LoadOrStore(key.ID(), derived)
	return known.(*receiptKey)
}

// append appends the sealed form of r to b.
func (s *sealer) append(b []byte, id capability.KeyID, key *receiptKey, queue string, r driver.Receipt, by receiptOwner) []byte {
	var head [receiptHeadSize]byte
	head[0] = s.version
	binary.BigEndian.PutUint32(head[receiptKeyAt:], uint32(id))
	copy(head[receiptTokenAt:], by.token[:])
	var taken [8]byte
	binary.BigEndian.PutUint64(taken[:], uint64(by.at.UnixMicro()))
	copy(head[receiptTakenAt:receiptPlaceAt], taken[1:])
	binary.BigEndian.PutUint64(head[receiptPlaceAt:], r.Place)
	binary.BigEndian.PutUint64(head[receiptNonceAt:], r.Nonce)
	mac := key.mac(head[:receiptMACAt], queue, r.Handle)
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
	known := head[0] == receiptHashed || head[0] == receiptCiphered
	return head, text[receiptTextSize:], err == nil && n == len(head) && known
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
	mac := key.mac(head[:receiptMACAt], queue, handle)
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

// mac returns the MAC of a receipt, of the version that its head has.
func (k *receiptKey) mac(head []byte, queue, handle string) [16]byte {
	if head[0] == receiptHashed {
		return k.hashMAC(head, queue, handle)
	}
	run := k.begin()
	b := append(run.memory[:0], head...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(queue)))
	b = append(b, queue...)
	b = append(b, handle...)
	return k.end(run, b)
}

// hashMAC returns BLAKE3 over the key and the receipt. BLAKE3 does not allow length
// extension, so a key in front is as safe as its keyed mode, which would allocate.
func (k *receiptKey) hashMAC(head []byte, queue, handle string) [16]byte {
	var buffer [512]byte
	b := append(buffer[:0], receiptKeyInfo...)
	b = append(b, k.hash[:]...)
	b = append(b, head...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(queue)))
	b = append(b, queue...)
	b = append(b, handle...)
	sum := blake3.Sum256(b)
	return [16]byte(sum[:16])
}
