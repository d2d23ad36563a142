package redisbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	if err := h.check(ctx, "receive"); err != nil {
		return nil, err
	}
	traits := h.Traits()
	req, err := req.Check(&traits)
	if err != nil {
		return nil, h.named(err, "receive")
	}
	h.startWatching(ctx)
	if req.Wait == 0 || !h.subscribed() {
		got, blocked, err := h.take(ctx, req, false)
		if len(got) > 0 || err != nil || req.Wait == 0 {
			return got, h.received(got, blocked, err)
		}
	}
	return h.await(ctx, req)
}

// received returns the error of a receive that got these messages.
func (h *handle) received(got []driver.Delivery, blocked bool, err error) error {
	switch {
	case len(got) > 0:
		return nil
	case err != nil:
		return h.outcome(err, "receive")
	case !blocked:
		return nil
	}
	wait := retryAfter
	for _, s := range h.shards {
		wait = min(wait, max(s.clock.until(s.watcher.nextDeadline()), time.Millisecond))
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "receive", Queue: h.name, Field: "MaxInFlight",
		Detail: fmt.Sprintf("in-flight limit reached (MaxInFlight %d)", h.settings.Load().config.MaxInFlight), RetryAfter: wait,
	}
}

// take leases ready messages without waiting. blocked says that only the in-flight
// limit kept it from taking any; waits, that the caller will wait if there are none.
func (h *handle) take(ctx context.Context, req driver.ReceiveRequest, waits bool) (got []driver.Delivery, blocked bool, err error) {
	if len(h.shards) == 1 {
		return h.takeFrom(ctx, h.shards[0], req, waits)
	}
	// One shard after the other, beginning with the one that is likely to have
	// messages; if it has none, only those that report some.
	first := h.shards[h.nextTake.Add(1)%uint64(len(h.shards))]
	got, blocked, err = h.takeFrom(ctx, first, req, false)
	if err != nil || len(got) > 0 {
		return got, blocked, err
	}
	wants := "0"
	if waits {
		wants = "2"
	}
	left, err := onShards(h.queue, func(s *shard) (int64, error) {
		a, err := s.call(ctx, usageScript, callOptions{}, wants)
		if err != nil {
			return 0, err
		}
		return a.rest[1].AsInt64()
	})
	if err != nil {
		return nil, blocked, err
	}
	for i, s := range h.shards {
		if left[i] == 0 {
			continue
		}
		got, full, err := h.takeFrom(ctx, s, req, waits)
		blocked = blocked || full
		if err != nil || len(got) > 0 {
			return got, blocked, err
		}
	}
	return nil, blocked, nil
}

// takeFrom leases ready messages of one shard. Damaged messages are dead-lettered,
// and the others returned.
func (h *handle) takeFrom(ctx context.Context, s *shard, req driver.ReceiveRequest, waits bool) ([]driver.Delivery, bool, error) {
	for {
		op := newReceiveOp(ctx, req, waits)
		s.receives.submit(ctx, op)
		if err := h.awaitReceive(ctx, s, op); err != nil {
			return nil, false, err
		}
		if op.err != nil {
			return nil, false, op.err
		}
		got, damaged, err := op.deliveries(s)
		if err != nil {
			return nil, false, err
		}
		if len(damaged) > 0 {
			s.deadLetterDamaged(ctx, damaged)
		}
		if len(got) > 0 || (len(damaged) == 0 && !op.cut) {
			return got, op.blocked, nil
		}
	}
}

// cancelGrace is how long a receive that is cancelled during its call waits for the
// answer, which may contain messages. Messages that come later are given back as if
// they had not been delivered, unless their lease is over by then. So a receive with
// a lease shorter than shortLease waits longer.
const (
	cancelGrace = time.Second
	shortLease  = 5 * time.Second
)

// awaitReceive waits for the answer. If the caller leaves first, the messages of the
// answer are given back.
func (h *handle) awaitReceive(ctx context.Context, s *shard, op *receiveOp) error {
	var reason error
	select {
	case <-op.done:
		return nil
	case <-ctx.Done():
		reason = ctx.Err()
	case <-h.closed:
		reason = h.failure(driver.ErrClosed, "receive")
	case <-h.ended:
		reason = h.failure(h.code, "receive")
	}
	if s.receives.withdraw(op) {
		return reason
	}
	timer := time.NewTimer(max(cancelGrace, shortLease-op.req.Visibility))
	defer timer.Stop()
	select {
	case <-op.done:
	case <-timer.C:
		if op.abandon() {
			return reason
		}
		<-op.done // the answer came this very moment
	}
	if op.err != nil || op.count == 0 {
		return reason
	}
	return nil
}

