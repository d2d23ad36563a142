package host

import (
	"encoding/binary"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// Messages with a unique key and without a group are in the shard of their key, so that one
// shard knows whether a key is held. With a group, and in strict groups, they would be elsewhere:
// there a queue with several shards takes no unique keys, and messages that come from another
// queue arrive without theirs.

// keyShard returns the shard of a unique key.
func (q *queue) keyShard(key engine.Digest) *shard {
	return q.shards[binary.BigEndian.Uint64(key[:])%uint64(len(q.shards))]
}

// digest hashes a unique key with the secret.
func (b *Backend) digest(key string) engine.Digest {
	digest, _ := b.digests(key, nil)
	return digest
}

// onHolder answers a send whose unique key is held: it has added no message, and perhaps
// replaced the one that holds the key. The answer is empty if no message holds it. The shard
// of the key is in use.
func (s *sendBatch) onHolder(msg *driver.Outgoing, packed packed) (driver.Sent, error) {
	key := packed.extra.Unique.Key
	if !msg.Replace {
		id, held := s.shard.engine.Holder(s.now, key)
		s.repeated = s.repeated || held
		return driver.Sent{ID: id, Duplicate: held}, s.keyRoom(held)
	}
	for {
		e, state := s.shard.engine.FindHolder(s.now, key)
		switch state {
		case engine.Gone:
			return driver.Sent{}, s.keyRoom(false)
		case engine.Ready, engine.Delayed:
			return s.replace(e, packed)
		case engine.Staged: // wait until it is in its next state
			sh := s.shard
			if s.failure = s.run.finish(true); s.failure != nil {
				return driver.Sent{}, s.failure
			}
			s.use(sh)
			continue
		}
		s.repeated = true
		return driver.Sent{ID: e.ID, Duplicate: true}, nil
	}
}

// replace gives a waiting message the content of another one.
func (s *sendBatch) replace(e *engine.Entry, packed packed) (driver.Sent, error) {
	id := string([]byte(e.ID))
	content := packed.content()
	if len(id) == ident.TextLen { // so that it does not keep the memory of the old body alive
		copy(packed.buf, id)
	} else {
		content.ID = id
	}
	if err := s.shard.engine.Replace(s.now, e, content, packed.delay); err != nil {
		return driver.Sent{}, s.queue.noRoomLocked(s.shard, 0)
	}
	s.repeated, s.replaced = true, true
	return driver.Sent{ID: id, Duplicate: true, Replaced: true}, nil
}

// keyRoom returns ErrFull if a message needs a key more in the table of the shard in use, and
// that is full.
func (s *sendBatch) keyRoom(held bool) error {
	if held {
		return nil
	}
	return s.shard.keyRoomLocked()
}

func (sh *shard) keyRoomLocked() error {
	most := sh.queue.settings.Load().config.Effective().DedupMax
	if most == driver.Off || sh.engine.KeysHeld() < max(most/len(sh.queue.shards), 1) {
		return nil
	}
	return sh.queue.full(fmt.Sprintf("the table of unique keys is full (DedupMax %d)", most), retryAfter)
}

// keyHeldLocked returns why a message with an extra cannot arrive in the shard: another one
// holds its unique key, or the table of keys is full.
func (sh *shard) keyHeldLocked(now engine.Moment, op, id string, extra *engine.Extra) error {
	if extra == nil || extra.Unique == nil {
		return nil
	}
	if holder, held := sh.engine.Holder(now, extra.Unique.Key); held {
		return &driver.Error{
			Code: driver.ErrConflict, Op: op, Queue: sh.queue.name, MessageID: string([]byte(holder)), Field: "UniqueKey",
			Detail: "is held by this message, so message " + id + " stays where it is",
		}
	}
	return sh.keyRoomLocked()
}

// arrivalShard returns the shard for a message that comes from another queue, and removes its
// unique key if this queue cannot keep that.
func (q *queue) arrivalShard(extra *engine.Extra) *shard {
	if extra.Unique != nil && !q.takesKeys(extra.Group) {
		extra.Unique = nil
	}
	if extra.Unique != nil {
		return q.keyShard(extra.Unique.Key)
	}
	return q.shardFor(&driver.Outgoing{Group: extra.Group})
}

// takesKeys reports whether messages of a group, which may be empty, can have unique keys.
func (q *queue) takesKeys(group string) bool {
	return len(q.shards) == 1 || (group == "" && !q.settings.Load().config.StrictGroups)
}
