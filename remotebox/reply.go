package remotebox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/replyslot"
)

// Replies returns the reply store of the daemon, which is that of its backend. Clients and workers on
// any machine that use daemons of the same backend share the slots. Clients need a token for ask, and
// workers one for answer; listing and sweeping slots needs admin. A daemon whose backend keeps
// no reply slots, and one of an earlier version, answers ErrUnsupported. It does no I/O. Closing the
// backend closes the store.
func (b *Backend) Replies() driver.ReplyStore { return &replies{b} }

// replies is the reply store of a daemon.
type replies struct{ backend *Backend }

var (
	_ driver.LinkedReplyStore = (*replies)(nil)
	_ driver.SlotLister       = (*replies)(nil)
)

// do does an operation on a slot. A call whose answer is needed is freed by the caller.
func (r *replies) do(ctx context.Context, o *operation, id string, code uint16, fill func(dst []byte, t oap.Ticket) []byte) error {
	if id != "" {
		o.subject = driver.SlotAddress(id)
	}
	o.call = r.backend.newCall(code, func(dst []byte, t oap.Target) []byte { return fill(dst, t.Ticket) })
	return r.backend.roundTrip(ctx, o)
}

// Create creates a pending slot. It blocks until the daemon has answered.
func (r *replies) Create(ctx context.Context, id string, ttl time.Duration) error {
	if err := driver.CheckSlot(id, ttl); err != nil {
		return err
	}
	o := operation{name: "create slot", numbered: true}
	err := r.do(ctx, &o, id, oap.OpCreateSlot, func(dst []byte, t oap.Ticket) []byte { return oap.AppendSlotTime(dst, t, id, ttl) })
	return r.freed(&o, err)
}

// freed returns err, after it has kept the call of an operation that was done for reuse.
func (r *replies) freed(o *operation, err error) error {
	if err == nil {
		r.backend.free(o.call)
	}
	return err
}

// Resolve stores the answer. It blocks until the daemon has answered.
func (r *replies) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	if err := r.checkAnswer(id, &answer); err != nil {
		return err
	}
	o := operation{name: "resolve", numbered: true}
	err := r.do(ctx, &o, id, oap.OpResolveSlot, func(dst []byte, t oap.Ticket) []byte { return oap.AppendResolve(dst, t, id, &answer) })
	return r.freed(&o, err)
}

// checkAnswer returns ErrTooLarge for an answer that does not go into a request.
func (r *replies) checkAnswer(id string, answer *driver.Answer) error {
	size := answerBytes(answer)
	if size <= r.backend.maxBody() {
		return nil
	}
	large := driver.SlotError("resolve", id, driver.ErrTooLarge)
	large.Field, large.Detail = "Body", fmt.Sprintf("%d bytes, at most %d are allowed", size, r.backend.maxBody())
	return large
}

func answerBytes(a *driver.Answer) int { return len(a.Body) + len(a.Failure) + len(a.FailureKind) }

// Cancel cancels the slot. It blocks until the daemon has answered.
func (r *replies) Cancel(ctx context.Context, id string) error {
	o := operation{name: "cancel", repeatable: true}
	err := r.do(ctx, &o, id, oap.OpCancelSlot, func(dst []byte, t oap.Ticket) []byte { return oap.AppendSlotID(dst, t, id) })
	return r.freed(&o, err)
}

// Delete removes the slot. It blocks until the daemon has answered.
func (r *replies) Delete(ctx context.Context, id string) error {
	o := operation{name: "delete slot", numbered: true, repeatable: true}
	err := r.do(ctx, &o, id, oap.OpDeleteSlot, func(dst []byte, t oap.Ticket) []byte { return oap.AppendSlotID(dst, t, id) })
	return r.freed(&o, err)
}

// Discard removes a slot that is not needed any more. It does not block: without a connection the
// slot stays until it expires.
func (r *replies) Discard(_ context.Context, id string) {
	r.backend.mu.Lock()
	l := r.backend.link
	r.backend.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	l.requestLocked(oap.OpDeleteSlot, func(dst []byte) []byte { return oap.AppendSlotID(dst, oap.Ticket{}, id) })
	l.unlockAndWrite()
}

// Get returns the slot. It blocks until the daemon has answered.
func (r *replies) Get(ctx context.Context, id string) (driver.Slot, error) {
	o := operation{name: "get", repeatable: true}
	return r.slot(ctx, &o, id, oap.OpWaitSlot, func(dst []byte, t oap.Ticket) []byte { return oap.AppendSlotTime(dst, t, id, 0) })
}

