package engine

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Instant is a number of nanoseconds on a monotonic axis that the owner
// chooses. It may be negative.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// never is later than every deadline.
const never = Instant(1<<63 - 1)

// Moment is a point in time. All decisions depend on At, except when a message with a
// due time is due: that depends on Wall (Unix nanoseconds), which may step.
type Moment struct {
	At   Instant
	Wall int64
}

// earlier returns the moment at, which is not after m, on the same clocks.
func (m Moment) earlier(at Instant) Moment {
	return Moment{At: at, Wall: m.Wall - int64(m.At-at)}
}

// State is the state of an entry.
type State uint8

// The states. A Gone entry was removed, but an order may still hold a pointer to it
// and skips it later. A Staged entry is between two states; see settle.go.
const (
	Gone State = iota
	Ready
	Delayed
	InFlight
	Dead
	Staged
)

// Entry is one message in a shard. Owners read it between calls and never change
// it; after the call that removes the message, the entry may be reused.
//
// A waiting message costs this struct and its body, so the struct is kept small:
// fields that most messages do not have are behind a pointer.
type Entry struct {
	// Seq names the message in its shard, in the order of sending; a redriven
	// message gets a new one.
	Seq uint64
	// Place orders the waiting messages, and the dead ones by death.
	Place uint64
	// Left is the previous place; 0 if the place never changed.
	Left uint64
	Content
	// EnqueuedAt and FirstReceivedAt are wall times; 0 means never.
	EnqueuedAt      int64
	FirstReceivedAt int64
	// Due is when a delay or a lease ends. For a staged message that will wait, it
	// is when the delay will end. With the mark Wall it is a wall time.
	Due Instant
	// Nonce names the latest delivery.
	Nonce      uint64
	Deliveries uint32
	// Size is the length of the body, also if the body is not in memory.
	Size  uint32
	State State
	// Outcome is what publishing does with a staged message.
	Outcome Outcome
	// Marks are further yes-or-no facts, and the count of releases.
	Marks Marks

	timerIndex int32
	// Born is when retention starts counting: when the message could first be
	// delivered, or, for a dead letter, when it died.
	Born Instant
	// HoldUntil is the latest time to which the lease can be extended. For a message
	// that is staged to die in a shard without a backlog, it is when it dies.
	HoldUntil Instant
	group     *group
}

// Content is the part of an entry that goes with the message wherever it goes.
type Content struct {
	ID   string
	Body []byte
	// Seal, Resident and Priority are those of driver.Message.
	Seal     []byte
	Resident bool
	Priority uint8
	restart  restart
	// Extra holds the fields that most messages do not have; it may be nil.
	Extra *Extra
}

// Marks are yes-or-no facts about an entry, and one count.
type Marks uint16

// The marks.
const (
	// Timed: it was delayed until Due when it last began to wait.
	Timed Marks = 1 << iota
	// Damaged: the backlog cannot read the message. It becomes a dead letter that
	// can only be inspected and discarded.
	Damaged
	// Misplaced: the backlog can read the message, but not its place. It becomes an
	// ordinary dead letter.
	Misplaced
	// Leaving: it died in a queue that forwards its dead letters, and the owner has
	// not answered yet with RemoveForwarded or KeepDead.
	Leaving
	// recorded: the owner wrote the outcome when the message was staged.
	recorded
	// placed: it has a new place that is not published yet.
	placed
	// unaged: it is not in the order by age; see retention.go.
	unaged
	// Late: it was sent with a delay, so its age begins later than its Seq suggests.
	Late
	// LeasedAgain: after it returned it was leased again under the same receipt,
	// which does not count as a delivery.
	LeasedAgain
	// First: FirstReceivedAt is the time of the latest delivery.
	First
	// Wall: it has not been delivered since it was given a due time, and Due is
	// Extra.DeliverAt; see wall.go.
	Wall
)

// ReleaseCount are the bits of Marks that count how often the message was given back
// uncounted since its last delivery that counted: 0…driver.MaxReleases.
const (
	ReleaseCount Marks = 31 << releaseShift
	releaseShift       = 11
)

// Releases returns how often e was given back uncounted since its last delivery that
// counted.
func (e *Entry) Releases() int { return int(e.Marks & ReleaseCount >> releaseShift) }

func (e *Entry) setReleases(n int) { e.Marks = e.Marks&^ReleaseCount | Marks(n)<<releaseShift }

// HasReturned reports whether a message that waits was delivered before.
func (e *Entry) HasReturned() bool { return e.Deliveries > 0 || e.Releases() > 0 }

// Is reports whether e has one of the marks.
func (e *Entry) Is(marks Marks) bool { return e.Marks&marks != 0 }

func (e *Entry) set(mark Marks, on bool) {
	e.Marks &^= mark
	if on {
		e.Marks |= mark
	}
}

// Extra is the part of an entry that most messages do not have.
type Extra struct {
	Attributes    map[string]string
	Group         string
	ReplyTo       string
	CorrelationID string
	// DeliverAt is the due time that the message was given, a wall time; 0 if it was
	// given none.
	DeliverAt int64
	// Life is the time to live of the message; nil if it has none. See ttl.go.
	Life *Life
	// Unique is the unique key of the message; nil if it has none. See unique.go.
	Unique *Unique

	LastError string
	Redrives  int
	// Reason, ErrorType and DeadAt (a wall time) are set while it is dead.
	Reason    driver.Reason
	ErrorType string
	DeadAt    int64
}

// extra returns e.Extra, and creates it if it is nil.
func (e *Entry) extra() *Extra {
	if e.Extra == nil {
		e.Extra = &Extra{}
	}
	return e.Extra
}

// Waits reports whether e is waiting to be delivered.
func (e *Entry) Waits() bool { return e.State == Ready || e.State == Delayed }

func (e *Entry) groupName() string {
	if e.Extra == nil {
		return ""
	}
	return e.Extra.Group
}
