package redisbox

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"
	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// A record is a message as it was sent. It never changes:
//
//	hash     16 bytes  BLAKE3 of the id and all that follows
//	size      4 bytes  length of the body
//	time      8 bytes  when it was sent, by the server's clock, in microseconds
//	texts              group, reply address, correlation id, number of
//	                   attributes, keys and values in order; lengths are varints
//	body
//
// Scripts read the size and nothing else.
const (
	hashBytes = 16
	sizeBytes = 4
	timeBytes = 8
)

// packRecord makes the record of a message, in new memory: the caller's may change
// before the server has it.
func packRecord(id string, wall int64, msg *driver.Outgoing) string {
	keys := make([]string, 0, len(msg.Attributes))
	length := hashBytes + sizeBytes + timeBytes + len(msg.Body) + len(msg.Group) + len(msg.ReplyTo) + len(msg.CorrelationID) + 4*binary.MaxVarintLen16
	for key, value := range msg.Attributes {
		keys = append(keys, key)
		length += len(key) + len(value) + 2*binary.MaxVarintLen32
	}
	slices.Sort(keys)

	record := make([]byte, hashBytes, length)
	record = binary.LittleEndian.AppendUint32(record, uint32(len(msg.Body)))
	record = binary.LittleEndian.AppendUint64(record, uint64(wall/int64(time.Microsecond)))
	record = appendText(record, msg.Group)
	record = appendText(record, msg.ReplyTo)
	record = appendText(record, msg.CorrelationID)
	record = binary.AppendUvarint(record, uint64(len(keys)))
	for _, key := range keys {
		record = appendText(record, key)
		record = appendText(record, msg.Attributes[key])
	}
	record = append(record, msg.Body...)
	hash := hashOf(id, record[hashBytes:])
	copy(record, hash[:])
	return unsafe.String(unsafe.SliceData(record), len(record)) //nolint:gosec // never written again
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// hashOf hashes a record together with its id, so that one message's bytes never
// pass for another's.
func hashOf(id string, rest []byte) (hash [hashBytes]byte) {
	const short = 512
	if len(id)+len(rest) <= short { // in one piece, which is much faster
		var joined [short]byte
		n := copy(joined[:], id)
		n += copy(joined[n:], rest)
		sum := blake3.Sum256(joined[:n])
		copy(hash[:], sum[:])
		return hash
	}
	h := blake3.New()
	_, _ = h.WriteString(id) // a hash accepts any input
	_, _ = h.Write(rest)
	var sum [32]byte
	h.Sum(sum[:0])
	copy(hash[:], sum[:])
	return hash
}

// readSent fills a message from its record. It reports false if the record was
// changed after packRecord; then only the time is filled, from the id.
func readSent(m *driver.Message, id, record string) bool {
	if len(record) < hashBytes+sizeBytes+timeBytes {
		m.EnqueuedAt = idTime(id)
		return false
	}
	hash := hashOf(id, bytesOf(record[hashBytes:]))
	if record[:hashBytes] != string(hash[:]) {
		m.EnqueuedAt = idTime(id)
		return false
	}
	fixed := bytesOf(record[hashBytes : hashBytes+sizeBytes+timeBytes])
	size := int(binary.LittleEndian.Uint32(fixed))
	m.EnqueuedAt = time.UnixMicro(int64(binary.LittleEndian.Uint64(fixed[sizeBytes:]))).UTC()
	texts := reader{rest: record[hashBytes+sizeBytes+timeBytes:]}
	m.Group = texts.text()
	m.ReplyTo = texts.text()
	m.CorrelationID = texts.text()
	if n := texts.number(); n > 0 && n <= driver.MaxAttributes+extraAttributes {
		m.Attributes = make(map[string]string, n)
		for range n {
			key := texts.text()
			m.Attributes[key] = texts.text()
		}
	}
	if texts.broken || len(texts.rest) != size {
		return false
	}
	m.Body = bytesOf(texts.rest)
	return true
}

// idTime returns the time in an id, to the millisecond, or the zero time.
func idTime(id string) time.Time {
	parsed, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}
	}
	return parsed.Timestamp().UTC()
}

// extraAttributes is how many attributes a message gets when it is dead-lettered to
// another queue.
const extraAttributes = 4

// bytesOf returns the bytes of a text without copying. They must not be written to.
func bytesOf(text string) []byte {
	return unsafe.Slice(unsafe.StringData(text), len(text)) //nolint:gosec // read only
}

// A reader reads length-prefixed texts from a record.
type reader struct {
	rest   string
	broken bool
}

func (r *reader) number() uint64 {
	n, length := binary.Uvarint(bytesOf(r.rest))
	if length <= 0 {
		r.broken = true
		return 0
	}
	r.rest = r.rest[length:]
	return n
}

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.broken = true
		return ""
	}
	text := r.rest[:n]
	r.rest = r.rest[n:]
	return text
}

