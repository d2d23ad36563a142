package redisbox

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// shard is one shard of a queue, as this process sees it: the keys it has on the
// server, and the lanes that lead there.
type shard struct {
	queue  *queue
	number int
	keys   []string
	clock  clock
	minder minder

	// The lanes that carry what is sent, settled and received. Who sends does not
	// wait for consumers, nor they for him. Consumers have one lane for both things
	// that they do, unless replicas have to confirm: receives do not wait for them.
	sends, settles, receives *lane

	idMu sync.Mutex // guards ids
	ids  *ident.Source

	sessions sessionPool // of calls that do not go by a lane

	forwardMu  sync.Mutex  // guards forwarding
	forwarding *forwarding // under way; nil: none is

	resuming atomic.Bool // moves that have stalled
}

func newShard(q *queue, number int) *shard {
	s := &shard{
		queue: q, number: number,
		keys: shardKeys(q.backend.options.Prefix, q.name, number),
		ids:  ident.NewSource(),
	}
	s.minder.init(s)
	newLane := func() *lane { return &lane{crew: &q.backend.running, carry: s.carry} }
	s.sends, s.settles = newLane(), newLane()
	s.receives = s.settles
	if q.backend.options.Replicas > 0 {
		s.receives = newLane()
	}
	return s
}

// callDurably runs a script that must not be lost or doubled, outside the lanes.
func (s *shard) callDurably(ctx context.Context, sc *script, within bool, args ...string) (answer, error) {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	how := s.queue.backend.durably(sess)
	how.within = within
	return s.call(ctx, sc, how, args...)
}

// serveDurably serves a load that does not go by a lane.
func (s *shard) serveDurably(ctx context.Context, l *load, within bool) error {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	how := s.queue.backend.durably(sess)
	how.within = within
	return s.serve(ctx, l, how)
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

// Receipts carry the shard in the upper 10 bits of the place, then the lower 40 bits
// of the message's own place, and then what shows that the receipt is whole. The
// handle, which is the message's id, and the nonce tell the rest. Of a message's own
// places, which are times in microseconds, no two are twelve days apart to the
// microsecond.
const (
	checkBits = 14
	placeBits = 40
	// checkPrime leaves another remainder if any one bit is another.
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

// shardOfReceipt returns the shard that gave out a receipt, and nil if that was none.
func (q *queue) shardOfReceipt(receipt driver.Receipt) *shard {
	told := receipt.Place >> checkBits
	number := told >> placeBits
	if isOldReceipt(receipt) {
		number = receipt.Place >> oldPlaceBits
	} else if receipt.Place&(1<<checkBits-1) != receiptCheck(receipt.Handle, told, receipt.Nonce) {
		return nil
	}
	if number >= uint64(len(q.shards)) || receipt.Nonce == 0 || receipt.Nonce > maxNonce {
		return nil
	}
	return q.shards[number]
}

// oldPlaceBits is where the shard began in receipts of earlier versions, which did not
// know the message's own place. They stay good, for Ack and the like: whoever has one
// should not have to work again because somebody else has a new version.
const oldPlaceBits = 48

func isOldReceipt(receipt driver.Receipt) bool {
	const rest = 1<<oldPlaceBits - 1
	return receipt.Place&rest == hash(receipt.Handle)&rest
}

// placeOfReceipt is what a receipt knows of the message's own place.
func placeOfReceipt(receipt driver.Receipt) float64 {
	return float64(receipt.Place >> checkBits & (1<<placeBits - 1))
}
