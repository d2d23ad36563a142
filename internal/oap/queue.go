package oap

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// AppendName writes a payload that is the name of a queue and nothing else:
// that of OpOpen, and the last part of OpConfigure, OpConfig and OpDelete.
func AppendName(dst []byte, name string) []byte { return appendText(dst, name) }

// ParseName reads what AppendName wrote.
func ParseName(payload []byte) (string, error) {
	r := reader{rest: payload}
	name := r.text()
	return name, r.end()
}

// Opened is the answer to OpOpen, and the payload of EventTraits: what the
// queue is called from now on, and what it promises.
type Opened struct {
	Handle uint32
	Traits driver.Traits
	// Identity tells the queue from others of its name; empty if it does not exist, or
	// the server cannot tell.
	Identity string
}

// Bits of the traits.
const (
	traitExactStats = 1 << iota
	traitGroups
	traitStrictGroups
	traitDeadLetters
	traitPeek
	traitFairGroups
	traitPause
	traitRelease
	traitDeliverAt
	traitEdit
	traitTTL
	traitSchedules
	_
	traitPriorities
	traitUniqueKeys
	traitReplies // of clients only: they know Delivery.SlotPending
	traitGroupLimits
	traitProgress // of clients only: they know HeldMessage.Progress

	// KnownTraits are all of them, and PlainTraits those that clients know that have not
	// told theirs with OpKnow.
	KnownTraits = traitSchedules<<1 - 1 | traitPriorities | traitUniqueKeys | traitReplies | traitGroupLimits | traitProgress
	PlainTraits = traitFairGroups<<1 - 1
)

// Tell removes from the traits what a client does not know.
func (o *Opened) Tell(known uint64) {
	o.Traits.Pause = o.Traits.Pause && known&traitPause != 0
	o.Traits.Release = o.Traits.Release && known&traitRelease != 0
	o.Traits.DeliverAt = o.Traits.DeliverAt && known&traitDeliverAt != 0
	o.Traits.Edit = o.Traits.Edit && known&traitEdit != 0
	o.Traits.TTL = o.Traits.TTL && known&traitTTL != 0
	o.Traits.Schedules = o.Traits.Schedules && known&traitSchedules != 0
	o.Traits.Priorities = o.Traits.Priorities && known&traitPriorities != 0
	o.Traits.UniqueKeys = o.Traits.UniqueKeys && known&traitUniqueKeys != 0
	o.Traits.GroupLimits = o.Traits.GroupLimits && known&traitGroupLimits != 0
}

// TellMessage removes from a message what a client does not know.
func TellMessage(m *driver.Message, known uint64) {
	if known&traitPriorities == 0 {
		m.Priority = 0
	}
}

// AppendKnown writes the payload of OpKnow. A server ignores traits that it does not know.
func AppendKnown(dst []byte, known uint64) []byte { return appendNumber(dst, known) }

// ParseKnown reads the payload of OpKnow.
func ParseKnown(payload []byte) (known uint64, err error) {
	r := reader{rest: payload}
	known = r.number()
	return known, r.end()
}

// PlainMaxAttributes and PlainMaxAttributeBytes are the limits of attributes at servers
// that do not tell theirs.
const (
	PlainMaxAttributes     = 63
	PlainMaxAttributeBytes = 62 << 10
)

// AppendOpened writes an Opened, without its identity and the limits of attributes.
func AppendOpened(dst []byte, o *Opened) []byte {
	t := &o.Traits
	dst = appendNumber(dst, uint64(o.Handle))
	bits := uint64(0)
	for i, set := range []bool{t.ExactStats, t.Groups, t.StrictGroups, t.DeadLetters, t.Peek, t.FairGroups, t.Pause, t.Release, t.DeliverAt, t.Edit, t.TTL, t.Schedules} {
		if set {
			bits |= 1 << i
		}
	}
	if t.Priorities {
		bits |= traitPriorities
	}
	if t.UniqueKeys {
		bits |= traitUniqueKeys
	}
	if t.GroupLimits {
		bits |= traitGroupLimits
	}
	dst = appendNumber(dst, bits)
	dst = appendText(dst, string(t.Ordering))
	dst = appendText(dst, string(t.Durability))
	dst = appendDuration(dst, t.DedupWindow)
	dst = appendSigned(dst, int64(t.MaxBodyBytes))
	dst = appendSigned(dst, int64(t.MaxBatch))
	dst = appendDuration(dst, t.MaxDelay)
	dst = appendDuration(dst, t.MaxVisibility)
	dst = appendDuration(dst, t.MaxWait)
	return appendDuration(dst, t.PurgeCooldown)
}