// An entry is the state of a message since it was sent; see entry.lua. The zero value
// is the entry of a message that has only been sent.
type entry struct {
	place      float64 // in the order of delivery
	deliveries int
	nonce      uint64
	first      float64 // wall time
	redrives   int
	deadAt     float64 // wall time
	reason     driver.Reason
	lastError  string
	errorType  string
}

// The doubles of a packed entry.
const (
	entryPlace = iota
	_          // seq
	entryDeliveries
	entryNonce
	entryFirst
	_ // hold
	_ // size
	_ // aged
	entryRedrives
	entryDeadAt
	entryDoubles
)

// readEntry reads a packed entry, and reports whether it is readable.
func readEntry(packed string) (e entry, ok bool) {
	if packed == "" {
		return e, true
	}
	rest := packed
	texts := [4]string{} // group, reason, failure, kind
	if len(rest) < 8*entryDoubles {
		return e, false
	}
	rest = rest[8*entryDoubles:]
	for i, lengthBytes := range [4]int{1, 1, 2, 2} {
		if len(rest) < lengthBytes {
			return e, false
		}
		n := int(rest[0])
		if lengthBytes == 2 {
			n |= int(rest[1]) << 8
		}
		rest = rest[lengthBytes:]
		if len(rest) < n {
			return e, false
		}
		texts[i], rest = rest[:n], rest[n:]
	}
	return entry{
		place:      doubleAt(packed, entryPlace),
		deliveries: int(doubleAt(packed, entryDeliveries)),
		nonce:      uint64(doubleAt(packed, entryNonce)),
		first:      doubleAt(packed, entryFirst),
		redrives:   int(doubleAt(packed, entryRedrives)),
		deadAt:     doubleAt(packed, entryDeadAt),
		reason:     driver.Reason(texts[1]),
		lastError:  texts[2],
		errorType:  texts[3],
	}, true
}

// fill adds the state of a message to the message.
func (e *entry) fill(m *driver.Message) {
	m.Deliveries = e.deliveries
	m.LastError = e.lastError
	if e.first > 0 {
		m.FirstReceivedAt = wallTime(e.first)
	}
}

// wallTime converts microseconds since 1970, as scripts report them.
func wallTime(microseconds float64) time.Time {
	return time.UnixMicro(int64(math.Round(microseconds))).UTC()
}

// leasedMessages are messages as batch.lua returns them. Those that are delivered for
// the first time have locators and no entries; see order.lua.
type leasedMessages struct {
	locators string
	pending  string  // a digit for each message if slots were read: 1 if its slot is pending
	nonce    uint64  // of the first message, if there are locators
	first    float64 // when these were delivered first: now
	texts    []rueidis.RedisMessage
}

const locatorBytes = ident.TextLen + 8

func readLeased(nonce uint64, wall float64, texts []rueidis.RedisMessage) (p leasedMessages, err error) {
	p = leasedMessages{nonce: nonce, first: wall, texts: texts[1:]}
	if p.locators, err = texts[0].ToString(); err != nil {
		return p, unreadableAnswer(err)
	}
	if length := locatorBytes * len(p.texts); len(p.locators) > length {
		p.locators, p.pending = p.locators[:length], p.locators[length:]
	}
	return p, nil
}

// slotPending reports whether the slot of the i-th message is known to be pending.
func (p *leasedMessages) slotPending(i int) bool { return i < len(p.pending) && p.pending[i] == '1' }

// take removes and returns the first n messages.
func (p *leasedMessages) take(n int) leasedMessages {
	part := *p
	if p.locators == "" {
		part.texts, p.texts = p.texts[:3*n:3*n], p.texts[3*n:]
		return part
	}
	part.texts, p.texts = p.texts[:n:n], p.texts[n:]
	part.locators, p.locators = p.locators[:locatorBytes*n], p.locators[locatorBytes*n:]
	if p.pending != "" {
		part.pending, p.pending = p.pending[:n], p.pending[n:]
	}
	p.nonce += uint64(n)
	return part
}

// message returns the i-th message: its id, its entry, and its record.
func (p *leasedMessages) message(i int) (id string, e entry, sent string, err error) {
	if p.locators != "" {
		id = p.locators[locatorBytes*i:][:ident.TextLen]
		sent, err = p.texts[i].ToString()
		place := doubleAt(p.locators[locatorBytes*i+ident.TextLen:], 0)
		return id, entry{place: place, deliveries: 1, nonce: p.nonce + uint64(i), first: p.first}, sent, err
	}
	var packed string
	for k, text := range []*string{&id, &packed, &sent} {
		if *text, err = p.texts[3*i+k].ToString(); err != nil {
			return "", e, "", unreadableAnswer(err)
		}
	}
	e, ok := readEntry(packed)
	if !ok {
		return "", e, "", unreadableAnswer(nil)
	}
	return id, e, sent, nil
}
