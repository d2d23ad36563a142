package faulty

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// restartFaults lose state at a restart.
var restartFaults = []Saboteur{
	{Name: "loses-the-oldest-on-restart", Breaks: "SND-1",
		What: "After a restart the first message is gone.",
		restart: func(q *queue, ctx context.Context) error {
			got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
			if err != nil || len(got) == 0 {
				return err
			}
			return q.ackOne(ctx, got[0].Receipt)
		}},
	{Name: "gives-ids-again-after-a-restart", Breaks: "SND-1",
		What: "After a restart a send is answered with an id that was used before.",
		after: &hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			before := q.peeked(ctx, driver.StateReady)
			sent, err := q.Send(ctx, msgs)
			if len(before) > 0 && len(sent) > 0 {
				sent[0].ID = before[0].ID
			}
			return sent, err
		}}},
	{Name: "hurries-the-delayed-on-restart", Breaks: "SND-2",
		What:    "After a restart delayed messages are ready.",
		restart: func(q *queue, ctx context.Context) error { return q.refill(ctx, nil, driver.StateDelayed) }},
	{Name: "forgets-what-takes-room-on-restart", Breaks: "SND-5",
		What: "After a restart waiting messages take no room.",
		restart: func(q *queue, ctx context.Context) error {
			stats, err := q.Stats(ctx)
			if err != nil {
				return err
			}
			return q.changeStored(ctx, func(c *driver.Config) bool {
				bounded := c.MaxMessages != driver.Off
				c.MaxMessages += stats.Waiting()
				return bounded
			})
		}},
	{Name: "forgets-keys-on-restart", Breaks: "DUP-3",
		What:  "After a restart all dedup keys are free.",
		after: &hooks{send: renameKeys(func(_ *queue, msg *driver.Outgoing) string { return "restarted " + msg.DedupKey })}},
	{Name: "undoes-acks-on-restart", Breaks: "ACK-1",
		What:    "After a restart acked messages are back.",
		on:      hooks{ack: afterEach((*queue).Ack, (*queue).recordDelivered)},
		restart: (*queue).bringBack},
	{Name: "loses-the-leased-on-restart", Breaks: "VIS-1",
		What: "After a restart messages that were in flight are gone.",
		restart: func(q *queue, ctx context.Context) error {
			return q.refill(ctx, func([]driver.Outgoing) []driver.Outgoing { return nil }, driver.StateInFlight)
		}},
	{Name: "forgets-leases-on-restart", Breaks: "VIS-1",
		What:    "After an orderly restart messages that were in flight are ready.",
		restart: func(q *queue, ctx context.Context) error { return q.refill(ctx, nil, driver.StateInFlight) }},
	{Name: "puts-the-leased-at-the-tail-on-restart", Breaks: "ORD-2",
		What: "After a restart messages that were in flight are at the tail.",
		restart: func(q *queue, ctx context.Context) error {
			return q.refill(ctx, nil, driver.StateReady, driver.StateInFlight)
		}},
	{Name: "forgets-groups-on-restart", Breaks: "ORD-4",
		What: "After a restart a group's next message is delivered while an earlier one is in flight.",
		// It leases two messages of a group and keeps the second for the next receive.
		after: &hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			kept := state[lastDelivery](q)
			if d := kept.take(); d.ID != "" {
				return []driver.Delivery{d}, nil
			}
			if q.Traits().StrictGroups && req.Max == 1 {
				req.Max = 2
			}
			got, err := q.Receive(ctx, req)
			if len(got) == 2 && req.Max == 2 {
				kept.set(got[1])
				got = got[:1]
			}
			return got, err
		}}},
	{Name: "miscounts-after-a-restart", Breaks: "CNT-1",
		What:  "After a restart dead letters are not counted.",
		after: &hooks{stats: alterStats(func(_ *queue, stats *driver.Stats) { stats.Dead = 0 })}},
	{Name: "undoes-a-purge-on-restart", Breaks: "CNT-3",
		What: "After a restart purged messages are back.",
		on: hooks{purge: func(q *queue, ctx context.Context) (int, error) {
			q.wrapper.log.put(q.name, q.readyMessages(ctx))
			return q.Purge(ctx)
		}},
		restart: (*queue).bringBack},
	{Name: "forgets-why-they-died-on-restart", Breaks: "DLQ-4",
		What:  "After a restart dead letters have no last error.",
		after: &hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.LastError = "" })}},
	{Name: "forgets-redrives-on-restart", Breaks: "DLQ-5",
		What:  "After a restart the redrives of a message are not counted.",
		after: &hooks{deadLetters: alterDead(func(_ *queue, letter *driver.DeadLetter) { letter.Redrives = 0 })}},
	{Name: "moves-the-dead-again-on-restart", Breaks: "DLQ-8",
		What: "After a restart messages in the dead-letter queue are moved once more.",
		restart: func(q *queue, ctx context.Context) error {
			for _, m := range q.readyMessages(ctx) {
				if m.Attributes[driver.AttributeDeadSource] == "" {
					continue
				}
				if _, err := q.sendOne(ctx, again(m)); err != nil {
					return err
				}
			}
			return nil
		}},
	{Name: "forgets-the-configuration-on-restart", Breaks: "SVC-1",
		What: "After a restart a queue has the default configuration.",
		restart: func(q *queue, ctx context.Context) error {
			return q.wrapper.inner.(driver.Admin).ConfigureQueue(ctx, q.name, driver.Config{}.Effective())
		}},
}

// A restartLog records messages of each queue. It survives the restart.
type restartLog = table[string, []driver.Message]

// recordDelivered adds a delivered message to the log.
func (q *queue) recordDelivered(receipt driver.Receipt) {
	if d, ok := q.delivered.get(receipt); ok {
		q.wrapper.log.put(q.name, append(slices.Clip(q.wrapper.log.at(q.name)), d.Message))
	}
}

// bringBack sends the messages in the log again.
func (q *queue) bringBack(ctx context.Context) error {
	messages := q.wrapper.log.at(q.name)
	q.wrapper.log.drop(q.name)
	for _, message := range messages {
		if _, err := q.sendOne(ctx, again(message)); err != nil {
			return err
		}
	}
	return nil
}

// refill empties a queue, which must hold messages in the given states only, and sends them
// again, state by state. change may replace them.
func (q *queue) refill(ctx context.Context, change func([]driver.Outgoing) []driver.Outgoing, states ...driver.State) error {
	var msgs []driver.Outgoing
	for _, seen := range q.peeked(ctx, states...) {
		msgs = append(msgs, again(seen.Message))
	}
	stats, err := q.Stats(ctx)
	if err != nil || stats.Waiting() != len(msgs) {
		return err
	}
	if change != nil {
		msgs = change(msgs)
	}
	if _, err := q.Purge(ctx); err != nil {
		return err
	}
	_, err = q.Send(ctx, msgs)
	return err
}

// changeStored changes the configuration that the backend stores, if change reports true.
func (q *queue) changeStored(ctx context.Context, change func(*driver.Config) bool) error {
	admin := q.wrapper.inner.(driver.Admin)
	config, err := admin.QueueConfig(ctx, q.name)
	if err != nil || !change(&config) {
		return err
	}
	return admin.ConfigureQueue(ctx, q.name, config)
}
