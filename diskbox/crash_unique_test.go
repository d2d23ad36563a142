package diskbox

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// crashUniqueMax is the DedupMax of the queues whose messages have unique keys.
const crashUniqueMax = 100_000

// hasKeys reports whether clients give messages unique keys.
func (b *crashModel) hasKeys() bool { return b.config.DedupMax == crashUniqueMax }

// crashKey is the unique key of the message with a token.
func crashKey(token int) string { return fmt.Sprintf("unique %d", token) }

// replacing reports whether a message may be replaced at the moment: then it is unknown which
// message has its id.
func (b *crashModel) replacing(token int) bool {
	key := b.messages[token].out.UniqueKey
	return key != "" && slices.ContainsFunc(b.messages, func(i crashMessage) bool { return i.out.UniqueKey == key && i.pending[opSend] > 0 })
}

// latest returns the message that has an id: one that replaces another gets its id.
func (b *crashModel) latest(id string) (token int) {
	for n := range b.messages {
		if b.messages[n].id == id {
			token = n
		}
	}
	return token
}

// replace sends a new message with the unique key of another one. If that waits, the new one
// replaces it, which is as if the other one was removed and the new one sent. If it is in flight
// nothing is sent, and if it is gone the new one is a message of its own.
func (c *crashClient) replace(q crashQueue) error {
	models := &c.env.models
	models.mu.Lock()
	if len(q.model.messages) == 0 {
		models.mu.Unlock()
		return nil
	}
	old := c.rng.IntN(len(q.model.messages))
	key := q.model.messages[old].out.UniqueKey
	if key == "" || q.model.messages[old].id == "" {
		models.mu.Unlock()
		return nil
	}
	var others []int // any message that had the key may be the one that is replaced
	for n := range q.model.messages {
		if i := &q.model.messages[n]; i.out.UniqueKey == key {
			if i.pending[opSend] > 0 || i.pending[opRemove] > 0 { // it may concern the new one: no operation of this model removes messages to come
				models.mu.Unlock()
				return nil
			}
			others = append(others, n)
		}
	}
	out := c.outgoing(len(q.model.messages))
	out.UniqueKey, out.Replace, out.DedupKey = key, true, ""
	out.Group = q.model.messages[old].out.Group // it stays in its group
	token := q.model.addLocked(out)
	q.model.messages[token].fuzzy = true // it may get the place and the deliveries of another one
	removal := models.beginLocked(q.model, opRemove, others)
	op := models.beginLocked(q.model, opSend, []int{token})
	models.mu.Unlock()
	sent, err := q.queue.Send(c.ctx, []driver.Outgoing{out})
	models.replaced(removal, op, sent, err)
	return err
}

// replaced records the result of a send that may have replaced a message.
func (l *crashModels) replaced(removal, d *crashOp, sent []driver.Sent, err error) {
	if errors.Is(err, driver.ErrUnavailable) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(removal)
	l.endLocked(d)
	i := &d.model.messages[d.tokens[0]]
	if err != nil || sent[0].Duplicate && !sent[0].Replaced {
		return
	}
	i.id, i.unsent, i.fuzzy = sent[0].ID, false, sent[0].Replaced
	l.becomes(i, d, isWaiting)
	if !sent[0].Replaced {
		i.sentAt = [2]time.Time{d.at, time.Now()}
		return
	}
	i.sentAt = [2]time.Time{}
	for _, token := range removal.tokens {
		other := &d.model.messages[token]
		i.deliveries = max(i.deliveries, other.deliveries)
		if other.id == sent[0].ID {
			other.gone, other.goneAt, other.may = true, l.tick, isAbsent
		}
	}
}

// sweptSome records that a redrive has left dead letters whose unique keys other messages hold.
func (l *crashModels) sweptSome(d *crashOp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	now := time.Now()
	for n := range d.model.messages {
		i := &d.model.messages[n]
		if before := d.model.reachable(i, now); !i.gone && before&isDead != 0 {
			l.becomes(i, d, before|isWaiting)
			i.redriven(d, l.tick, false)
		}
	}
}
