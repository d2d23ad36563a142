package driver

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Off turns a setting of a Config off: no limit, no bound, no window.
const Off = -1

// Config is what can be set per queue. 0 leaves a setting unset: a new queue gets
// the backend's default for it, and an existing queue keeps what it has. Off turns
// a setting off. Admin.QueueConfig returns what is in force, with Off where a
// setting is off and no 0, so that it can be changed and given back.
type Config struct {
	// Shards splits the queue so that more cores, disks or machines can serve
	// it; order then holds within a shard. It cannot be off. The default is 1.
	Shards int
	// StrictGroups delivers each group in order, as FIFO queues of SQS do. A message
	// that is in flight, or nacked with a delay, blocks the later messages of its
	// group; one that was sent with a delay joins its group when it is due.
	StrictGroups bool
	// FairGroups keeps one group from delaying the others: what goes next is of
	// the group with the fewest messages in flight, and of several such groups
	// they take turns. Nothing is held back. It excludes StrictGroups.
	FairGroups bool
	// MaxDeliveries is how often a message is delivered before it becomes a
	// dead letter. The default is DefaultMaxDeliveries; Off means no limit.
	MaxDeliveries int
	// MaxMessages and MaxBytes bound what waits (ready, delayed and in
	// flight; bytes are those of the bodies). The default is Off.
	MaxMessages int
	MaxBytes    int
	// MaxInFlight bounds how many messages are leased at once. The default is
	// Off.
	MaxInFlight int
	// MaxDead bounds the dead letters. When they are full, a message that was
	// delivered too often stays in the queue and is delayed by DeadRetry,
	// one that is too old stays deliverable until there is room, and one whose time to
	// live is over stays and is not delivered. The default is 10,000,
	// and Off where RetainDead or DeadLetterTo bounds them.
	MaxDead int
	// DedupWindow is how long a dedup key is remembered, and DedupMax how many
	// keys are. The defaults are DefaultDedupWindow and 1,000,000. With
	// DedupWindow Off, dedup keys are refused; with DedupMax Off, keys are not
	// counted. DedupMax bounds the unique keys that are held too, in a table of their
	// own; see Outgoing.UniqueKey.
	DedupWindow time.Duration
	DedupMax    int
	// RetainReady and RetainDead bound how long, and how many, messages are
	// kept. A ready message past its time, counted from when it could first be
	// delivered, becomes a dead letter with reason expired; a dead letter past its
	// time is removed.
	RetainReady Retention
	RetainDead  Retention
	// TTL is the time to live of messages that are sent without one, at most MaxTTL; see
	// Outgoing.TTL. Changing it changes no message that was sent before. The default is
	// Off. Trait: TTL.
	TTL time.Duration
	// PriorityAging is how long a ready message waits until its level rises by one, up to
	// MaxPriority, so that messages of a low priority are delivered under a steady load of
	// high ones; see Outgoing.Priority. It is at least 1 ms. The default is
	// DefaultPriorityAging; with Off levels do not rise. Queues with StrictGroups or
	// FairGroups have no priorities. Trait: Priorities.
	PriorityAging time.Duration
	// GroupLimits bounds what groups have in flight and how fast they are delivered, as a
	// text: the limit of every group, and limits of single groups instead of it, as in
	//
	//	in-flight=5,rate=10,burst=20; tenant-a: rate=0.5; tenant-b: none
	//
	// in-flight is a number of messages. rate is deliveries a second, and burst how many may
	// follow each other at once: as many as a second has by default. A name that has a
	// semicolon, a quote or a space at its ends is quoted as in Go. At a limit the messages of a group
	// wait, and those of others do not. A delivery that is given back uncounted gives its token back. Messages
	// without a group have no limit, and neither have groups by default. It needs
	// StrictGroups or FairGroups. Trait: GroupLimits.
	GroupLimits string
	// DropExpired removes what is past RetainReady or its time to live, instead of keeping
	// it as a dead letter, or sending it to DeadLetterTo. SQS does so.
	DropExpired bool
	// MaxHold bounds how long one delivery can be held by extending it, counted
	// from the delivery; see HoldBound. An extension beyond it is cut. It is at
	// least 2 ms. The default is Off.
	MaxHold time.Duration
	// DeadLetterTo sends messages that die to another queue of the same
	// backend, or to the tail of this one, instead of keeping them as this queue's
	// dead letters. That queue may have a DeadLetterTo of its own. Deliveries begin
	// again there; see Message.TotalDeliveries. Where dead letters come back to the
	// queue they died in, directly or through others, messages that expire are kept as
	// dead letters of the queue they expired in.
	DeadLetterTo string
	// Annotation is a text, of MaxAnnotationBytes at most, that is kept with the
	// queue for the programs that configure it. Backends store it and do not read it;
	// changing it changes nothing else.
	Annotation string
}

