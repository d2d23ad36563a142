package driver

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"
)

// A ReplyStore keeps one-shot reply slots. A slot is created pending and is
// written at most once: of Resolve, Cancel and the end of its time exactly one
// wins a race. When its time is over a slot is expired, whatever it was
// before, from that moment on and whether or not anything has swept it; an
// answer that was not read by then is gone. Once swept, by Sweep or, a minute
// later at the earliest, by the store itself, it is ErrNotFound.
//
// All methods may be called concurrently. Each may block on I/O and returns
// early, with the context's own error, when the context ends; it has then done
// all of what it was asked, or nothing. Errors are *Error values made by
// SlotError. Every method can return ErrUnavailable when the store does not
// answer, in which case the outcome is unknown. Bodies that are passed in
// belong to the caller again when the call returns; what is handed out is
// shared and must not be changed.
type ReplyStore interface {
	// Create makes a pending slot that expires after ttl. Codes: ErrConflict
	// (the id is taken, also by an expired slot that was not swept),
	// ErrInvalid (id or ttl, see CheckSlot), ErrFull.
	Create(ctx context.Context, id string, ttl time.Duration) error

	// Resolve stores the answer and wakes every caller that waits for it. The
	// answer is kept for the rest of the slot's time. Codes:
	// ErrReplyAlreadySent, ErrReplyCancelled, ErrReplyExpired, ErrNotFound,
	// ErrTooLarge (the body), ErrFull (no room on the disk). Repeating it is safe, and
	// says ErrReplyAlreadySent.
	Resolve(ctx context.Context, id string, answer Answer) error

	// Cancel gives up the slot, and wakes every caller that waits for it.
	// Cancelling twice is fine. Codes: ErrReplyAlreadySent, ErrReplyExpired,
	// ErrNotFound.
	Cancel(ctx context.Context, id string) error

	// Get returns the slot as it is. Codes: ErrNotFound.
	Get(ctx context.Context, id string) (Slot, error)

	// Wait returns the slot when it is pending no more, or still pending when
	// wait has passed; a wait of 0 or less is Get. It is woken by Resolve and
	// Cancel, in whatever process, by the end of the slot's time, and with
	// ErrNotFound when the slot is removed. Codes: as Get.
	Wait(ctx context.Context, id string, wait time.Duration) (Slot, error)

	// Consume returns a slot that is not pending and removes it, in one step:
	// of many callers one gets it and the others get ErrNotFound. A pending
	// slot is returned and kept. An answer is lost if the caller does not
	// survive the call; use Get and Delete if that is not acceptable. Codes: as
	// Get.
	Consume(ctx context.Context, id string) (Slot, error)

	// Delete removes the slot, whatever its state. Deleting what is not there
	// is fine.
	Delete(ctx context.Context, id string) error

	// Expired lists up to limit ids of slots whose time is over, and no
	// others. Codes: ErrInvalid (limit below 1).
	Expired(ctx context.Context, limit int) ([]string, error)

	// Sweep removes up to limit slots whose time is over, and no others, and
	// returns how many it removed. Codes: ErrInvalid (limit below 1).
	Sweep(ctx context.Context, limit int) (removed int, err error)
}

// A LinkedReplyStore is a ReplyStore that handles a slot together with the request that
// names it, where both are on one server.
type LinkedReplyStore interface {
	ReplyStore

	// LinkedTo reports whether the store is on one server with the queue.
	LinkedTo(queue Queue) bool

	// CreateWithSend begins to create a slot, and returns a context for sending one
	// message, with the address of the slot as its ReplyTo, to a queue that the store is
	// LinkedTo. The slot is as durable as the message when the send returns. A store
	// that creates the slot in the send sends nothing if it cannot, and the send then has
	// the codes of Create; others return them here. created reports, after the send,
	// whether there is a slot, which the caller deletes if the send has failed. The id
	// must be one that was never used.
	CreateWithSend(ctx context.Context, id string, ttl time.Duration) (send context.Context, created func() bool, err error)

	// ResolveWithAck begins Resolve for a worker that then acks the request, and returns a
	// context for that ack, of one message, on a queue that the store is LinkedTo. The
	// answer is stored here or by the ack, which is not durable before the answer is. The
	// caller must call stored after the ack, whatever became of that, from the same
	// goroutine: it blocks until the answer is durable, and returns the codes of Resolve.
	// An ack that stores the answer is done also if the slot was written before or is gone;
	// with every other error of the answer it is not done, and fails too. Codes: as Resolve;
	// stored is nil then. The answer belongs to the caller again when stored has returned.
	ResolveWithAck(ctx context.Context, id string, answer Answer) (ack context.Context, stored func() error, err error)
}

