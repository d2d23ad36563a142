package pgbox

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/waitlist"
)

// Long polling: a receive that finds no message registers as a waiter and sleeps until a
// signal: of a send in this process, of a notice of another one (notify.go), or of the queue's
// timer, which runs while there are waiters and fires when a lease or a delay ends.

// How often a receive that waits looks at least: in case a notice is lost, and where there are
// none.
const (
	lookInterval = 2 * time.Second
	pollInterval = time.Second
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
	if req.Wait == 0 {
		got, blocked, err := h.take(ctx, req, false)
		return got, h.received(got, blocked, err)
	}
	return h.await(ctx, req)
}

// await receives messages, waiting as long as the request says. A receiver first registers as a
// waiter and then looks, and a sender first adds its message and then signals, so one of them
// always sees the other.
func (h *handle) await(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	h.backend.notices.listen()
	patience := time.NewTimer(req.Wait)
	defer patience.Stop()
	w := h.waiters.Join()
	for expired := false; ; {
		got, blocked, err := h.take(ctx, req, !expired)
		if err != nil || len(got) > 0 || expired {
			h.waiters.Leave(w, err != nil)
			return got, h.received(got, blocked, err)
		}
		woken, err := h.waitForSignal(ctx, w, patience)
		switch {
		case err != nil:
			h.waiters.Leave(w, true)
			return nil, err
		case !woken && !blocked:
			h.waiters.Leave(w, false)
			return nil, nil
		}
		expired = !woken // one last look: the in-flight limit may allow more now
	}
}

// waitForSignal waits for a signal. It reports false when the wait of the request is over, and
// returns an error when the context, the handle or the queue has ended.
func (h *handle) waitForSignal(ctx context.Context, w *waitlist.Waiter, patience *time.Timer) (woken bool, err error) {
	select {
	case <-w.Signal():
		h.waiters.Acknowledge(w)
		return true, nil
	case <-patience.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-h.closed:
		return false, h.failure(driver.ErrClosed, "receive")
	case <-h.ended:
		return false, h.failure(h.code, "receive")
	}
}

// noteNext sets the timer by the answer of a receive, whose leases end after a time at the earliest.
func (q *queue) noteNext(h *head, lease time.Duration) {
	if q.waiters.Len() == 0 {
		return
	}
	wait := min(lookInterval, max(lease, time.Millisecond))
	if !q.backend.notices.active() {
		wait = min(wait, pollInterval)
	}
	if h.next != nil {
		wait = min(wait, max(time.Duration(*h.next-h.low.due)*time.Microsecond, time.Millisecond))
	}
	q.timerMu.Lock()
	defer q.timerMu.Unlock()
	q.sources = q.sources || h.sources > 0
	at := time.Now().Add(wait)
	if q.isEnded.Load() || q.timer != nil && !q.timerAt.After(at) {
		return
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	q.timerAt = at
	q.timer = time.AfterFunc(wait, q.wakeDue)
}

// wakeDue wakes the receives that wait, after dead letters of other queues have come.
func (q *queue) wakeDue() {
	q.timerMu.Lock()
	q.timer = nil
	sources := q.sources
	q.sources = false
	q.timerMu.Unlock()
	if sources {
		q.tend(q.backend.ctx)
	}
	q.waiters.Wake(math.MaxInt)
}

// tend lets time pass in the queues whose dead letters come here, in which no process may be
// looking.
func (q *queue) tend(ctx context.Context) {
	var due []int32
	now := int64(0)
	r := request{sql: "SELECT DISTINCT qid, mailbox.clock() FROM mailbox.upstream($1) WHERE qid <> $1 AND due <= mailbox.clock()", wide: -1, repeatable: true}
	err := q.call(ctx, r, func(rows pgx.Rows) error {
		due = nil
		for rows.Next() {
			var qid int32
			if err := rows.Scan(&qid, &now); err != nil {
				return err
			}
			due = append(due, qid)
		}
		return nil
	})
	for _, qid := range due {
		if err == nil {
			other := &queue{backend: q.backend, qid: qid, ended: make(chan struct{})}
			other.settings.Store(&settings{version: math.MaxInt64})
			_, err = other.usage(ctx, false)
		}
	}
	if err != nil && ctx.Err() == nil {
		q.backend.options.Logger.WarnContext(ctx, "cannot look at the queues whose dead letters come here", "queue", q.name, "error", err)
	}
}

// stopTimer stops the timer.
func (q *queue) stopTimer() {
	q.timerMu.Lock()
	defer q.timerMu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}
