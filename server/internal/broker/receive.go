package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// A Delivery is a leased message. Its attributes are those that were sent, and those
// that a backend adds to a forwarded dead letter.
type Delivery struct {
	driver.Message
	Queue string
	// Receipt is sealed; it works with the same queue only.
	Receipt string
	// Shard is the shard of the queue that the message is in.
	Shard int
	Seal  Seal
	// SlotPending is that of driver.Delivery.
	SlotPending bool
}

// Envelope returns the envelope of the delivery, without the body.
func (d *Delivery) Envelope() envelope.Envelope {
	return envelope.Envelope{
		ID: d.ID, Queue: d.Queue, SentAt: d.Seal.SentAt, DedupKey: d.Seal.IdemKey, BodyHash: d.Seal.PayloadHash(d.Body),
		Attributes: d.Attributes, CorrelationID: d.Seal.CorrelationID(&d.Message), ReplyTo: d.ReplyTo, Group: d.Group, Shard: d.Shard, Attempt: d.Deliveries,
		HashChain: d.Seal.HashChain, Signature: d.Seal.Signature,
	}
}

// Receive leases messages, as driver.Queue.Receive does and with the same codes.
// A queue that does not exist is ErrNotFound at once, and is not created.
//
// It blocks for up to req.Wait. Cancelling ctx wakes it at once; so does a draining
// daemon, with no messages and no error. ErrFull is the in-flight limit of the queue,
// after the wait, or of the daemon, at once. Messages that were changed are
// dead-lettered; if there were no others, the error is ErrIntegrity, and the next call
// gets the messages behind them.
func (c Caller) Receive(ctx context.Context, queue string, req driver.ReceiveRequest) ([]Delivery, error) {
	b := c.broker
	if req.Wait > 0 {
		c.resume(ctx) // thousands of receives may begin at once
	}
	grant, err := c.authorize(ctx, capability.OpRecv, queue)
	if err != nil {
		return nil, err
	}
	if err := b.admit("receive", queue, lastForReads); err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		q, err := c.use(ctx, "receive", queue, false)
		if err != nil {
			return nil, err
		}
		deliveries, err := c.receiveFrom(ctx, q, grant, req)
		retry := !again && c.used(q, err) && ctx.Err() == nil
		q.release(b.now())
		if !retry {
			return deliveries, err
		}
	}
}

func (c *Caller) receiveFrom(ctx context.Context, q *queue, grant *verify.Grant, req driver.ReceiveRequest) ([]Delivery, error) {
	var call receiveCall
	if err := c.prepareReceive(ctx, &call, q, grant, req); err != nil {
		c.slowRefusal(ctx, nil, err)
		return nil, err
	}
	defer call.leave()
	held, err := c.receiveWaiting(ctx, q, call.req)
	if len(held) > 0 && call.req.Wait > 0 {
		held, err = c.stillGood(ctx, q, held)
	}
	var handed handedDeliveries
	deliveries, err := call.finish(ctx, held, err, &handed)
	for i := range handed.damaged {
		c.deadLetterDamaged(ctx, q, &handed.damaged[i])
	}
	return deliveries, err
}

// receiveCall is the state of one receive.
type receiveCall struct {
	caller *Caller
	queue  *queue
	grant  *verify.Grant
	req    driver.ReceiveRequest // as it goes to the backend
	groups bool                  // groups have their own order
	began  time.Time
	mark   orderMark
	room   int     // leases taken from the caller's share
	memory int64   // taken from the caller's share
	worker *worker // nil if it is not listed
}

