package mailboxtest

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// faultQueue is a queue with faults. Operations without a fault go to the backend
// unchanged.
type faultQueue struct {
	driver.Queue
	faults *Faults
	name   string
}

// call runs do with the faults of op.
func call[R any](ctx context.Context, q *faultQueue, op string, do func() (R, error)) (R, error) {
	var none R
	q.faults.count(op)
	late, err := q.faults.meet(ctx, op, q.name)
	if err != nil {
		return none, err
	}
	result, err := do()
	if late != nil {
		return none, late
	}
	return result, err
}

// settle runs do with the faults of op, for operations that return only an error.
func settle(ctx context.Context, q *faultQueue, op string, do func() error) error {
	_, err := call(ctx, q, op, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (q *faultQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return call(ctx, q, opSend, func() ([]driver.Sent, error) { return q.Queue.Send(ctx, msgs) })
}

func (q *faultQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return settle(ctx, q, opAck, func() error { return q.Queue.Ack(ctx, receipts) })
}

func (q *faultQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	return settle(ctx, q, opNack, func() error { return q.Queue.Nack(ctx, nacks) })
}

func (q *faultQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return call(ctx, q, opExtend, func() ([]time.Duration, error) { return q.Queue.Extend(ctx, extensions) })
}

func (q *faultQueue) Purge(ctx context.Context) (int, error) {
	return call(ctx, q, opPurge, func() (int, error) { return q.Queue.Purge(ctx) })
}

func (q *faultQueue) Stats(ctx context.Context) (driver.Stats, error) {
	return call(ctx, q, opStats, func() (driver.Stats, error) { return q.Queue.Stats(ctx) })
}

// Receive restarts, with the rest of its wait, whenever a fault for it is added.
func (q *faultQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.faults.count(opReceive)
	end := time.Now().Add(req.Wait)
	for {
		// Registered before the faults are applied, so that one added in between is not
		// missed.
		waiting, wait := q.faults.startWait(ctx, q.name)
		late, err := q.faults.meet(ctx, opReceive, q.name)
		if err != nil {
			q.faults.endWait(wait)
			return nil, err
		}
		deliveries, err := q.Queue.Receive(waiting, req)
		interrupted := q.faults.endWait(wait)
		if late != nil {
			return nil, late
		}
		if interrupted && len(deliveries) == 0 && ctx.Err() == nil {
			if req.Wait > 0 { // the backend refuses a negative one
				req.Wait = max(0, time.Until(end))
			}
			continue
		}
		return q.faults.pasts.addToAll(q.name, deliveries), err
	}
}

func (q *faultQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	return settle(ctx, q, opDeadLetter, func() error { return q.Queue.DeadLetter(ctx, requests) })
}

func (q *faultQueue) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return list(ctx, q, opDeadLetters, q.Queue.DeadLetters(ctx),
		func(letter *driver.DeadLetter) *driver.Message { return &letter.Message })
}

func (q *faultQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	return call(ctx, q, opRedrive, func() (int, error) {
		before, err := q.deadIDs(ctx)
		if err != nil {
			return 0, err
		}
		moved, err := q.Queue.Redrive(ctx, ids, limit)
		after, listErr := q.deadIDs(ctx)
		for id := range before {
			if _, stayed := after[id]; !stayed && listErr == nil {
				q.faults.pasts.end(q.name, id)
			}
		}
		return moved, err
	})
}

// deadIDs returns the ids of all dead letters.
func (q *faultQueue) deadIDs(ctx context.Context) (map[string]struct{}, error) {
	ids := make(map[string]struct{})
	for letter, err := range q.Queue.DeadLetters(ctx) {
		if err != nil {
			return nil, err
		}
		ids[letter.ID] = struct{}{}
	}
	return ids, nil
}

func (q *faultQueue) Discard(ctx context.Context, ids []string) (int, error) {
	return call(ctx, q, opDiscard, func() (int, error) { return q.Queue.Discard(ctx, ids) })
}

func (q *faultQueue) PurgeDead(ctx context.Context) (int, error) {
	return call(ctx, q, opPurgeDead, func() (int, error) { return q.Queue.PurgeDead(ctx) })
}

func (q *faultQueue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return list(ctx, q, opPeek, q.Queue.Peek(ctx, query),
		func(peeked *driver.Peeked) *driver.Message { return &peeked.Message })
}

func (q *faultQueue) Move(ctx context.Context, to string, limit int) (int, error) {
	return call(ctx, q, opMove, func() (int, error) { return q.Queue.Move(ctx, to, limit) })
}

func (q *faultQueue) AckLate(ctx context.Context, receipts []driver.Receipt) error {
	return settle(ctx, q, opAckLate, func() error { return q.Queue.AckLate(ctx, receipts) })
}

func (q *faultQueue) ExtendLate(ctx context.Context, extensions []driver.Extension) error {
	return settle(ctx, q, opExtendLate, func() error { return q.Queue.ExtendLate(ctx, extensions) })
}

func (q *faultQueue) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	return call(ctx, q, opEdit, func() (driver.State, error) { return q.Queue.Edit(ctx, id, edit) })
}

func (q *faultQueue) Throttle(ctx context.Context, group string, wait time.Duration) error {
	return settle(ctx, q, opThrottle, func() error { return q.Queue.Throttle(ctx, group, wait) })
}

func (q *faultQueue) Pause(ctx context.Context) error {
	return settle(ctx, q, opPause, func() error { return q.Queue.Pause(ctx) })
}

func (q *faultQueue) Resume(ctx context.Context) error {
	return settle(ctx, q, opResume, func() error { return q.Queue.Resume(ctx) })
}

func (q *faultQueue) ForgetDedup(ctx context.Context) error {
	return settle(ctx, q, opForgetDedup, func() error { return q.Queue.ForgetDedup(ctx) })
}

func (q *faultQueue) Usage(ctx context.Context) (driver.Usage, error) {
	return call(ctx, q, opUsage, func() (driver.Usage, error) { return q.Queue.Usage(ctx) })
}

func (q *faultQueue) Fire(ctx context.Context, firing driver.Firing) (now driver.Schedule, done bool, err error) {
	now, err = call(ctx, q, opFire, func() (now driver.Schedule, err error) {
		now, done, err = q.Queue.Fire(ctx, firing)
		return now, err
	})
	return now, done && err == nil, err
}

func (q *faultQueue) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	return list(ctx, q, opSchedules, q.Queue.Schedules(ctx, name), func(*driver.Schedule) *driver.Message { return new(driver.Message) })
}

// list runs a sequence with the faults of op: a fault comes before the first element
// or, if it is late, after the last. message returns the message of an element.
func list[E any](ctx context.Context, q *faultQueue, op string, elements iter.Seq2[E, error], message func(*E) *driver.Message) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		q.faults.count(op)
		late, err := q.faults.meet(ctx, op, q.name)
		if err != nil {
			yield(none, err)
			return
		}
		for element, err := range elements {
			if err == nil {
				q.faults.pasts.addTo(q.name, message(&element))
			}
			if !yield(element, err) {
				return
			}
		}
		if late != nil {
			yield(none, late)
		}
	}
}
