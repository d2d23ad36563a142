package broker

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// The methods of this file need a token for dead letters. Those that change
// something may block until the backend has done it.

// DeadLetters lists the dead letters of a topic, oldest death first, without
// changing any. An error ends the sequence. Codes: ErrNotFound, ErrUnsupported
// (the backend keeps none), ErrUnavailable.
func (c Caller) DeadLetters(ctx context.Context, topic string) iter.Seq2[Looked, error] {
	return func(yield func(Looked, error) bool) {
		grant, err := c.authorize(ctx, capability.OpDLQ, topic)
		if err == nil {
			err = c.broker.admit("list dead letters", topic, lastForReads)
		}
		if err != nil {
			yield(Looked{}, err)
			return
		}
		t, err := c.use(ctx, "list dead letters", topic, false)
		if err == nil {
			defer func() { t.release(c.broker.now()) }()
			err = t.lacksDeadLetters("list dead letters")
		}
		if err != nil {
			yield(Looked{}, err)
			return
		}
		if err := c.turn(ctx, "list dead letters", topic, 1); err != nil {
			yield(Looked{}, err)
			return
		}
		defer c.done(1)
		for letter, err := range t.queue.DeadLetters(ctx) {
			if err != nil {
				c.broker.gone(t, err)
				yield(Looked{}, localised(err, t))
				return
			}
			grant.Charge(1, int64(len(letter.Body)))
			if !yield(t.looked(driver.Peeked{DeadLetter: letter, State: driver.StateDead}), nil) {
				return
			}
		}
	}
}

// Redrive makes dead letters ready again, as driver.Queue does:
// those with these ids, or all if ids is nil, and at most limit of them. Codes:
// ErrNotFound (the topic), ErrUnsupported, ErrFull, having moved what it says.
func (c Caller) Redrive(ctx context.Context, topic string, ids []string, limit int) (moved int, err error) {
	return c.amongDead(ctx, "redrive", topic, func(t *topicUse) (int, error) {
		moved, err := t.queue.Redrive(ctx, ids, limit)
		t.noteAll(ids, moved, EventRedriven)
		t.meter.Redriven(moved)
		c.logRedriven(t, ids, moved)
		return moved, err
	})
}

// maxIDsLogged bounds the ids in one line.
const maxIDsLogged = 20

// logRedriven logs a redrive, with the ids if it moved all that were named.
func (c *Caller) logRedriven(t *topicUse, ids []string, moved int) {
	if moved == 0 {
		return
	}
	attrs := []any{
		slog.String("corr_id", c.origin.CorrelationID), slog.String("token", c.token.ID().String()), slog.Int("count", moved),
	}
	if moved == len(ids) {
		attrs = append(attrs, slog.Any("msg_ids", ids[:min(len(ids), maxIDsLogged)]))
	}
	c.broker.logMessage("message.redriven", t.topicKey, attrs...)
}

// Discard removes dead letters for ever. Unknown ids are passed over. Codes:
// ErrNotFound (the topic), ErrUnsupported.
func (c Caller) Discard(ctx context.Context, topic string, ids []string) (removed int, err error) {
	return c.amongDead(ctx, "discard", topic, func(t *topicUse) (int, error) {
		removed, err := t.queue.Discard(ctx, ids)
		t.noteAll(ids, removed, EventDiscarded)
		return removed, err
	})
}

// PurgeDead removes all dead letters and returns how many there were. Codes: as
// Discard.
func (c Caller) PurgeDead(ctx context.Context, topic string) (removed int, err error) {
	return c.amongDead(ctx, "purge dead letters", topic, func(t *topicUse) (int, error) {
		removed, err := t.queue.PurgeDead(ctx)
		return removed, err
	})
}

func (c *Caller) amongDead(ctx context.Context, op, topic string, do func(*topicUse) (int, error)) (n int, err error) {
	if _, err := c.authorize(ctx, capability.OpDLQ, topic); err != nil {
		return 0, err
	}
	defer func() { c.record(op, topic, "", n, err) }()
	return inTopic(ctx, c, op, topic, lastForWrites, func(t *topicUse) (int, error) {
		if err := t.lacksDeadLetters(op); err != nil {
			return 0, err
		}
		return do(t)
	})
}

// noteAll writes down what happened to messages that were named, if it happened
// to all of them: which ones it was is not known otherwise.
func (u *topicUse) noteAll(ids []string, happened int, kind EventKind) {
	if happened != len(ids) {
		return
	}
	for _, id := range ids {
		u.broker.life.note(&u.topicKey, id, u.by, kind, 0, "", time.Now())
	}
}
