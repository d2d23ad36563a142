package broker

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// Replies is the reply store of a caller: the slots of its tenant in that of the backend. The errors
// are those of driver.ReplyStore and those of every operation of a Caller; ErrUnsupported if the
// backend has no reply store.
//
// Creating, reading, cancelling and removing a slot needs a token for ask. A token for answer may
// resolve a slot and read its state, without the answer. A token for admin on any queue may read
// states, cancel, and list and sweep expired slots.
type Replies struct {
	caller *Caller
	round  *completion.Round // of the calling goroutine; nil if it has none
}

// Replies returns the caller's reply store. It does no I/O.
func (c Caller) Replies() Replies { return Replies{caller: &c} }

var _ driver.ReplyStore = Replies{}

// Quick returns the store for a goroutine with a round, which is flushed if a call has to wait for its
// turn. all reports whether no call but Wait waits for a disk or a network, and asking whether
// CreateForSend, StartAnswer and Discard do not.
func (r Replies) Quick(round *completion.Round) (quick Replies, all, asking bool) {
	r.round = round
	store, asking := r.caller.broker.replies.(quickStore)
	return r, asking && store.InMemory(), asking
}

// A quickStore is a reply store that decides in memory; see slotstore.Store.
type quickStore interface {
	InMemory() bool
	CreateWithSend(ctx context.Context, id string, ttl time.Duration) (send context.Context, created func() bool, err error)
	ResolveWithAck(ctx context.Context, id string, answer driver.Answer) (ack context.Context, stored func() error, err error)
	discarder
}

// A discarder is a reply store that removes resolved slots without waiting for the server or the disk.
type discarder interface {
	Discard(ctx context.Context, id string)
}

// The names of operations on slots, in errors and in the audit log.
const (
	opCreateSlot   = "create slot"
	opResolveSlot  = "resolve"
	opCancelSlot   = "cancel"
	opGetSlot      = "get"
	opWaitSlot     = "wait"
	opConsumeSlot  = "consume"
	opDeleteSlot   = "delete slot"
	opExpiredSlots = "list expired slots"
	opSweepSlots   = "sweep slots"
	opListSlots    = "list slots"
)

const (
	// retrySlots is the RetryAfter of the limit of slots: most calls take less than a second.
	retrySlots = time.Second
	// maxListedSlots is how many expired slots of all tenants, those that expired first, are looked
	// through for those of one. Creating slots sweeps the others, so they do not stay in the way.
	maxListedSlots = 4096
)

// NewSlotID returns an id for a slot that cannot be guessed.
func NewSlotID() string { return uuid.NewString() }

// Create creates a pending slot that expires after ttl, and counts it against the share of the
// caller. It blocks until the slot is as durable as the backend makes it. Further codes: ErrFull (the share).
func (r Replies) Create(ctx context.Context, id string, ttl time.Duration) error {
	return r.createWith(ctx, id, ttl, func(name string) error { return r.caller.broker.replies.Create(ctx, name, ttl) })
}

// CreateForSend is Create for a slot whose request is sent next, and which must be deleted if that fails,
// for a store of which Quick reports asking. The slot is durable when the request is.
func (r Replies) CreateForSend(ctx context.Context, id string, ttl time.Duration) error {
	return r.createWith(ctx, id, ttl, func(name string) error {
		_, _, err := r.caller.broker.replies.(quickStore).CreateWithSend(ctx, name, ttl)
		return err
	})
}

// Ask creates a slot and sends the request that names it, in one step where the backend can. If it fails,
// the slot is removed. It blocks until both are as durable as the backend makes them.
func (r Replies) Ask(ctx context.Context, queue, id string, ttl time.Duration, request Outgoing) ([]driver.Sent, error) {
	c := r.caller
	store, linked := c.linkedStore(queue)
	sending, created := ctx, func() bool { return true }
	err := r.createWith(ctx, id, ttl, func(name string) (err error) {
		if !linked {
			return c.broker.replies.Create(ctx, name, ttl)
		}
		sending, created, err = store.CreateWithSend(ctx, name, ttl)
		return err
	})
	if err != nil {
		return nil, err
	}
	sent, err := c.Send(sending, queue, []Outgoing{request})
	if err == nil && !created() {
		err = &driver.Error{Code: driver.ErrUnavailable, Op: opCreateSlot, Queue: driver.SlotAddress(id), Detail: "the request was sent without its slot"}
	}
	if err != nil {
		_ = r.Delete(context.WithoutCancel(ctx), id) // otherwise it expires
	}
	return sent, err
}

