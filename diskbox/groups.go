package diskbox

import (
	"encoding/binary"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// groupNotes says which messages of a queue are indexed by group.
type groupNotes struct {
	strict bool // all messages
	fair   bool // messages with a group
}

func groupsOf(config driver.Config) groupNotes {
	return groupNotes{strict: config.StrictGroups, fair: config.FairGroups}
}

// index reports whether a message is indexed by group.
func (n groupNotes) index(e *engine.Entry) bool {
	return n.strict || (n.fair && groupOf(e) != "")
}

func groupOf(e *engine.Entry) string {
	if e.Extra == nil {
		return ""
	}
	return e.Extra.Group
}

// indexGroup adds an index record of a message by group and place.
func (j *journal) indexGroup(shard host.ShardID, e *engine.Entry) {
	if !j.queues[shard.Queue].groups.index(e) {
		return
	}
	j.key = appendGroupKey(j.key[:0], shard, groupOf(e), e.Place)
	j.batch.Set(j.key, nil)
}

// forgetGroup removes the index record of a message at a place.
func (j *journal) forgetGroup(shard host.ShardID, e *engine.Entry, place uint64) {
	if j.queues[shard.Queue].groups.index(e) {
		j.key = appendGroupKey(j.key[:0], shard, groupOf(e), place)
		j.batch.Delete(j.key)
	}
}

// atPlace returns the message that waits at a place, or nil: the one that was sent there,
// or one that was given this place later.
func (b *backlog) atPlace(place uint64) *engine.Entry {
	e := b.load(place)
	if e == nil {
		b.key = appendNumberKey(b.key[:0], placeKind, b.shard, place)
		value, err := b.store.Get(b.key, nil)
		if b.fail(err) || err != nil || len(value) != 8 {
			return nil
		}
		e = b.load(binary.BigEndian.Uint64(value))
	}
	if e != nil && e.Is(unreadable) {
		e.Place = place
	}
	if e == nil || e.Place != place {
		return nil
	}
	return e
}

// Groups reads the index by group. The Group of a position is the hash in the keys.
func (b *backlog) Groups(from engine.GroupPoint, visit func(e *engine.Entry, at engine.GroupPoint) (engine.GroupPoint, bool)) (end bool) {
	if !b.upToDate() {
		return false
	}
	prefix := appendShardKey(nil, groupKind, b.shard)
	it := b.store.Iterate(prefix, successor(prefix))
	found, more := it.Seek(appendGroupPoint(prefix, from)), true
	for found && more {
		var e *engine.Entry
		key := it.Key()
		if len(key) == groupKeyLen {
			e = b.atPlace(lastNumber(key))
		}
		if e == nil {
			found = it.Next()
			continue
		}
		if from, more = visit(e, engine.GroupPoint{Group: string(key[shardKeyLen : groupKeyLen-8]), Place: lastNumber(key)}); more {
			found = it.Seek(appendGroupPoint(prefix, from))
		}
	}
	return !b.fail(it.Close()) && !found
}

// appendGroupPoint appends a position to the prefix of the index by group.
func appendGroupPoint(prefix []byte, at engine.GroupPoint) []byte {
	if at.Group == "" {
		return prefix
	}
	return binary.BigEndian.AppendUint64(append(prefix, at.Group...), at.Place)
}

func (b *backlog) Group(name string, from uint64) iter.Seq[*engine.Entry] {
	return func(yield func(*engine.Entry) bool) {
		if b.journal != nil { // messages below are removed; skip their deleted records
			b.journal.mu.Lock()
			from = max(from, b.journal.ledger.at(b.shard).trimmed)
			b.journal.mu.Unlock()
		}
		for key := range b.each(appendGroupKey(nil, b.shard, name, from), groupKeyLen-8) {
			if e := b.atPlace(lastNumber(key)); e != nil && !yield(e) {
				return
			}
		}
	}
}
