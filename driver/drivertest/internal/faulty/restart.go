package faulty

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// restartFaults lose state at a restart.
var restartFaults = []Saboteur{
	{
		Name: "loses-the-oldest-on-restart", Breaks: "SND-1",
		What: "After a restart the first message is gone.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			got, err := q.Queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
			if err != nil || len(got) == 0 {
				return err
			}
			return q.Queue.Ack(ctx, []driver.Receipt{got[0].Receipt})
		}),
	},
	{
		Name: "gives-ids-again-after-a-restart", Breaks: "SND-1",
		What: "After a restart a send is answered with an id that was used before.",
		Wrap: handlesAfterRestart(func(q passThrough) driver.Queue { return repeatsIDs{q} }),
	},
	{
		Name: "hurries-the-delayed-on-restart", Breaks: "SND-2",
		What: "After a restart delayed messages are ready.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			return q.refill(ctx, func(seen driver.Peeked) (driver.Outgoing, bool) { return again(seen.Message), true }, driver.StateDelayed)
		}),
	},
	{
		Name: "forgets-what-takes-room-on-restart", Breaks: "SND-5",
		What: "After a restart waiting messages take no room.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			stats, err := q.Queue.Stats(ctx)
			if err != nil {
				return err
			}
			admin := q.wrapper.inner.(driver.Admin)
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
		Wrap: handlesAfterRestart(func(q passThrough) driver.Queue {
			return renamesKeys{q, func(msg driver.Outgoing) string { return "restarted " + msg.DedupKey }}
		}),
	},
	{
		Name: "undoes-acks-on-restart", Breaks: "ACK-1",
		What: "After a restart acked messages are back.",
		Wrap: restarts(restartFault{restart: bringsBackRecorded, before: func(q passThrough, log *restartLog) driver.Queue {
			return recordsAcked{remembersDeliveries{q, new(deliveries)}, log}
		}}),
	},
	{
		Name: "loses-the-leased-on-restart", Breaks: "VIS-1",
		What: "After a restart messages that were in flight are gone.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			return q.refill(ctx, func(driver.Peeked) (driver.Outgoing, bool) { return driver.Outgoing{}, false }, driver.StateInFlight)
		}),
	},
	{
		Name: "forgets-leases-on-restart", Breaks: "VIS-1",
		What: "After an orderly restart messages that were in flight are ready.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			return q.refill(ctx, func(seen driver.Peeked) (driver.Outgoing, bool) { return again(seen.Message), true }, driver.StateInFlight)
		}),
	},
	{
		Name: "puts-the-leased-at-the-tail-on-restart", Breaks: "ORD-2",
		What: "After a restart messages that were in flight are at the tail.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			return q.refill(ctx, func(seen driver.Peeked) (driver.Outgoing, bool) {
				return again(seen.Message), true
			}, driver.StateReady, driver.StateInFlight)
		}),
	},
	{
		Name: "forgets-groups-on-restart", Breaks: "ORD-4",
		What: "After a restart a group's next message is delivered while an earlier one is in flight.",
		Wrap: handlesAfterRestart(func(q passThrough) driver.Queue { return shufflesGroup{q} }),
	},
	{
		Name: "miscounts-after-a-restart", Breaks: "CNT-1",
		What: "After a restart dead letters are not counted.",
		Wrap: handlesAfterRestart(func(q passThrough) driver.Queue {
			return changesStats{q, func(stats *driver.Stats) { stats.Dead = 0 }}
		}),
	},
	{
		Name: "undoes-a-purge-on-restart", Breaks: "CNT-3",
		What: "After a restart purged messages are back.",
		Wrap: restarts(restartFault{restart: bringsBackRecorded, before: func(q passThrough, log *restartLog) driver.Queue { return recordsPurged{q, log} }}),
	},
	{
		Name: "forgets-why-they-died-on-restart", Breaks: "DLQ-4",
		What: "After a restart dead letters have no last error.",
		Wrap: handlesAfterRestart(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.LastError = "" }}
		}),
	},
	{
		Name: "forgets-redrives-on-restart", Breaks: "DLQ-5",
		What: "After a restart the redrives of a message are not counted.",
		Wrap: handlesAfterRestart(func(q passThrough) driver.Queue {
			return changesDead{q, func(letter *driver.DeadLetter) { letter.Redrives = 0 }}
		}),
	},
	{
		Name: "moves-the-dead-again-on-restart", Breaks: "DLQ-8",
		What: "After a restart messages in the dead-letter queue are moved once more.",
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
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
		Wrap: afterRestart(func(ctx context.Context, q passThrough) error {
			return q.wrapper.inner.(driver.Admin).ConfigureQueue(ctx, q.name, driver.Config{}.Effective())
		}),
	},
}