// A SlotLister is a ReplyStore that can list its slots, for people.
type SlotLister interface {
	// Slots yields the slots that exist, in any state, without answers, and about in the order in which
	// they expire. A slot that is created or removed meanwhile may be missing; each other is yielded
	// once. It blocks, and asks the store for a bounded number of slots at a time. An error ends
	// the sequence. Codes: ErrUnavailable, ErrClosed; ErrUnsupported (a daemon whose backend cannot list).
	Slots(ctx context.Context) iter.Seq2[Slot, error]
}

// Answer is what a slot is resolved with: a body, or a failure that the waiter
// gets as an error.
type Answer struct {
	Body []byte
	// Failure is the text of an error; empty means that Body is the answer.
	Failure string
	// FailureKind tells kinds of failures apart.
	FailureKind string
}

// Slot is a reply slot as it was found.
type Slot struct {
	ID    string
	State SlotState
	// Answer is set if State is SlotResolved.
	Answer Answer
	// The times are UTC, by the store's clock, and for people. ResolvedAt is
	// zero unless State is SlotResolved.
	CreatedAt  time.Time
	ExpiresAt  time.Time
	ResolvedAt time.Time
}

// A SlotState is where in its life a reply slot is.
type SlotState string

// The slot states.
const (
	SlotPending   SlotState = "pending"
	SlotResolved  SlotState = "resolved"
	SlotCancelled SlotState = "cancelled"
	SlotExpired   SlotState = "expired"
)

// SlotError is the error of an operation on a slot, which it names by its
// address.
func SlotError(op, id string, code Code) *Error {
	return &Error{Code: code, Op: op, Queue: SlotAddress(id)}
}

// WriteError is the error of writing to a slot that is in this state: what
// became of it before. It is nil for a pending slot.
func (s SlotState) WriteError(op, id string) error {
	switch s {
	case SlotPending:
		return nil
	case SlotResolved:
		return SlotError(op, id, ErrReplyAlreadySent)
	case SlotCancelled:
		return SlotError(op, id, ErrReplyCancelled)
	case SlotExpired:
		return SlotError(op, id, ErrReplyExpired)
	}
	return SlotError(op, id, ErrNotFound)
}

// slotScheme begins the addresses of slots. Other addresses name mailboxes.
const slotScheme = "reply:"

// SlotAddress is the reply address of the slot with this id.
func SlotAddress(id string) string { return slotScheme + id }

// SlotID returns the id of the slot that a reply address names; ok is false if
// it names a mailbox.
func SlotID(address string) (id string, ok bool) { return strings.CutPrefix(address, slotScheme) }

// MaxSlotTTL bounds how long a slot can live. It is as long as SQS keeps
// messages: no request waits longer for its worker.
const MaxSlotTTL = 14 * 24 * time.Hour

// CheckSlot returns ErrInvalid, naming the field and its limit, if a slot
// cannot have this id, which must be like the name of a queue (see CheckName),
// or cannot live for this long.
func CheckSlot(id string, ttl time.Duration) error {
	invalid := func(field, detail string) error {
		return &Error{Code: ErrInvalid, Op: "create slot", Field: field, Detail: detail}
	}
	if reason := nameProblem(id); reason != "" {
		return invalid("id", reason)
	}
	if ttl <= 0 || ttl > MaxSlotTTL {
		return invalid("ttl", fmt.Sprintf("%v is not above 0 and at most %v", ttl, MaxSlotTTL))
	}
	return nil
}

// nameProblem says what CheckName does not like about a name.
func nameProblem(name string) string {
	if e, ok := CheckName(name).(*Error); ok { //nolint:errorlint // CheckName wraps nothing
		return e.Detail
	}
	return ""
}
