package diskbox

import (
	"time"

	"github.com/mailboxmq/mailbox/internal/host"
)

// What was deleted one by one costs whoever reads over it until it is compacted
// away, so now and then one deletion of a range takes the place of many.

const (
	// trimEvery and trimBytes are after how many removals, or how many bytes of
	// them, the head of a shard is trimmed. Tables below the head are then removed
	// whole, without room for a compaction, which a full disk does not have.
	trimEvery = 10_000
	trimBytes = 4 << 20
	// sweepEvery is after how many notes the old ones are swept.
	sweepEvery = 4096
	// sweepMargin is for how long notes are kept when their time is past. The
	// clocks that tell the time to shards and to the journal may be apart a
	// little.
	sweepMargin = time.Minute
)

// trimLocked trims the shards of which much was removed. The caller has the
// token, so the store knows of everything but what is not committed yet. That
// must be the current batch alone: what is added to it now comes after the rest.
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
			j.batch.DeleteRange(appendShardKey(nil, dueKind, shard), appendDuePrefix(nil, shard, a.now.Add(-sweepMargin)))
		}
		if a.removed >= trimEvery || a.freed >= trimBytes {
			a.removed, a.freed = 0, 0
			j.trimHead(shard, a)
		}
	}
}

// trimHead deletes the range before the first message there is. Messages that
// are not in the store yet have higher numbers than those that are.
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

// sweepKeys removes the dedup keys of a queue that are past their time.
func (j *journal) sweepKeys(queue uint32) {
	q := j.queues[queue]
	if q.keys++; q.keys < sweepEvery {
		return
	}
	q.keys = 0
	first := appendQueueKey(nil, dedupKind, queue)
	j.batch.DeleteRange(first, appendInstant(append([]byte(nil), first...), q.now.Add(-sweepMargin)))
}