// ParseOpened reads an Opened. The limits of attributes are PlainMaxAttributes and
// PlainMaxAttributeBytes.
func ParseOpened(payload []byte) (o Opened, err error) {
	r := reader{rest: payload}
	o.Handle = r.handle()
	bits := r.number()
	if bits&^(KnownTraits&^(traitReplies|traitProgress)) != 0 {
		r.fail("unknown traits")
	}
	o.Traits = driver.Traits{
		ExactStats:   bits&traitExactStats != 0,
		Groups:       bits&traitGroups != 0,
		StrictGroups: bits&traitStrictGroups != 0,
		DeadLetters:  bits&traitDeadLetters != 0,
		Peek:         bits&traitPeek != 0,
		FairGroups:   bits&traitFairGroups != 0,
		Pause:        bits&traitPause != 0,
		Release:      bits&traitRelease != 0,
		DeliverAt:    bits&traitDeliverAt != 0,
		Edit:         bits&traitEdit != 0,
		TTL:          bits&traitTTL != 0,
		Schedules:    bits&traitSchedules != 0,
		Priorities:   bits&traitPriorities != 0,
		UniqueKeys:   bits&traitUniqueKeys != 0,
		GroupLimits:  bits&traitGroupLimits != 0,

		Ordering: driver.Ordering(r.text()), Durability: driver.Durability(r.text()),
		DedupWindow: r.duration(), MaxBodyBytes: r.int(), MaxBatch: r.int(), MaxDelay: r.duration(),
		MaxVisibility: r.duration(), MaxWait: r.duration(), PurgeCooldown: r.duration(),
		MaxAttributes: PlainMaxAttributes, MaxAttributeBytes: PlainMaxAttributeBytes,
	}
	return o, r.end()
}

// AppendIdentified writes the whole of an Opened: the answer to OpOpenIdentified, and the
// payload of EventOpened.
func AppendIdentified(dst []byte, o *Opened) []byte {
	dst = appendText(dst, o.Identity)
	dst = appendSigned(dst, int64(o.Traits.MaxAttributes))
	dst = appendSigned(dst, int64(o.Traits.MaxAttributeBytes))
	return AppendOpened(dst, o)
}

// ParseIdentified reads what AppendIdentified wrote.
func ParseIdentified(payload []byte) (o Opened, err error) {
	r := reader{rest: payload}
	identity, attributes, bytes := r.text(), r.int(), r.int()
	if r.err != nil {
		return o, r.err
	}
	o, err = ParseOpened(r.rest)
	o.Identity, o.Traits.MaxAttributes, o.Traits.MaxAttributeBytes = identity, attributes, bytes
	return o, err
}

// AppendIdentifiedName writes the payload of OpOpenIdentified. An empty identity stands for
// the queue that has the name now, or will have it first.
func AppendIdentifiedName(dst []byte, name, identity string) []byte {
	return appendText(appendText(dst, name), identity)
}

// ParseIdentifiedName reads the payload of OpOpenIdentified.
func ParseIdentifiedName(payload []byte) (name, identity string, err error) {
	r := reader{rest: payload}
	name, identity = r.text(), r.text()
	return name, identity, r.end()
}

// handle reads the number of a queue.
func (r *reader) handle() uint32 {
	n := r.number()
	if n > 1<<32-1 {
		r.fail("the number of a queue is too large")
		return 0
	}
	return uint32(n)
}

// MaxWindow bounds how far the sequence number of a request may be ahead of the
// oldest that has no answer.
const MaxWindow = 1024

// Ticket is the place of a request in its producer session. The zero Ticket is
// none: the request is done as often as it comes.
type Ticket struct {
	// Sequence grows by one with every request that has one, from 1 on. A
	// request that is repeated has the number that it had.
	Sequence uint64
	// Behind is how far the oldest request without an answer is behind this
	// one. What is older the server can forget.
	Behind uint64
}

