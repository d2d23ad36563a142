package redisbox

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/oklog/ulid/v2"
	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
)

// A record is what is kept of a message as it was sent, and never changes:
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

// packRecord makes the record of a message, in memory of its own: the caller's
// may change before the server has it.
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

// hashOf binds what was sent to its id, so that one message's bytes never pass
// for another's.
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
	_, _ = h.WriteString(id) // a hash takes everything
	_, _ = h.Write(rest)
	var sum [32]byte
	h.Sum(sum[:0])
	copy(hash[:], sum[:])
	return hash
}

// readSent fills a message from its record. It reports whether the record is the
// one that was made; if not, only the time is filled, as the id tells it.
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

// idTime is the time in an id, to the millisecond, and 0 if it has none.
func idTime(id string) time.Time {
	parsed, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}
	}
	return parsed.Timestamp().UTC()
}

// extraAttributes are those that a message gets when it goes to another queue.
const extraAttributes = 4

// bytesOf shows a text as bytes, which nobody may write to.
func bytesOf(text string) []byte {
	return unsafe.Slice(unsafe.StringData(text), len(text)) //nolint:gosec // read only
}

// A reader takes texts with their lengths off a record.
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

// An entry is what has become of a message, see shard.lua. Its zero value is that
// of a message that has only been sent.
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

// readEntry reads a packed entry, and reports whether it can be read.
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

// fill adds what has become of a message to what was sent.
func (e *entry) fill(m *driver.Message) {
	m.Deliveries = e.deliveries
	m.LastError = e.lastError
	if e.first > 0 {
		m.FirstReceivedAt = wallTime(e.first)
	}
}

// wallTime is a time that a script has told, in microseconds since 1970.
func wallTime(microseconds float64) time.Time {
	return time.UnixMicro(int64(math.Round(microseconds))).UTC()
}
