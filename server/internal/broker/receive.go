package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
)

// A Delivery is a message handed to a caller for a while. Its attributes are
// those that were sent, and those that a backend adds to a dead letter that it
// forwards.
type Delivery struct {
	driver.Message
	Topic string
	// Receipt is sealed; it works with the same topic only.
	Receipt string
	// Shard is the shard of the topic that the message is in.
	Shard int
	Seal  Seal
}

// Envelope returns what travels around the payload.
func (d *Delivery) Envelope() envelope.Envelope {
	return envelope.Envelope{
		ID: d.ID, Topic: d.Topic, SentAt: d.Seal.SentAt, IdemKey: d.Seal.IdemKey, PayloadHash: d.Seal.PayloadHash,
		Attributes: d.Attributes, CorrelationID: d.Seal.CorrelationID, ReplyTo: d.ReplyTo, Group: d.Group, Shard: d.Shard, Attempt: d.Deliveries,
		HashChain: d.Seal.HashChain, Signature: d.Seal.Signature,
	}
}

// Receive leases messages, as driver.Queue.Receive does and with the same codes.
// A topic that is not there is ErrNotFound at once, and is not made.
//
// It blocks for up to req.Wait; cancelling ctx, or a daemon that stops, wakes it
// at once, the latter with no messages and no error. ErrFull is the topic's
// ceiling of leases, after the wait, or that of the daemon, at once. Messages
// that are not what was sent go to the dead letters; if there was nothing else,
// the error is ErrIntegrity, and the next call gets what follows.
func (c Caller) Receive(ctx context.Context, topic string, req driver.ReceiveRequest) ([]Delivery, error) {
	b := c.broker
	if req.Wait > 0 {
		c.resume(ctx) // thousands may begin at once, as they may end
	}
	grant, err := c.authorize(ctx, capability.OpRecv, topic)
	if err != nil {
		return nil, err
	}
	if err := b.admit("receive", topic, lastForReads); err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		t, err := c.use(ctx, "receive", topic, false)
		if err != nil {
			return nil, err
		}
		deliveries, err := c.receiveFrom(ctx, t, grant, req)
		retry := !again && c.used(t, err) && ctx.Err() == nil
		t.release(b.now())
		if !retry {
			return deliveries, err
		}
	}
}

func (c *Caller) receiveFrom(ctx context.Context, t *topic, grant *capability.Grant, req driver.ReceiveRequest) ([]Delivery, error) {
	b := c.broker
	limits := c.limits()
	traits := t.traits(limits)
	if c.rules.AnyWait && traits.MaxWait > 0 {
		req.Wait = min(req.Wait, traits.MaxWait)
	}
	req, err := req.Check(&traits)
	e, refused := errors.AsType[*driver.Error](err)
	if !refused && req.Visibility < limits.MinVisibility || refused && e.Field == "Visibility" {
		err = &driver.Error{
			Code: driver.ErrInvalid, Op: "receive", Field: "Visibility",
			Detail: fmt.Sprintf("%v is outside %v…%v", req.Visibility, limits.MinVisibility, traits.MaxVisibility),
		}
	}
	if err != nil {
		b.metrics.Rejected(rejection(err))
		return nil, err
	}
	room, err := c.reserve(req.Max, req.Wait > 0)
	if err != nil {
		b.metrics.Rejected(metricSaturated)
		return nil, refusedShare(err, "receive", t.name)
	}
	req.Max = room
	taken, err := c.answer(ctx, &req)
	if err != nil {
		owner := c.owner()
		b.inFlight.Give(owner[:], int64(room))
		b.metrics.Rejected(metricSaturated)
		return nil, refusedShare(err, "receive", t.name)
	}
	began, mark := time.Now(), t.order.began()
	held, err := c.receiveWaiting(ctx, t, req)
	if len(held) > 0 && req.Wait > 0 {
		held, err = c.stillGood(ctx, t, held)
	}
	if len(held) > 0 && req.Visibility > 0 {
		t.leases.add(held, c.holder, began, b.now()+req.Visibility)
		room -= len(held)
	}
	c.answered(taken, held)
	owner := c.owner()
	b.inFlight.Give(owner[:], int64(room))
	if t.gone.Load() { // nothing would look for these leases any more
		t.leases.clear()
	}
	if err != nil {
		if !errors.Is(err, driver.ErrNotFound) && ctx.Err() == nil {
			b.metrics.Rejected(rejection(err))
		}
		return nil, localised(err, t)
	}
	b.metrics.Dequeue.Observe(time.Since(began).Seconds())
	deliveries, err := c.hand(ctx, t, grant, held)
	if !traits.StrictGroups && !traits.FairGroups { // which have orders of their own
		for i := range deliveries {
			if d := &deliveries[i]; ordered(&d.Message, &d.Seal, began) {
				t.order.deliver(mark, d.Shard, d.EnqueuedAt)
			}
		}
	}
	return deliveries, err
}

// retryInFlight is when a receiver will have settled something.
const retryInFlight = 200 * time.Millisecond

