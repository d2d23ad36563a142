package redisbox

import (
	"context"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
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
	wait := shard.RetryAfter
	for _, s := range h.Shards {
		wait = min(wait, max(s.Clock.Until(h.watchers[s.Number].nextDeadline()), time.Millisecond))
	}
	return &driver.Error{
		Code: driver.ErrFull, Op: "receive", Queue: h.Name, Field: "MaxInFlight",
		Detail: fmt.Sprintf("in-flight limit reached (MaxInFlight %d)", h.Settings.Load().Config.MaxInFlight), RetryAfter: wait,
	}
}

// take leases ready messages without waiting. blocked says that only the in-flight
// limit kept it from taking any; waits, that the caller will wait if there are none.
func (h *handle) take(ctx context.Context, req driver.ReceiveRequest, waits bool) (got []driver.Delivery, blocked bool, err error) {
	if len(h.Shards) == 1 {
		return h.takeFrom(ctx, h.Shards[0], req, waits)
	}
	// One shard after the other, beginning with the one that is likely to have
	// messages; if it has none, only those that report some.
	first := h.Shards[h.nextTake.Add(1)%uint64(len(h.Shards))]
	got, blocked, err = h.takeFrom(ctx, first, req, false)
	if err != nil || len(got) > 0 {
		return got, blocked, err
	}
	wants := "0"
	if waits {
		wants = "2"
	}
	left, err := onShards(h.queue, func(s *shard.Shard) (int64, error) { return s.Available(ctx, wants) })
	if err != nil {
		return nil, blocked, err
	}
	for i, s := range h.Shards {
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
func (h *handle) takeFrom(ctx context.Context, s *shard.Shard, req driver.ReceiveRequest, waits bool) ([]driver.Delivery, bool, error) {
	for {
		op := shard.NewReceiveOp(ctx, req, waits)
		s.Receives.Submit(ctx, op)
		if err := h.awaitReceive(ctx, s, op); err != nil {
			return nil, false, err
		}
		if got, more, err := h.read(ctx, op); !more {
			return got, op.Blocked, err
		}
	}
}

// read returns the messages of a request that was answered. more reports that it got none, and
// that the shard may have others. Damaged messages are dead-lettered.
func (h *handle) read(ctx context.Context, op *shard.ReceiveOp) (got []driver.Delivery, more bool, err error) {
	if op.Err != nil {
		return nil, false, op.Err
	}
	got, damaged, err := op.Deliveries()
	if err != nil {
		return nil, false, err
	}
	for i := range got {
		h.noteSlot(got[i].ReplyTo)
	}
	if len(damaged) > 0 {
		op.Shard.DeadLetterDamaged(ctx, damaged)
	}
	return got, len(got) == 0 && (len(damaged) > 0 || op.Cut), nil
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
func (h *handle) awaitReceive(ctx context.Context, s *shard.Shard, op *shard.ReceiveOp) error {
	var reason error
	select {
	case <-op.Done:
		return nil
	case <-ctx.Done():
		reason = ctx.Err()
	case <-h.closed:
		reason = h.failure(driver.ErrClosed, "receive")
	case <-h.ended:
		reason = h.failure(h.code, "receive")
	}
	if s.Receives.Withdraw(op) || !h.awaitAnswer(op) {
		return reason
	}
	return nil
}

// awaitAnswer waits for the answer of a request whose caller leaves during its call, and reports
// whether it has messages. After a while they are given back instead.
func (h *handle) awaitAnswer(op *shard.ReceiveOp) bool {
	timer := time.NewTimer(max(cancelGrace, shortLease-op.Req.Visibility))
	defer timer.Stop()
	select {
	case <-op.Done:
	case <-timer.C:
		if op.Abandon() {
			return false
		}
		<-op.Done // the answer came this very moment
	}
	return op.Err == nil && op.Count > 0
}
