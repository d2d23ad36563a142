package diskbox

import (
	"time"

	"github.com/mailboxmq/mailbox/internal/host"
)

// Records that were deleted one by one slow down reads until they are compacted away, so
// from time to time one deletion of a range replaces many.

const (
	// The head of a shard is trimmed after trimEvery removed messages, or trimBytes
	// of them. Tables below the head are then removed as a whole, without a
	// compaction, for which a full disk has no room.
	trimEvery = 10_000
	trimBytes = 4 << 20
	// After sweepEvery new due-time records or dedup keys, the old ones are removed.
	sweepEvery = 4096
	// sweepMargin is how long due-time records and dedup keys are kept after their
	// time is past. The clocks of shards and of the journal may differ a little.
	sweepMargin = time.Minute
)

// trimLocked trims the shards from which many messages were removed. The caller has the
// token, so the store has all operations but those that are not committed yet. They must
// all be in the current batch, so that the deletions added here come after them.
func (j *journal) trimLocked() {
	if len(j.filled) > 0 {
		return
	}
	for _, shard := range j.ledger.changed {
		a := j.ledger.shards[shard]
		if a == nil {
			continue
		}
		if a.timed >= sweepEvery {
			a.timed = 0
			j.batch.DeleteRange(appendShardKey(nil, dueKind, shard), appendDuePrefix(nil, dueKind, shard, a.now.Add(-sweepMargin)))
		}
		if a.removed >= trimEvery || a.freed >= trimBytes {
			a.removed, a.freed = 0, 0
			j.trimHead(shard, a)
		}
	}
}

// trimHead deletes the range before the first message of a shard. Messages that are not in
// the store yet have higher numbers than those that are.
func (j *journal) trimHead(shard host.ShardID, a *account) {
	first := a.written
	it := j.store.Iterate(appendNumberKey(nil, messageKind, shard, a.trimmed), successor(appendShardKey(nil, messageKind, shard)))
	if it.Next() {
		first = lastNumber(it.Key())
	}
	if it.Close() != nil || first <= a.trimmed {
		return
	}
	for _, kind := range []byte{messageKind, stateKind, leaseKind} {
		j.batch.DeleteRange(appendNumberKey(nil, kind, shard, a.trimmed), appendNumberKey(nil, kind, shard, first))
	}
	a.trimmed = first
}
