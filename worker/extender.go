package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// extendLeases extends the leases of a run until ctx ends.
func (r *run[T]) extendLeases(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.mu.Lock()
		r.timerAt, r.timerSet = r.leases.next()
		due, set := r.timerAt, r.timerSet
		r.mu.Unlock()
		timer.Stop()
		if set {
			timer.Reset(due - r.now())
		}
		select {
		case <-ctx.Done():
			return
		case <-r.renew:
		case <-timer.C:
		}
		r.extendDue(ctx)
	}
}

// callExtenderLocked wakes the extender if a lease is due before its timer. That is
// rare; waking it without need does no harm.
func (r *run[T]) callExtenderLocked() {
	due, found := r.leases.next()
	if !found || r.timerSet && due >= r.timerAt {
		return
	}
	r.timerAt, r.timerSet = due, true
	select {
	case r.renew <- struct{}{}:
	default:
	}
}

// extendDue extends the leases that are due, and ends those that are lost.
func (r *run[T]) extendDue(ctx context.Context) {
	now := r.now()
	r.mu.Lock()
	jobs, ended := r.leases.take(now)
	for _, j := range jobs {
		j.lease.extending = true
	}
	r.mu.Unlock()
	for _, j := range ended {
		r.lose(ctx, j, nil)
	}
	if len(jobs) == 0 {
		return
	}
	visibility := r.loop.options.Visibility
	messages := make([]*mailbox.Message[T], len(jobs))
	for i, j := range jobs {
		messages[i] = j.message
	}
	// A slow call counts as failed: a goroutine that wants to return a message waits
	// for it.
	calling, cancel := context.WithTimeout(ctx, min(max(visibility/3, time.Second), settleTimeout))
	err := mailbox.ExtendAll(calling, visibility, messages...)
	cancel()
	if err != nil {
		r.loop.backendFailed(ctx, "extend", err)
	}
	r.extended(ctx, jobs, now, err)
}

// extended records the result of an extension that was sent at now.
func (r *run[T]) extended(ctx context.Context, jobs []*job[T], now time.Duration, err error) {
	retryAfter := min(max(r.loop.options.Visibility/10, backoff.Shortest), backoff.Longest)
	lost := make(map[*job[T]]error)
	r.mu.Lock()
	for i, j := range jobs {
		j.lease.extending = false
		if j.lease.released {
			continue
		}
		switch e := mailbox.ErrorAt(err, i); {
		case e == nil && j.message.Granted() < r.loop.options.Visibility:
			// It has been held for nearly as long as allowed. The extension is
			// repeated now and then, because the limit can change.
			j.lease.until = now + j.message.Granted()
			r.leases.retry(j, now, retryAfter)
		case e == nil:
			r.leases.add(j, now)
		case errors.Is(e, mailbox.ErrReceiptExpired):
			lost[j] = e
		case errors.Is(e, mailbox.ErrSettled): // by its handler, which has not returned
		default:
			r.leases.retry(j, r.now(), retryAfter)
		}
	}
	r.renewed.Broadcast()
	r.mu.Unlock()
	for j, e := range lost {
		r.lose(ctx, j, e)
	}
}

// lose removes a job whose lease is over and cancels its handler. cause is the error
// of the backend, if there is one. A job that is being settled continues.
func (r *run[T]) lose(ctx context.Context, j *job[T], cause error) {
	if j.message.Settled() && cause == nil {
		return // by its handler, which has not returned
	}
	o := &r.loop.options
	err := &mailbox.Error{
		Code: mailbox.ErrReceiptExpired, Op: "handle", Queue: r.loop.mailbox.Name(), MessageID: j.id,
		Detail: "the lease was lost", Err: cause,
	}
	r.mu.Lock()
	phase := j.phase
	switch phase {
	case jobWaiting:
		r.waiting = slices.DeleteFunc(r.waiting, func(other *job[T]) bool { return other == j })
		r.settledLocked(j)
	case jobRunning:
		j.lost = true
		r.settledLocked(j)
		j.cancel(err)
	case jobSettling:
		if j.succeeded {
			// Its ack is being repeated. If the message comes back before that ends,
			// its handler must not run again.
			r.loop.completed.put(j.id, struct{}{})
		}
	}
	r.mu.Unlock()
	if phase != jobWaiting && phase != jobRunning {
		return
	}
	o.Logger.LogAttrs(ctx, slog.LevelWarn, "worker: lease lost",
		slog.String("loop", o.Name), slog.String("id", j.id), slog.Int("deliveries", j.message.Deliveries), slog.Any("err", err))
	r.loop.settled(ctx, j.message, SettledEvent{Result: ResultLost, Cause: err})
}

// letGo stops extending the lease of a job, and waits for an extension that is under
// way: on some backends it would undo the delay of a nack.
func (r *run[T]) letGo(j *job[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases.remove(j)
	j.lease.released = true
	for j.lease.extending {
		r.renewed.Wait()
	}
}

// extendTo extends the lease of j for its handler; see Extend.
func (r *run[T]) extendTo(ctx context.Context, j *job[T], visibility time.Duration) error {
	r.mu.Lock()
	for j.lease.extending {
		r.renewed.Wait()
	}
	now := r.now()
	if j.phase == jobRunning && visibility <= j.lease.until-now {
		r.mu.Unlock()
		return nil
	}
	r.leases.remove(j)
	j.lease.extending = true
	r.mu.Unlock()

	err := j.message.Extend(ctx, visibility)

	r.mu.Lock()
	j.lease.extending = false
	r.renewed.Broadcast()
	if !j.lease.released {
		until := j.lease.until
		if err == nil {
			until = now + j.message.Granted()
		}
		r.leases.addUntil(j, until)
		r.callExtenderLocked()
	}
	r.mu.Unlock()
	if errors.Is(err, mailbox.ErrReceiptExpired) {
		r.lose(ctx, j, err)
	}
	return err
}