// refusedShare says in a refusal of a pool what was refused.
func refusedShare(err error, op, topic string) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	refusal := *e
	refusal.Op, refusal.Queue = op, topic
	return &refusal
}

// receiveWaiting is Queue.Receive, and ends with nothing when the daemon stops. A
// receive that waits is a unit of the caller's share. Codes besides: ErrFull.
func (c *Caller) receiveWaiting(ctx context.Context, t *topic, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	b := c.broker
	if req.Wait == 0 {
		if err := c.turn(ctx, "receive", t.name, 1); err != nil {
			return nil, err
		}
		defer c.done(1)
		return t.queue.Receive(ctx, req)
	}
	owner := c.owner()
	if err := b.waits.Take(owner[:], 1); err != nil {
		return nil, refusedShare(err, "receive", t.name)
	}
	defer b.waits.Give(owner[:], 1)
	waiting, number := b.waiting.enter(ctx)
	defer b.waiting.leave(number)
	held, err := t.queue.Receive(waiting, req)
	c.resume(ctx)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && errors.Is(err, waiting.Err()) {
		return nil, nil
	}
	return held, err
}

// stillGood returns what was received, unless the caller's token was revoked or has
// expired while the call waited, which may be for long: then the messages go back to
// their places.
func (c *Caller) stillGood(ctx context.Context, t *topic, held []driver.Delivery) ([]driver.Delivery, error) {
	ctx = context.WithoutCancel(ctx) // who has cancelled gets what is there, or it goes back
	refusal := c.broker.verifier.Valid(ctx, c.token)
	if refusal == nil {
		return held, nil
	}
	c.refused(ctx, c.request(capability.OpRecv, t.name), refusal)
	ends := make([]driver.Extension, len(held))
	for i := range held {
		ends[i].Receipt = held[i].Receipt
	}
	if _, err := t.queue.Extend(ctx, ends); err != nil {
		c.broker.log.LogAttrs(ctx, slog.LevelWarn, "receive.kept", c.attrs(t.name, slog.String("error", err.Error()))...)
	}
	return nil, refusal
}

// hand verifies what came from the backend and makes it fit to be handed out.
func (c *Caller) hand(ctx context.Context, t *topic, grant *capability.Grant, held []driver.Delivery) ([]Delivery, error) {
	if len(held) == 0 {
		return nil, nil
	}
	b := c.broker
	now := time.Now()
	by := taking{grant.ID(), now}
	keyID, key := b.receipts.current()
	if key == nil {
		return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "receive", Queue: t.name, Detail: "there is no key to seal receipts with"}
	}
	deliveries := make([]Delivery, 0, len(held))
	var text []byte // all receipts, so that they are one piece of memory
	ends := make([]int, 0, len(held))
	var bytes int64
	var damage error
	for i := range held {
		message := held[i].Message
		seal, err := t.unseal(&message)
		if err != nil {
			damage = err
			c.setAside(ctx, t, &held[i], err)
			continue
		}
		bytes += int64(len(message.Body))
		if text == nil {
			text = make([]byte, 0, len(held)*(receiptTextSize+len(held[i].Receipt.Handle)))
		}
		text = b.receipts.append(text, keyID, key, t.backend, held[i].Receipt, by)
		ends = append(ends, len(text))
		deliveries = append(deliveries, Delivery{Message: message, Topic: t.name, Shard: held[i].Shard, Seal: seal})
		b.life.note(&t.topicKey, message.ID, c.holder, EventDelivered, message.Deliveries, "", now)
	}
	all, start := string(text), 0
	for i, end := range ends {
		deliveries[i].Receipt = all[start:end]
		start = end
	}
	grant.Charge(len(deliveries), bytes)
	t.meter.Delivered(len(deliveries))
	if len(deliveries) == 0 {
		return nil, damage
	}
	return deliveries, nil
}

// setAside moves a message that is not what was sent to the dead letters. Where
// that is not possible it is kept from being delivered for a while, again and
// again, rather than be handed out.
func (c *Caller) setAside(ctx context.Context, t *topic, d *driver.Delivery, damage error) {
	b := c.broker
	b.metrics.Rejected(metricIntegrity)
	err := t.queue.DeadLetter(ctx, []driver.DeadLetterRequest{{
		Receipt: d.Receipt, Reason: driver.ReasonIntegrity, Error: damage.Error(), ErrorType: string(driver.ErrIntegrity),
	}})
	if err == nil {
		b.life.note(&t.topicKey, d.ID, holder{}, EventDeadLettered, d.Deliveries, string(driver.ReasonIntegrity), time.Now())
	} else {
		err = errors.Join(err, t.queue.Nack(ctx, []driver.Nack{{Receipt: d.Receipt, Delay: driver.DeadRetry, Cause: damage.Error()}}))
	}
	t.leases.remove(d.ID, d.Receipt)
	attrs := c.attrs(t.name, slog.String("msg_id", d.ID), slog.String("damage", damage.Error()))
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	b.log.LogAttrs(ctx, slog.LevelError, "integrity.fail", attrs...)
}
