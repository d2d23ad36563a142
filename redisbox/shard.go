package redisbox

import (
	"sync"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// shard is one shard of a queue, as this process sees it: its keys on the server, and
// the batchers of its calls.
type shard struct {
	queue  *shardQueue
	number int
	keys   []string
	clock  clock

	// Sends, settles and receives share the batcher shared, so that one call serves
	// senders and consumers. Sends of special messages have their own: one of them puts
	// its whole call on the slow path, see batch.lua. So do receives, if replicas have to
	// confirm: receives do not wait for replicas.
	shared, special, receives *batcher

	idMu sync.Mutex // guards ids
	ids  *ident.Source

	sessions sessionPool // of calls without a batcher
}

func newShard(q *shardQueue, number int) *shard {
	s := &shard{
		queue: q, number: number,
		keys: shardKeys(q.server.prefix, q.name, number),
		ids:  ident.NewSource(),
	}
	newBatcher := func() *batcher { return &batcher{goroutines: &q.server.running, perform: s.perform} }
	s.shared, s.special = newBatcher(), newBatcher()
	s.receives = s.shared
	if q.server.replicas > 0 {
		s.receives = newBatcher()
	}
	return s
}

// newID returns the next message id, with the server's time in it.
func (s *shard) newID() string {
	var text [ident.TextLen]byte
	wall := s.clock.wallNow()
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

// receipt makes the receipt of a delivery from the message's place.
func (s *shard) receipt(id string, place float64, nonce uint64) driver.Receipt {
	told := uint64(s.number)<<placeBits | uint64(place)&(1<<placeBits-1)
	return driver.Receipt{Handle: id, Place: told<<checkBits | receiptCheck(id, told, nonce), Nonce: nonce}
}

func receiptCheck(id string, told, nonce uint64) uint64 {
	return ((told^hash(id))%checkPrime + nonce%checkPrime) % checkPrime
}

// oldPlaceBits is where the shard began in receipts of earlier versions, which do not
// contain the message's own place. They stay valid for Ack and the like: a process that
// holds one should not lose its work because another has a new version.
const oldPlaceBits = 48

func isOldReceipt(receipt driver.Receipt) bool {
	const rest = 1<<oldPlaceBits - 1
	return receipt.Place&rest == hash(receipt.Handle)&rest
}

// placeOfReceipt returns the lower bits of the message's own place.
func placeOfReceipt(receipt driver.Receipt) float64 {
	return float64(receipt.Place >> checkBits & (1<<placeBits - 1))
}
