package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Recorder records the calls of the queues it wraps. All of them must be handles on one
// queue. It is safe for concurrent use, and costs a counter, a lock and a hash of the body for
// each call.
//
// The contract of package driver gives the outcome of a call: ErrUnavailable leaves it unknown,
// and so does the end of the context, except for Receive, which returns what it has leased.
// Every other error means that the call had no effect.
type Recorder struct {
	process string
	start   time.Time
	ticks   atomic.Uint64
	calls   atomic.Uint64

	mu      sync.Mutex // guards the fields below
	events  []Event
	pending map[*call]bool
}

// NewRecorder returns a recorder. Process names it in a history merged from several; it may be
// empty.
func NewRecorder(process string) *Recorder {
	return &Recorder{process: process, start: time.Now(), pending: make(map[*call]bool)}
}

// History returns the events recorded so far. Calls that have not returned have an unknown
// outcome.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	now := r.stamp()
	for c := range r.pending {
		for _, e := range c.events {
			e.Outcome, e.Return = OutcomeUnknown, now
			events = append(events, e)
		}
	}
	return History{Events: events}
}

// Crash records that the backend is down while restart runs. Leases may end and counts repeat
// across a crash.
func (r *Recorder) Crash(restart func()) {
	c := r.begin(OpCrash, 1)
	c.invoke()
	restart()
	c.end(nil, nil)
}

// Queue wraps q. A history has no events for Move, AckLate, ExtendLate, ForgetDedup and Usage:
// these go to q unrecorded.
func (r *Recorder) Queue(q driver.Queue) driver.Queue { return &recordedQueue{Queue: q, recorder: r} }

func (r *Recorder) stamp() Stamp {
	return Stamp{Tick: r.ticks.Add(1), Time: r.start.UnixNano() + int64(time.Since(r.start))}
}

// A call is a recorded call.
type call struct {
	recorder *Recorder
	events   []Event // its elements
}

// begin prepares a call with n elements, for the caller to fill in.
func (r *Recorder) begin(op Op, n int) *call {
	c := &call{recorder: r, events: make([]Event, max(n, 1))}
	number := r.calls.Add(1)
	for i := range c.events {
		c.events[i] = Event{Process: r.process, Call: number, Position: i, Op: op}
	}
	return c
}

// invoke records the start of the call. The caller makes the call next.
func (c *call) invoke() {
	r := c.recorder
	stamp := r.stamp()
	for i := range c.events {
		c.events[i].Invoke = stamp
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[c] = true
}

// end records the end of the call. The error gives the outcome of each element; complete adds
// the other results.
func (c *call) end(err error, complete func(events []Event) []Event) {
	r := c.recorder
	stamp := r.stamp()
	events := slices.Clone(c.events) // History may be reading the others
	for i := range events {
		e := &events[i]
		e.Return = stamp
		e.Outcome, e.Code = judge(e.Op, driver.At(err, i))
	}
	if complete != nil {
		events = complete(events)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, c)
	r.events = append(r.events, events...)
}

// endCounted is end for a call that returns a number of messages, which goes to its first
// event. A call that stopped half way had an effect.
func (c *call) endCounted(n int, err error) {
	c.end(err, func(events []Event) []Event {
		events[0].Count = n
		for i := range events {
			if n > 0 && events[i].Outcome == OutcomeFail {
				events[i].Outcome = OutcomeOK
			}
		}
		return events
	})
}

func judge(op Op, err error) (Outcome, driver.Code) {
	var code driver.Code
	if e, ok := errors.AsType[*driver.Error](err); ok {
		code = e.Code
	}
	cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil:
		return OutcomeOK, ""
	case errors.Is(err, driver.ErrUnavailable), cancelled && op != OpReceive:
		return OutcomeUnknown, code
	}
	return OutcomeFail, code
}

// Digest identifies a body in a history.
func Digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:12])
}

// recordedQueue is a driver.Queue that records.
type recordedQueue struct {
	driver.Queue
	recorder *Recorder
}

func (q *recordedQueue) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if len(msgs) == 0 {
		return q.Queue.Send(ctx, msgs)
	}
	c := q.recorder.begin(OpSend, len(msgs))
	for i, msg := range msgs {
		e := &c.events[i]
		e.Digest, e.Group, e.DedupKey, e.Duration = Digest(msg.Body), msg.Group, msg.DedupKey, msg.Delay
	}
	c.invoke()
	sent, err := q.Queue.Send(ctx, msgs)
	c.end(err, func(events []Event) []Event {
		for i := range min(len(sent), len(events)) {
			if e := &events[i]; e.Outcome == OutcomeOK {
				e.ID, e.Duplicate = sent[i].ID, sent[i].Duplicate
			}
		}
		return events
	})
	return sent, err
}

