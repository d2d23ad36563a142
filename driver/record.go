package driver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Outgoing is a message to be sent.
type Outgoing struct {
	Body       []byte
	Attributes map[string]string
	// Delay keeps the message from being delivered before its time,
	// 0…Traits.MaxDelay. It does not cost the message its place.
	Delay time.Duration
	// DeliverAt is given instead of Delay: the message is not delivered before this time,
	// which is at most Traits.MaxDelay ahead. A time that is past does not delay it. A Delay
	// is elapsed time; DeliverAt follows the wall clock of the backend, also when that
	// steps. The zero time means none. Trait: DeliverAt.
	DeliverAt time.Time
	// TTL is how long the message lives from when it is due, 0…MaxTTL; 0 means Config.TTL
	// of its queue. It follows the wall clock of the backend. A message that waits at the
	// end of it is not delivered any more: it becomes a dead letter with ReasonExpired, or
	// is removed if Config.DropExpired is set. One that is in flight may be settled; it
	// ends if it comes back. A redriven message has its whole TTL again. Trait: TTL.
	TTL time.Duration
	// Priority is 0…MaxPriority; messages with a higher one are delivered first. While a
	// message is ready, its level rises by one every Config.PriorityAging from when it
	// became ready, up to MaxPriority; among equal levels the place decides. Of each priority only the
	// message with the lowest place is considered. A nack to the tail starts that time
	// again; a release and the end of a lease do not. Trait: Priorities.
	Priority int
	// DedupKey makes repeats harmless: within the queue's dedup window the
	// same key with the same body is the same message. Empty means none.
	DedupKey string
	// UniqueKey keeps the queue from having two messages with this key, which has nothing to do
	// with DedupKey. The message holds the key until it is acked, dead or removed. Meanwhile a send with the
	// same key adds no message, whatever its body: it answers Duplicate with the id of the
	// message that holds the key. Of a queue with several shards only messages without a Group
	// can have one. Empty means none. Trait: UniqueKeys.
	UniqueKey string
	// Replace changes the message that holds UniqueKey if it is ready or delayed: it gets the body,
	// attributes, reply address, correlation id, seal, due time and time to live of this one. It
	// keeps its id, place, group, priority and deliveries. A message in flight is left alone.
	Replace bool
	// Group pins the message to a shard, and in a queue with strict groups
	// orders it. An empty group pins nothing, and is one group of its own when strict.
	Group string
	// ReplyTo says where an answer is expected.
	ReplyTo       string
	CorrelationID string
	// Seal is kept with the message and returned as it is, at most MaxSealBytes, if
	// Traits.Seals is set; otherwise it is refused. It is where a daemon keeps what it
	// has to prove of a message. Other programs leave it empty.
	Seal []byte
}

// Sent is the result of sending one message.
type Sent struct {
	// ID is a ULID, unique in the queue.
	ID string
	// Duplicate says that an earlier send with the same dedup key or unique key put the
	// message there, and ID is that one's.
	Duplicate bool
	// Replaced says that Outgoing.Replace has changed the message. A repeat of the same
	// send, by its dedup key, does not say it again.
	Replaced bool
}

// ReceiveRequest asks for messages.
type ReceiveRequest struct {
	// Max is how many at most: at least 1, and clamped to Traits.MaxBatch.
	Max int
	// MaxBytes bounds the sum of the bodies, except that one message is always
	// allowed. 0 means no bound.
	MaxBytes int
	// Visibility is how long no other receiver gets the messages,
	// 0…Traits.MaxVisibility.
	Visibility time.Duration
	// Wait is how long to block when nothing is ready, 0…Traits.MaxWait.
	Wait time.Duration
}

