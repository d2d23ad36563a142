package diskbox

import (
	"iter"

	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// Messages with a priority above 0 have an index record by priority and place, from their send
// until they are removed or die. Totals.Indexed is a place from which on the messages of
// priority 0 have one too, so that a reader of one priority never meets those of another: it is
// the tail of the shard when the first message with a priority came. It is 0 while the shard has no such
// message, and such shards pay nothing.
//
// Versions that know no priorities keep the records, but do not write Indexed; then
// findLevels (below) indexes the messages with priorities again.

// isIndexed reports whether a message at a place is indexed by priority.
func isIndexed(indexed uint64, e *engine.Entry, place uint64) bool {
	return e.Priority > 0 || (indexed != 0 && place >= indexed)
}

// indexLevel adds an index record of a message by priority and place. It must be called before
// the place of e is noted in the ledger.
func (j *journal) indexLevel(shard host.ShardID, e *engine.Entry) {
	a := j.ledger.change(shard)
	if e.Priority > 0 && a.Indexed == 0 {
		a.Indexed = max(a.NextSeq, e.Place)
	}
	if isIndexed(a.Indexed, e, e.Place) {
		j.key = appendLevelKey(j.key[:0], shard, e.Priority, e.Place)
		j.batch.Set(j.key, nil)
	}
}

// forgetLevel removes the index record of a message at a place.
func (j *journal) forgetLevel(shard host.ShardID, e *engine.Entry, place uint64) {
	if isIndexed(j.ledger.at(shard).Indexed, e, place) {
		j.key = appendLevelKey(j.key[:0], shard, e.Priority, place)
		j.batch.Delete(j.key)
	}
}

// Prioritized writes the record of the message again, with another priority.
func (j *journal) Prioritized(shard host.ShardID, was, e *engine.Entry) {
	if !j.knows(shard.Queue) {
		return
	}
	j.forgetLevel(shard, was, was.Place)
	j.number(messageKind, shard, e.Seq)
	j.beginMessage().message(e)
	j.endMessage(e)
	j.indexLevel(shard, e)
}

func (b *backlog) Level(priority uint8, from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		indexed := uint64(0)
		if b.journal != nil {
			b.journal.mu.Lock()
			a := b.journal.ledger.at(b.shard)
			indexed = a.Indexed
			from = max(from, a.trimmed) // messages below are removed; skip their deleted records
			b.journal.mu.Unlock()
		}
		if priority == 0 && (indexed == 0 || from < indexed) {
			for e := range b.Waiting(from) {
				if indexed != 0 && e.Place >= indexed {
					break
				}
				if e.Priority == 0 && !yield(e) {
					return
				}
			}
			from = indexed
		}
		if indexed == 0 {
			return
		}
		for key := range b.each(appendLevelKey(nil, b.shard, priority, from), levelKeyLen-8) {
			if e := b.atPlace(lastNumber(key)); e != nil && (e.Priority == priority || e.Is(unreadable)) && !yield(e) {
				return
			}
		}
	}
}

// findLevels indexes the messages with priorities of shards that a version has changed which
// knows no priorities.
func (r *recovery) findLevels() error {
	return r.eachShard(func(id host.ShardID, shard *host.RestoredShard) error {
		if shard.Totals.Indexed != 0 {
			return nil
		}
		b := &backlog{store: r.store, shard: id}
		found := false
		for key := range b.each(appendShardKey(nil, levelKind, id), shardKeyLen) {
			found = true
			r.stale = append(r.stale, append([]byte(nil), key...))
		}
		if !found {
			return b.err
		}
		for e := range b.Waiting(0) {
			if e.Priority > 0 {
				shard.Totals.Indexed = max(shard.Totals.NextSeq, 1)
				r.levels = append(r.levels, appendLevelKey(nil, id, e.Priority, e.Place))
			}
		}
		return b.err
	})
}
