package registry

import (
	"context"
	"iter"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/identifier"
)

// handle is a handle on a queue of a Registry. Each call borrows the queue from
// the registry, which so knows whether the queue is in use, and opens it again if it was
// closed meanwhile.
type handle struct {
	registry *Registry
	id       string
	traits   driver.Traits // when it was resolved
	identity string
	closed   atomic.Bool
	waiting  atomic.Int32 // receives that Close has to wake
}

// A wait is a receive that can be woken.
type wait struct {
	handle *handle
	cancel context.CancelFunc
}

// newHandle returns a handle on the queue in e, which is borrowed.
func newHandle(registry *Registry, e *entry) driver.Queue {
	return &handle{registry: registry, id: e.id, traits: e.queue.Traits(), identity: e.queue.Identity()}
}

// call borrows the queue while do runs.
func call[R any](ctx context.Context, h *handle, op string, do func(driver.Queue) (R, error)) (result R, err error) {
	if h.closed.Load() {
		return result, h.isClosed(op)
	}
	e, _, err := h.registry.borrow(ctx, h.id)
	if err != nil {
		return result, err
	}
	defer func() { h.registry.giveBack(e, err) }()
	return do(e.queue)
}

// settle is call for operations that return only an error.
func settle(ctx context.Context, h *handle, op string, do func(driver.Queue) error) error {
	_, err := call(ctx, h, op, func(q driver.Queue) (struct{}, error) { return struct{}{}, do(q) })
	return err
}

func (h *handle) isClosed(op string) error {
	return &driver.Error{Code: driver.ErrClosed, Op: op, Queue: identifier.Printable(h.id)}
}

func (h *handle) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return call(ctx, h, "send", func(q driver.Queue) ([]driver.Sent, error) { return q.Send(ctx, msgs) })
}

func (h *handle) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	woken := false // by closing this handle or the registry, which does not concern the queue
	deliveries, err := call(ctx, h, "receive", func(q driver.Queue) ([]driver.Delivery, error) {
		if req.Wait <= 0 {
			return q.Receive(ctx, req)
		}
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		w := &wait{h, cancel}
		if !h.startWait(w) {
			woken = true
			return nil, nil
		}
		defer h.endWait(w)
		deliveries, err := q.Receive(waiting, req)
		if waiting.Err() != nil && ctx.Err() == nil && len(deliveries) == 0 {
			woken = true
			return nil, nil
		}
		return deliveries, err
	})
	if woken {
		return nil, h.isClosed("receive")
	}
	return deliveries, err
}

// startWait registers a waiting receive, so that Close can wake it. It reports false if
// the handle or the registry is closed already.
func (h *handle) startWait(w *wait) bool {
	h.waiting.Add(1)
	h.registry.mu.Lock()
	defer h.registry.mu.Unlock()
	if h.closed.Load() || h.registry.closed {
		h.waiting.Add(-1)
		return false
	}
	h.registry.waits[w] = struct{}{}
	return true
}

func (h *handle) endWait(w *wait) {
	h.registry.mu.Lock()
	defer h.registry.mu.Unlock()
	delete(h.registry.waits, w)
	h.waiting.Add(-1)
}

func (h *handle) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return settle(ctx, h, "ack", func(q driver.Queue) error { return q.Ack(ctx, receipts) })
}

func (h *handle) Nack(ctx context.Context, nacks []driver.Nack) error {
	return settle(ctx, h, "nack", func(q driver.Queue) error { return q.Nack(ctx, nacks) })
}

func (h *handle) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return call(ctx, h, "extend", func(q driver.Queue) ([]time.Duration, error) { return q.Extend(ctx, extensions) })
}

func (h *handle) Purge(ctx context.Context) (int, error) {
	return call(ctx, h, "purge", func(q driver.Queue) (int, error) { return q.Purge(ctx) })
}

func (h *handle) Stats(ctx context.Context) (driver.Stats, error) {
	return call(ctx, h, "stats", func(q driver.Queue) (driver.Stats, error) { return q.Stats(ctx) })
}

// Traits asks the queue if it is open, because its configuration may have changed.
func (h *handle) Traits() driver.Traits {
	if queue := h.registry.peek(h.id); queue != nil {
		return queue.Traits()
	}
	return h.traits
}

