package mailboxtest

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// faultQueue is a queue in which things go wrong.
type faultQueue struct {
	faults *Faults
	name   string
	queue  driver.Queue
}

// wrap returns a queue with the same abilities as queue.
func wrap(faults *Faults, name string, queue driver.Queue) driver.Queue {
	faulty := &faultQueue{faults, name, queue}
	letters, keepsLetters := queue.(driver.DeadLetterer)
	peeker, peeks := queue.(driver.Peeker)
	switch {
	case keepsLetters && peeks:
		return struct {
			*faultQueue
			*faultLetters
			*faultPeeker
		}{faulty, &faultLetters{faulty, letters}, &faultPeeker{faulty, peeker}}
	case keepsLetters:
		return struct {
			*faultQueue
			*faultLetters
		}{faulty, &faultLetters{faulty, letters}}
	case peeks:
		return struct {
			*faultQueue
			*faultPeeker
		}{faulty, &faultPeeker{faulty, peeker}}
	}
	return faulty
}

// call lets do meet the faults of op.
func call[R any](ctx context.Context, q *faultQueue, op Op, do func() (R, error)) (R, error) {
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

// settle is call for what returns nothing but an error.
func settle(ctx context.Context, q *faultQueue, op Op, do func() error) error {
	_, err := call(ctx, q, op, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (q *faultQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	return call(ctx, q, OpSend, func() ([]driver.Sent, error) { return q.queue.Send(ctx, msgs) })
}

func (q *faultQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	return settle(ctx, q, OpAck, func() error { return q.queue.Ack(ctx, receipts) })
}

func (q *faultQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	return settle(ctx, q, OpNack, func() error { return q.queue.Nack(ctx, nacks) })
}

func (q *faultQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	return call(ctx, q, OpExtend, func() ([]time.Duration, error) { return q.queue.Extend(ctx, extensions) })
}

func (q *faultQueue) Purge(ctx context.Context) (int, error) {
	return call(ctx, q, OpPurge, func() (int, error) { return q.queue.Purge(ctx) })
}

func (q *faultQueue) Stats(ctx context.Context) (driver.Stats, error) {
	return call(ctx, q, OpStats, func() (driver.Stats, error) { return q.queue.Stats(ctx) })
}

func (q *faultQueue) Traits() driver.Traits { return q.queue.Traits() }
func (q *faultQueue) Close() error          { return q.queue.Close() }

// Receive starts anew, with what is left of its wait, whenever a fault is added
// that concerns it.
func (q *faultQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	q.faults.count(OpReceive)
	end := time.Now().Add(req.Wait)
	for {
		// Registered before the faults are met: one added in between is not
		// missed.
		waiting, wait := q.faults.startWait(ctx, q.name)
		late, err := q.faults.meet(ctx, OpReceive, q.name)
		if err != nil {
			q.faults.endWait(wait)
			return nil, err
		}
		deliveries, err := q.queue.Receive(waiting, req)
		interrupted := q.faults.endWait(wait)
		if late != nil {
			return nil, late
		}
		if interrupted && len(deliveries) == 0 && ctx.Err() == nil {
			if req.Wait > 0 { // a negative one is for the backend to refuse
				req.Wait = max(0, time.Until(end))
			}
			continue
		}
		return q.faults.pasts.addToAll(q.name, deliveries), err
	}
}

// faultLetters is the dead-letter side of a faultQueue.
type faultLetters struct {
	queue   *faultQueue
	letters driver.DeadLetterer
}

func (l *faultLetters) DeadLetter(ctx context.Context, burials []driver.Burial) error {
	return settle(ctx, l.queue, OpDeadLetter, func() error { return l.letters.DeadLetter(ctx, burials) })
}

func (l *faultLetters) DeadLetters(ctx context.Context) iter.Seq2[driver.DeadLetter, error] {
	return list(ctx, l.queue, OpDeadLetters, l.letters.DeadLetters(ctx),
		func(letter *driver.DeadLetter) *driver.Message { return &letter.Message })
}

func (l *faultLetters) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	return call(ctx, l.queue, OpRedrive, func() (int, error) {
		before, err := l.ids(ctx)
		if err != nil {
			return 0, err
		}
		moved, err := l.letters.Redrive(ctx, ids, limit)
		after, listErr := l.ids(ctx)
		for id := range before {
			if _, stayed := after[id]; !stayed && listErr == nil {
				l.queue.faults.pasts.end(l.queue.name, id)
			}
		}
		return moved, err
	})
}

// ids returns those of all dead letters.
func (l *faultLetters) ids(ctx context.Context) (map[string]struct{}, error) {
	ids := make(map[string]struct{})
	for letter, err := range l.letters.DeadLetters(ctx) {
		if err != nil {
			return nil, err
		}
		ids[letter.ID] = struct{}{}
	}
	return ids, nil
}

func (l *faultLetters) Discard(ctx context.Context, ids []string) (int, error) {
	return call(ctx, l.queue, OpDiscard, func() (int, error) { return l.letters.Discard(ctx, ids) })
}

func (l *faultLetters) PurgeDead(ctx context.Context) (int, error) {
	return call(ctx, l.queue, OpPurgeDead, func() (int, error) { return l.letters.PurgeDead(ctx) })
}

// faultPeeker is the looking side of a faultQueue.
type faultPeeker struct {
	queue  *faultQueue
	peeker driver.Peeker
}

func (p *faultPeeker) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	return list(ctx, p.queue, OpPeek, p.peeker.Peek(ctx, query),
		func(peeked *driver.Peeked) *driver.Message { return &peeked.Message })
}

// list is call for sequences: a fault comes before the first element, or if it
// is late after the last. message returns the message of an element.
func list[E any](ctx context.Context, q *faultQueue, op Op, elements iter.Seq2[E, error], message func(*E) *driver.Message) iter.Seq2[E, error] {
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