// prepareReceive checks a request, and takes room for what it may bring from the caller's
// shares.
func (c *Caller) prepareReceive(ctx context.Context, call *receiveCall, q *queue, grant *verify.Grant, req driver.ReceiveRequest) error {
	b := c.broker
	limits := c.limits()
	traits := q.traits(limits)
	if c.rules.AnyWait && traits.MaxWait > 0 {
		req.Wait = min(req.Wait, traits.MaxWait)
	}
	req, err := req.Check(&traits)
	e, refused := errors.AsType[*driver.Error](err)
	if !refused && req.Visibility < limits.MinVisibility || refused && e.Field == "Visibility" {
		err = &driver.Error{
			Code: driver.ErrInvalid, Op: "receive", Field: "Visibility",
			Detail: fmt.Sprintf("%v is out of range; want %v to %v", req.Visibility, limits.MinVisibility, traits.MaxVisibility),
		}
	}
	if err != nil {
		b.metrics.Rejected(rejection(err))
		return err
	}
	*call = receiveCall{caller: c, queue: q, grant: grant, req: req, groups: traits.StrictGroups || traits.FairGroups}
	if err := call.enter(ctx); err != nil {
		b.metrics.Rejected(metricSaturated)
		return refusedShare(err, "receive", q.name)
	}
	call.began, call.mark = time.Now(), q.order.began()
	call.worker = c.arrive(q, req.Wait > 0, call.began)
	return nil
}

// enter takes what the receive needs from the caller's shares. A receive that waits takes a
// unit of the waits first: the room of each depends on how many wait.
func (r *receiveCall) enter(ctx context.Context) (err error) {
	c, b := r.caller, r.caller.broker
	owner := c.owner()
	waits := r.req.Wait > 0
	if waits {
		if err := b.waits.Take(owner[:], 1); err != nil {
			return err
		}
	}
	if r.room, err = c.reserve(r.req.Max, waits); err != nil {
		r.leave()
		return err
	}
	r.req.Max = r.room
	if r.memory, err = c.answer(ctx, &r.req); err != nil {
		b.inFlight.Give(owner[:], int64(r.room))
		r.leave()
	}
	return err
}

// leave gives back the unit of the waits.
func (r *receiveCall) leave() {
	if r.req.Wait > 0 {
		if r.worker != nil {
			r.queue.leases.part(r.worker, r.caller.broker.now())
		}
		owner := r.caller.owner()
		r.caller.broker.waits.Give(owner[:], 1)
	}
}

// finish gives back the room that a receive did not need, and makes deliveries of what it
// has brought. The caller of finish dead-letters damaged messages.
func (r *receiveCall) finish(ctx context.Context, held []driver.Delivery, err error, into *handedDeliveries) ([]Delivery, error) {
	c, q := r.caller, r.queue
	b := c.broker
	if len(held) > 0 && r.req.Visibility > 0 {
		q.leases.add(held, c.holder, r.worker, r.began, b.now()+r.req.Visibility)
		r.room -= len(held)
	}
	c.answered(r.memory, held)
	owner := c.owner()
	b.inFlight.Give(owner[:], int64(r.room))
	if q.gone.Load() { // no sweep sees these leases any more
		q.leases.clear()
		q.leases.forgetWorkers()
	}
	if err != nil {
		if !errors.Is(err, driver.ErrNotFound) && ctx.Err() == nil {
			b.metrics.Rejected(rejection(err))
		}
		return nil, localised(err, q)
	}
	b.metrics.Dequeue.Observe(time.Since(r.began).Seconds())
	deliveries, err := c.hand(q, r.grant, held, into)
	if !r.groups {
		for i := range deliveries {
			if d := &deliveries[i]; ordered(&d.Message, &d.Seal, r.began) {
				q.order.deliver(r.mark, d.Shard, d.EnqueuedAt)
			}
		}
	}
	return deliveries, err
}

// handedDeliveries are the messages of one receive.
type handedDeliveries struct {
	deliveries []Delivery
	damaged    []damagedDelivery
}

// damagedDelivery is a message that was changed since it was sealed.
type damagedDelivery struct {
	driver.Delivery
	damage error
}

// retryInFlight is the RetryAfter of the in-flight limit: a receiver will have settled
// something by then.
const retryInFlight = 200 * time.Millisecond