// linkedStore returns the store if it is on one server with a queue that is open.
func (c *Caller) linkedStore(queue string) (store driver.LinkedReplyStore, linked bool) {
	q := c.useOpen(queue)
	if q == nil {
		return nil, false
	}
	defer q.release(c.broker.now())
	store, _ = c.broker.replies.(driver.LinkedReplyStore)
	return store, q.linked
}

// createWith creates a slot with a function of the backend.
func (r Replies) createWith(ctx context.Context, id string, ttl time.Duration, create func(name string) error) error {
	c, b := r.caller, r.caller.broker
	if _, err := c.authorizeSlot(ctx, id, verify.Load{}, capability.OpAsk); err != nil {
		return err
	}
	if err := driver.CheckSlot(id, ttl); err != nil {
		b.metrics.Rejected(metricSchema)
		return err
	}
	return r.inSlot(ctx, opCreateSlot, id, lastForWrites, func(name string) error {
		owner := c.owner()
		if err := b.slots.take(ctx, b.replies, owner[:]); err != nil {
			b.metrics.Rejected(metricSaturated)
			c.slowRefusal(ctx, r.round, err)
			return refusedShare(err, opCreateSlot, driver.SlotAddress(id))
		}
		held := b.slots.add(name, owner[:], ttl) // first: the slot can be deleted before create returns
		err := create(name)
		if !mayExist(err) {
			b.slots.drop(name, held)
			return err
		}
		if err == nil {
			b.metrics.Reply(replyCreated)
		}
		return err
	})
}

// mayExist reports whether there may be a slot after Create has returned err.
func mayExist(err error) bool {
	if err == nil {
		return true
	}
	e, ok := errors.AsType[*driver.Error](err)
	return !ok || e.Code == driver.ErrUnavailable
}

// The events that the metric of replies counts.
const (
	replyCreated   = "created"
	replyAnswered  = "answered"
	replyCancelled = "cancelled"
)

// Cancel cancels the slot and wakes the callers that wait. It blocks until that is as durable as the
// backend makes it. A cancellation by a token for admin is in the audit log; programs that give up their
// own requests, with a token for ask, would fill it.
func (r Replies) Cancel(ctx context.Context, id string) error { return r.cancel(ctx, id, false) }

// CancelForPerson is Cancel for a surface that people use: the audit log has it whatever the token allows.
func (r Replies) CancelForPerson(ctx context.Context, id string) error {
	return r.cancel(ctx, id, true)
}

func (r Replies) cancel(ctx context.Context, id string, audited bool) (err error) {
	c, b := r.caller, r.caller.broker
	by, err := c.authorizeSlot(ctx, id, verify.Load{}, capability.OpAsk, capability.OpAdmin)
	if err != nil {
		return err
	}
	if audited || by.operation == capability.OpAdmin {
		defer func() { c.record("cancel request", "", shortened(id), 0, err) }()
	}
	return r.inSlot(ctx, opCancelSlot, id, lastForSettling, func(name string) error {
		err := b.replies.Cancel(ctx, name)
		if err == nil {
			b.metrics.Reply(replyCancelled)
		}
		return err
	})
}

// Get returns the slot, without its answer unless the token is for ask.
func (r Replies) Get(ctx context.Context, id string) (slot driver.Slot, err error) {
	c := r.caller
	by, err := c.authorizeSlot(ctx, id, verify.Load{}, capability.OpAsk, capability.OpAnswer, capability.OpAdmin)
	if err != nil {
		return slot, err
	}
	err = r.inSlot(ctx, opGetSlot, id, lastForSettling, func(name string) error {
		slot, err = c.broker.replies.Get(ctx, name)
		return err
	})
	return c.shownSlot(slot, id, by, err)
}

// Consume returns a slot that is not pending and removes it.
func (r Replies) Consume(ctx context.Context, id string) (slot driver.Slot, err error) {
	c, b := r.caller, r.caller.broker
	by, err := c.authorizeSlot(ctx, id, verify.Load{}, capability.OpAsk)
	if err != nil {
		return slot, err
	}
	err = r.inSlot(ctx, opConsumeSlot, id, lastForSettling, func(name string) error {
		slot, err = b.replies.Consume(ctx, name)
		if err == nil && slot.State != driver.SlotPending {
			b.slots.remove(name)
		}
		return err
	})
	return c.shownSlot(slot, id, by, err)
}

