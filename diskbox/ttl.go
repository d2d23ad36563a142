package diskbox

import (
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// A message with a time to live has an index record by when that ends, from its send until it
// is removed or dies; rescheduling the message replaces the record. Versions that know no times to live leave the record behind when they
// remove the message, and readers skip it.

func hasEnd(e *engine.Entry) bool { return e.Extra != nil && e.Extra.Life != nil }

func (j *journal) indexEnd(shard host.ShardID, e *engine.Entry) {
	if hasEnd(e) {
		j.key = appendDueKey(j.key[:0], endKind, shard, engine.Instant(e.Extra.Life.Ends), e.Seq)
		j.batch.Set(j.key, nil)
	}
}

func (j *journal) forgetEnd(shard host.ShardID, e *engine.Entry) {
	if hasEnd(e) {
		j.key = appendDueKey(j.key[:0], endKind, shard, engine.Instant(e.Extra.Life.Ends), e.Seq)
		j.batch.Delete(j.key)
	}
}

// findLives finds the shards that have messages with a time to live.
func (r *recovery) findLives() error {
	end := successor([]byte{endKind})
	for from := []byte{endKind}; ; {
		it := r.store.Iterate(from, end)
		if !it.Next() {
			return it.Close()
		}
		shard, ok := parseShardKey(it.Key())
		if found := r.find(it.Key()); found != nil {
			found.Totals.Lives = true
		}
		if from = successor(appendShardKey(nil, endKind, shard)); !ok {
			from = append(append([]byte(nil), it.Key()...), 0)
		}
		if err := it.Close(); err != nil {
			return err
		}
	}
}
