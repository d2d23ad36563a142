package shard

import (
	"sync"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// Shard is one shard of a queue, as this process sees it: its keys on the server, and
// the batchers of its calls.
type Shard struct {
	Queue  *Queue
	Number int
	Keys   []string
	Clock  clock

	// Sends, settles and receives share the batcher shared, so that one call serves
	// senders and consumers. Sends of special messages have their own: one of them puts
	// its whole call on the slow path, see batch.lua. So do receives, if replicas have to
	// confirm: receives do not wait for replicas.
	Shared, special, Receives *batcher

	idMu sync.Mutex // guards ids
	ids  *ident.Source

	sessions sessionPool // of calls without a batcher
}

func newShard(q *Queue, number int) *Shard {
	s := &Shard{
		Queue: q, Number: number,
		Keys: Keys(q.Server.Prefix, q.Name, number),
		ids:  ident.NewSource(),
	}
	newBatcher := func() *batcher { return &batcher{goroutines: &q.Server.Running, Perform: s.Perform} }
	s.Shared, s.special = newBatcher(), newBatcher()
	s.Receives = s.Shared
	if q.Server.Replicas > 0 {
		s.Receives = newBatcher()
	}
	return s
}

// NewID returns the next message id, with the server's time in it.
func (s *Shard) NewID() string {
	var text [ident.TextLen]byte
	wall := s.Clock.wallNow()
	s.idMu.Lock()
	s.ids.Next(wall, text[:])
	s.idMu.Unlock()
	return string(text[:])
}

// The place of a receipt has the shard in the upper 10 bits, then the lower 40 bits of
// the message's own place, and then a checksum. The handle of a receipt is the message's
// id. The places of one message are times in microseconds, and no two of them are exactly
// a multiple of 2⁴⁰ apart, which is twelve days.
const (
	checkBits = 14
	placeBits = 40
	// checkPrime leaves another remainder if any one bit is flipped.
	checkPrime = 16381
)

// Receipt makes the receipt of a delivery from the message's place.
func (s *Shard) Receipt(id string, place float64, nonce uint64) driver.Receipt {
	told := uint64(s.Number)<<placeBits | uint64(place)&(1<<placeBits-1)
	return driver.Receipt{Handle: id, Place: told<<checkBits | receiptCheck(id, told, nonce), Nonce: nonce}
}

func receiptCheck(id string, told, nonce uint64) uint64 {
	return ((told^Hash(id))%checkPrime + nonce%checkPrime) % checkPrime
}

// OldPlaceBits is where the shard began in receipts of earlier versions, which do not
// contain the message's own place. They stay valid for Ack and the like: a process that
// holds one should not lose its work because another has a new version.
const OldPlaceBits = 48

// IsOldReceipt reports whether an earlier version gave out a receipt.
func IsOldReceipt(receipt driver.Receipt) bool {
	const rest = 1<<OldPlaceBits - 1
	return receipt.Place&rest == Hash(receipt.Handle)&rest
}

// PlaceOfReceipt returns the lower bits of the message's own place.
func PlaceOfReceipt(receipt driver.Receipt) float64 {
	return float64(receipt.Place >> checkBits & (1<<placeBits - 1))
}