// Message is what a backend keeps of one message.
type Message struct {
	ID            string
	Body          []byte
	Attributes    map[string]string
	Group         string
	ReplyTo       string
	CorrelationID string
	// Deliveries counts how often the message was handed out since it was sent
	// or redriven; on its first delivery it is 1.
	Deliveries int
	// EnqueuedAt is when it was sent, in UTC.
	EnqueuedAt time.Time
	// FirstReceivedAt is when it was delivered for the first time; zero if it
	// never was.
	FirstReceivedAt time.Time
	// LastError is the cause of the latest nack that gave one, or the error it
	// was dead-lettered with; empty if there was none.
	LastError string
	// Seal is that of Outgoing. It is shared, and must not be changed.
	Seal []byte
	// Resident: the message was sent to this process and was in its memory ever since.
	// What was read from a disk, or came over a network, is not resident, and a program
	// that has sealed its messages verifies it.
	Resident bool
	// Priority is that of Outgoing, or what Edit has changed it to.
	Priority int
}

// Delivery is a message handed to one receiver for a while.
type Delivery struct {
	Message
	Receipt Receipt
	// Shard is the shard of the queue that the message is in; 0 where there is
	// one, or the backend does not tell.
	Shard int
	// SlotPending: the queue has read the reply slot that ReplyTo names in the same
	// step as it leased the message, and the slot waited for an answer. False says
	// nothing. The slot is that of a store that is LinkedTo the queue.
	SlotPending bool
	// Released: the message was given back uncounted since its last delivery that
	// counted, so this is not the first delivery even if Deliveries is 1. False says
	// nothing.
	Released bool
}

// Nack gives a delivery back.
type Nack struct {
	Receipt Receipt
	// Delay is how long to wait before the next delivery,
	// 0…Traits.MaxVisibility.
	Delay time.Duration
	// Cause is kept as the message's last error.
	Cause string
	// Mode says whether the delivery counts, and where the message waits.
	Mode NackMode
}

// A NackMode says why a delivery is given back: because it failed, or without having been
// tried. The modes but NackFailed need Traits.Release.
type NackMode uint8

// The modes.
const (
	// NackFailed: the delivery counts, and the message waits at the tail; in a strict
	// group at its place.
	NackFailed NackMode = iota
	// NackRelease: the delivery does not count, and the message keeps its place.
	NackRelease
	// NackPutBack: the delivery does not count, and the message waits at the tail; in a
	// strict group at its place.
	NackPutBack
)

// MaxReleases is how often a message can be given back uncounted between two deliveries
// that count. The next one counts, as NackFailed does, so that no message circulates
// without end.
const MaxReleases = 16

// Check returns nil if a queue with these traits can give a delivery back like this, and
// otherwise an *Error (ErrInvalid or ErrUnsupported) that names the field and its limit.
// Backends call it before they do anything.
func (n *Nack) Check(t *Traits) error {
	switch {
	case n.Mode == NackFailed:
	case n.Mode > NackPutBack:
		return &Error{
			Code: ErrInvalid, Op: "nack", Field: "Mode",
			Detail: fmt.Sprintf("%d is not a mode; want NackFailed, NackRelease or NackPutBack", n.Mode),
		}
	case !t.Release:
		return &Error{Code: ErrUnsupported, Op: "nack", Field: "Mode", Detail: "this queue counts every delivery"}
	}
	return CheckVisibility("nack", "Delay", n.Delay, t)
}

// Extension moves the deadline of a delivery.
type Extension struct {
	Receipt    Receipt
	Visibility time.Duration
	// Progress is the latest report of the receiver, for lists of workers and traces; nil if
	// there is none. A queue that shows it nowhere checks it and ignores it.
	Progress *Progress
}

// Check returns nil if a queue with these traits can extend a delivery like this, and
// otherwise an *Error (ErrInvalid) that names the field and its limit. Backends call it
// before they do anything.
func (e *Extension) Check(t *Traits) error {
	if err := CheckVisibility("extend", "Visibility", e.Visibility, t); err != nil || e.Progress == nil {
		return err
	}
	return e.Progress.check()
}

