package driver

import (
	"context"
	"time"
)

// A ReplyStore keeps one-shot reply slots. A slot is created pending, and then
// at most once, whoever races, becomes resolved, cancelled or expired.
//
// All methods may be called concurrently. A slot whose time is over is expired
// from that moment, whether or not anything has swept it.
type ReplyStore interface {
	// Create makes a pending slot that expires after ttl. Codes: ErrConflict
	// (the id is taken), ErrInvalid (ttl, id), ErrUnavailable.
	Create(ctx context.Context, id string, ttl time.Duration) error

	// Resolve stores the answer and wakes who waits for it. The answer is kept
	// for the rest of the slot's ttl. Codes: ErrReplyAlreadySent,
	// ErrReplyCancelled, ErrReplyExpired, ErrNotFound, ErrUnavailable.
	Resolve(ctx context.Context, id string, answer Answer) error

	// Cancel says that nobody waits any more, and wakes who does. Codes:
	// ErrReplyAlreadySent, ErrReplyExpired, ErrNotFound, ErrUnavailable.
	// Cancelling twice is fine.
	Cancel(ctx context.Context, id string) error

	// Get returns the slot as it is. Codes: ErrNotFound, ErrUnavailable.
	Get(ctx context.Context, id string) (Slot, error)

	// Wait returns the slot when it is pending no more, or as it is when wait
	// has passed. It is woken by Resolve and Cancel, in whatever process, and
	// by the end of the slot's ttl. Codes: as Get.
	Wait(ctx context.Context, id string, wait time.Duration) (Slot, error)

	// Consume returns a slot that is not pending and deletes it, in one step:
	// of many callers one gets it and the others get ErrNotFound. A pending
	// slot is returned and kept.
	Consume(ctx context.Context, id string) (Slot, error)

	// Delete removes the slot. Deleting what is not there is fine.
	Delete(ctx context.Context, id string) error

	// Expired lists up to limit ids whose time is over.
	Expired(ctx context.Context, limit int) ([]string, error)

	// Sweep removes up to limit slots whose time is over.
	Sweep(ctx context.Context, limit int) (removed int, err error)
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
	ID        string
	State     SlotState
	Answer    Answer
	CreatedAt time.Time
	ExpiresAt time.Time
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
