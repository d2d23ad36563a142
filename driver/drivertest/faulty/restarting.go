package faulty

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// amnesiacs forget something when they are restarted.
var amnesiacs = []Saboteur{
	{
		Name: "loses-the-oldest-on-restart", Breaks: "SND-1",
		What: "After a restart the first message is gone.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			got, err := q.Queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
			if err != nil || len(got) == 0 {
				return err
			}
			return q.Queue.Ack(ctx, []driver.Receipt{got[0].Receipt})
		}),
	},
	{
		Name: "gives-ids-again-after-a-restart", Breaks: "SND-1",
		What: "After a restart a send is answered with an id that was given out before.",
		Wrap: handlesAfterRestart(func(q passing) handle { return repeatsIDs{q} }),
	},
	{
		Name: "hurries-the-delayed-on-restart", Breaks: "SND-2",
		What: "After a restart delayed messages are ready.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			return q.refill(ctx, func(seen driver.Peeked) (driver.Outgoing, bool) { return again(seen.Message), true }, driver.StateDelayed)
		}),
	},
	{
		Name: "forgets-what-takes-room-on-restart", Breaks: "SND-5",
		What: "After a restart what waits takes no room.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			stats, err := q.Queue.Stats(ctx)
			if err != nil {
				return err
			}
			admin := q.box.inner.(driver.Admin)
			config, err := admin.QueueConfig(ctx, q.name)
			if err != nil || config.MaxMessages == driver.Off {
				return err
			}
			config.MaxMessages += stats.Waiting()
			return admin.ConfigureQueue(ctx, q.name, config)
		}),
	},
	{
		Name: "forgets-keys-on-restart", Breaks: "DUP-3",
		What: "After a restart all dedup keys are free.",
		Wrap: handlesAfterRestart(func(q passing) handle {
			return renamesKeys{q, func(msg driver.Outgoing) string { return "restarted " + msg.DedupKey }}
		}),
	},
	{
		Name: "undoes-acks-on-restart", Breaks: "ACK-1",
		What: "After a restart acked messages are there again.",
		Wrap: restarts(amnesia{restart: bringsBackRecorded, before: func(q passing, diary *diary) handle {
			return recordsAcked{remembering{q, new(deliveries)}, diary}
		}}),
	},
	{
		Name: "loses-the-leased-on-restart", Breaks: "VIS-1",
		What: "After a restart messages that were in flight are gone.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			return q.refill(ctx, func(driver.Peeked) (driver.Outgoing, bool) { return driver.Outgoing{}, false }, driver.StateInFlight)
		}),
	},
	{
		Name: "forgets-leases-on-restart", Breaks: "VIS-1",
		What: "After an orderly restart messages that were in flight are ready.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			return q.refill(ctx, func(seen driver.Peeked) (driver.Outgoing, bool) { return again(seen.Message), true }, driver.StateInFlight)
		}),
	},
	{
		Name: "puts-the-leased-at-the-tail-on-restart", Breaks: "ORD-2",
		What: "After a restart messages that were in flight are at the tail.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			return q.refill(ctx, func(seen driver.Peeked) (driver.Outgoing, bool) {
				return again(seen.Message), true
			}, driver.StateReady, driver.StateInFlight)
		}),
	},
	{
		Name: "forgets-groups-on-restart", Breaks: "ORD-4",
		What: "After a restart a group's next message is delivered while an earlier one is out.",
		Wrap: handlesAfterRestart(func(q passing) handle { return shufflesGroup{q} }),
	},
	{
		Name: "miscounts-after-a-restart", Breaks: "CNT-1",
		What: "After a restart dead letters are not counted.",
		Wrap: handlesAfterRestart(func(q passing) handle {
			return changesStats{q, func(stats *driver.Stats) { stats.Dead = 0 }}
		}),
	},
	{
		Name: "undoes-a-purge-on-restart", Breaks: "CNT-3",
		What: "After a restart purged messages are there again.",
		Wrap: restarts(amnesia{restart: bringsBackRecorded, before: func(q passing, diary *diary) handle { return recordsPurged{q, diary} }}),
	},
	{
		Name: "forgets-why-they-died-on-restart", Breaks: "DLQ-4",
		What: "After a restart dead letters do not tell their last error.",
		Wrap: handlesAfterRestart(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.LastError = "" }}
		}),
	},
	{
		Name: "forgets-redrives-on-restart", Breaks: "DLQ-5",
		What: "After a restart the redrives of a message are not counted.",
		Wrap: handlesAfterRestart(func(q passing) handle {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.Redrives = 0 }}
		}),
	},
	{
		Name: "exiles-again-on-restart", Breaks: "DLQ-8",
		What: "After a restart messages that moved to the queue for the dead have moved once more.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			var moved []driver.Message
			for seen, err := range q.Peek(ctx, driver.Query{States: []driver.State{driver.StateReady}}) {
				if err != nil {
					return err
				}
				if seen.Attributes[driver.AttributeDeadSource] != "" {
					moved = append(moved, seen.Message)
				}
			}
			for _, m := range moved {
				if _, err := q.sendOne(ctx, again(m)); err != nil {
					return err
				}
			}
			return nil
		}),
	},
	{
		Name: "forgets-the-configuration-on-restart", Breaks: "SVC-1",
		What: "After a restart a queue has the default configuration.",
		Wrap: afterRestart(func(ctx context.Context, q passing) error {
			return q.box.inner.(driver.Admin).ConfigureQueue(ctx, q.name, driver.Config{}.Effective())
		}),
	},
}

