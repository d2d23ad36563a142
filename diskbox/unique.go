package diskbox

import (
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
)

// A message that holds its unique key has a record with the key's digest and the id of the message, from its send
// until it is removed or dies. All of them are read when a store is opened. Totals.Keys is how
// many a shard has. Versions that know no unique keys leave the records behind and do not write
// Keys; if the number does not match, each record is compared with its message.

// indexUnique adds the record of a message that holds its unique key.
func (j *journal) indexUnique(shard host.ShardID, e *engine.Entry) {
	if e.HoldsKey() {
		j.number(uniqueKind, shard, e.Seq)
		j.begin().unique(e)
		j.end()
	}
}

// forgetUnique removes the record of indexUnique. Of a damaged message it is not known whether
// there is one.
func (j *journal) forgetUnique(shard host.ShardID, e *engine.Entry) {
	if e.HoldsKey() || e.Is(engine.Damaged) {
		j.remove(uniqueKind, shard, e.Seq)
	}
}

// Replaced writes the record of the message again, with its new content.
func (j *journal) Replaced(shard host.ShardID, was, e *engine.Entry, now engine.Instant) {
	if j.knows(shard.Queue) {
		j.Rescheduled(shard, was, e, now)
		j.ledger.change(shard).Bytes += int(e.Size) - int(was.Size)
	}
}

// unique writes the digest of a unique key and the id of the message that holds it.
func (w *writer) unique(e *engine.Entry) {
	w.number(recordVersion)
	w.bytes(e.Extra.Unique.Key[:])
	w.text(e.ID)
}

// readUnique reads the record of a unique key.
func readUnique(key, value []byte) (held host.RestoredUnique, ok bool) {
	if len(key) != numberKeyLen {
		return held, false
	}
	r := open(key, value)
	digest := r.take()
	held.ID, held.Seq = r.text(), lastNumber(key)
	if r.damaged || len(digest) != len(held.Key) || len(r.buf) != 0 {
		return host.RestoredUnique{}, false
	}
	copy(held.Key[:], digest)
	return held, true
}

// holdsUnique reports whether a message holds the unique key of a record.
func holdsUnique(e *engine.Entry, held host.RestoredUnique) bool {
	return e != nil && e.HoldsKey() && e.Extra.Unique.Key == held.Key && e.ID == held.ID
}

// readUnique reads the unique keys that messages hold.
func (r *recovery) readUnique() error {
	err := r.each(uniqueKind, func(key, value []byte) error {
		shard := r.find(key)
		if shard == nil {
			return nil
		}
		held, ok := readUnique(key, value)
		if !ok {
			return damagedError("the record of a unique key")
		}
		shard.Unique = append(shard.Unique, held)
		return nil
	})
	if err != nil {
		return err
	}
	return r.eachShard(r.verifyUnique)
}

// verifyUnique drops the keys that no message holds, if there may be some.
func (r *recovery) verifyUnique(id host.ShardID, shard *host.RestoredShard) error {
	if len(shard.Unique) == shard.Totals.Keys {
		return nil
	}
	b := &backlog{store: r.store, shard: id}
	var sound []host.RestoredUnique
	for _, held := range shard.Unique {
		if e := b.load(held.Seq); e != nil && (holdsUnique(e, held) || e.Is(engine.Damaged)) {
			sound = append(sound, held)
		} else {
			r.stale = append(r.stale, appendNumberKey(nil, uniqueKind, id, held.Seq))
		}
	}
	shard.Unique, shard.Totals.Keys = sound, len(sound)
	return b.err
}

func (c *checker) unique(shard host.ShardID, key, value []byte) {
	held, ok := readUnique(key, value)
	if !ok {
		c.problem("the record %x of %s is damaged", key, c.name(shard))
		return
	}
	if e := c.load(shard, key, held.Seq); e != nil && !e.Is(engine.Damaged) && !holdsUnique(e, held) {
		c.problem("the record %x of %s is that of another unique key", key, c.name(shard))
	}
}

// inUnique checks that a message that holds its unique key is found by it.
func (c *checker) inUnique(shard host.ShardID, e *engine.Entry) {
	if e.HoldsKey() && !c.has(appendNumberKey(nil, uniqueKind, shard, e.Seq)) {
		c.problem("message %d of %s is not found by its unique key", e.Seq, c.name(shard))
	}
}

// unique removes the record of a unique key that no message holds.
func (r *repair) unique(shard host.ShardID, key, value []byte) error {
	held, ok := readUnique(key, value)
	if !ok {
		return r.remove(key)
	}
	b := r.backlog(shard)
	if e := b.load(held.Seq); b.err == nil && !holdsUnique(e, held) {
		return r.remove(key)
	}
	return b.err
}

// wantUnique rebuilds the record of a message that holds its unique key.
func (r *repair) wantUnique(shard host.ShardID, e *engine.Entry) error {
	if !e.HoldsKey() {
		return nil
	}
	key := appendNumberKey(nil, uniqueKind, shard, e.Seq)
	var w writer
	w.begin(key)
	w.unique(e)
	return r.want(key, append([]byte(nil), w.end()...))
}