// MaxRetention is the longest Retention.Age: nothing is kept without a bound.
const MaxRetention = 366 * 24 * time.Hour

// MaxTTL is the longest time to live of a message.
const MaxTTL = 366 * 24 * time.Hour

// MaxPriority is the highest priority of a message.
const MaxPriority = 9

// Retention bounds by age, up to MaxRetention, and by number. The default of both is Off.
type Retention struct {
	Age   time.Duration
	Count int
}

// Defaults of new queues, on every backend of this module.
const (
	DefaultMaxDeliveries = 5
	DefaultPriorityAging = time.Minute
	defaultMaxDead       = 10_000
	defaultDedupMax      = 1_000_000
)

// minPriorityAging is the shortest Config.PriorityAging: wires and stores count in
// milliseconds.
const minPriorityAging = time.Millisecond

// DeadRetry is how long a message that ought to be dead is delayed when the
// dead letters are full.
const DeadRetry = time.Minute

// MaxAnnotationBytes bounds Config.Annotation: enough for the settings, tags and
// policy that another system keeps of a queue.
const MaxAnnotationBytes = 64 << 10

// MaxShards is the most shards a queue can have: receipts carry the shard in
// 16 bits, and more would not help any queue.
const MaxShards = 1024

// Validate returns ErrInvalid, naming the field and its limit, for a value no
// backend can honour.
func (c Config) Validate() error {
	if c.Shards < 0 || c.Shards > MaxShards {
		return configError("Shards", fmt.Sprintf("%d is outside 0…%d", c.Shards, MaxShards))
	}
	for _, setting := range c.settings() {
		if value := setting.get(); value < Off {
			return configError(setting.field, fmt.Sprintf("%d is negative; want at least 1, 0 (unset) or %d (off)", value, Off))
		}
	}
	for _, age := range []struct {
		field      string
		value, max time.Duration
	}{{"RetainReady.Age", c.RetainReady.Age, MaxRetention}, {"RetainDead.Age", c.RetainDead.Age, MaxRetention}, {"TTL", c.TTL, MaxTTL}} {
		if age.value > age.max {
			return configError(age.field, outside(age.value, age.max))
		}
	}
	if c.MaxHold > 0 && c.MaxHold < minMaxHold {
		return configError("MaxHold", fmt.Sprintf("%v is less than %v; it is a time, not a multiple of the visibility", c.MaxHold, minMaxHold))
	}
	if c.PriorityAging > 0 && c.PriorityAging < minPriorityAging {
		return configError("PriorityAging", fmt.Sprintf("%v is less than %v", c.PriorityAging, minPriorityAging))
	}
	if c.PriorityAging > 0 && (c.FairGroups || c.StrictGroups) {
		return configError("PriorityAging", "queues with strict or fair groups have no priorities")
	}
	if c.FairGroups && c.StrictGroups {
		return configError("FairGroups", "strict groups have an order of their own; choose one of FairGroups and StrictGroups")
	}
	if c.GroupLimits != "" && !c.FairGroups && !c.StrictGroups {
		return configError("GroupLimits", "needs groups that are fair or strict")
	}
	if _, _, err := c.ParseGroupLimits(); err != nil {
		return err
	}
	if c.DeadLetterTo != "" {
		if err := CheckName(c.DeadLetterTo); err != nil {
			return configError("DeadLetterTo", err.Error())
		}
	}
	if len(c.Annotation) > MaxAnnotationBytes {
		return configError("Annotation", fmt.Sprintf("%d bytes, at most %d are allowed", len(c.Annotation), MaxAnnotationBytes))
	}
	if !utf8.ValidString(c.Annotation) {
		return configError("Annotation", "is not valid UTF-8")
	}
	return nil
}

func configError(field, detail string) error {
	return &Error{Code: ErrInvalid, Op: "configure", Field: field, Detail: detail}
}
