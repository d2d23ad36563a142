package driver

import "time"

// Traits says what a queue promises. Options beyond it are refused, and the
// conformance suite asserts both the promise and the refusal.
type Traits struct {
	Ordering   Ordering
	Durability Durability
	// ExactStats: Stats is a snapshot, not an estimate.
	ExactStats bool
	// Groups: Outgoing.Group is accepted.
	Groups bool
	// StrictGroups: this queue delivers each group in order; a message in flight
	// blocks the later ones of its group.
	StrictGroups bool
	// FairGroups: this queue lets quiet groups go first. Ordering then holds
	// within each group, and among the messages that have none.
	FairGroups bool
	// The abilities: the queue has DeadLetter, DeadLetters, Redrive, Discard and
	// PurgeDead; Peek; Move; AckLate and ExtendLate; ForgetDedup; Usage; Pause and
	// Resume; Edit; Fire and Schedules. It answers ErrUnsupported to those that are not set.
	DeadLetters bool
	Peek        bool
	Move        bool
	LateAck     bool
	ForgetDedup bool
	Usage       bool
	Pause       bool
	Edit        bool
	Schedules   bool
	// PeekCursor: Query.Cursor is accepted.
	PeekCursor bool
	// PeekLast: Query.Last is accepted.
	PeekLast bool
	// Release: Nack takes NackRelease and NackPutBack.
	Release bool
	// DeliverAt: Outgoing.DeliverAt is accepted.
	DeliverAt bool
	// TTL: Outgoing.TTL and Config.TTL are accepted.
	TTL bool
	// Priorities: Outgoing.Priority and Edit.Prioritize are accepted.
	Priorities bool
	// UniqueKeys: Outgoing.UniqueKey and Outgoing.Replace are accepted.
	UniqueKeys bool
	// GroupLimits: Throttle and Config.GroupLimits are accepted.
	GroupLimits bool
	// Seals: Outgoing.Seal is kept.
	Seals bool
	// DedupWindow is how long a dedup key is remembered; 0 means that
	// Outgoing.DedupKey is refused.
	DedupWindow time.Duration

	MaxBodyBytes int
	// MaxAttributes and MaxAttributeBytes bound the attributes of a message: how many,
	// and the bytes of their keys and values added up. They are at most the constants
	// of these names.
	MaxAttributes     int
	MaxAttributeBytes int

	MaxBatch      int
	MaxDelay      time.Duration
	MaxVisibility time.Duration
	// MaxWait bounds ReceiveRequest.Wait; 0 means no bound.
	MaxWait time.Duration
	// PurgeCooldown is the least time between two purges; 0 means none.
	PurgeCooldown time.Duration
}

// Ordering is what a queue promises about first deliveries.
type Ordering string

// The orderings.
const (
	// OrderingNone: messages may arrive in any order.
	OrderingNone Ordering = "none"
	// OrderingFIFO: messages arrive in the order they were sent.
	OrderingFIFO Ordering = "fifo"
	// OrderingPerShard: messages of one shard, and so of one group, arrive in
	// the order they were sent.
	OrderingPerShard Ordering = "fifo per shard"
)

// Durability is what a message survives once Send has returned.
type Durability string

// The durabilities, weakest first.
const (
	// DurabilityNone: messages die with the process.
	DurabilityNone Durability = "none"
	// DurabilityProcess: messages survive the process, not the machine.
	DurabilityProcess Durability = "process"
	// DurabilityDisk: messages are on stable storage before Send returns.
	DurabilityDisk Durability = "disk"
	// DurabilityReplicated: messages are on more than one machine before Send
	// returns.
	DurabilityReplicated Durability = "replicated"
)

// Restarts reports whether messages survive an orderly restart.
func (d Durability) Restarts() bool { return d != DurabilityNone && d != "" }

// Limits common to the backends of this module. SQS delays by 15 minutes at most.
const (
	DefaultMaxDelay      = 366 * 24 * time.Hour
	DefaultMaxVisibility = 12 * time.Hour
	DefaultMaxBodyBytes  = 1 << 20
	DefaultMaxBatch      = 256
	DefaultDedupWindow   = 5 * time.Minute
)