// A restartFault is the effect of a restart on a backend. All fields are optional.
type restartFault struct {
	// before wraps handles until the restart.
	before func(q passThrough, log *restartLog) driver.Queue
	// restart is called once for each queue.
	restart func(ctx context.Context, q passThrough, log *restartLog) error
	// after wraps handles after the restart.
	after func(q passThrough) driver.Queue
}

// A restartLog records messages of each queue. It survives the restart.
type restartLog = table[string, []driver.Message]

// restarts wraps a backend without a fault the first time, and treats each further call as a
// restart.
func restarts(a restartFault) func(driver.Opener) driver.Opener {
	var logs table[driver.Opener, *restartLog]
	return func(inner driver.Opener) driver.Opener {
		b := newWrapper(inner)
		written, known := logs.get(inner)
		if known {
			if a.after != nil {
				b.spoil = a.after
			}
			return withAbilitiesOf(&restarted{wrapper: b, restartFault: a, log: written}, inner)
		}
		written = new(restartLog)
		logs.put(inner, written)
		if a.before != nil {
			b.spoil = func(q passThrough) driver.Queue { return a.before(q, written) }
		}
		return withAbilitiesOf(b, inner)
	}
}

// afterRestart calls harm once for each queue.
func afterRestart(harm func(ctx context.Context, q passThrough) error) func(driver.Opener) driver.Opener {
	return restarts(restartFault{restart: func(ctx context.Context, q passThrough, _ *restartLog) error { return harm(ctx, q) }})
}

// handlesAfterRestart replaces each handle after the restart.
func handlesAfterRestart(harm func(passThrough) driver.Queue) func(driver.Opener) driver.Opener {
	return restarts(restartFault{after: harm})
}

// restarted is a backend after a restart.
type restarted struct {
	*wrapper
	restartFault
	log  *restartLog
	done table[string, int]
}

func (b *restarted) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.open(ctx, name)
	if err != nil {
		return nil, err
	}
	if b.restart != nil && add(&b.done, name, 1) == 1 {
		if err := b.restart(ctx, q, b.log); err != nil {
			return nil, err
		}
	}
	return b.spoil(q), nil
}

// refill empties a queue, which must hold messages in the given states only, and sends them
// again as other says, state by state.
func (q passThrough) refill(ctx context.Context, other func(driver.Peeked) (driver.Outgoing, bool), states ...driver.State) error {
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

type repeatsIDs struct{ passThrough }

func (q repeatsIDs) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	before := q.peeked(ctx, driver.StateReady)
	sent, err := q.Queue.Send(ctx, msgs)
	if len(before) > 0 && len(sent) > 0 {
		sent[0].ID = before[0].ID
	}
	return sent, err
}

// shufflesGroup leases two messages of a group and keeps the second for the next receive.
type shufflesGroup struct{ passThrough }

func (q shufflesGroup) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	kept := stateOf[lastDelivery](q.wrapper, q.name+"\x00kept")
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

// bringsBackRecorded sends the messages in the log again.
func bringsBackRecorded(ctx context.Context, q passThrough, log *restartLog) error {
	messages, _ := log.get(q.name)
	for _, message := range messages {
		if _, err := q.sendOne(ctx, again(message)); err != nil {
			return err
		}
	}
	log.drop(q.name)
	return nil
}

type recordsAcked struct {
	remembersDeliveries
	log *restartLog
}

func (q recordsAcked) Ack(ctx context.Context, acked []driver.Receipt) error {
	err := q.Queue.Ack(ctx, acked)
	for i, receipt := range acked {
		if d, ok := q.delivered.get(receipt); ok && driver.At(err, i) == nil {
			before, _ := q.log.get(q.name)
			q.log.put(q.name, append(before, d.Message))
		}
	}
	return err
}

type recordsPurged struct {
	passThrough
	log *restartLog
}

func (q recordsPurged) Purge(ctx context.Context) (int, error) {
	var messages []driver.Message
	for _, seen := range q.peeked(ctx, driver.StateReady) {
		messages = append(messages, seen.Message)
	}
	q.log.put(q.name, messages)
	return q.Queue.Purge(ctx)
}
