package faulty

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// renameKeys replaces the dedup keys of messages.
func renameKeys(rename func(q *queue, msg *driver.Outgoing) string) sendFunc {
	return alterSent(func(q *queue, msg *driver.Outgoing) {
		if msg.DedupKey != "" && len(msg.DedupKey) <= driver.MaxDedupKeyBytes {
			msg.DedupKey = shortKey(rename(q, msg))
		}
	})
}

func keyOfGroup(_ *queue, msg *driver.Outgoing) string { return msg.Group + "\x00" + msg.DedupKey }

// shortKey returns a key that is not longer than allowed.
func shortKey(key string) string {
	if len(key) <= driver.MaxDedupKeyBytes {
		return key
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}

// usedKeys can make the wrapped queue forget a key, by replacing it with another from then on.
type usedKeys struct {
	instead  texts
	messages texts // keys by message id

	mu      sync.Mutex // guards inOrder
	inOrder []string
}

var translateKeys = sendOneByOne((*queue).sendTranslated)

// sendTranslated sends a message with the key that replaces its own, and records the key.
func (q *queue) sendTranslated(ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
	key, used := msg.DedupKey, state[usedKeys](q)
	used.instead.load(key, &msg.DedupKey)
	sent, err := q.sendOne(ctx, msg)
	if err == nil && key != "" && !sent.Duplicate {
		used.messages.put(sent.ID, key)
		used.mu.Lock()
		defer used.mu.Unlock()
		used.inOrder = append(used.inOrder, key)
	}
	return sent, err
}

// keys returns the keys in use, oldest first.
func (u *usedKeys) keys() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.inOrder)
}

// forget frees keys.
func (u *usedKeys) forget(keys ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, key := range keys {
		u.instead.put(key, shortKey(fmt.Sprint("again ", u.instead.at(key), key)))
	}
	u.inOrder = slices.DeleteFunc(u.inOrder, func(key string) bool { return slices.Contains(keys, key) })
}

// evictDownTo frees the oldest key if there are more than limit.
func (u *usedKeys) evictDownTo(limit int) {
	if keys := u.keys(); limit > 0 && len(keys) > limit {
		u.forget(keys[0])
	}
}

// forgetKey frees the dedup key of a delivered message, if it has one.
func (q *queue) forgetKey(receipt driver.Receipt) {
	d, _ := q.delivered.get(receipt)
	if key, ok := state[usedKeys](q).messages.get(d.ID); ok {
		state[usedKeys](q).forget(key)
	}
}
