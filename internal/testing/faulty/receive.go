package faulty

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var receiveFaults = []Saboteur{
	{Name: "does-not-clamp-max", Breaks: "RCV-1",
		What: "A receive returns more messages than the largest batch.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			for batch := got; err == nil && len(batch) > 0 && len(got) < req.Max; {
				rest := req
				rest.Max, rest.Wait = req.Max-len(got), 0
				if rest.Visibility == 0 || rest.MaxBytes > 0 || len(batch) < q.Traits().MaxBatch {
					break
				}
				batch, err = q.Receive(ctx, rest)
				got = append(got, batch...)
			}
			return got, err
		}}},
	{Name: "takes-max-plus-one", Breaks: "RCV-1",
		What: "A receive with a Max of several returns one more.",
		on:   hooks{receive: alterRequest(func(_ *queue, req *driver.ReceiveRequest) { set(req.Max > 1, &req.Max, req.Max+1) })}},
	{Name: "refuses-large-max", Breaks: "RCV-1",
		What: "A Max above the largest batch is refused, not clamped.",
		on:   hooks{receive: alterRequest(func(q *queue, req *driver.ReceiveRequest) { set(req.Max > q.Traits().MaxBatch, &req.Max, 0) })}},
	{Name: "takes-max-zero-for-one", Breaks: "RCV-1",
		What: "A receive with Max 0 returns one message.",
		on:   hooks{receive: alterRequest(func(_ *queue, req *driver.ReceiveRequest) { req.Max = max(req.Max, 1) })}},
	{Name: "ignores-max-bytes", Breaks: "RCV-1",
		What: "MaxBytes does not bound a receive.",
		on:   hooks{receive: alterRequest(func(_ *queue, req *driver.ReceiveRequest) { req.MaxBytes = min(req.MaxBytes, 0) })}},
	{Name: "never-delivers-over-max-bytes", Breaks: "RCV-1",
		What: "A message over MaxBytes is not delivered even alone.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			if len(got) == 1 && req.MaxBytes > 0 && len(got[0].Body) > req.MaxBytes {
				return nil, q.release(ctx, got[0].Receipt)
			}
			return got, err
		}}},
	{Name: "lets-one-more-in-flight", Breaks: "RCV-1",
		What: "One message more than MaxInFlight can be in flight.",
		on:   hooks{config: func(c *driver.Config) { set(c.MaxInFlight > 0, &c.MaxInFlight, c.MaxInFlight+1) }}},
	{Name: "lets-more-in-flight-in-parallel", Breaks: "RCV-1",
		What: "The ceiling is checked and used in two steps, so that concurrent receives can exceed it by one.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			race := state[roomRace](q)
			defer race.enter()()
			got, err := q.Receive(ctx, req)
			if !race.wins(err) {
				return got, err
			}
			if err := q.reconfigure(ctx, func(c *driver.Config) { c.MaxInFlight++ }); err != nil {
				return nil, err
			}
			return q.Receive(ctx, req)
		}}},
	{Name: "hides-the-ceiling", Breaks: "RCV-1",
		What: "A receive at the in-flight ceiling is empty instead of refused.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			got, err := q.Receive(ctx, req)
			return got, unless(errors.Is(err, driver.ErrFull), err)
		}}},
	{Name: "refuses-at-the-ceiling-at-once", Breaks: "RCV-1",
		What: "A receive at the in-flight ceiling does not wait for a lease to end.",
		on: hooks{receive: func(q *queue, ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			at := req
			at.Wait = min(at.Wait, 0)
			if got, err := q.Receive(ctx, at); err != nil || len(got) > 0 || req.Wait == 0 {
				return got, err
			}
			return q.Receive(ctx, req)
		}}},
}