// Wait returns the slot when it is not pending any more, or after wait. The daemon wakes it. If the
// connection is lost it goes on waiting on another.
func (r *replies) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if wait <= 0 {
		return r.Get(ctx, id)
	}
	for end := time.Now().Add(wait); ; {
		o := operation{name: "wait", repeatable: true, waits: true, closing: r.backend.closing}
		slot, err := r.slot(ctx, &o, id, oap.OpWaitSlot, func(dst []byte, t oap.Ticket) []byte {
			return oap.AppendSlotTime(dst, t, id, max(time.Until(end), 0))
		})
		// A daemon may bound how long a call waits.
		if err != nil || slot.State != driver.SlotPending || !time.Now().Before(end) {
			return slot, err
		}
	}
}

// Consume returns a slot that is not pending and removes it. It blocks until the daemon has answered.
func (r *replies) Consume(ctx context.Context, id string) (driver.Slot, error) {
	o := operation{name: "consume", numbered: true}
	return r.slot(ctx, &o, id, oap.OpConsumeSlot, func(dst []byte, t oap.Ticket) []byte { return oap.AppendSlotID(dst, t, id) })
}

// slot does an operation whose answer is a slot.
func (r *replies) slot(ctx context.Context, o *operation, id string, code uint16, fill func([]byte, oap.Ticket) []byte) (driver.Slot, error) {
	if err := r.do(ctx, o, id, code, fill); err != nil {
		return driver.Slot{}, err
	}
	defer r.backend.free(o.call)
	slot, err := oap.ParseSlot(o.call.payload)
	if err != nil {
		return driver.Slot{}, o.unknown(err.Error())
	}
	return slot, nil
}

// Expired lists up to limit ids of expired slots. It blocks until the daemon has answered.
func (r *replies) Expired(ctx context.Context, limit int) (ids []string, err error) {
	for id, err := range pages(ctx, r.backend, &listing{
		name: "list expired slots", code: oap.OpExpiredSlots,
		fill: func(dst []byte, t oap.Target) []byte { return oap.AppendSlotLimit(dst, t.Ticket, limit) },
	}, oap.ParseQueueNames) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Slots yields the slots of the token's tenant, without answers, about in the order in which they expire. It needs a token for admin.
// It blocks until the daemon has answered each chunk. Further codes: ErrUnsupported (the daemon is of an earlier version, or its backend
// cannot list slots).
func (r *replies) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return pages(ctx, r.backend, &listing{name: "list slots", code: oap.OpSlots, fill: func(dst []byte, _ oap.Target) []byte { return dst }}, oap.ParseSlots)
}

// Sweep removes up to limit expired slots. It blocks until the daemon has answered.
func (r *replies) Sweep(ctx context.Context, limit int) (removed int, err error) {
	o := operation{name: "sweep slots", numbered: true}
	if err := r.do(ctx, &o, "", oap.OpSweepSlots, func(dst []byte, t oap.Ticket) []byte { return oap.AppendSlotLimit(dst, t, limit) }); err != nil {
		return 0, err
	}
	defer r.backend.free(o.call)
	if removed, err = oap.ParseCount(o.call.payload); err != nil {
		return 0, o.unknown(err.Error())
	}
	return removed, nil
}

// LinkedTo reports whether queue is one of the same backend.
func (r *replies) LinkedTo(linked driver.Queue) bool {
	q, ok := linked.(*queue)
	return ok && q.backend == r.backend
}

// CreateWithSend makes the send create the slot, in one round trip. It does no I/O.
func (r *replies) CreateWithSend(ctx context.Context, id string, ttl time.Duration) (send context.Context, created func() bool, err error) {
	if err := driver.CheckSlot(id, ttl); err != nil {
		return nil, nil, err
	}
	slot := &linkedSlot{replies: r, id: id, ttl: ttl}
	return context.WithValue(ctx, linkedSlotKey{}, slot), func() bool { return slot.created }, nil
}

// ResolveWithAck makes the ack store the answer, in one round trip. It does no I/O.
func (r *replies) ResolveWithAck(ctx context.Context, id string, answer driver.Answer) (ack context.Context, stored func() error, err error) {
	if err := r.checkAnswer(id, &answer); err != nil {
		return nil, nil, err
	}
	linked := &linkedAnswer{replies: r, id: id, answer: answer}
	return context.WithValue(ctx, linkedAnswerKey{}, linked), func() error {
		if !linked.tried { // the message was settled before
			return r.Resolve(ctx, id, answer)
		}
		return linked.err
	}, nil
}