// Delete removes the slot. It blocks until that is as durable as the backend makes it.
func (r Replies) Delete(ctx context.Context, id string) error {
	return r.deleteWith(ctx, id, func(name string) error { return r.caller.broker.replies.Delete(ctx, name) })
}

// Discard is Delete for a slot that is not needed any more. It does not block if Quick reports asking for the
// store. After a crash the slot may be there again, until it expires.
func (r Replies) Discard(ctx context.Context, id string) error {
	b := r.caller.broker
	store, ok := b.replies.(discarder)
	_, quick := store.(quickStore)
	return r.deleteWith(ctx, id, func(name string) error {
		if !ok || !quick && !b.slots.wasRead(name) { // callers may wait for it
			return b.replies.Delete(ctx, name)
		}
		store.Discard(ctx, name)
		return nil
	})
}

// deleteWith removes a slot with a function of the backend.
func (r Replies) deleteWith(ctx context.Context, id string, remove func(name string) error) error {
	c, b := r.caller, r.caller.broker
	if _, err := c.authorizeSlot(ctx, id, verify.Load{}, capability.OpAsk); err != nil {
		return err
	}
	err := r.inSlot(ctx, opDeleteSlot, id, lastForSettling, func(name string) error {
		err := remove(name)
		if err == nil {
			b.slots.remove(name)
		}
		return err
	})
	if errors.Is(err, driver.ErrNotFound) { // no slot can have this id
		return nil
	}
	return err
}

// Expired lists up to limit ids of expired slots of the caller's tenant.
func (r Replies) Expired(ctx context.Context, limit int) ([]string, error) {
	c := r.caller
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return nil, err
	}
	return c.expiredSlots(ctx, opExpiredSlots, limit)
}

