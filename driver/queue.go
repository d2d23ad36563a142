package driver

import (
	"context"
	"iter"
	"time"
)

// An Opener opens queues by name. It is what a backend package constructs and
// what mailbox.Open takes.
type Opener interface {
	// OpenQueue returns the queue called name, creating it with the backend's
	// defaults if the backend creates queues on use. Opening the same name
	// twice gives two handles on one queue.
	//
	// It may block on I/O; cancelling ctx abandons the attempt. It is safe to
	// repeat. Codes: ErrInvalid (the name, see CheckName), ErrNotFound (the
	// backend does not create on use), ErrUnavailable, ErrClosed.
	OpenQueue(ctx context.Context, name string) (Queue, error)
}

// A Queue is one handle on one named queue.
//
// Every queue sends, receives, settles, purges and counts. The methods below
// Close are abilities: a queue has those that Traits names, and answers
// ErrUnsupported to the others. Backends embed Unsupported for the abilities
// they lack, and so need no change when an ability is added.
//
// Batches keep positions: where some elements of a batch fail and others do
// not, the error is a *BatchError whose Errs[i] belongs to element i. Any
// other error means that no element took effect. An empty batch does nothing.
type Queue interface {
	// Send enqueues msgs in order and returns one result for each. When it
	// returns, each sent message is as durable as Traits says. A failed
	// message leaves nothing behind.
	//
	// It does not wait for room: a full queue answers ErrFull at once, with a
	// RetryAfter hint. Repeating a Send whose outcome is unknown may enqueue
	// twice unless every message carries a DedupKey. Codes: ErrInvalid,
	// ErrTooLarge, ErrFull, ErrConflict (dedup key used for another body),
	// ErrUnsupported, ErrUnavailable, ErrClosed.
	Send(ctx context.Context, msgs []Outgoing) ([]Sent, error)

	// Receive leases up to req.Max ready messages, in order. It returns as
	// soon as it has one, and never waits to fill a batch. With nothing ready
	// it blocks for up to req.Wait and then returns no messages and no error.
	//
	// Cancelling ctx or closing the handle wakes it at once; a message that
	// was already leased is returned rather than stranded. Repeating is safe:
	// it leases further messages. Codes: ErrInvalid, ErrFull (the in-flight
	// ceiling), ErrUnavailable, ErrClosed.
	Receive(ctx context.Context, req ReceiveRequest) ([]Delivery, error)

	// Ack removes messages permanently, as durably as Traits says.
	//
	// It does not wait for anything but the backend. Repeating it is safe and
	// answers ErrReceiptExpired for what is already settled. Codes per
	// position: ErrReceiptExpired; for the call: ErrUnavailable, ErrClosed.
	Ack(ctx context.Context, receipts []Receipt) error

	// Nack gives messages back: ready again after Delay, at the tail (in a
	// strict group: at their own place), with Cause kept as the last error. A
	// message at its delivery limit becomes a dead letter instead.
	//
	// Nack.Mode releases a message or puts it back: the delivery does not count, up to
	// MaxReleases times between two that count, and FirstReceivedAt is that of a later
	// delivery. A released message keeps its place, also while it is delayed. Trait:
	// Release.
	//
	// Repeating it is safe and answers ErrReceiptExpired. Codes per position:
	// ErrReceiptExpired, ErrInvalid (delay, mode), ErrUnsupported (mode); for the call:
	// ErrUnavailable, ErrClosed.
	Nack(ctx context.Context, nacks []Nack) error

	// Extend moves deadlines to Visibility from now, later or earlier; zero
	// ends the lease, and the message is ready at its old place. granted[i] is how
	// long position i is leased from now on: less than asked for where
	// Config.MaxHold cuts it, and 0 where it failed or the lease has ended. It is
	// nil if the call failed as a whole.
	//
	// Repeating it is safe. Codes per position: ErrReceiptExpired, ErrInvalid
	// (visibility); for the call: ErrUnavailable, ErrClosed.
	Extend(ctx context.Context, extensions []Extension) (granted []time.Duration, err error)

	// Purge removes all ready, delayed and in-flight messages and returns how
	// many there were; receipts for them expire. Dead letters and the dedup
	// window stay; see ForgetDedup. Repeating it is safe. Codes: ErrUnavailable, ErrClosed,
	// ErrFull (Traits.PurgeCooldown has not passed).
	Purge(ctx context.Context) (removed int, err error)

	// Stats counts the messages in each state: exactly where
	// Traits.ExactStats says so. Codes: ErrUnavailable, ErrClosed.
	Stats(ctx context.Context) (Stats, error)

	// Traits says what this queue promises and where its limits are. It does
	// no I/O and gives the same answer until the queue is configured again.
	Traits() Traits

	// Close ends this handle: receives that wait return ErrClosed, and so does
	// everything called later. Messages are not touched, and neither are other
	// handles on the same queue. Closing twice is fine.
	Close() error

	// DeadLetter moves leased messages to the dead letters in one step each.
	// When the dead letters are full the message stays in flight, for the
	// caller to nack. Repeating it is safe and answers ErrReceiptExpired.
	// Trait: DeadLetters. Codes per position: ErrReceiptExpired, ErrInvalid
	// (reason), ErrFull.
	DeadLetter(ctx context.Context, requests []DeadLetterRequest) error

	// DeadLetters lists the dead letters, oldest death first, without leasing
	// or changing any of them. Letters that die or leave while it runs may or
	// may not be seen. An error ends the sequence. Trait: DeadLetters.
	DeadLetters(ctx context.Context) iter.Seq2[DeadLetter, error]

	// Redrive makes dead letters ready again at the tail, with the same id, no
	// deliveries and one more redrive on record; the dedup window is not
	// consulted. Nil ids mean all. At most limit letters move, oldest death
	// first; 0 means no limit. Unknown ids are passed over. It stops with
	// ErrFull when the queue is full, having moved what it says. Trait:
	// DeadLetters.
	Redrive(ctx context.Context, ids []string, limit int) (moved int, err error)

	// Discard removes the dead letters with these ids permanently. Unknown ids
	// are passed over. Trait: DeadLetters.
	Discard(ctx context.Context, ids []string) (removed int, err error)

	// PurgeDead removes all dead letters and returns how many there were.
	// Trait: DeadLetters.
	PurgeDead(ctx context.Context) (removed int, err error)

	// Peek yields the messages that match query without leasing them or changing
	// anything, delivery counts included: ready ones in the order they
	// would be delivered, then delayed, in flight and dead ones by time. What
	// moves while it runs may be seen in its old state, in its new one, or
	// not at all. An error ends the sequence. Trait: Peek. Codes: ErrInvalid,
	// ErrClosed.
	Peek(ctx context.Context, query Query) iter.Seq2[Peeked, error]

	// Move makes ready messages of this queue, in the order in which they would
	// be delivered, ready at the tail of the queue called to, which is of the
	// same backend. An empty to means the queue that each of them died in before
	// it was forwarded here (AttributeDeadSource); messages that have none, or
	// whose queue was deleted, stay. At most limit messages move; 0 means no
	// limit.
	//
	// A message that moves keeps its id, body, group, reply address and
	// attributes, but for those that it got when it died; it has no deliveries,
	// its age for retention starts from zero, and the dedup window of the target
	// is not consulted. A move is one step where the backend can do that, and
	// otherwise target first: a message is never in neither queue, and the same
	// move repeated after a crash does not double it.
	//
	// It stops with ErrFull when a target is full, having moved what it says.
	// Repeating is safe: it moves what is left. Trait: Move. Codes: ErrInvalid
	// (limit, to is this queue), ErrNotFound (to), ErrFull, ErrUnavailable,
	// ErrClosed.
	Move(ctx context.Context, to string, limit int) (moved int, err error)

	// AckLate removes messages like Ack, and also takes receipts whose deadline
	// has passed or that a later delivery superseded, as long as the message is
	// still in the place of that delivery: not settled, not nacked to the tail,
	// not dead. Receipts of a later delivery expire with it. It is for protocols
	// that promise so, as SQS does for queues without strict groups.
	//
	// Trait: LateAck. Codes per position: ErrReceiptExpired; for the call:
	// ErrUnavailable, ErrClosed.
	AckLate(ctx context.Context, receipts []Receipt) error

	// ExtendLate moves deadlines like Extend, and also takes the receipt of the
	// latest delivery of a message when its deadline has passed and the message
	// is still ready in its place: then the message is leased again for
	// Visibility, under the same receipt and without counting a delivery, unless
	// its group is strict or as many messages are in flight as Config.MaxInFlight
	// allows. Trait: LateAck. Codes are those of Extend.
	ExtendLate(ctx context.Context, extensions []Extension) error

	// ForgetDedup forgets all dedup keys of the queue, as durably as Traits says:
	// the next send with one of them is a new message. Messages stay. It is for
	// protocols that promise so, as SQS does when a FIFO queue is purged.
	// Repeating it is safe. Trait: ForgetDedup. Codes: ErrUnavailable, ErrClosed.
	ForgetDedup(ctx context.Context) error

	// Usage measures how much of its bounds the queue uses, as of now. It may
	// block on I/O. Trait: Usage. Codes: ErrUnavailable, ErrClosed, ErrNotFound.
	Usage(ctx context.Context) (Usage, error)

	// Throttle delivers no message of a group for a time, 0…MaxThrottle, as the Retry-After of
	// a server asks for; then its bucket is empty (Config.GroupLimits). It does not shorten an
	// earlier Throttle, except that 0 ends it. It survives restarts where messages do. At most
	// 1,000 groups of a queue are throttled at a time. Trait: GroupLimits. Codes: ErrInvalid,
	// ErrFull with RetryAfter, ErrUnavailable, ErrClosed, ErrNotFound.
	Throttle(ctx context.Context, group string, wait time.Duration) error

	// Pause stops deliveries until Resume: receives wait, and return no messages and
	// no error when their wait ends. Sends, settling, moves and Peek go on, and leases,
	// delays and retention run. Stats says whether a queue is paused. It survives what
	// the configuration of the queue survives, and holds for all handles and processes.
	// When Pause returns, no later receive and none that waits gets a message. Repeating
	// it is safe. Trait: Pause. Codes: ErrUnavailable, ErrClosed, ErrNotFound.
	Pause(ctx context.Context) error

	// Resume ends a pause, and wakes the receives that wait. Resuming a queue that is
	// not paused does nothing. Trait: Pause. Codes: ErrUnavailable, ErrClosed,
	// ErrNotFound.
	Resume(ctx context.Context) error

	// Edit changes one message that waits, ready or delayed, found by its id: it is removed,
	// made ready, or gets another due time. It returns the state that the message was in. A
	// message keeps its place, and its age counts from its new due time; a ready one that is
	// made ready stays as it is. A dedup key is remembered as before. A message in flight or
	// dead is ErrConflict, and the error says which. It may take longer the more messages
	// wait. Trait: Edit. Codes: ErrNotFound (the message, or the queue), ErrConflict,
	// ErrInvalid, ErrUnavailable, ErrClosed.
	Edit(ctx context.Context, id string, edit Edit) (was State, err error)

	// Fire changes the schedule called firing.Name and sends messages, in one step: if the
	// schedule has firing.Revision, and firing.Through is not after the time of the backend.
	// Otherwise it changes nothing. It returns the schedule as it is now, with Revision 0 if
	// there is none, and whether the firing is done. When it returns, that is as durable
	// as Traits says.
	//
	// The messages are sent all or not at all: ErrFull means that they do not fit. The dedup
	// window is not consulted. Schedules are deleted with their queue, and stay when
	// it is purged. Repeating a firing whose outcome is unknown is safe: if it was done, the
	// revision is another one. Trait: Schedules. Codes: ErrInvalid, ErrTooLarge, ErrFull (no
	// room, or MaxSchedules), ErrUnavailable, ErrClosed.
	Fire(ctx context.Context, firing Firing) (now Schedule, done bool, err error)

	// Schedules yields the schedule of this name, if there is one, or all if name is empty, in
	// the order of their names. An error ends the sequence. Trait: Schedules. Codes:
	// ErrUnavailable, ErrClosed.
	Schedules(ctx context.Context, name string) iter.Seq2[Schedule, error]

	// Identity returns a text that no other queue of the backend has or will
	// have, not even one of the same name. It is the same for all handles and
	// processes, and survives what the queue survives. It does no I/O. It is for
	// protocols whose handles outlive those of the backend, and empty where the
	// backend cannot tell.
	Identity() string
}

// An Admin manages the queues of a backend. Openers implement it.
type Admin interface {
	// ConfigureQueue creates the queue or changes its configuration; messages
	// are kept, and so is what config leaves unset. Codes: ErrInvalid (the field and its limit), ErrUnsupported (a
	// setting the backend cannot honour, or cannot change on a live queue).
	ConfigureQueue(ctx context.Context, name string, config Config) error

	// QueueConfig returns the configuration in force, with nothing unset. Codes:
	// ErrNotFound.
	QueueConfig(ctx context.Context, name string) (Config, error)

	// Queues lists the names of all queues, in order. An error ends the
	// sequence.
	Queues(ctx context.Context) iter.Seq2[string, error]

	// DeleteQueue removes a queue with everything in it, dead letters
	// included. Open handles on it answer ErrNotFound from then on. Codes:
	// ErrNotFound.
	DeleteQueue(ctx context.Context, name string) error
}

// A Pinger can tell whether its backend would answer right now.
type Pinger interface {
	// Ping returns nil when the backend is reachable and taking writes.
	Ping(ctx context.Context) error
}
