package shard

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/oklog/ulid/v2"
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

// ReadSent fills a message from its record. It reports false if the record was
// changed after packRecord; then only the time is filled, from the id.
func ReadSent(m *driver.Message, id, record string) bool {
	if len(record) < hashBytes+sizeBytes+timeBytes {
		m.EnqueuedAt = idTime(id)
		return false
	}
	hash := hashOf(id, BytesOf(record[hashBytes:]))
	if record[:hashBytes] != string(hash[:]) {
		m.EnqueuedAt = idTime(id)
		return false
	}
	size := int(binary.LittleEndian.Uint32(BytesOf(record[hashBytes:])))
	m.EnqueuedAt = readTime(record[hashBytes+sizeBytes:])
	texts := reader{rest: record[hashBytes+sizeBytes+timeBytes:]}
	m.Group = texts.text()
	m.ReplyTo = texts.text()
	m.CorrelationID = texts.text()
	if n := texts.number(); n > 0 && n <= driver.MaxAttributes+ExtraAttributes {
		m.Attributes = make(map[string]string, n)
		for range n {
			key := texts.text()
			m.Attributes[key] = texts.text()
		}
	}
	if texts.broken || len(texts.rest) != size {
		return false
	}
	m.Body = BytesOf(texts.rest)
	return true
}

// readTime reads the time of a record.
func readTime(text string) time.Time {
	return time.UnixMicro(int64(binary.LittleEndian.Uint64(BytesOf(text[:timeBytes])))).UTC()
}

// idTime returns the time in an id, to the millisecond, or the zero time.
func idTime(id string) time.Time {
	parsed, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}
	}
	return parsed.Timestamp().UTC()
}

// ExtraAttributes is how many attributes a message gets when it is dead-lettered to
// another queue.
const ExtraAttributes = 4

// BytesOf returns the bytes of a text without copying. They must not be written to.
func BytesOf(text string) []byte {
	return unsafe.Slice(unsafe.StringData(text), len(text)) //nolint:gosec // read only
}

// A reader reads length-prefixed texts from a record.
type reader struct {
	rest   string
	broken bool
}

func (r *reader) number() uint64 {
	n, length := binary.Uvarint(BytesOf(r.rest))
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
	Deliveries int
	Nonce      uint64
	First      float64 // wall time
	Redrives   int
	DeadAt     float64 // wall time
	Reason     driver.Reason
	LastError  string
	errorType  string
	released   bool    // since its last delivery that counted
	TTL, Ends  float64 // time to live, and the wall time when it is over; 0 if it has none
	Priority   int
	Unique     string // digest of its unique key; empty if it has none
	sentAs     string // the id that its record was sent with, if it was replaced
	origin     string // the time and the group of its first record then
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

// ReadEntry reads a packed entry, and reports whether it is readable.
func ReadEntry(packed string) (e entry, ok bool) {
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
	e = entry{
		place:      DoubleAt(packed, entryPlace),
		Deliveries: int(DoubleAt(packed, entryDeliveries)),
		Nonce:      uint64(DoubleAt(packed, entryNonce)),
		First:      DoubleAt(packed, entryFirst),
		Redrives:   int(DoubleAt(packed, entryRedrives)),
		DeadAt:     DoubleAt(packed, entryDeadAt),
		Reason:     driver.Reason(texts[1]),
		LastError:  texts[2],
		errorType:  texts[3],
		released:   rest != "" && rest[0]%32 > 0,
	}
	if len(rest) >= 1+2*8 {
		e.TTL, e.Ends = DoubleAt(rest[1:], 0), DoubleAt(rest[1:], 1)
	}
	if len(rest) >= 1+2*8+1+8 { // when its age began follows
		e.Priority = min(int(rest[1+2*8]), driver.MaxPriority) // also if it is damaged
	}
	if rest = rest[min(len(rest), 1+2*8+1+8):]; len(rest) > hashBytes { // a byte follows, see entry.lua
		e.Unique, rest = rest[:hashBytes], rest[hashBytes+1:]
		e.sentAs, e.origin = rest[:min(len(rest), ident.TextLen)], rest[min(len(rest), ident.TextLen):]
	}
	return e, true
}

// ReadSent fills a message from its record, as ReadSent does. A message that was replaced has
// the record of the last send, and the time and the group of the first.
func (e *entry) ReadSent(m *driver.Message, id, record string) bool {
	if !ReadSent(m, cmp.Or(e.sentAs, id), record) {
		return false
	}
	if len(e.origin) > timeBytes {
		m.EnqueuedAt = readTime(e.origin)
		texts := reader{rest: e.origin[timeBytes:]}
		m.Group = texts.text()
	}
	return true
}

// fill adds the state of a message to the message.
func (e *entry) fill(m *driver.Message) {
	m.Deliveries = e.Deliveries
	m.Priority = e.Priority
	m.LastError = e.LastError
	if e.First > 0 {
		m.FirstReceivedAt = WallTime(e.First)
	}
}

// WallTime converts microseconds since 1970, as scripts report them.
func WallTime(microseconds float64) time.Time {
	return time.UnixMicro(int64(math.Round(microseconds))).UTC()
}

// Decimal writes a whole number as scripts read it.
func Decimal(number float64) string { return strconv.FormatFloat(number, 'f', 0, 64) }

// Number reads a number that a script wrote; other text is 0.
func Number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}

// Digit writes a boolean as scripts read it.
func Digit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

// Micros converts a duration to microseconds, as scripts count, rounded up so that
// no lease or delay ends too early.
func Micros(d time.Duration) float64 {
	return math.Ceil(float64(d) / float64(time.Microsecond))
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// PackDoubles packs numbers as struct.pack('<dd…') does.
func PackDoubles(numbers ...float64) string {
	packed := make([]byte, 0, 8*len(numbers))
	for _, number := range numbers {
		packed = binary.LittleEndian.AppendUint64(packed, math.Float64bits(number))
	}
	return string(packed)
}

// DoubleAt reads the i-th double of a packed text.
func DoubleAt(packed string, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(packed[8*i : 8*i+8])))
}