func (q *recordedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	c := q.recorder.begin(OpReceive, 1)
	c.events[0].Duration = req.Visibility
	c.invoke()
	deliveries, err := q.Queue.Receive(ctx, req)
	c.end(err, func(events []Event) []Event {
		received := slices.Repeat(events, max(len(deliveries), 1))
		for i := range deliveries {
			d, e := &deliveries[i], &received[i]
			e.Position, e.ID, e.Receipt, e.Digest = i, d.ID, d.Receipt, Digest(d.Body)
			e.Group, e.Deliveries = d.Group, d.Deliveries
		}
		return received
	})
	return deliveries, err
}

func (q *recordedQueue) Ack(ctx context.Context, receipts []driver.Receipt) error {
	if len(receipts) == 0 {
		return q.Queue.Ack(ctx, receipts)
	}
	c := q.recorder.begin(OpAck, len(receipts))
	for i, receipt := range receipts {
		c.events[i].Receipt = receipt
	}
	c.invoke()
	err := q.Queue.Ack(ctx, receipts)
	c.end(err, nil)
	return err
}

func (q *recordedQueue) Nack(ctx context.Context, nacks []driver.Nack) error {
	if len(nacks) == 0 {
		return q.Queue.Nack(ctx, nacks)
	}
	c := q.recorder.begin(OpNack, len(nacks))
	for i, nack := range nacks {
		c.events[i].Receipt, c.events[i].Duration = nack.Receipt, nack.Delay
	}
	c.invoke()
	err := q.Queue.Nack(ctx, nacks)
	c.end(err, nil)
	return err
}

func (q *recordedQueue) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	if len(extensions) == 0 {
		return q.Queue.Extend(ctx, extensions)
	}
	c := q.recorder.begin(OpExtend, len(extensions))
	for i, extension := range extensions {
		c.events[i].Receipt, c.events[i].Duration = extension.Receipt, extension.Visibility
	}
	c.invoke()
	granted, err := q.Queue.Extend(ctx, extensions)
	c.end(err, nil)
	return granted, err
}

func (q *recordedQueue) Purge(ctx context.Context) (int, error) {
	return q.recorder.counted(OpPurge, func() (int, error) { return q.Queue.Purge(ctx) })
}

// counted records a call that returns a number of messages.
func (r *Recorder) counted(op Op, do func() (int, error)) (int, error) {
	c := r.begin(op, 1)
	c.invoke()
	n, err := do()
	c.endCounted(n, err)
	return n, err
}

func (q *recordedQueue) DeadLetter(ctx context.Context, requests []driver.DeadLetterRequest) error {
	if len(requests) == 0 {
		return q.Queue.DeadLetter(ctx, requests)
	}
	c := q.recorder.begin(OpDeadLetter, len(requests))
	for i, request := range requests {
		c.events[i].Receipt = request.Receipt
	}
	c.invoke()
	err := q.Queue.DeadLetter(ctx, requests)
	c.end(err, nil)
	return err
}

func (q *recordedQueue) Redrive(ctx context.Context, ids []string, limit int) (int, error) {
	return q.byID(OpRedrive, ids, ids == nil, func() (int, error) { return q.Queue.Redrive(ctx, ids, limit) })
}

func (q *recordedQueue) Discard(ctx context.Context, ids []string) (int, error) {
	return q.byID(OpDiscard, ids, false, func() (int, error) { return q.Queue.Discard(ctx, ids) })
}

func (q *recordedQueue) PurgeDead(ctx context.Context) (int, error) {
	return q.recorder.counted(OpPurgeDead, func() (int, error) { return q.Queue.PurgeDead(ctx) })
}

// byID records a call on messages named by id; the first event has the count.
func (q *recordedQueue) byID(op Op, ids []string, all bool, do func() (int, error)) (int, error) {
	if len(ids) == 0 && !all {
		return do()
	}
	c := q.recorder.begin(op, len(ids))
	for i, id := range ids {
		c.events[i].ID = id
	}
	c.invoke()
	n, err := do()
	c.endCounted(n, err)
	return n, err
}
