package redisbox

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// shard is one shard of a queue, as this process sees it: its keys on the server, and
// the batchers of its calls.
type shard struct {
	queue   *queue
	number  int
	keys    []string
	clock   clock
	watcher shardWatcher

	// Sends, settles and receives share the batcher shared, so that one call serves
	// senders and consumers. Sends of special messages have their own: one of them puts
	// its whole call on the slow path, see batch.lua. So do receives, if replicas have to
	// confirm: receives do not wait for replicas.
	shared, special, receives *batcher

	idMu sync.Mutex // guards ids
	ids  *ident.Source

	sessions sessionPool // of calls without a batcher

	forwardMu  sync.Mutex  // guards forwarding
	forwarding *forwarding // nil if none is running

	resuming atomic.Bool // see resumeMoves
}

func newShard(q *queue, number int) *shard {
	s := &shard{
		queue: q, number: number,
		keys: shardKeys(q.backend.options.Prefix, q.name, number),
		ids:  ident.NewSource(),
	}
	s.watcher.init(s)
	newBatcher := func() *batcher { return &batcher{goroutines: &q.backend.running, perform: s.perform} }
	s.shared, s.special = newBatcher(), newBatcher()
	s.receives = s.shared
	if q.backend.options.Replicas > 0 {
		s.receives = newBatcher()
	}
	return s
}

// callDurably calls a script, once and confirmed by replicas, without a batcher.
func (s *shard) callDurably(ctx context.Context, sc *script, within bool, args ...string) (answer, error) {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	opts := s.queue.backend.durable(sess)
	opts.within = within
	return s.call(ctx, sc, opts, args...)
}

// runDurably runs a batch, once and confirmed by replicas, without a batcher.
func (s *shard) runDurably(ctx context.Context, b *shardBatch, within bool) error {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	opts := s.queue.backend.durable(sess)
	opts.within = within
	return s.runBatch(ctx, b, opts)
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

// shardOfReceipt returns the shard that gave out a receipt, or nil.
func (q *queue) shardOfReceipt(receipt driver.Receipt) *shard {
	told := receipt.Place >> checkBits
	number := told >> placeBits
	if isOldReceipt(receipt) {
		number = receipt.Place >> oldPlaceBits
	} else if receipt.Place&(1<<checkBits-1) != receiptCheck(receipt.Handle, told, receipt.Nonce) {
		return nil
	}
	if number >= uint64(len(q.shards)) || receipt.Nonce == 0 || receipt.Nonce > maxNonce || len(receipt.Handle) != ident.TextLen {
		return nil
	}
	return q.shards[number]
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