// MaxProgressBytes bounds the text of a Progress.
const MaxProgressBytes = 200

// Progress is what a receiver reports about its work on a delivery.
type Progress struct {
	// Fraction is how much of the work is done, from 0 to 1, and negative if that is unknown.
	Fraction float64
	// Text says what the receiver is doing: printable UTF-8, at most MaxProgressBytes bytes.
	Text string
}

// NewProgress returns a report that every queue takes: a fraction above 1 is 1, NaN and
// negative ones are unknown, characters of text that cannot be printed become spaces, and
// what is too long is cut.
func NewProgress(fraction float64, text string) *Progress {
	if !(fraction >= 0) { // NaN too
		fraction = -1
	}
	text = strings.ToValidUTF8(text[:min(len(text), MaxProgressBytes)], "")
	return &Progress{Fraction: min(fraction, 1), Text: strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)}
}

// String returns the report for people, as in "40 %: page 4 of 10".
func (p *Progress) String() string {
	if p.Fraction < 0 {
		return p.Text
	}
	percent := fmt.Sprintf("%.0f %%", 100*p.Fraction)
	if p.Text == "" {
		return percent
	}
	return percent + ": " + p.Text
}

func (p *Progress) check() error {
	detail := ""
	switch {
	case !(p.Fraction <= 1): // NaN too
		detail = fmt.Sprintf("the fraction %v is not a number up to 1", p.Fraction)
	case len(p.Text) > MaxProgressBytes:
		detail = fmt.Sprintf("the text has %d bytes, at most %d are allowed", len(p.Text), MaxProgressBytes)
	case !utf8.ValidString(p.Text):
		detail = "the text is not valid UTF-8"
	case strings.IndexFunc(p.Text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0:
		detail = fmt.Sprintf("the text has characters that cannot be printed: %q", p.Text)
	default:
		return nil
	}
	return &Error{Code: ErrInvalid, Op: "extend", Field: "Progress", Detail: detail}
}

// DeadLetterRequest moves a delivery to the dead letters.
type DeadLetterRequest struct {
	Receipt Receipt
	Reason  Reason
	// Error and ErrorType describe the failure, for people.
	Error     string
	ErrorType string
}

// A Reason says why a message is dead.
type Reason string

// The reasons a message can die of.
const (
	// ReasonMaxDeliveries: the next delivery would have been one too many.
	ReasonMaxDeliveries Reason = "max_attempts"
	// ReasonFatal: a consumer said that trying again cannot help.
	ReasonFatal Reason = "fatal"
	// ReasonParse: the body could not be decoded.
	ReasonParse Reason = "parse"
	// ReasonIntegrity: the stored bytes are not those that were sent.
	ReasonIntegrity Reason = "integrity"
	// ReasonExpired: it was older than the queue keeps messages, or its time to live was
	// over.
	ReasonExpired Reason = "expired"
	// ReasonOperator: a person moved it.
	ReasonOperator Reason = "operator"
)

// Valid reports whether r is one of the reasons above.
func (r Reason) Valid() bool {
	switch r {
	case ReasonMaxDeliveries, ReasonFatal, ReasonParse, ReasonIntegrity, ReasonExpired, ReasonOperator:
		return true
	}
	return false
}

// DeadLetter is a message that will not be delivered any more, and why.
type DeadLetter struct {
	Message
	// Source is the queue it died in.
	Source    string
	Reason    Reason
	ErrorType string
	DeadAt    time.Time
	// Redrives counts how often it was dead before and sent back.
	Redrives int
}

// Stats counts the messages of a queue by state.
type Stats struct {
	Ready    int
	Delayed  int
	InFlight int
	Dead     int
	// Throttled is how many of the ready messages are in groups at their limit; see
	// Config.GroupLimits. Of groups with many messages on disk it may count fewer than
	// there are.
	Throttled int
	// Paused: the queue delivers no messages until it is resumed.
	Paused bool
}

// Plus returns the counts of s and other together. The sum is paused if either is.
func (s Stats) Plus(other Stats) Stats {
	return Stats{
		Ready: s.Ready + other.Ready, Delayed: s.Delayed + other.Delayed, InFlight: s.InFlight + other.InFlight,
		Dead: s.Dead + other.Dead, Throttled: s.Throttled + other.Throttled, Paused: s.Paused || other.Paused,
	}
}

// Waiting is the number of messages that are not dead: what SQS calls the
// approximate count.
func (s Stats) Waiting() int { return s.Ready + s.Delayed + s.InFlight }

// A State is where in its life a message is.
type State string

// The four states.
const (
	StateReady    State = "ready"
	StateDelayed  State = "delayed"
	StateInFlight State = "in flight"
	StateDead     State = "dead"
)

// Query selects messages to look at. The zero Query selects all; conditions
// add up.
type Query struct {
	// States to look in; none means all four.
	States []State
	// ID selects one message.
	ID string
	// Attributes must all be there with these values.
	Attributes map[string]string
	// OlderThan selects by time since the message was sent.
	OlderThan time.Duration
	// Reason selects dead letters by cause of death, and only dead letters.
	Reason Reason
	// Limit bounds how many are yielded; 0 means no bound.
	Limit int
	// Cursor, if it is not nil, points to where Peek begins: "" for the beginning, or what an earlier
	// Peek in the same state left there. When the sequence ends, or the loop over it does, Peek sets
	// it to behind the last message that it yielded, and to "" if it came to the end. A message that
	// stays in its state is yielded once by a chain of such peeks; States has one state then,
	// and ID is empty. Trait: PeekCursor.
	Cursor *string
	// Last, if it is not 0, begins Peek near the end: behind all but the last messages, so that it yields at
	// most this many of each shard, in their usual order. It may yield fewer although there are more,
	// where messages between them are gone; ask for more then. States has ready or dead alone, ID is
	// empty, and Cursor nil. Trait: PeekLast.
	Last int
}

// Edit is a change of one waiting message. Exactly one of its fields is set.
type Edit struct {
	// Remove removes the message.
	Remove bool
	// Ready makes a delayed message ready now.
	Ready bool
	// DeliverAt changes the due time, at most to Traits.MaxDelay from now. A time that is
	// past makes the message ready now.
	DeliverAt time.Time
	// Prioritize changes the priority to Priority, 0…MaxPriority. The message keeps its
	// place and its age. Trait: Priorities.
	Prioritize bool
	Priority   int
}

// Peeked is a message that was looked at.
type Peeked struct {
	DeadLetter // Source, Reason, ErrorType and DeadAt are set for dead ones only
	State      State
	// DueAt is when a delayed or in-flight message becomes ready without a call.
	DueAt time.Time
}

// Attributes that a message gets when it dies and Config.DeadLetterTo sends it
// to another queue, or back to its own. They tell of the latest death, but for
// AttributeDeadDeliveries: that is how often the message was delivered in all the
// queues that it died in.
const (
	AttributeDeadReason     = "mailbox.dead.reason"
	AttributeDeadSource     = "mailbox.dead.source"
	AttributeDeadDeliveries = "mailbox.dead.deliveries"
	AttributeDeadError      = "mailbox.dead.error"
)

// TotalDeliveries is how often the message was delivered since it was sent, redriven or
// moved: Deliveries, which is what Config.MaxDeliveries limits, and those in the
// queues that it died in before Config.DeadLetterTo brought it here.
func (m *Message) TotalDeliveries() int { return earlierDeliveries(m.Attributes) + m.Deliveries }

// earlierDeliveries reads AttributeDeadDeliveries. It returns 0 if the message has none.
func earlierDeliveries(attributes map[string]string) int {
	n, err := strconv.ParseUint(attributes[AttributeDeadDeliveries], 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
