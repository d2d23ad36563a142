package redisbox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/waitlist"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Long polling: a receive that finds no message registers as a waiter and sleeps
// until a signal. A script that adds messages announces them (engine.announce in
// shard.lua), shardWatcher.onAnnouncement receives that and calls waitlist.List.Wake, and
// the woken receive asks the server again. A message that this process sends needs no
// announcement: the receive also parks its request, which the call of the send takes along
// (Shard.takeAlong in batch.go).

// await receives messages, waiting as long as the request says. A receiver first
// registers as a waiter and then looks, and a sender first adds its message and then
// announces it, so one of them always sees the other.
func (h *handle) await(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	begun := time.Now()
	var patience *time.Timer // made when the first look finds nothing
	w := h.waiters.Join()
	// Asking the server for announcements is useless before the subscription stands.
	waits := h.subscribed()
	for expired := false; ; {
		got, blocked, err := h.take(ctx, req, waits && !expired)
		if err != nil || len(got) > 0 || expired {
			h.stopWaiting(w, err != nil)
			return got, h.received(got, blocked, err)
		}
		if patience == nil {
			patience = time.NewTimer(req.Wait - time.Since(begun))
			defer patience.Stop()
		}
		if !waits {
			waits = true
			if h.awaitSubscription(ctx, patience) {
				continue
			}
		}
		got, woken, err := h.waitForSignal(ctx, w, patience, req)
		switch {
		case len(got) > 0:
			h.stopWaiting(w, woken)
			return got, nil
		case err != nil:
			h.stopWaiting(w, true)
			return nil, err
		case !woken && !blocked && h.subscribed():
			h.stopWaiting(w, false)
			return nil, nil
		}
		expired = !woken // one last look: the in-flight limit may allow more now
	}
}

// stopWaiting unregisters a waiter. A signal that it could not act upon, and that no
// other receiver takes, goes to the shard watchers.
func (q *queue) stopWaiting(w *waitlist.Waiter, unanswered bool) {
	if q.waiters.Leave(w, unanswered) {
		for _, w := range q.watchers {
			notify(w.lookNow)
		}
	}
}

// Without announcements, which a server may forbid, waiting receivers poll.
const (
	subscribeTimeout = 2 * time.Second
	pollInterval     = time.Second
)

// subscribed reports whether the announcements of all shards arrive.
func (q *queue) subscribed() bool {
	for _, w := range q.watchers {
		if !w.announcements.Active.Load() {
			return false
		}
	}
	return true
}

// awaitSubscription waits until the announcements of all shards arrive, and reports
// false if that takes too long.
func (h *handle) awaitSubscription(ctx context.Context, patience *time.Timer) bool {
	limit := time.NewTimer(subscribeTimeout)
	defer limit.Stop()
	for _, w := range h.watchers {
		select {
		case <-w.announcements.Confirmed:
		case <-limit.C:
			return false
		case <-patience.C:
			patience.Reset(0) // for the next select on it
			return false
		case <-ctx.Done():
			return false
		case <-h.closed:
			return false
		case <-h.ended:
			return false
		}
	}
	return true
}

// waitForSignal waits for a signal, or for messages of a call that took the request along. It
// reports false when the wait of the request is over, and returns an error when the context,
// the handle or the queue has ended.
func (h *handle) waitForSignal(ctx context.Context, w *waitlist.Waiter, patience *time.Timer, req driver.ReceiveRequest) (got []driver.Delivery, woken bool, err error) {
	var poll <-chan time.Time
	if !h.subscribed() {
		timer := time.NewTimer(pollInterval)
		defer timer.Stop()
		poll = timer.C
	}
	for {
		parked := shard.NewReceiveOp(ctx, req, true)
		h.Parked.Park(parked)
		taken := false
		select {
		case <-parked.Done:
			taken = true
		case <-w.Signal():
			h.waiters.Acknowledge(w)
			woken = true
		case <-poll:
			woken = true
		case <-patience.C:
		case <-ctx.Done():
			err = ctx.Err()
		case <-h.closed:
			err = h.failure(driver.ErrClosed, "receive")
		case <-h.ended:
			err = h.failure(h.code, "receive")
		}
		if taken || (!h.Parked.Withdraw(parked) && h.awaitAnswer(parked)) {
			// An error is that of the send, and this receive still waits.
			got, more, failure := h.read(ctx, parked)
			if len(got) > 0 {
				return got, woken || err != nil, nil
			}
			if taken && (failure != nil || !more) {
				continue
			}
			woken = woken || more
		}
		return nil, woken, err
	}
}