func appendTicket(dst []byte, t Ticket) []byte {
	dst = appendNumber(dst, t.Sequence)
	if t.Sequence == 0 {
		return dst
	}
	return appendNumber(dst, t.Behind)
}

func (r *reader) ticket() (t Ticket) {
	if t.Sequence = r.number(); t.Sequence == 0 {
		return t
	}
	if t.Behind = r.number(); t.Behind >= MaxWindow || t.Behind >= t.Sequence {
		r.fail("a sequence number is too far ahead")
	}
	return t
}

// Target is what every request that concerns a queue begins with: its ticket,
// and the queue's number.
type Target struct {
	Ticket
	Handle uint32
}

// AppendTarget writes a Target, which is also the whole payload of OpClose,
// OpPurge, OpStats, OpStatsPaused, OpPurgeDead, OpPause and OpResume.
func AppendTarget(dst []byte, t Target) []byte {
	dst = appendTicket(dst, t.Ticket)
	return appendNumber(dst, uint64(t.Handle))
}

func (r *reader) target() Target { return Target{Ticket: r.ticket(), Handle: r.handle()} }

// ParseTarget reads a payload that is a Target and nothing else.
func ParseTarget(payload []byte) (Target, error) {
	r := reader{rest: payload}
	t := r.target()
	return t, r.end()
}

// PeekTarget reads the Target that a longer payload begins with.
func PeekTarget(payload []byte) (Target, error) {
	r := reader{rest: payload}
	t := r.target()
	return t, r.err
}

// AppendConfigure writes the payload of OpConfigure.
func AppendConfigure(dst []byte, t Ticket, name string, c *driver.Config) []byte {
	dst = appendTicket(dst, t)
	dst = appendText(dst, name)
	return AppendConfig(dst, c)
}

// ParseConfigure reads the payload of OpConfigure.
func ParseConfigure(payload []byte) (t Ticket, name string, c driver.Config, err error) {
	r := reader{rest: payload}
	t, name, c = r.ticket(), r.text(), r.config()
	return t, name, c, r.end()
}

// TellConfig removes from a configuration what a client does not know.
func TellConfig(c *driver.Config, known uint64) {
	if known&traitTTL == 0 {
		c.TTL = 0
	}
	if known&traitPriorities == 0 {
		c.PriorityAging = 0
	}
	if known&traitGroupLimits == 0 {
		c.GroupLimits = ""
	}
}

// TellStats removes from counts what a client does not know.
func TellStats(s *driver.Stats, known uint64) {
	if known&traitGroupLimits == 0 {
		s.Throttled = 0
	}
}

// AppendConfig writes a configuration, which is the answer to OpConfig. A time to live, an ageing
// and limits of groups that are empty at the end are left out, so that peers that know none can
// read it.
func AppendConfig(dst []byte, c *driver.Config) []byte {
	dst = appendSigned(dst, int64(c.Shards))
	dst = append(dst, groupsByte(c))
	for _, n := range []int{c.MaxDeliveries, c.MaxMessages, c.MaxBytes, c.MaxInFlight, c.MaxDead} {
		dst = appendSigned(dst, int64(n))
	}
	dst = appendDuration(dst, c.DedupWindow)
	dst = appendSigned(dst, int64(c.DedupMax))
	for _, retention := range []driver.Retention{c.RetainReady, c.RetainDead} {
		dst = appendDuration(dst, retention.Age)
		dst = appendSigned(dst, int64(retention.Count))
	}
	dst = appendDuration(dst, c.MaxHold)
	dst = appendText(dst, c.DeadLetterTo)
	dst = appendFlag(dst, c.DropExpired)
	dst = appendText(dst, c.Annotation)
	if c.TTL != 0 || c.PriorityAging != 0 || c.GroupLimits != "" {
		dst = appendDuration(dst, c.TTL)
	}
	if c.PriorityAging != 0 || c.GroupLimits != "" {
		dst = appendDuration(dst, c.PriorityAging)
	}
	if c.GroupLimits != "" {
		dst = appendText(dst, c.GroupLimits)
	}
	return dst
}

// ParseConfig reads a configuration.
func ParseConfig(payload []byte) (driver.Config, error) {
	r := reader{rest: payload}
	c := r.config()
	return c, r.end()
}

// Bits of how groups are delivered. No backend can do both; but that is for it to
// say.
const (
	groupsStrict = 1 << iota
	groupsFair
)

