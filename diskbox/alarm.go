package diskbox

import (
	"slices"

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// A message with a due time has an index record by wall time, until it waits again after a
// delivery or is removed. So the record may stay after the message was delivered, and a message
// is delayed if its record is after the wall clock and it is not in flight.
//
// It also has a record among the delayed messages, with an estimate of its due time and the
// value estimated. Only versions that know no due times read that: for them the message has a
// delay.

var estimated = []byte{1}

// indexAlarm adds the index records of a message with a due time.
func (j *journal) indexAlarm(shard host.ShardID, e *engine.Entry) {
	j.key = appendDueKey(j.key[:0], alarmKind, shard, e.Due, e.Seq)
	j.batch.Set(j.key, nil)
	j.key = appendDueKey(j.key[:0], dueKind, shard, e.Born, e.Seq)
	j.batch.Set(j.key, estimated)
	j.ledger.change(shard).timed++
}

// forgetAlarm removes the index record by wall time of a message that had a due time.
func (j *journal) forgetAlarm(shard host.ShardID, e *engine.Entry) {
	if e.Extra != nil && e.Extra.DeliverAt != 0 {
		j.key = appendDueKey(j.key[:0], alarmKind, shard, engine.Instant(e.Extra.DeliverAt), e.Seq)
		j.batch.Delete(j.key)
	}
}

// countAlarms counts the messages of a shard whose due time is after the wall clock.
func (r *recovery) countAlarms(id host.ShardID, shard *host.RestoredShard) error {
	inFlight := make(map[uint64]bool)
	for _, e := range shard.InFlight {
		inFlight[e.Seq] = true
	}
	reader := &backlog{store: r.store, shard: id}
	it := r.store.Iterate(appendDuePrefix(nil, alarmKind, id, engine.Instant(r.now.Wall)+1), successor(appendShardKey(nil, alarmKind, id)))
	for it.Next() {
		key := it.Key()
		if len(key) != dueKeyLen || inFlight[lastNumber(key)] {
			continue
		}
		if r.clock.isOld { // the version that wrote the store last does not remove these records
			e := reader.load(lastNumber(key))
			if e == nil || !e.Is(engine.Wall) || e.Due != parseInstant(key[shardKeyLen:]) {
				r.stale = append(r.stale, slices.Clone(key))
				continue
			}
		}
		shard.Totals.Delayed++
	}
	return it.Close()
}