// maxNonce bounds the numbers of deliveries: scripts count in doubles, which are
// exact up to 2⁵³. Numbers start at random, because a counter on the server could
// give out a number twice after a failover.
const maxNonce = 1 << 52

// newNonce returns the number of the first delivery of a call.
func newNonce() uint64 { return noncesPerCall * (1 + rand.Uint64N(maxNonce/noncesPerCall-1)) }

// answerBytes bounds the answer of one call; a batch may be shorter because of it.
const answerBytes = 8 << 20

// receiveOp is one request for messages of a shard; see batcher.
type receiveOp struct {
	ctx   context.Context // of the caller
	req   driver.ReceiveRequest
	waits bool

	mu        sync.Mutex // guards abandoned and answered
	abandoned bool
	answered  bool

	done    chan struct{} // closed when the fields below are set
	leased  leasedMessages
	count   int
	blocked bool // only the in-flight limit kept it from getting any
	cut     bool // only the size of the answer did
	err     error
}

func newReceiveOp(ctx context.Context, req driver.ReceiveRequest, waits bool) *receiveOp {
	return &receiveOp{ctx: ctx, req: req, waits: waits, done: make(chan struct{})}
}

func (o *receiveOp) size() (elements, bytes int) { return o.req.Max, 0 }
func (o *receiveOp) context() context.Context    { return o.ctx }

// same reports whether two requests are equal.
func (o *receiveOp) same(other *receiveOp) bool {
	return o.req.Max == other.req.Max && o.req.MaxBytes == other.req.MaxBytes &&
		o.req.Visibility == other.req.Visibility && o.waits == other.waits
}

// abandon records that the caller has left. It reports false if the answer was first.
func (o *receiveOp) abandon() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.abandoned = !o.answered
	return o.abandoned
}

// answer hands the answer over. It reports false if the caller has left.
func (o *receiveOp) answer() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered = true
	close(o.done)
	return !o.abandoned
}

// deliveries reads the answer. It returns messages whose stored bytes are not those
// that were sent as damaged.
func (o *receiveOp) deliveries(s *shard) (got []driver.Delivery, damaged []driver.Receipt, err error) {
	if o.count == 0 {
		return nil, nil, nil
	}
	got = make([]driver.Delivery, 0, o.count)
	for i := range o.count {
		id, e, sent, err := o.leased.message(i)
		if err != nil {
			return nil, nil, err
		}
		got = append(got, driver.Delivery{Receipt: s.receipt(id, e.place, e.nonce), Shard: s.number})
		d := &got[len(got)-1]
		d.ID = id
		e.fill(&d.Message)
		if !readSent(&d.Message, id, sent) {
			damaged = append(damaged, d.Receipt)
			got = got[:len(got)-1]
			continue
		}
		d.SlotPending = o.leased.slotPending(i)
		s.queue.noteSlot(d.ReplyTo)
	}
	return got, damaged, nil
}

// giveBack returns messages to their places as if they had not been delivered,
// because the caller of the receive has left.
func (s *shard) giveBack(ctx context.Context, op *receiveOp) {
	if op.count == 0 {
		return
	}
	got, damaged, err := op.deliveries(s)
	if err != nil {
		return // their leases run out
	}
	back := newSettleOp(ctx, s)
	for i, d := range got {
		back.add(i, "r", d.Receipt, "")
	}
	if len(got) > 0 {
		s.shared.submit(ctx, back)
	}
	if len(damaged) > 0 {
		s.deadLetterDamaged(ctx, damaged)
	}
}

// damagedCause is the failure of messages whose stored bytes have changed.
const damagedCause = "the stored bytes are not those that were sent"

// deadLetterDamaged dead-letters damaged messages. While the dead letters are full, a
// damaged message waits in the queue and is found damaged again.
func (s *shard) deadLetterDamaged(ctx context.Context, damaged []driver.Receipt) {
	dead := newSettleOp(ctx, s)
	for i, receipt := range damaged {
		dead.add(i, "b", receipt, packDeadLetter(driver.ReasonIntegrity, damagedCause, ""))
	}
	s.shared.submit(ctx, dead)
	<-dead.done
	s.queue.backend.options.Logger.ErrorContext(ctx, "messages are damaged", "queue", s.queue.name, "count", len(damaged), "first", damaged[0].Handle)
	kept := newSettleOp(ctx, s)
	for i, receipt := range damaged {
		if dead.codes != "" && dead.codes[i] == 'f' {
			kept.add(i, "n", receipt, packDoubles(micros(driver.DeadRetry))+packLong(damagedCause))
		}
	}
	if len(kept.positions) > 0 {
		s.shared.submit(ctx, kept)
		<-kept.done
	}
}