// Close ends this handle. The queue is the registry's.
func (h *handle) Close() error {
	h.closed.Store(true)
	if h.waiting.Load() == 0 {
		return nil
	}
	h.registry.mu.Lock()
	defer h.registry.mu.Unlock()
	for w := range h.registry.waits {
		if w.handle == h {
			w.cancel()
		}
	}
	return nil
}

// peek returns the queue for id if it is open.
func (r *Registry) peek(id string) driver.Queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.registered[id]; e != nil {
		return e.queue
	}
	if element := r.cached[id]; element != nil {
		return element.Value.(*entry).queue
	}
	return nil
}

func (h *handle) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return settle(ctx, h, "dead-letter", func(q driver.Queue) error { return q.DeadLetter(ctx, requests) })
}

func (h *handle) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return lendSequence(ctx, h, "dead-letters", func(q driver.Queue) iter.Seq2[driver.DeadLetter, error] { return q.DeadLetters(ctx) })
}

func (h *handle) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	return call(ctx, h, "redrive", func(q driver.Queue) (int, error) { return q.Redrive(ctx, ids, limit) })
}

func (h *handle) Discard(ctx context.Context, ids []string) (int, error) {
	return call(ctx, h, "discard", func(q driver.Queue) (int, error) { return q.Discard(ctx, ids) })
}

func (h *handle) PurgeDead(ctx context.Context) (int, error) {
	return call(ctx, h, "purge dead letters", func(q driver.Queue) (int, error) { return q.PurgeDead(ctx) })
}

func (h *handle) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return lendSequence(ctx, h, "peek", func(q driver.Queue) iter.Seq2[driver.Peeked, error] { return q.Peek(ctx, query) })
}

func (h *handle) Move(ctx context.Context, to string, limit int) (int, error) {
	return call(ctx, h, "move", func(q driver.Queue) (int, error) { return q.Move(ctx, to, limit) })
}

func (h *handle) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return settle(ctx, h, "ack", func(q driver.Queue) error { return q.AckLate(ctx, receipts) })
}

func (h *handle) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	return settle(ctx, h, "extend", func(q driver.Queue) error { return q.ExtendLate(ctx, extensions) })
}

func (h *handle) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	return call(ctx, h, "edit", func(q driver.Queue) (driver.State, error) { return q.Edit(ctx, id, edit) })
}

func (h *handle) Throttle(ctx context.Context, group string, wait time.Duration) error {
	return settle(ctx, h, "throttle", func(q driver.Queue) error { return q.Throttle(ctx, group, wait) })
}

func (h *handle) Pause(ctx context.Context) error {
	return settle(ctx, h, "pause", func(q driver.Queue) error { return q.Pause(ctx) })
}

func (h *handle) Resume(ctx context.Context) error {
	return settle(ctx, h, "resume", func(q driver.Queue) error { return q.Resume(ctx) })
}

func (h *handle) Fire(ctx context.Context, firing driver.Firing) (now driver.Schedule, done bool, err error) {
	now, err = call(ctx, h, "fire", func(q driver.Queue) (now driver.Schedule, err error) {
		now, done, err = q.Fire(ctx, firing)
		return now, err
	})
	return now, done, err
}

func (h *handle) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	return lendSequence(ctx, h, "list schedules", func(q driver.Queue) iter.Seq2[driver.Schedule, error] { return q.Schedules(ctx, name) })
}

func (h *handle) ForgetDedup(ctx context.Context) error {
	return settle(ctx, h, "forget dedup keys", func(q driver.Queue) error { return q.ForgetDedup(ctx) })
}

func (h *handle) Usage(ctx context.Context) (driver.Usage, error) {
	return call(ctx, h, "usage", func(q driver.Queue) (driver.Usage, error) { return q.Usage(ctx) })
}

// Identity asks the queue if it is open: the one that was resolved may have been replaced
// by another of the same name.
func (h *handle) Identity() string {
	if queue := h.registry.peek(h.id); queue != nil {
		return queue.Identity()
	}
	return h.identity
}

// lendSequence borrows the queue for an iteration.
func lendSequence[E any](ctx context.Context, h *handle, op string, list func(driver.Queue) iter.Seq2[E, error]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		stopped := false
		err := settle(ctx, h, op, func(q driver.Queue) error {
			for element, err := range list(q) {
				if err != nil {
					return err
				}
				if !yield(element, nil) {
					stopped = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !stopped {
			var none E
			yield(none, err)
		}
	}
}
