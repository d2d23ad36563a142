package faulty

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var receiveFaults = []Saboteur{
	{
		Name: "does-not-clamp-max", Breaks: "RCV-1",
		What: "A receive returns more messages than the largest batch.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return doesNotClamp{q} }),
	},
	{
		Name: "takes-max-plus-one", Breaks: "RCV-1",
		What: "A receive with a Max of several returns one more.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) {
				if req.Max > 1 {
					req.Max++
				}
			}}
		}),
	},
	{
		Name: "refuses-large-max", Breaks: "RCV-1",
		What: "A Max above the largest batch is refused, not clamped.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) {
				if req.Max > q.Traits().MaxBatch {
					req.Max = 0
				}
			}}
		}),
	},
	{
		Name: "takes-max-zero-for-one", Breaks: "RCV-1",
		What: "A receive with Max 0 returns one message.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) { req.Max = max(req.Max, 1) }}
		}),
	},
	{
		Name: "ignores-max-bytes", Breaks: "RCV-1",
		What: "MaxBytes does not bound a receive.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesRequest{q, func(req *driver.ReceiveRequest) { req.MaxBytes = min(req.MaxBytes, 0) }}
		}),
	},
	{
		Name: "never-delivers-over-max-bytes", Breaks: "RCV-1",
		What: "A message over MaxBytes is not delivered even alone.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return starvesLarge{q} }),
	},
	{
		Name: "lets-one-more-in-flight", Breaks: "RCV-1",
		What: "One message more than MaxInFlight can be in flight.",
		Wrap: changesConfig(func(config *driver.Config) {
			if config.MaxInFlight > 0 {
				config.MaxInFlight++
			}
		}),
	},
	{
		Name: "lets-more-in-flight-in-parallel", Breaks: "RCV-1",
		What: "The ceiling is checked and used in two steps, so that concurrent receives can exceed it by one.",
		Wrap: perQueue(func(q passThrough, race *roomRace) driver.Queue { return exceedsCeiling{q, race} }),
	},
	{
		Name: "hides-the-ceiling", Breaks: "RCV-1",
		What: "A receive at the in-flight ceiling is empty instead of refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return hidesCeiling{q} }),
	},
	{
		Name: "refuses-at-the-ceiling-at-once", Breaks: "RCV-1",
		What: "A receive at the in-flight ceiling does not wait for a lease to end.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return refusesAtOnce{q} }),
	},
}

// changesRequest changes each request before the backend gets it.
type changesRequest struct {
	passThrough
	change func(*driver.ReceiveRequest)
}

func (q changesRequest) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.change(&req)
	return q.Queue.Receive(ctx, req)
}

type doesNotClamp struct{ passThrough }

func (q doesNotClamp) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for batch := got; err == nil && len(batch) > 0 && len(got) < req.Max; {
		rest := req
		rest.Max, rest.Wait = req.Max-len(got), 0
		if rest.Visibility == 0 || rest.MaxBytes > 0 || len(batch) < q.Traits().MaxBatch {
			break
		}
		batch, err = q.Queue.Receive(ctx, rest)
		got = append(got, batch...)
	}
	return got, err
}

type starvesLarge struct{ passThrough }

func (q starvesLarge) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if len(got) == 1 && req.MaxBytes > 0 && len(got[0].Body) > req.MaxBytes {
		return nil, extended(q.Queue.Extend(ctx, []driver.Extension{{Receipt: got[0].Receipt}}))
	}
	return got, err
}

type exceedsCeiling struct {
	passThrough
	*roomRace
}

func (q exceedsCeiling) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.sending.Add(1)
	defer q.sending.Add(-1)
	yieldToOthers()
	got, err := q.Queue.Receive(ctx, req)
	if !errors.Is(err, driver.ErrFull) || q.sending.Load() < 2 || q.over.Swap(true) {
		return got, err
	}
	if err := q.reconfigure(ctx, func(config *driver.Config) { config.MaxInFlight++ }); err != nil {
		return nil, err
	}
	return q.Queue.Receive(ctx, req)
}

type hidesCeiling struct{ passThrough }

func (q hidesCeiling) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	if errors.Is(err, driver.ErrFull) {
		return nil, nil
	}
	return got, err
}

type refusesAtOnce struct{ passThrough }

func (q refusesAtOnce) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	at := req
	at.Wait = min(at.Wait, 0)
	if got, err := q.Queue.Receive(ctx, at); err != nil || len(got) > 0 || req.Wait == 0 {
		return got, err
	}
	return q.Queue.Receive(ctx, req)
}

