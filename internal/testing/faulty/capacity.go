package faulty

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var capacityFaults = []Saboteur{
	{Name: "overshoots-by-one", Breaks: "SND-5",
		What: "The bound on messages lets one too many in.",
		on:   hooks{config: func(c *driver.Config) { set(c.MaxMessages > 0, &c.MaxMessages, c.MaxMessages+1) }}},
	{Name: "overshoots-in-parallel", Breaks: "SND-5",
		What: "Room is checked and taken in two steps, so that concurrent sends can let one too many in.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			race := state[roomRace](q)
			defer race.enter()()
			sent, err := q.Send(ctx, msgs)
			if q.config().MaxMessages == 0 || len(msgs) > 1 || !race.wins(err) {
				return sent, err
			}
			if err := q.reconfigure(ctx, func(c *driver.Config) { c.MaxMessages++ }); err != nil {
				return nil, err
			}
			return q.Send(ctx, msgs)
		}}},
	{Name: "ignores-the-bound-on-bytes", Breaks: "SND-5",
		What: "MaxBytes does not bound anything.",
		on:   hooks{config: func(c *driver.Config) { c.MaxBytes = 0 }}},
	{Name: "gives-no-hint-when-full", Breaks: "SND-5",
		What: "A full queue returns no RetryAfter.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if errors.Is(err, driver.ErrFull) {
				err = alterError(err, func(e *driver.Error) { e.RetryAfter = 0 })
			}
			return sent, err
		})}},
	{Name: "lets-the-delayed-in-free", Breaks: "SND-5",
		What: "Delayed messages take no room.",
		on:   hooks{send: addRoom(func(stats driver.Stats) int { return stats.Delayed })}},
	{Name: "lets-the-leased-in-free", Breaks: "SND-5",
		What: "Messages in flight take no room.",
		on:   hooks{send: addRoom(func(stats driver.Stats) int { return stats.InFlight })}},
	{Name: "counts-the-dead-as-waiting", Breaks: "SND-5",
		What: "Dead letters take room.",
		on:   hooks{send: addRoom(func(stats driver.Stats) int { return -stats.Dead })}},
	{Name: "counts-attributes-as-bytes", Breaks: "SND-5",
		What: "The bound on bytes counts attributes too, not only bodies.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			weight := len(msg.Body)
			for key, value := range msg.Attributes {
				weight += len(key) + len(value)
			}
			if limit := q.config().MaxBytes; limit > 0 && weight > limit {
				return driver.Sent{}, q.full()
			}
			return q.sendOne(ctx, msg)
		})}},
	{Name: "refuses-a-batch-that-does-not-fit", Breaks: "SND-5",
		What: "A batch that fits only in part is refused as a whole.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			stats, err := q.Stats(ctx)
			if limit := q.config().MaxMessages; err != nil || limit == 0 || len(msgs) < 2 || stats.Waiting()+len(msgs) <= limit {
				return q.Send(ctx, msgs)
			}
			return q.refuseAll(msgs)
		}}},

	{Name: "leaves-a-failed-send", Breaks: "SND-6",
		What: "A message that is refused for its fields is enqueued without them.",
		on: hooks{send: sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
			sent, err := q.sendOne(ctx, msg)
			if errors.Is(err, driver.ErrInvalid) {
				_, _ = q.sendOne(ctx, driver.Outgoing{Body: msg.Body})
			}
			return sent, err
		})}},
	{Name: "uses-up-the-key-of-a-failed-send", Breaks: "SND-6",
		What: "A keyed message that found no room counts as sent when it is sent again.",
		on:   hooks{send: useUpKey(driver.ErrFull)}},
	{Name: "uses-up-the-key-of-an-invalid-send", Breaks: "SND-6",
		What: "A keyed message that was refused for its delay counts as sent when it is sent again.",
		on:   hooks{send: useUpKey(driver.ErrInvalid)}},
}

// A roomRace lets one of several concurrent calls exceed a bound, once.
type roomRace struct {
	calls atomic.Int32
	over  atomic.Bool
}

// enter begins a call, and returns a function that ends it.
func (r *roomRace) enter() (leave func()) {
	r.calls.Add(1)
	yieldToOthers()
	return func() { r.calls.Add(-1) }
}

// wins reports whether a call with this error may exceed the bound.
func (r *roomRace) wins(err error) bool {
	return errors.Is(err, driver.ErrFull) && r.calls.Load() > 1 && !r.over.Swap(true)
}

// addRoom gives the queue more or less room than it should have.
func addRoom(extra func(driver.Stats) int) sendFunc {
	return func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		stats, err := q.Stats(ctx)
		if err != nil || q.config().MaxMessages == 0 {
			return q.Send(ctx, msgs)
		}
		room := q.config().MaxMessages + extra(stats)
		if room <= 0 {
			return q.refuseAll(msgs)
		}
		if err := q.reconfigure(ctx, func(c *driver.Config) { c.MaxMessages = room }); err != nil {
			return nil, err
		}
		return q.Send(ctx, msgs)
	}
}

// full is the error of a message that finds no room.
func (q *queue) full() error {
	return &driver.Error{Code: driver.ErrFull, Op: "send", Queue: q.name, RetryAfter: time.Second}
}

func (q *queue) refuseAll(msgs []driver.Outgoing) ([]driver.Sent, error) {
	return make([]driver.Sent, len(msgs)), each(msgs, func(driver.Outgoing) error { return q.full() })
}

// useUpKey lets a send that fails with this code use up its key.
func useUpKey(code driver.Code) sendFunc {
	return sendOneByOne(func(q *queue, ctx context.Context, msg driver.Outgoing) (driver.Sent, error) {
		failed := state[marks](q)
		if failed.at(msg.DedupKey) {
			return driver.Sent{ID: "01J00000000000000000000000", Duplicate: true}, nil
		}
		sent, err := q.sendOne(ctx, msg)
		if errors.Is(err, code) && msg.DedupKey != "" && len(msg.DedupKey) <= driver.MaxDedupKeyBytes {
			failed.put(msg.DedupKey, true)
		}
		return sent, err
	})
}