func groupsByte(c *driver.Config) (groups byte) {
	if c.StrictGroups {
		groups |= groupsStrict
	}
	if c.FairGroups {
		groups |= groupsFair
	}
	return groups
}

func (r *reader) config() driver.Config {
	shards, groups := r.int(), r.byte()
	if groups > groupsStrict|groupsFair {
		r.fail("unknown kind of groups")
	}
	c := driver.Config{
		Shards: shards, StrictGroups: groups&groupsStrict != 0, FairGroups: groups&groupsFair != 0,
		MaxDeliveries: r.int(), MaxMessages: r.int(), MaxBytes: r.int(), MaxInFlight: r.int(), MaxDead: r.int(),
		DedupWindow: r.duration(), DedupMax: r.int(),
		RetainReady: driver.Retention{Age: r.duration(), Count: r.int()},
		RetainDead:  driver.Retention{Age: r.duration(), Count: r.int()},
		MaxHold:     r.duration(), DeadLetterTo: r.text(), DropExpired: r.flag(), Annotation: r.text(),
	}
	empty := false
	for _, read := range []func() bool{
		func() bool { c.TTL = r.duration(); return c.TTL == 0 },
		func() bool { c.PriorityAging = r.duration(); return c.PriorityAging == 0 },
		func() bool { c.GroupLimits = r.text(); return c.GroupLimits == "" },
	} {
		if r.err == nil && len(r.rest) > 0 {
			empty = read()
		}
	}
	if empty {
		r.fail("the last field is there and empty")
	}
	return c
}

// AppendDelete writes the payload of OpDelete.
func AppendDelete(dst []byte, t Ticket, name string) []byte {
	return appendText(appendTicket(dst, t), name)
}

// ParseDelete reads the payload of OpDelete.
func ParseDelete(payload []byte) (t Ticket, name string, err error) {
	r := reader{rest: payload}
	t, name = r.ticket(), r.text()
	return t, name, r.end()
}

// AppendStats writes the answer to OpStats.
func AppendStats(dst []byte, s driver.Stats) []byte {
	for _, n := range []int{s.Ready, s.Delayed, s.InFlight, s.Dead} {
		dst = appendSigned(dst, int64(n))
	}
	return dst
}

// ParseStats reads the answer to OpStats.
func ParseStats(payload []byte) (driver.Stats, error) {
	r := reader{rest: payload}
	s := r.stats()
	return s, r.end()
}

func (r *reader) stats() driver.Stats {
	return driver.Stats{Ready: r.int(), Delayed: r.int(), InFlight: r.int(), Dead: r.int()}
}

// AppendStatsPaused writes the answer to OpStatsPaused. Without throttled messages their number is
// left out, so that peers that know none can read it.
func AppendStatsPaused(dst []byte, s driver.Stats) []byte {
	dst = appendFlag(AppendStats(dst, s), s.Paused)
	if s.Throttled != 0 {
		dst = appendSigned(dst, int64(s.Throttled))
	}
	return dst
}

// ParseStatsPaused reads the answer to OpStatsPaused.
func ParseStatsPaused(payload []byte) (driver.Stats, error) {
	r := reader{rest: payload}
	s := r.stats()
	s.Paused = r.flag()
	if r.err == nil && len(r.rest) > 0 {
		if s.Throttled = r.int(); s.Throttled == 0 {
			r.fail("the last field is there and empty")
		}
	}
	return s, r.end()
}

// AppendThrottle writes the payload of OpThrottle.
func AppendThrottle(dst []byte, t Target, group string, wait time.Duration) []byte {
	return appendDuration(appendText(AppendTarget(dst, t), group), wait)
}

// ParseThrottle reads the payload of OpThrottle.
func ParseThrottle(payload []byte) (t Target, group string, wait time.Duration, err error) {
	r := reader{rest: payload}
	t, group, wait = r.target(), r.text(), r.duration()
	return t, group, wait, r.end()
}

// AppendCount writes an answer that is a number of messages, and the payload of
// EventCredit.
func AppendCount(dst []byte, n int) []byte { return appendNumber(dst, uint64(max(n, 0))) }

// ParseCount reads what AppendCount wrote.
func ParseCount(payload []byte) (int, error) {
	r := reader{rest: payload}
	n := r.limit()
	return n, r.end()
}
