package oap

import (
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Bits that say which fields of an outgoing message follow.
const (
	outAttributes = 1 << iota
	outDelay
	outDedupKey
	outGroup
	outReplyTo
	outCorrelation
	outDeliverAt
	outMore // the bits of further fields follow these
)

// Bits of the further fields of an outgoing message.
const (
	moreTTL = 1 << iota
	morePriority
	moreUniqueKey
	moreReplace

	moreKnown = moreReplace<<1 - 1
)

// AppendSend writes the payload of OpSend up to the messages, of which
// AppendOutgoing writes each.
func AppendSend(dst []byte, t Target, count int) []byte {
	return appendNumber(AppendTarget(dst, t), uint64(count))
}

// AppendOutgoing writes one message.
func AppendOutgoing(dst []byte, m *driver.Outgoing) []byte {
	start := len(dst)
	dst = append(dst, 0)
	dst = appendText(dst, m.Body)
	bits := byte(0)
	if len(m.Attributes) > 0 {
		bits |= outAttributes
		dst = appendAttributes(dst, m.Attributes)
	}
	if m.Delay != 0 {
		bits |= outDelay
		dst = appendDuration(dst, m.Delay)
	}
	for i, text := range [...]string{m.DedupKey, m.Group, m.ReplyTo, m.CorrelationID} {
		if text != "" {
			bits |= outDedupKey << i
			dst = appendText(dst, text)
		}
	}
	if !m.DeliverAt.IsZero() {
		bits |= outDeliverAt
		dst = appendDueTime(dst, m.DeliverAt)
	}
	if m.TTL != 0 || m.Priority != 0 || m.UniqueKey != "" || m.Replace {
		bits |= outMore
		dst = appendMore(dst, m)
	}
	dst[start] = bits
	return dst
}

// appendMore writes the further fields of a message.
func appendMore(dst []byte, m *driver.Outgoing) []byte {
	bits := uint64(0)
	if m.TTL != 0 {
		bits |= moreTTL
	}
	if m.Priority != 0 {
		bits |= morePriority
	}
	if m.UniqueKey != "" {
		bits |= moreUniqueKey
	}
	if m.Replace {
		bits |= moreReplace
	}
	dst = appendNumber(dst, bits)
	if m.TTL != 0 {
		dst = appendDuration(dst, m.TTL)
	}
	if m.Priority != 0 {
		dst = appendSigned(dst, int64(m.Priority))
	}
	if m.UniqueKey != "" {
		dst = appendText(dst, m.UniqueKey)
	}
	return dst
}

// OutgoingBytes is at least as much as AppendOutgoing writes.
func OutgoingBytes(m *driver.Outgoing) int {
	const length = 10 // of a number, at most
	n := 1 + length + len(m.Body) + length + 6*length
	for key, value := range m.Attributes {
		n += 2*length + len(key) + len(value)
	}
	return n + 5*length + len(m.DedupKey) + len(m.UniqueKey) + len(m.Group) + len(m.ReplyTo) + len(m.CorrelationID)
}

// PeekBatch reads the target of a request with a batch (OpSend, OpAck, OpNack,
// OpExtend, OpDeadLetter), and how many elements it says it has.
func PeekBatch(payload []byte) (Target, int, error) {
	r := reader{rest: payload}
	t := r.target()
	n := r.count(1)
	return t, n, r.err
}

// ParseSend reads the payload of OpSend and adds its messages to msgs. Their
// bodies point into the payload.
func ParseSend(payload []byte, msgs []driver.Outgoing) (Target, []driver.Outgoing, error) {
	r := reader{rest: payload}
	t := r.target()
	n := r.count(2)
	msgs = slices.Grow(msgs, min(n, driver.DefaultMaxBatch)) // what the count says, and the payload may lack
	for range n {
		msgs = append(msgs, driver.Outgoing{})
		r.outgoing(&msgs[len(msgs)-1])
		if r.err != nil {
			break
		}
	}
	return t, msgs, r.end()
}

func (r *reader) outgoing(m *driver.Outgoing) {
	bits := r.byte()
	m.Body = r.bytes()
	if bits == 0 {
		return
	}
	if bits&outAttributes != 0 {
		if m.Attributes = r.attributes(); len(m.Attributes) == 0 {
			r.fail("a field is there and empty")
		}
	}
	if bits&outDelay != 0 {
		if m.Delay = r.duration(); m.Delay == 0 {
			r.fail("a field is there and empty")
		}
	}
	for i, text := range [...]*string{&m.DedupKey, &m.Group, &m.ReplyTo, &m.CorrelationID} {
		if bits&(outDedupKey<<i) != 0 {
			if *text = r.text(); *text == "" {
				r.fail("a field is there and empty")
			}
		}
	}
	if bits&outDeliverAt != 0 {
		m.DeliverAt = r.dueTime()
	}
	if bits&outMore != 0 {
		r.more(m)
	}
}

// more reads the further fields of a message.
func (r *reader) more(m *driver.Outgoing) {
	bits := r.number()
	if bits == 0 || bits > moreKnown {
		r.fail("a message has unknown fields")
		return
	}
	if bits&moreTTL != 0 {
		if m.TTL = r.duration(); m.TTL == 0 {
			r.fail("a field is there and empty")
		}
	}
	if bits&morePriority != 0 {
		if m.Priority = r.int(); m.Priority == 0 {
			r.fail("a field is there and empty")
		}
	}
	if bits&moreUniqueKey != 0 {
		if m.UniqueKey = r.text(); m.UniqueKey == "" {
			r.fail("a field is there and empty")
		}
	}
	m.Replace = bits&moreReplace != 0
}

// appendDueTime writes a due time. Those before 1970 are all the same: past.
func appendDueTime(dst []byte, at time.Time) []byte {
	return appendSigned(appendSigned(dst, max(at.Unix(), 0)), int64(at.Nanosecond()))
}

// dueTime reads seconds since 1970 and nanoseconds. Unlike other times it may be any that a
// sender can think of.
func (r *reader) dueTime() time.Time {
	seconds, nanoseconds := r.signed(), r.signed()
	if seconds < 0 || nanoseconds < 0 || nanoseconds >= int64(time.Second) {
		r.fail("a due time is not a time")
		return time.Time{}
	}
	return time.Unix(seconds, nanoseconds).UTC()
}

// What became of a message.
const (
	wasSent = iota
	wasDuplicate
	wasRefused
	wasReplaced // the message that held the unique key
)

// AppendSent writes the answer to OpSend: for each message what became of it,
// and then its id, or the error.
func AppendSent(dst []byte, sent []driver.Sent, errs []error) []byte {
	dst = appendNumber(dst, uint64(len(sent)))
	for i := range sent {
		switch {
		case len(errs) > 0 && errs[i] != nil:
			dst = AppendError(append(dst, wasRefused), ErrorOf(errs[i]))
		case sent[i].Replaced:
			dst = appendText(append(dst, wasReplaced), sent[i].ID)
		case sent[i].Duplicate:
			dst = appendText(append(dst, wasDuplicate), sent[i].ID)
		default:
			dst = appendText(append(dst, wasSent), sent[i].ID)
		}
	}
	return dst
}

// ParseSent reads the answer to OpSend into sent, which has the length of the
// batch. errs is nil if nothing was refused, and of the same length otherwise. The ids
// keep the payload, which must not be changed or used again.
func ParseSent(payload []byte, sent []driver.Sent) (errs []error, err error) {
	r := reader{rest: payload}
	if n := r.count(2); n != len(sent) {
		r.fail("another number of results than of messages")
	}
	for i := range sent {
		switch r.byte() {
		case wasSent:
			sent[i] = driver.Sent{ID: r.kept()}
		case wasDuplicate:
			sent[i] = driver.Sent{ID: r.kept(), Duplicate: true}
		case wasReplaced:
			sent[i] = driver.Sent{ID: r.kept(), Duplicate: true, Replaced: true}
		case wasRefused:
			errs = driver.FailAt(errs, len(sent), i, r.failure())
		default:
			r.fail("an unknown outcome")
		}
		if r.err != nil {
			break
		}
	}
	return errs, r.end()
}