var messageFaults = []Saboteur{
	{Name: "counts-every-delivery-as-first", Breaks: "RCV-3",
		What: "The delivery count is always one.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.Deliveries = 1 })}},
	{Name: "counts-from-zero", Breaks: "RCV-3",
		What: "The first delivery is number zero.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.Deliveries-- })}},
	{Name: "restarts-the-count-after-a-nack", Breaks: "RCV-3",
		What: "A nack resets the delivery count.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { d.Deliveries -= state[counts](q).at(d.ID) }),
			nack: afterEach((*queue).Nack, func(q *queue, nack driver.Nack) {
				if d, ok := q.delivered.get(nack.Receipt); ok {
					add(state[counts](q), d.ID, d.Deliveries)
				}
			}),
		}},
	{Name: "dates-first-delivery-by-the-latest", Breaks: "RCV-3",
		What: "The time of the first delivery is that of the latest.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.FirstReceivedAt = time.Now().UTC() })}},
	{Name: "dates-the-send-by-the-delivery", Breaks: "RCV-3",
		What: "The time of the send is that of the first delivery.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.EnqueuedAt = d.FirstReceivedAt })}},
	{Name: "gives-local-times", Breaks: "RCV-3",
		What: "Times are in the zone of the machine, not in UTC.",
		on: hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) {
			d.EnqueuedAt = d.EnqueuedAt.In(time.FixedZone("elsewhere", 3600))
		})}},
	{Name: "loses-the-correlation-id", Breaks: "RCV-3",
		What: "A message that is delivered again has no correlation id.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { set(d.Deliveries > 1, &d.CorrelationID, "") })}},
	{Name: "cuts-the-seal", Breaks: "RCV-3", Also: []string{"DLQ-5", "DLQ-8", "DLQ-9"},
		What: "A seal ends before its last byte.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.Seal = d.Seal[:max(0, len(d.Seal)-1)] })}},
	{Name: "promises-seals-and-refuses-them", Breaks: "RCV-3",
		What: "Traits promise seals, and a message with a seal is refused.",
		on: hooks{send: func(q *queue, ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
			traits := q.Traits()
			traits.Seals = false
			failed := make([]error, len(msgs))
			for i := range msgs {
				if failed[i] = msgs[i].Check(&traits); len(msgs[i].Seal) > 0 && failed[i] != nil {
					return make([]driver.Sent, len(msgs)), driver.NewBatchError(failed)
				}
			}
			return q.Send(ctx, msgs)
		}}},
	{Name: "takes-seals-without-the-trait", Breaks: "RCV-3",
		What: "Traits do not promise seals, and a message with a seal is accepted.",
		on:   hooks{traits: alterTraits(func(_ *queue, traits *driver.Traits) { traits.Seals = false })}},
	{Name: "loses-the-reply-address", Breaks: "RCV-3",
		What: "A message has no reply address.",
		on:   hooks{receive: alterDelivered(func(_ *queue, d *driver.Delivery) { d.ReplyTo = "" })}},
	{Name: "keeps-the-first-error", Breaks: "RCV-3",
		What: "The last error is the cause of the first nack, not of the latest.",
		on: hooks{receive: alterDelivered(func(q *queue, d *driver.Delivery) {
			first := state[texts](q)
			if cause, ok := first.get(d.ID); ok {
				d.LastError = cause
			} else if d.LastError != "" {
				first.put(d.ID, d.LastError)
			}
		})}},
	{Name: "loses-the-error-with-a-causeless-nack", Breaks: "RCV-3", Also: []string{"ACK-1"},
		What: "A nack without a cause clears the last error.",
		on: hooks{
			receive: alterDelivered(func(q *queue, d *driver.Delivery) { set(state[marks](q).at(d.ID), &d.LastError, "") }),
			nack: afterEach((*queue).Nack, func(q *queue, nack driver.Nack) {
				if d, ok := q.delivered.get(nack.Receipt); ok {
					state[marks](q).put(d.ID, nack.Cause == "")
				}
			}),
		}},
	{Name: "dates-a-delayed-send-by-its-due-time", Breaks: "RCV-3", Rare: true,
		What: "The time of the send of a delayed message is the time when it became due.",
		on: hooks{
			send: afterSend(func(q *queue, msg driver.Outgoing, sent *driver.Sent) {
				if !sent.Duplicate {
					state[table[string, time.Duration]](q).put(sent.ID, msg.Delay)
				}
			}),
			receive: alterDelivered(func(q *queue, d *driver.Delivery) {
				d.EnqueuedAt = d.EnqueuedAt.Add(state[table[string, time.Duration]](q).at(d.ID))
			}),
		}},
}