// amnesia is what a restart does to a backend; parts may be missing.
type amnesia struct {
	// before spoils handles until the restart.
	before func(q passing, diary *diary) handle
	// restart is done once to each queue.
	restart func(ctx context.Context, q passing, diary *diary) error
	// after spoils handles from the restart on.
	after func(q passing) handle
}

// A diary is what a saboteur writes down of each queue. It survives a restart,
// as a file would.
type diary = table[string, []driver.Message]

// restarts wraps a backend for the first time without harm, and takes each
// further time for a restart.
func restarts(a amnesia) func(driver.Opener) driver.Opener {
	var diaries table[driver.Opener, *diary]
	return func(inner driver.Opener) driver.Opener {
		b := newBox(inner)
		written, known := diaries.get(inner)
		if known {
			if a.after != nil {
				b.spoil = a.after
			}
			return exposed(&restarted{box: b, amnesia: a, diary: written}, inner)
		}
		written = new(diary)
		diaries.put(inner, written)
		if a.before != nil {
			b.spoil = func(q passing) handle { return a.before(q, written) }
		}
		return exposed(b, inner)
	}
}

// afterRestart does harm to each queue once.
func afterRestart(harm func(ctx context.Context, q passing) error) func(driver.Opener) driver.Opener {
	return restarts(amnesia{restart: func(ctx context.Context, q passing, _ *diary) error { return harm(ctx, q) }})
}

// handlesAfterRestart does harm to each handle.
func handlesAfterRestart(harm func(passing) handle) func(driver.Opener) driver.Opener {
	return restarts(amnesia{after: harm})
}

// restarted is a backend after a restart.
type restarted struct {
	*box
	amnesia
	diary *diary
	done  table[string, int]
}

func (b *restarted) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.open(ctx, name)
	if err != nil {
		return nil, err
	}
	if b.restart != nil && add(&b.done, name, 1) == 1 {
		if err := b.restart(ctx, q, b.diary); err != nil {
			return nil, err
		}
	}
	return b.spoil(q), nil
}

// refill empties a queue that holds messages in these states only, and sends
// them again as other says, state by state.
func (q passing) refill(ctx context.Context, other func(driver.Peeked) (driver.Outgoing, bool), states ...driver.State) error {
	var msgs []driver.Outgoing
	found := 0
	for _, state := range states {
		for _, seen := range q.peeked(ctx, state) {
			found++
			if msg, ok := other(seen); ok {
				msgs = append(msgs, msg)
			}
		}
	}
	stats, err := q.Queue.Stats(ctx)
	if err != nil || stats.Waiting() != found {
		return err
	}
	if _, err := q.Queue.Purge(ctx); err != nil {
		return err
	}
	_, err = q.Queue.Send(ctx, msgs)
	return err
}

type repeatsIDs struct{ passing }

func (q repeatsIDs) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	before := q.peeked(ctx, driver.StateReady)
	sent, err := q.Queue.Send(ctx, msgs)
	if len(before) > 0 && len(sent) > 0 {
		sent[0].ID = before[0].ID
	}
	return sent, err
}

// shufflesGroup delivers two messages of a group one after the other, by
// leasing two and keeping the second for the next receive.
type shufflesGroup struct{ passing }

func (q shufflesGroup) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	kept := memoryOf[lastDelivery](q.box, q.name+"\x00kept")
	if d := kept.get(); d.ID != "" {
		kept.set(driver.Delivery{})
		return []driver.Delivery{d}, nil
	}
	if q.Traits().StrictGroups && req.Max == 1 {
		req.Max = 2
	}
	got, err := q.Queue.Receive(ctx, req)
	if len(got) == 2 && req.Max == 2 {
		kept.set(got[1])
		got = got[:1]
	}
	return got, err
}

// bringsBackRecorded sends again what the diary has of a queue.
func bringsBackRecorded(ctx context.Context, q passing, diary *diary) error {
	messages, _ := diary.get(q.name)
	for _, message := range messages {
		if _, err := q.sendOne(ctx, again(message)); err != nil {
			return err
		}
	}
	diary.drop(q.name)
	return nil
}

type recordsAcked struct {
	remembering
	diary *diary
}

func (q recordsAcked) Ack(ctx context.Context, acked []driver.Receipt) error {
	err := q.Queue.Ack(ctx, acked)
	for i, receipt := range acked {
		if d, ok := q.delivered.get(receipt); ok && driver.At(err, i) == nil {
			before, _ := q.diary.get(q.name)
			q.diary.put(q.name, append(before, d.Message))
		}
	}
	return err
}

type recordsPurged struct {
	passing
	diary *diary
}

func (q recordsPurged) Purge(ctx context.Context) (int, error) {
	var messages []driver.Message
	for _, seen := range q.peeked(ctx, driver.StateReady) {
		messages = append(messages, seen.Message)
	}
	q.diary.put(q.name, messages)
	return q.Queue.Purge(ctx)
}
