package redisbox

import (
	"context"
	"hash/fnv"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// A shardQueue is what the shards of a queue share. It is safe for concurrent use.
type shardQueue struct {
	server *server
	name   string
	// incarnation tells this queue from others that had the same name.
	incarnation string
	shards      []*shard
	settings    atomic.Pointer[settings]
	owner       shardOwner
	// slotKeys are the slots of all buckets, which receives read from then on that this is
	// set; see ofShardAndSlots.
	slotKeys atomic.Pointer[[]string]
}

// A shardOwner is told by the shards of a queue what their calls have found.
type shardOwner interface {
	// OpenAgain opens a shard that is missing, or has an earlier schema.
	OpenAgain(ctx context.Context, s *shard, missing bool) error
	// Gone says that the queue was deleted.
	Gone()
	// Answered is called for each answer that changed something or may make others wait for
	// it. within: the call is part of a transfer, which starts no other.
	Answered(ctx context.Context, s *shard, a *answer, within bool)
	// Ready says that n messages can be received from a shard now.
	Ready(s *shard, n int)
	// Waiting returns how many receives wait in this process.
	Waiting() int
}

// newShardQueue returns the shards of an open queue.
func newShardQueue(server *server, owner shardOwner, name string, state *opened, current *settings) *shardQueue {
	q := &shardQueue{server: server, owner: owner, name: name, incarnation: state.incarnation}
	q.settings.Store(current)
	for i := range max(state.config.Shards, 1) {
		q.shards = append(q.shards, newShard(q, i))
	}
	return q
}

// noteTime records the server's time, as opened has it.
func (q *shardQueue) noteTime(state *opened) {
	for _, s := range q.shards {
		s.clock.saw(0, state.wall, 0)
	}
}

// hash is stable: all processes must agree on the shard of a group or a key.
func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // a hash accepts any input
	return h.Sum64()
}

// shardOf returns the shard of a group or a dedup key.
func (q *shardQueue) shardOf(text string) *shard {
	if len(q.shards) == 1 {
		return q.shards[0]
	}
	return q.shards[hash(text)%uint64(len(q.shards))]
}

// shardOfArrival returns the shard of a message from another queue: always the same
// one, because that shard remembers the arrival.
func (q *shardQueue) shardOfArrival(id, group string) *shard {
	if group != "" || q.settings.Load().config.StrictGroups {
		return q.shardOf(group)
	}
	return q.shardOf(id)
}

// shardOfReceipt returns the shard that gave out a receipt, or nil.
func (q *shardQueue) shardOfReceipt(receipt driver.Receipt) *shard {
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
