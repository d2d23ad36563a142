package redisbox

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// Where a queue and the reply slots are on one server, which is everywhere but in a
// cluster, one script creates a slot and sends the request that names it, and one leases
// a request and reads its slot; see fast_slots.lua and fast_receive.lua. One resolves a slot and
// acks its request.

var _ driver.LinkedReplyStore = (*replyStore)(nil)

// LinkedTo reports whether queue is one of the same backend, and not in a cluster.
func (r *replyStore) LinkedTo(queue driver.Queue) bool {
	h, ok := queue.(*handle)
	return ok && h.backend == r.backend && r.backend.oneServer
}

// NameSlots says that messages in a queue which the store is LinkedTo name slots without a prefix that
// their ids have in the store: that of a tenant. Receives read these slots from then on.
func (r *replyStore) NameSlots(queue driver.Queue, prefix string) {
	queue.(*handle).SlotPrefix.Store(&prefix)
}

// CreateWithSend implements driver.LinkedReplyStore. It does no I/O.
func (r *replyStore) CreateWithSend(ctx context.Context, id string, ttl time.Duration) (send context.Context, created func() bool, err error) {
	slot := &linkedSlot{replies: r, id: id, ttl: ttl}
	return context.WithValue(ctx, linkedSlotKey{}, slot), func() bool { return slot.created }, nil
}

// ResolveWithAck implements driver.LinkedReplyStore: the ack stores the answer. It does no I/O.
func (r *replyStore) ResolveWithAck(ctx context.Context, id string, answer driver.Answer) (ack context.Context, stored func() error, err error) {
	if err := r.checkAnswer(id, answer); err != nil {
		return nil, nil, err
	}
	linked := &linkedAnswer{replies: r, id: id, answer: answer}
	return context.WithValue(ctx, linkedAnswerKey{}, linked), func() error {
		if !linked.tried { // the ack was not sent
			linked.resolve(ctx)
		}
		return linked.err
	}, nil
}

// A linkedAnswer is an answer that is stored with the ack of its request. It belongs to the
// goroutine that acks.
type linkedAnswer struct {
	replies *replyStore
	id      string
	answer  driver.Answer
	tried   bool
	err     error // of storing the answer
}

// linkedAnswerKey is the key of the *linkedAnswer in the context of an ack.
type linkedAnswerKey struct{}

// resolve stores the answer without an ack.
func (l *linkedAnswer) resolve(ctx context.Context) {
	l.tried, l.err = true, l.replies.Resolve(ctx, l.id, l.answer)
}

// ackWithAnswer stores an answer and acks its request: in one step if the server can, and otherwise
// the answer first. It does not ack if the slot can still be written and was not.
func (h *handle) ackWithAnswer(ctx context.Context, receipts []driver.Receipt, l *linkedAnswer) error {
	if l.replies.isClosed() {
		l.resolve(ctx) // it knows the error
		return l.err
	}
	err := h.settleParts(ctx, "ack", len(receipts), acks(receipts), func(part *shard.SettleOp) {
		part.Answer, l.tried = l.replies.bucket(l.id).NewAnswer(l.id, l.answer), true
	}, func(part *shard.SettleOp) { l.err = l.replies.written(nil, opResolve, l.id, part.Answered) })
	if l.tried && !errors.Is(err, shard.ErrSlotsApart) {
		if _, ofElement := errors.AsType[*driver.BatchError](err); err != nil && !ofElement {
			l.err = err
		}
		return err
	}
	l.resolve(ctx)
	if l.err != nil && !replyslot.IsOver(l.err) {
		return l.err
	}
	return h.settle(ctx, "ack", len(receipts), acks(receipts))
}

// A linkedSlot is a slot that is created with the message that names it. It belongs to the
// goroutine that sends.
type linkedSlot struct {
	replies *replyStore
	id      string
	ttl     time.Duration
	created bool

	asked time.Time
	news  chan string // see prepare
}

// linkedSlotKey is the key of the *linkedSlot in the context of a send.
type linkedSlotKey struct{}

// namedBy reports whether the slot is still to be created, and msgs is a request that names
// one. A daemon stores a slot under its id with the tenant, and the request has the id alone.
func (l *linkedSlot) namedBy(msgs []driver.Outgoing) bool {
	if l.created || len(msgs) != 1 {
		return false
	}
	_, isSlot := driver.SlotID(msgs[0].ReplyTo)
	return isSlot
}

// sendWithSlot sends a message and creates its slot: in one step if the message is plain
// and the server can, and first otherwise.
func (h *handle) sendWithSlot(ctx context.Context, msgs []driver.Outgoing, slot *linkedSlot) ([]driver.Sent, error) {
	r := slot.replies
	if err := driver.CheckSlot(slot.id, slot.ttl); err != nil {
		return nil, err
	}
	if h.Special(&msgs[0]) == (shard.Extra{}) && !r.isClosed() {
		sent, err := h.send(ctx, sendCall{msgs: msgs, slot: slot})
		if !errors.Is(err, shard.ErrSlotsApart) {
			return sent, err
		}
	}
	if err := r.Create(ctx, slot.id, slot.ttl); err != nil {
		return nil, err
	}
	slot.created = true
	return h.send(ctx, sendCall{msgs: msgs})
}

// begin registers a waiter before the slot is created, and returns what the message is sent
// with. It does nothing for a nil slot. finish or abandon has to follow.
func (l *linkedSlot) begin(ctx context.Context) *shard.SlotWrite {
	if l == nil {
		return nil
	}
	k := l.replies.bucket(l.id)
	l.asked, l.news = time.Now(), k.prepare(ctx, l.id)
	return k.NewSlot(l.id, l.ttl, l.news != nil)
}

// finish records the result of the send. It does nothing for a nil slot.
func (l *linkedSlot) finish(part *shard.SendOp) {
	if l == nil {
		return
	}
	k := l.replies.bucket(l.id)
	l.created = part.Err == nil
	switch {
	case l.news == nil:
	case l.created:
		k.rememberCreated(&createdSlot{id: l.id, news: l.news, at: shard.WallTime(part.Wall), expires: l.asked.Add(l.ttl)})
	default:
		k.removeWaiter(l.id, l.news)
	}
}

// abandon deletes the slot when the send is done: its caller has left. It does nothing
// for a nil slot.
func (l *linkedSlot) abandon(ctx context.Context, part *shard.SendOp) {
	if l == nil {
		return
	}
	k := l.replies.bucket(l.id)
	if l.news != nil {
		k.removeWaiter(l.id, l.news)
	}
	ctx = context.WithoutCancel(ctx)
	l.replies.backend.server.Running.Start(func() {
		<-part.Done
		_ = l.replies.Delete(ctx, l.id) // if it fails, the slot expires
	})
}

// noteSlot makes further receives read slots, if this process answers requests and one
// has come that names a slot.
func (q *queue) noteSlot(replyTo string) {
	if replyTo == "" || q.SlotKeys.Load() != nil || !q.backend.oneServer || !q.backend.answers.Load() {
		return
	}
	if _, isSlot := driver.SlotID(replyTo); isSlot {
		q.SlotKeys.Store(&q.backend.slotKeys)
	}
}
