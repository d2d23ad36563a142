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

// Moment is a point in time: At decides, Wall (Unix nanoseconds) is for
// people.
type Moment struct {
	At   Instant
	Wall int64
}

// earlier returns the moment at, which is not after m, on the same clocks.
func (m Moment) earlier(at Instant) Moment {
	return Moment{At: at, Wall: m.Wall - int64(m.At-at)}
}

// State is where an entry is.
type State uint8

// The states. A gone entry was removed, but a queue may still hold a pointer
// to it; whoever takes it out passes it over. A staged entry is between two
// states, see stage.go.
const (
	Gone State = iota
	Ready
	Delayed
	InFlight
	Dead
	Staged
)

// Entry is one message in a shard. Owners read it between calls and never
// change it; after the call that removed it, it may be reused.
//
// A waiting message costs this struct and its body, so its size is a feature:
// what most messages do not have is behind a pointer.
type Entry struct {
	// Seq names the message in its shard, in the order of sending; a redriven
	// message gets a new one.
	Seq uint64
	// Place orders the waiting messages, and the dead ones by death.
	Place uint64
	// Left is the place that it had before it was last given another; 0 means
	// none.
	Left uint64
	ID   string
	Body []byte
	// Extra holds what most messages do not have; nil if there is nothing.
	Extra *Extra
	// EnqueuedAt and FirstReceivedAt are wall times; 0 means never.
	EnqueuedAt      int64
	FirstReceivedAt int64
	// Due is when a delayed message may go and when a lease ends. For a staged
	// one that will wait, it is when it may go.
	Due Instant
	// Nonce names the latest delivery.
	Nonce      uint64
	Deliveries uint32
	// Size is that of the body, also when the body is not held.
	Size  uint32
	State State
	// Fate is what becomes of a staged message.
	Fate Fate
	// Marks are what else there is to know.
	Marks Marks

	timerIndex int32
	// Born is when retention starts counting: when the message first may go. For a
	// dead entry, it is when it died.
	Born Instant
	// HoldUntil bounds extending the current lease. For a message that is about to
	// die and is in the order by age, it is when it dies.
	HoldUntil Instant
	group     *group
}

// Marks are yes-or-no facts about an entry.
type Marks uint16

// The marks.
const (
	// Timed: when it last began to wait, it had to wait for Due.
	Timed Marks = 1 << iota
	// Damaged: the shelf cannot say what it was. It becomes a dead letter that
	// can only be looked at and discarded.
	Damaged
	// Misplaced: the shelf can say what it was, and not where it was. It becomes
	// a dead letter like any other.
	Misplaced
	// Leaving: it died while dead letters were to go elsewhere, and the owner
	// has not said yet whether it did.
	Leaving
	// told: what became of it was written down when it was staged.
	told
	// placed: staged with a place that is not published yet.
	placed
	// unaged: not ready, and not in the order by age; see retention.go.
	unaged
	// Late: it was sent with a delay, so it is younger than its Seq says.
	Late
	// LeasedAgain: it came back and was leased again without counting a delivery, so
	// that Deliveries does not tell that it came back.
	LeasedAgain
)

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

	LastError string
	Redrives  int
	// Reason, ErrorType and DeadAt (a wall time) are set while it is dead.
	Reason    driver.Reason
	ErrorType string
	DeadAt    int64
}

// extra returns e.Extra, made if need be.
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

// Effect is something that happened to an entry and that an owner may have to
// act on.
type Effect struct {
	Kind  EffectKind
	Entry *Entry
	// Told: a shelf knows of it already.
	Told bool
}

// EffectKind says what happened.
type EffectKind uint8

// The kinds of effects.
const (
	// Sent: a new message, ready or delayed.
	Sent EffectKind = iota + 1
	// Leased: handed out, or its lease extended.
	Leased
	// Returned: waiting again, ready or delayed, after a lease.
	Returned
	// Acked: gone because it was acked.
	Acked
	// Died: now a dead letter.
	Died
	// Discarded: a dead letter that is gone, by request or by retention.
	Discarded
	// Withdrawn: gone without having been acked in time: dropped by retention, or
	// acked late.
	Withdrawn
)