// refusedShare adds the operation and the queue to the refusal of a pool.
func refusedShare(err error, op, queue string) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	refusal := *e
	refusal.Op, refusal.Queue = op, queue
	return &refusal
}

// receiveWaiting calls Queue.Receive, and returns nothing when the daemon drains. A
// receive that does not wait takes a turn. Codes besides: ErrFull.
func (c *Caller) receiveWaiting(ctx context.Context, q *queue, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	b := c.broker
	if req.Wait == 0 {
		if err := c.turn(ctx, "receive", q.name, 1); err != nil {
			return nil, err
		}
		defer c.done(1)
		return q.handle.Receive(ctx, req)
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	var w wait
	b.waiting.enter(&w)
	defer b.waiting.leave(&w)
	b.waiting.set(&w, completion.Canceller(cancel))
	held, err := q.handle.Receive(waiting, req)
	c.resume(ctx)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && errors.Is(err, waiting.Err()) {
		return nil, nil
	}
	return held, err
}

// stillGood returns the deliveries, unless the caller's token was revoked or has
// expired while the call waited: then it releases the messages.
func (c *Caller) stillGood(ctx context.Context, q *queue, held []driver.Delivery) ([]driver.Delivery, error) {
	ctx = context.WithoutCancel(ctx) // a cancelled caller still gets the messages, or they go back
	refusal := c.broker.verifier.Valid(ctx, c.token)
	if refusal == nil {
		return held, nil
	}
	c.refused(ctx, c.request(capability.OpRecv, q.name), refusal)
	if err := release(ctx, q.handle, held); err != nil {
		c.broker.log.LogAttrs(ctx, slog.LevelWarn, "receive.kept", c.attrs(q.name, slog.String("error", err.Error()))...)
	}
	return nil, refusal
}

// release releases deliveries (FLOW-4), or ends their leases on a backend that counts every
// delivery.
func release(ctx context.Context, q driver.Queue, held []driver.Delivery) error {
	if !q.Traits().Release {
		ends := make([]driver.Extension, len(held))
		for i := range held {
			ends[i].Receipt = held[i].Receipt
		}
		_, err := q.Extend(ctx, ends)
		return err
	}
	nacks := make([]driver.Nack, len(held))
	for i := range held {
		nacks[i] = driver.Nack{Receipt: held[i].Receipt, Mode: driver.NackRelease}
	}
	return q.Nack(ctx, nacks)
}

// hand verifies messages from the backend and makes deliveries of them, in the memory of into.
func (c *Caller) hand(q *queue, grant *verify.Grant, held []driver.Delivery, into *handedDeliveries) ([]Delivery, error) {
	if len(held) == 0 {
		return nil, nil
	}
	b := c.broker
	now := time.Now()
	by := receiptOwner{grant.ID(), now}
	keyID, key := b.receipts.current()
	if key == nil {
		return nil, &driver.Error{Code: driver.ErrUnavailable, Op: "receive", Queue: q.name, Detail: "no key to seal receipts with; the key ring is empty"}
	}
	into.deliveries = slices.Grow(into.deliveries[:0], len(held))
	var room [32]int
	ends := room[:0]
	var text []byte // all receipts in one allocation
	var bytes int64
	var damage error
	for i := range held {
		message := held[i].Message
		seal, err := q.unseal(&message)
		if err != nil {
			damage = err
			into.damaged = append(into.damaged, damagedDelivery{held[i], err})
			continue
		}
		seal.Timely = seal.Timely && !held[i].Released
		bytes += int64(len(message.Body))
		if text == nil {
			text = make([]byte, 0, len(held)*(receiptTextSize+len(held[i].Receipt.Handle)))
		}
		text = b.receipts.append(text, keyID, key, q.backend, held[i].Receipt, by)
		ends = append(ends, len(text))
		into.deliveries = append(into.deliveries, Delivery{Message: message, Queue: q.name, Shard: held[i].Shard, Seal: seal, SlotPending: c.slotPending(q, &held[i])})
		b.traces.note(&q.queueKey, message.ID, c.holder, EventDelivered, message.Deliveries, "", now)
	}
	all, start := string(text), 0
	for i, end := range ends {
		into.deliveries[i].Receipt = all[start:end]
		start = end
	}
	grant.Charge(len(ends), bytes)
	q.meter.Delivered(len(ends))
	q.flow.delivered.Add(uint64(len(ends)))
	if len(ends) == 0 {
		return nil, damage
	}
	return into.deliveries, nil
}

// deadLetterDamaged dead-letters a message that was changed. If that fails it nacks the
// message with a delay, each time it is received, rather than deliver it.
func (c *Caller) deadLetterDamaged(ctx context.Context, q *queue, d *damagedDelivery) {
	b, damage := c.broker, d.damage
	b.metrics.Rejected(metricIntegrity)
	err := q.handle.DeadLetter(ctx, []driver.DeadLetterRequest{{
		Receipt: d.Receipt, Reason: driver.ReasonIntegrity, Error: damage.Error(), ErrorType: string(driver.ErrIntegrity),
	}})
	if err == nil {
		b.traces.note(&q.queueKey, d.ID, holder{}, EventDeadLettered, d.Deliveries, string(driver.ReasonIntegrity), time.Now())
	} else {
		err = errors.Join(err, q.handle.Nack(ctx, []driver.Nack{{Receipt: d.Receipt, Delay: driver.DeadRetry, Cause: damage.Error()}}))
	}
	q.leases.remove(endedLease{d.Receipt, endedOtherwise})
	attrs := c.attrs(q.name, slog.String("msg_id", d.ID), slog.String("damage", damage.Error()))
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	b.log.LogAttrs(ctx, slog.LevelError, "integrity.fail", attrs...)
}

// retryWaits is the RetryAfter of the limit of waiting receives: long polls end within
// seconds.
const retryWaits = time.Second

// A waitTable holds the receives that wait, to end them when the daemon drains.
type waitTable struct {
	mu    sync.Mutex
	waits map[*wait]struct{}
	ended bool
}

// A wait is a receive that waits.
type wait struct {
	waiting completion.Waiting // guarded by the table's lock; nil until it is known
	ends    bool               // likewise: it must end as soon as that is known
}

func (t *waitTable) init() { t.waits = make(map[*wait]struct{}) }

// enter adds a wait. The caller calls set if it waits, and leave at its end.
func (t *waitTable) enter(w *wait) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.ends = t.ended
	t.waits[w] = struct{}{}
}

// set says what ends a wait, unless replace has said it. It reports whether there is a wait:
// waiting may be nil.
func (t *waitTable) set(w *wait, waiting completion.Waiting) (waits bool) {
	t.mu.Lock()
	isReplaced := w.waiting != nil
	if !isReplaced {
		w.waiting = waiting
	}
	ends := w.ends
	t.mu.Unlock()
	if ends && !isReplaced && waiting != nil {
		waiting.Cancel()
	}
	return isReplaced || waiting != nil
}

// replace says what ends a wait that goes on in another way.
func (t *waitTable) replace(w *wait, waiting completion.Waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.waiting = waiting
}

func (t *waitTable) leave(w *wait) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waits, w)
}

// end ends a wait.
func (t *waitTable) end(w *wait) {
	t.mu.Lock()
	w.ends = true
	waiting := w.waiting
	t.mu.Unlock()
	if waiting != nil {
		waiting.Cancel()
	}
}

// endAll ends all waiting receives, and those that enter later.
func (t *waitTable) endAll() {
	t.mu.Lock()
	t.ended = true
	all := slices.Collect(maps.Keys(t.waits))
	t.mu.Unlock()
	for _, w := range all {
		t.end(w)
	}
}
