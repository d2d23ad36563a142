package faulty

import (
	"context"
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
)

// alterUnique changes messages with a valid unique key before the backend gets them.
func alterUnique(change func(q *queue, msg *driver.Outgoing)) sendFunc {
	return alterSent(func(q *queue, msg *driver.Outgoing) {
		if msg.UniqueKey != "" && len(msg.UniqueKey) <= driver.MaxDedupKeyBytes {
			change(q, msg)
		}
	})
}

// A uniqueUse is the message that was last sent with a unique key, and what was made of the key.
type uniqueUse struct {
	id     string
	renews int  // the key was free so often before it should have been
	stuck  bool // the key is never free again
}

type uniqueUses = table[string, uniqueUse]

// sendUnique sends a message and notes who holds its unique key.
func (q *queue) sendUnique(ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
	key := msg.UniqueKey
	if key == "" || len(key) > driver.MaxDedupKeyBytes {
		return q.sendOne(ctx, msg)
	}
	uses := state[uniqueUses](q)
	use := uses.at(key)
	if use.renews > 0 {
		msg.UniqueKey = shortKey(fmt.Sprintf("%s renewed %d", key, use.renews))
	}
	sent, err := q.sendOne(ctx, msg)
	if err == nil {
		use.id = sent.ID
		uses.put(key, use)
	}
	return sent, err
}

// renewKeys sends so that renewKey can free keys.
var renewKeys = sendOneByOne((*queue).sendUnique)

// renewKey frees the unique key of a message, although that still holds it.
func (q *queue) renewKey(id string) {
	uses := state[uniqueUses](q)
	for _, key := range uses.keys() {
		if use := uses.at(key); use.id == id {
			uses.put(key, uniqueUse{renews: use.renews + 1})
		}
	}
}

// stuckKeys sends so that stick can keep keys from being free.
var stuckKeys = sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
	if use := state[uniqueUses](q).at(msg.UniqueKey); use.stuck && msg.UniqueKey != "" {
		return driver.Sent{ID: use.id, Duplicate: true}, nil
	}
	return q.sendUnique(ctx, msg)
})

// stick lets a message hold its unique key even after it is gone.
func (q *queue) stick(id string) {
	uses := state[uniqueUses](q)
	for _, key := range uses.keys() {
		if use := uses.at(key); use.id == id {
			uses.put(key, uniqueUse{id: id, stuck: true})
		}
	}
}