var messageFaults = []Saboteur{
	{
		Name: "counts-every-delivery-as-first", Breaks: "RCV-3",
		What: "The delivery count is always one.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) { d.Deliveries = 1 }}
		}),
	},
	{
		Name: "counts-from-zero", Breaks: "RCV-3",
		What: "The first delivery is number zero.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) { d.Deliveries-- }}
		}),
	},
	{
		Name: "restarts-the-count-after-a-nack", Breaks: "RCV-3",
		What: "A nack resets the delivery count.",
		Wrap: perQueue(func(q passThrough, books *nackCounts) driver.Queue { return restartsCount{q, books} }),
	},
	{
		Name: "dates-first-delivery-by-the-latest", Breaks: "RCV-3",
		What: "The time of the first delivery is that of the latest.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) { d.FirstReceivedAt = time.Now().UTC() }}
		}),
	},
	{
		Name: "dates-the-send-by-the-delivery", Breaks: "RCV-3",
		What: "The time of the send is that of the first delivery.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) { d.EnqueuedAt = d.FirstReceivedAt }}
		}),
	},
	{
		Name: "gives-local-times", Breaks: "RCV-3",
		What: "Times are in the zone of the machine, not in UTC.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				d.EnqueuedAt = d.EnqueuedAt.In(time.FixedZone("elsewhere", 3600))
			}}
		}),
	},
	{
		Name: "loses-the-correlation-id", Breaks: "RCV-3",
		What: "A message that is delivered again has no correlation id.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if d.Deliveries > 1 {
					d.CorrelationID = ""
				}
			}}
		}),
	},
	{
		Name: "cuts-the-seal", Breaks: "RCV-3", Also: []string{"DLQ-5", "DLQ-8", "DLQ-9"},
		What: "A seal ends before its last byte.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) { d.Seal = d.Seal[:max(0, len(d.Seal)-1)] }}
		}),
	},
	{
		Name: "promises-seals-and-refuses-them", Breaks: "RCV-3",
		What: "Traits promise seals, and a message with a seal is refused.",
		Wrap: perHandle(func(q passThrough) driver.Queue { return refusesSeals{q} }),
	},
	{
		Name: "takes-seals-without-the-trait", Breaks: "RCV-3",
		What: "Traits do not promise seals, and a message with a seal is accepted.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesTraits{q, func(t *driver.Traits) { t.Seals = false }}
		}),
	},
	{
		Name: "loses-the-reply-address", Breaks: "RCV-3",
		What: "A message has no reply address.",
		Wrap: perHandle(func(q passThrough) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) { d.ReplyTo = "" }}
		}),
	},
	{
		Name: "keeps-the-first-error", Breaks: "RCV-3",
		What: "The last error is the cause of the first nack, not of the latest.",
		Wrap: perQueue(func(q passThrough, first *table[string, string]) driver.Queue {
			return changesDelivered{q, func(d *driver.Delivery) {
				if cause, ok := first.get(d.ID); ok {
					d.LastError = cause
				} else if d.LastError != "" {
					first.put(d.ID, d.LastError)
				}
			}}
		}),
	},
	{
		Name: "dates-a-delayed-send-by-its-due-time", Breaks: "RCV-3", Rare: true,
		What: "The time of the send of a delayed message is the time when it became due.",
		Wrap: perQueue(func(q passThrough, delays *table[string, time.Duration]) driver.Queue { return datesByDue{q, delays} }),
	},
}

// nackCounts are the deliveries of messages before their last nack.
type nackCounts struct {
	delivered deliveries
	before    table[string, int]
}

type restartsCount struct {
	passThrough
	*nackCounts
}

func (q restartsCount) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		q.delivered.put(got[i].Receipt, got[i])
		before, _ := q.before.get(got[i].ID)
		got[i].Deliveries -= before
	}
	return got, err
}

func (q restartsCount) Nack(ctx context.Context, nacks []driver.Nack) error {
	err := q.Queue.Nack(ctx, nacks)
	for i, nack := range nacks {
		if d, ok := q.delivered.get(nack.Receipt); ok && driver.At(err, i) == nil {
			q.before.put(d.ID, d.Deliveries)
		}
	}
	return err
}

type datesByDue struct {
	passThrough
	delays *table[string, time.Duration]
}

func (q datesByDue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	sent, err := q.Queue.Send(ctx, msgs)
	for i := range sent {
		if !sent[i].Duplicate {
			q.delays.put(sent[i].ID, msgs[i].Delay)
		}
	}
	return sent, err
}

func (q datesByDue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		delay, _ := q.delays.get(got[i].ID)
		got[i].EnqueuedAt = got[i].EnqueuedAt.Add(delay)
	}
	return got, err
}

type refusesSeals struct{ passThrough }

func (q refusesSeals) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	traits := q.Traits()
	traits.Seals = false
	failed := make([]error, len(msgs))
	for i := range msgs {
		if failed[i] = msgs[i].Check(&traits); len(msgs[i].Seal) > 0 && failed[i] != nil {
			return make([]driver.Sent, len(msgs)), driver.NewBatchError(failed)
		}
	}
	return q.passThrough.Send(ctx, msgs)
}
