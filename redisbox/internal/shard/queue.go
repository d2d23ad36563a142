package shard

import (
	"context"
	"hash/fnv"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// A Queue is what the shards of a queue share. It is safe for concurrent use.
type Queue struct {
	Server *Server
	Name   string
	// Incarnation tells this queue from others that had the same name.
	Incarnation string
	Shards      []*Shard
	Settings    atomic.Pointer[Settings]
	Owner       Owner
	// SlotKeys are the slots of all buckets, which receives read from then on that this is
	// set; see ofShardAndSlots.
	SlotKeys atomic.Pointer[[]string]
	// SlotPrefix is what the ids of slots begin with in their buckets, and not in the messages of
	// this queue. Nil means nothing.
	SlotPrefix atomic.Pointer[string]
	// Parked are receives that wait, and that a call with a send takes along.
	Parked parkedReceives
}

// An Owner is told by the shards of a queue what their calls have found.
type Owner interface {
	// OpenAgain opens a shard that is missing, or has an earlier schema.
	OpenAgain(ctx context.Context, s *Shard, missing bool) error
	// Gone says that the queue was deleted.
	Gone()
	// Answered is called for each answer that changed something or may make others wait for
	// it. within: the call is part of a transfer, which starts no other.
	Answered(ctx context.Context, s *Shard, a *Answer, within bool)
	// Ready says that n messages can be received from a shard now.
	Ready(s *Shard, n int)
	// Waiting returns how many receives wait in this process.
	Waiting() int
}

// NewQueue returns the shards of an open queue.
func NewQueue(server *Server, owner Owner, name string, state *Opened, current *Settings) *Queue {
	q := &Queue{Server: server, Owner: owner, Name: name, Incarnation: state.Incarnation}
	q.Settings.Store(current)
	for i := range max(state.Config.Shards, 1) {
		q.Shards = append(q.Shards, newShard(q, i))
	}
	return q
}

// NoteTime records the server's time, as an opened shard has it.
func (q *Queue) NoteTime(state *Opened) {
	for _, s := range q.Shards {
		s.Clock.Saw(0, state.wall, 0)
	}
}

// Hash is stable: all processes must agree on the shard of a group or a key.
func Hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // a hash accepts any input
	return h.Sum64()
}

// ShardOf returns the shard of a group or a dedup key.
func (q *Queue) ShardOf(text string) *Shard {
	if len(q.Shards) == 1 {
		return q.Shards[0]
	}
	return q.Shards[Hash(text)%uint64(len(q.Shards))]
}

// ShardOfUnique returns the shard of a unique key. Messages with a key and without a group are
// in the shard of their key, so that one shard knows whether a key is held.
func (q *Queue) ShardOfUnique(key string) *Shard { return q.ShardOf(digest(key)) }

// TakesKeys reports whether messages of a group, which may be empty, can have unique keys: not
// if the group decides which of several shards they are in.
func (q *Queue) TakesKeys(group string) bool {
	return len(q.Shards) == 1 || (group == "" && !q.Settings.Load().Config.StrictGroups)
}

// ShardOfArrival returns the shard of a message from another queue: always the same
// one, because that shard remembers the arrival.
func (q *Queue) ShardOfArrival(id, group, unique string) *Shard {
	switch {
	case unique != "":
		return q.ShardOf(unique)
	case group != "" || q.Settings.Load().Config.StrictGroups:
		return q.ShardOf(group)
	}
	return q.ShardOf(id)
}

// ShardOfReceipt returns the shard that gave out a receipt, or nil.
func (q *Queue) ShardOfReceipt(receipt driver.Receipt) *Shard {
	told := receipt.Place >> checkBits
	number := told >> placeBits
	if IsOldReceipt(receipt) {
		number = receipt.Place >> OldPlaceBits
	} else if receipt.Place&(1<<checkBits-1) != receiptCheck(receipt.Handle, told, receipt.Nonce) {
		return nil
	}
	if number >= uint64(len(q.Shards)) || receipt.Nonce == 0 || receipt.Nonce > maxNonce || len(receipt.Handle) != ident.TextLen {
		return nil
	}
	return q.Shards[number]
}
