package faulty

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var capacityFaults = []Saboteur{
	{
		Name: "overshoots-by-one", Breaks: "SND-5",
		What: "The bound on messages lets one too many in.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.MaxMessages > 0 {
				config.MaxMessages++
			}
		}),
	},
	{
		Name: "overshoots-in-parallel", Breaks: "SND-5",
		What: "Room is checked and taken in two steps, so that concurrent sends can let one too many in.",
		Wrap: perQueue(func(q passThrough, race *roomRace) driver.Queue { return overshoots{q, race} }),
	},
	{
		Name: "ignores-the-bound-on-bytes", Breaks: "SND-5",
		What: "MaxBytes does not bound anything.",
		Wrap: changesConfig(func(config *driver.Config) { config.MaxBytes = 0 }),
	},
	{
		Name: "gives-no-hint-when-full", Breaks: "SND-5",
		What: "A full queue returns no RetryAfter.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return givesNoHint{q} }),
	},
	{
		Name: "lets-the-delayed-in-free", Breaks: "SND-5",
		What: "Delayed messages take no room.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return adjustsRoom{q, func(stats driver.Stats) int { return stats.Delayed }}
		}),
	},
	{
		Name: "lets-the-leased-in-free", Breaks: "SND-5",
		What: "Messages in flight take no room.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return adjustsRoom{q, func(stats driver.Stats) int { return stats.InFlight }}
		}),
	},
	{
		Name: "counts-the-dead-as-waiting", Breaks: "SND-5",
		What: "Dead letters take room.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return adjustsRoom{q, func(stats driver.Stats) int { return -stats.Dead }}
		}),
	},
	{
		Name: "counts-attributes-as-bytes", Breaks: "SND-5",
		What: "The bound on bytes counts attributes too, not only bodies.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return weighsAttributes{q} }),
	},
	{
		Name: "refuses-a-batch-that-does-not-fit", Breaks: "SND-5",
		What: "A batch that fits only in part is refused as a whole.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return refusesWholeBatch{q} }),
	},

	{
		Name: "leaves-a-failed-send", Breaks: "SND-6",
		What: "A message that is refused for its fields is enqueued without them.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return leavesFailedSend{q} }),
	},
	{
		Name: "uses-up-the-key-of-a-failed-send", Breaks: "SND-6",
		What: "A keyed message that found no room counts as sent when it is sent again.",
		Wrap: perQueue(func(q passThrough, failed *table[string, driver.Sent]) driver.Queue {
			return usesUpKey{q, failed, driver.ErrFull}
		}),
	},
	{
		Name: "uses-up-the-key-of-an-invalid-send", Breaks: "SND-6",
		What: "A keyed message that was refused for its delay counts as sent when it is sent again.",
		Wrap: perQueue(func(q passThrough, failed *table[string, driver.Sent]) driver.Queue {
			return usesUpKey{q, failed, driver.ErrInvalid}
		}),
	},
}

// A roomRace makes concurrent sends overshoot.
type roomRace struct {
	sending atomic.Int32
	over    atomic.Bool
}

type overshoots struct {
	passThrough
	*roomRace
}

func (q overshoots) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	q.sending.Add(1)
	defer q.sending.Add(-1)
	yieldToOthers()
	sent, err := q.Queue.Send(ctx, msgs)
	if !errors.Is(err, driver.ErrFull) || q.config().MaxMessages == 0 || len(msgs) > 1 || q.sending.Load() < 2 || q.over.Swap(true) {
		return sent, err
	}
	if err := q.reconfigure(ctx, func(config *driver.Config) { config.MaxMessages++ }); err != nil {
		return nil, err
	}
	return q.Queue.Send(ctx, msgs)
}

type givesNoHint struct{ passThrough }

func (q givesNoHint) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.sendOne(ctx, msg)
		if detail, ok := errors.AsType[*driver.Error](err); ok && detail.Code == driver.ErrFull {
			mute := *detail
			mute.RetryAfter = 0
			err = &mute
		}
		return sent, err
	})
}

// adjustsRoom gives the queue more or less room than it should have.
type adjustsRoom struct {
	passThrough
	extra func(driver.Stats) int
}

func (q adjustsRoom) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	stats, err := q.Queue.Stats(ctx)
	if err != nil || q.config().MaxMessages == 0 {
		return q.Queue.Send(ctx, msgs)
	}
	room := q.config().MaxMessages + q.extra(stats)
	if room <= 0 {
		return make([]driver.Sent, len(msgs)), each(msgs, func(driver.Outgoing) error { return q.full() })
	}
	if err := q.reconfigure(ctx, func(config *driver.Config) { config.MaxMessages = room }); err != nil {
		return nil, err
	}
	return q.Queue.Send(ctx, msgs)
}

// full is the error of a message that finds no room.
func (q passThrough) full() error {
	return &driver.Error{Code: driver.ErrFull, Op: "send", Queue: q.name, RetryAfter: time.Second}
}

type weighsAttributes struct{ passThrough }

func (q weighsAttributes) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		weight := 0
		for key, value := range msg.Attributes {
			weight += len(key) + len(value)
		}
		if limit := q.config().MaxBytes; limit > 0 && len(msg.Body)+weight > limit {
			return driver.Sent{}, q.full()
		}
		return q.sendOne(ctx, msg)
	})
}

type refusesWholeBatch struct{ passThrough }

func (q refusesWholeBatch) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	stats, err := q.Queue.Stats(ctx)
	if limit := q.config().MaxMessages; err != nil || limit == 0 || len(msgs) < 2 || stats.Waiting()+len(msgs) <= limit {
		return q.Queue.Send(ctx, msgs)
	}
	return make([]driver.Sent, len(msgs)), each(msgs, func(driver.Outgoing) error { return q.full() })
}

type leavesFailedSend struct{ passThrough }

func (q leavesFailedSend) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		sent, err := q.sendOne(ctx, msg)
		if errors.Is(err, driver.ErrInvalid) {
			_, _ = q.sendOne(ctx, driver.Outgoing{Body: msg.Body})
		}
		return sent, err
	})
}

type usesUpKey struct {
	passThrough
	failed *table[string, driver.Sent]
	code   driver.Code // of a failed send that uses up its key
}

func (q usesUpKey) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return sendEach(msgs, func(msg driver.Outgoing) (driver.Sent, error) {
		if sent, ok := q.failed.get(msg.DedupKey); ok {
			return sent, nil
		}
		sent, err := q.sendOne(ctx, msg)
		if errors.Is(err, q.code) && msg.DedupKey != "" && len(msg.DedupKey) <= driver.MaxDedupKeyBytes {
			q.failed.put(msg.DedupKey, driver.Sent{ID: "01J00000000000000000000000", Duplicate: true})
		}
		return sent, err
	})
}