func (c *Caller) expiredSlots(ctx context.Context, op string, limit int) (ids []string, err error) {
	if err := c.admitSlots(op, "", lastForReads); err != nil {
		return nil, err
	}
	if err := c.turn(ctx, op, "", 1); err != nil {
		return nil, err
	}
	defer c.done(1)
	if limit < 1 {
		_, err := c.broker.replies.Expired(ctx, limit) // it knows the error
		return nil, err
	}
	all, err := c.broker.replies.Expired(ctx, maxListedSlots)
	for _, name := range all {
		if id, ours := queueName(c.tenant, name); ours && len(ids) < limit {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Sweep removes up to limit expired slots of the caller's tenant, and records that in the audit log.
func (r Replies) Sweep(ctx context.Context, limit int) (removed int, err error) {
	c, b := r.caller, r.caller.broker
	if _, err := c.authorize(ctx, capability.OpAdmin, ""); err != nil {
		return 0, err
	}
	ids, err := c.expiredSlots(ctx, opSweepSlots, limit)
	if err != nil {
		return 0, err
	}
	defer func() {
		if removed > 0 {
			c.record("sweep requests", "", "", removed, err)
		}
	}()
	for _, id := range ids {
		err := r.inSlot(ctx, opSweepSlots, id, lastForSettling, func(name string) error {
			slot, err := b.replies.Get(ctx, name)
			if err != nil || slot.State != driver.SlotExpired {
				return err // it was replaced since it was listed
			}
			if _, err = b.replies.Consume(ctx, name); err == nil {
				b.slots.remove(name)
				removed++
			}
			return err
		})
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			return removed, err
		}
	}
	return removed, nil
}

// List yields the slots of the caller's tenant, without answers. It needs a token for admin on any
// queue. An error ends the sequence. Further codes: ErrUnsupported (the backend cannot list slots).
func (r Replies) List(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return func(yield func(driver.Slot, error) bool) {
		c := r.caller
		_, err := c.authorize(ctx, capability.OpAdmin, "")
		if err == nil {
			err = c.admitSlots(opListSlots, "", lastForReads)
		}
		lister, ok := c.broker.replies.(driver.SlotLister)
		if err == nil && !ok {
			err = &driver.Error{Code: driver.ErrUnsupported, Op: opListSlots, Detail: "the backend cannot list reply slots"}
		}
		if err != nil {
			yield(driver.Slot{}, err)
			return
		}
		turn, err := c.beginLook(ctx, opListSlots, "")
		if err != nil {
			yield(driver.Slot{}, err)
			return
		}
		defer turn.end()
		for slot, err := range lister.Slots(ctx) {
			id, ours := queueName(c.tenant, slot.ID)
			if err == nil && !ours {
				continue
			}
			if slot.ID = id; err == nil {
				err = turn.count(ctx, len(id))
			}
			if !yield(slot, err) || err != nil {
				return
			}
		}
	}
}

// A slotPeeker is a reply store that tells without blocking whether a slot waits for an answer; see
// slotstore.Store.
type slotPeeker interface{ Pending(id string) bool }

// slotPending reports whether the reply slot of a delivery is known to wait for an answer.
func (c *Caller) slotPending(q *queue, d *driver.Delivery) bool {
	id, isSlot := driver.SlotID(d.ReplyTo)
	if !isSlot {
		return false
	}
	name, err := backendName(c.tenant, id)
	if err != nil {
		return false
	}
	if store, ok := c.broker.replies.(slotPeeker); ok {
		return store.Pending(name)
	}
	return d.SlotPending && name == q.slotPrefix+id // otherwise the queue has read another slot
}

// A slotGrant is what allows a call about a slot.
type slotGrant struct {
	*verify.Grant
	operation capability.Operation
}

// authorizeSlot returns the first of some operations that the token allows on a slot.
func (c *Caller) authorizeSlot(ctx context.Context, id string, load verify.Load, operations ...capability.Operation) (slotGrant, error) {
	request := c.request(operations[0], "")
	request.Slot, request.Load = id, load
	var refusal error
	for _, operation := range operations {
		attempt := request
		attempt.Operation = operation
		grant, err := c.broker.verifier.Authorize(ctx, c.token, attempt)
		if err == nil {
			return slotGrant{grant, operation}, nil
		}
		if refusal == nil {
			refusal = err
		}
		if capability.ReasonOf(err) != capability.ReasonOperation {
			refusal = err
			break
		}
	}
	c.refused(ctx, request, refusal)
	return slotGrant{}, refusal
}

// admitSlots returns why the broker does not work on slots, or nil.
func (c *Caller) admitSlots(op, address string, last State) error {
	b := c.broker
	if b.replies != nil {
		return b.admit(op, address, last)
	}
	backend := "the backend"
	if b.backend != "" {
		backend += " " + b.backend
	}
	return &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: address, Detail: backend + " keeps no reply slots"}
}

// slotName returns the backend's name for a slot. An id that no slot can have is ErrNotFound.
func (c *Caller) slotName(op, id string, last State) (string, error) {
	if err := c.admitSlots(op, driver.SlotAddress(id), last); err != nil {
		return "", err
	}
	name, err := backendName(c.tenant, id)
	if err == nil {
		return name, nil
	}
	if op == opCreateSlot {
		return "", &driver.Error{Code: driver.ErrInvalid, Op: op, Field: "id", Detail: "is too long beside the name of the tenant"}
	}
	return "", driver.SlotError(op, shortened(id), driver.ErrNotFound)
}

// inSlot takes a turn and calls do with the backend's name for a slot.
func (r Replies) inSlot(ctx context.Context, op, id string, last State, do func(name string) error) error {
	c := r.caller
	name, err := c.slotName(op, id, last)
	if err != nil {
		return err
	}
	if r.round != nil {
		err = c.startTurn(ctx, r.round, op, driver.SlotAddress(id), 1)
	} else {
		err = c.turn(ctx, op, driver.SlotAddress(id), 1)
	}
	if err != nil {
		return err
	}
	defer c.done(1)
	return named(do(name), driver.SlotAddress(name), driver.SlotAddress(id))
}

// shownSlot returns a slot as the caller sees it, and counts its answer against the caller's memory
// and quotas.
func (c *Caller) shownSlot(slot driver.Slot, id string, by slotGrant, err error) (driver.Slot, error) {
	if err != nil {
		return driver.Slot{}, err
	}
	slot.ID = id
	if by.operation != capability.OpAsk {
		slot.Answer = driver.Answer{}
	}
	size := answerBytes(&slot.Answer)
	c.answeredBytes(0, size)
	if size > 0 && !c.unmetered {
		by.Charge(1, size)
	}
	return slot, nil
}