// A linkedAnswer is an answer that is stored with the ack of its request. It belongs to the goroutine
// that acks.
type linkedAnswer struct {
	replies *replies
	id      string
	answer  driver.Answer
	tried   bool
	err     error // of the slot
}

// linkedAnswerKey is the key of the *linkedAnswer in the context of an ack.
type linkedAnswerKey struct{}

// ackAnswering stores an answer and acks its request. With a daemon that cannot do both at once, and for
// an answer that is too long for that, the answer is stored first.
func (q *queue) ackAnswering(ctx context.Context, a *linkedAnswer, receipts []driver.Receipt) error {
	a.tried = true
	if size := answerBytes(&a.answer) + len(receipts[0].Handle) + driver.MaxNameBytes + textOverhead; size > q.backend.maxElement() {
		return q.answerAndAck(ctx, a, receipts)
	}
	c := q.backend.newCall(oap.OpAnswer, func(dst []byte, t oap.Target) []byte {
		return oap.AppendAnswering(dst, t, &receipts[0], a.id, &a.answer)
	})
	o := operation{name: "ack", queue: q, call: c, numbered: true}
	err := q.backend.roundTrip(ctx, &o)
	if errors.Is(err, driver.ErrUnsupported) {
		return q.answerAndAck(ctx, a, receipts)
	}
	if a.err = err; err != nil {
		return err
	}
	defer q.backend.free(c)
	failed, err := oap.ParseFailures(c.payload, 2)
	if err != nil {
		a.err = o.unknown(err.Error())
		return a.err
	}
	if failed == nil {
		return nil
	}
	a.err = failed.Errs[0]
	return driver.NewBatchError(failed.Errs[1:])
}

// answerAndAck stores an answer, and then acks its request unless that has failed.
func (q *queue) answerAndAck(ctx context.Context, a *linkedAnswer, receipts []driver.Receipt) error {
	a.err = a.replies.Resolve(ctx, a.id, a.answer)
	if a.err != nil && !replyslot.IsOver(a.err) {
		return a.err
	}
	return q.Ack(ctx, receipts)
}

// A linkedSlot is a slot that is created with the message that names it. It belongs to the
// goroutine that sends.
type linkedSlot struct {
	replies *replies
	id      string
	ttl     time.Duration
	created bool
}

// linkedSlotKey is the key of the *linkedSlot in the context of a send.
type linkedSlotKey struct{}

// namedBy reports whether the slot is still to be created, and msgs is the message that names it.
func (l *linkedSlot) namedBy(msgs []driver.Outgoing) bool {
	return !l.created && len(msgs) == 1 && msgs[0].ReplyTo == driver.SlotAddress(l.id)
}

// sendAsking sends a message and creates its slot. With a daemon that cannot do both at once, and for a
// message that is too long for that, the slot is created first.
func (q *queue) sendAsking(ctx context.Context, slot *linkedSlot, msgs []driver.Outgoing, sent []driver.Sent) ([]driver.Sent, error) {
	const ownBytes = driver.MaxNameBytes + 32 // the id, its length and the time
	if oap.OutgoingBytes(&msgs[0])+ownBytes > q.backend.maxElement() {
		return q.createAndSend(ctx, slot, msgs)
	}
	c := q.backend.newCall(oap.OpSendAsking, func(dst []byte, t oap.Target) []byte {
		return oap.AppendAsking(dst, t, slot.id, slot.ttl, &msgs[0])
	})
	c.kept = true
	o := operation{name: "send", queue: q, call: c, numbered: true}
	err := q.backend.roundTrip(ctx, &o)
	if errors.Is(err, driver.ErrUnsupported) {
		return q.createAndSend(ctx, slot, msgs)
	}
	if err != nil {
		return nil, err
	}
	defer q.backend.free(c)
	errs, err := oap.ParseSent(c.payload, sent)
	if err != nil {
		return nil, o.unknown(err.Error())
	}
	if errs != nil {
		return sent, &driver.BatchError{Errs: errs}
	}
	slot.created = true
	return sent, nil
}

// createAndSend creates a slot, and then sends the message that names it.
func (q *queue) createAndSend(ctx context.Context, slot *linkedSlot, msgs []driver.Outgoing) ([]driver.Sent, error) {
	if err := slot.replies.Create(ctx, slot.id, slot.ttl); err != nil {
		return nil, err
	}
	slot.created = true
	return q.Send(ctx, msgs)
}
