package broker

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// The methods of this file need a token for dlq. Methods that change something block
// until the backend is done.

// DeadLetters lists the dead letters of a queue, oldest death first, without
// changing any. An error ends the sequence. Codes: ErrNotFound, ErrUnsupported
// (the backend keeps none), ErrUnavailable.
func (c Caller) DeadLetters(ctx context.Context, queue string) iter.Seq2[Peeked, error] {
	return func(yield func(Peeked, error) bool) {
		grant, err := c.authorize(ctx, capability.OpDLQ, queue)
		if err == nil {
			err = c.broker.admit("list dead letters", queue, lastForReads)
		}
		if err != nil {
			yield(Peeked{}, err)
			return
		}
		q, err := c.use(ctx, "list dead letters", queue, false)
		if err == nil {
			defer func() { q.release(c.broker.now()) }()
			err = q.lacksDeadLetters("list dead letters")
		}
		if err != nil {
			yield(Peeked{}, err)
			return
		}
		turn, err := c.beginLook(ctx, "list dead letters", queue)
		if err != nil {
			yield(Peeked{}, err)
			return
		}
		defer turn.end()
		for letter, err := range q.handle.DeadLetters(ctx) {
			if err != nil {
				c.broker.gone(q, err)
				yield(Peeked{}, localised(err, q))
				return
			}
			if err := turn.count(ctx, len(letter.Body)); err != nil {
				yield(Peeked{}, err)
				return
			}
			c.charge(grant, &letter.Message)
			if !yield(q.peeked(driver.Peeked{DeadLetter: letter, State: driver.StateDead}), nil) {
				return
			}
		}
	}
}

// Redrive makes dead letters ready again, as driver.Queue does:
// those with these ids, or all if ids is nil, and at most limit of them. Codes:
// ErrNotFound (the queue), ErrUnsupported, ErrFull, having moved what it says.
func (c Caller) Redrive(ctx context.Context, queue string, ids []string, limit int) (moved int, err error) {
	return c.amongDead(ctx, "redrive", queue, func(q *queueUse) (int, error) { return c.redrive(ctx, q, ids, limit) })
}

// redrive is Redrive in an open queue.
func (c *Caller) redrive(ctx context.Context, q *queueUse, ids []string, limit int) (moved int, err error) {
	moved, err = q.handle.Redrive(ctx, ids, limit)
	q.noteAll(ids, moved, EventRedriven)
	q.meter.Redriven(moved)
	c.logRedriven(q, ids, moved)
	return moved, err
}

// maxIDsLogged bounds the ids in one line.
const maxIDsLogged = 20

// logRedriven logs a redrive, with the ids if it moved all of them.
func (c *Caller) logRedriven(q *queueUse, ids []string, moved int) {
	if moved == 0 {
		return
	}
	attrs := []any{
		slog.String("corr_id", c.origin.CorrelationID), slog.String("token", c.token.ID().String()), slog.Int("count", moved),
	}
	if moved == len(ids) {
		attrs = append(attrs, slog.Any("msg_ids", ids[:min(len(ids), maxIDsLogged)]))
	}
	c.broker.logMessage("message.redriven", q.queueKey, attrs...)
}

// Discard removes dead letters. It ignores unknown ids. Codes:
// ErrNotFound (the queue), ErrUnsupported.
func (c Caller) Discard(ctx context.Context, queue string, ids []string) (removed int, err error) {
	return c.amongDead(ctx, "discard", queue, func(q *queueUse) (int, error) { return q.discard(ctx, ids) })
}

// discard is Caller.Discard in an open queue.
func (u *queueUse) discard(ctx context.Context, ids []string) (removed int, err error) {
	removed, err = u.handle.Discard(ctx, ids)
	u.noteAll(ids, removed, EventDiscarded)
	return removed, err
}

// PurgeDead removes all dead letters and returns how many there were. Codes: as
// Discard.
func (c Caller) PurgeDead(ctx context.Context, queue string) (removed int, err error) {
	return c.amongDead(ctx, "purge dead letters", queue, func(q *queueUse) (int, error) {
		removed, err := q.handle.PurgeDead(ctx)
		return removed, err
	})
}

func (c *Caller) amongDead(ctx context.Context, op, queue string, do func(*queueUse) (int, error)) (n int, err error) {
	if _, err := c.authorize(ctx, capability.OpDLQ, queue); err != nil {
		return 0, err
	}
	defer func() { c.record(op, queue, "", n, err) }()
	return inQueue(ctx, c, op, queue, lastForWrites, func(q *queueUse) (int, error) {
		if err := q.lacksDeadLetters(op); err != nil {
			return 0, err
		}
		return do(q)
	})
}

// noteAll traces an event for the named messages, if it happened to all of them:
// otherwise the backend does not tell which.
func (u *queueUse) noteAll(ids []string, happened int, kind EventKind) {
	if happened != len(ids) {
		return
	}
	for _, id := range ids {
		u.broker.traces.note(&u.queueKey, id, u.by, kind, 0, "", time.Now())
	}
}
