package diskbox

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// The records of messages and dead letters have two checksums, so that a damaged body costs
// the body, and not the id and the other fields:
//
//	version (1 byte), length of the head (4 bytes)
//	head
//	CRC-32C of the key and everything before
//	body
//	CRC-32C of the body, continued from the one before
//
// The fields of a head are
//
//	message:  id enqueued born due timed first extra further
//	dead:     the same without further, then number deliveries reason type dead-at further
//
// where further is a count, and a tag and bytes for each of so many fields; a reader skips the
// tags that it does not know. Tag 1 is the seal of a message, and tag 2 its due time, a wall time
// in 8 bytes; due and born are then an estimate on the axis, which versions that do not know the
// tag use instead. Tag 3 is its time to live and when that ends, a wall time, in 8 bytes each. Tag 4 is its
// priority, in one byte, unless that is 0. Tag 5 is the digest of its unique key, in 16 bytes, and 1 if it
// holds the key, or else 0.
//
// The engine of the store has checksums of its own around these, so 32 bits are enough, and
// with 256 bytes they take a tenth of the time of the 128-bit hash of other records. Records of
// version 2, which end with such a hash, have the body behind extra.
const messageVersion = 3

const (
	headAt       = 1 + 4 // the head in a record
	crcLen       = 4
	tagSeal      = 1
	tagDeliverAt = 2
	tagLife      = 3
	tagPriority  = 4
	tagUnique    = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// beginMessage starts the record of a message with the key j.key, and endMessage adds it to the
// batch.
func (j *journal) beginMessage() *writer {
	w := j.begin()
	w.buf = append(w.buf, messageVersion, 0, 0, 0, 0)
	return w
}

func (j *journal) endMessage(e *engine.Entry) { j.batch.Set(j.key, j.w.endMessage(e)) }

// endMessage adds the further fields, the checksums and the body, and returns the record, which
// is valid until the next begin.
func (w *writer) endMessage(e *engine.Entry) []byte {
	w.further(e)
	body := e.Body
	record := w.buf[w.keyLen:]
	binary.BigEndian.PutUint32(record[1:], uint32(len(record)-headAt))
	sum := crc32.Checksum(w.buf, castagnoli)
	w.buf = binary.BigEndian.AppendUint32(w.buf, sum)
	w.buf = append(w.buf, body...)
	w.buf = binary.BigEndian.AppendUint32(w.buf, crc32.Update(sum, castagnoli, body))
	return w.buf[w.keyLen:]
}

func (w *writer) further(e *engine.Entry) {
	count := w.buf
	w.number(0)
	n := byte(0)
	if len(e.Seal) > 0 {
		n++
		w.number(tagSeal)
		w.bytes(e.Seal)
	}
	if e.Is(engine.Wall) {
		n++
		w.number(tagDeliverAt)
		w.bytes(binary.BigEndian.AppendUint64(nil, uint64(e.Extra.DeliverAt)))
	}
	if e.Extra != nil && e.Extra.Life != nil {
		n++
		w.number(tagLife)
		life := binary.BigEndian.AppendUint64(nil, uint64(e.Extra.Life.TTL))
		w.bytes(binary.BigEndian.AppendUint64(life, uint64(e.Extra.Life.Ends)))
	}
	if e.Priority > 0 {
		n++
		w.number(tagPriority)
		w.bytes([]byte{e.Priority})
	}
	if e.Extra != nil && e.Extra.Unique != nil {
		n++
		w.number(tagUnique)
		unique, marks := e.Extra.Unique, byte(0)
		if unique.Held {
			marks |= uniqueHeld
		}
		if unique.Replaced {
			marks |= uniqueReplaced
		}
		w.bytes(append(unique.Key[:len(unique.Key):len(unique.Key)], marks))
	}
	w.buf[len(count)] = n
}

// What is marked in the last byte of a unique key.
const (
	uniqueHeld     = 1 << 0
	uniqueReplaced = 1 << 1
)

// openMessage checks the record of a message or dead letter and returns a reader of its head.
func openMessage(key, record []byte) reader {
	if len(record) == 0 || record[0] != messageVersion {
		r := open(key, record)
		r.bodyInside = true
		return r
	}
	if len(record) < headAt+2*crcLen {
		return reader{damaged: true}
	}
	head := uint64(binary.BigEndian.Uint32(record[1:]))
	if head > uint64(len(record)-headAt-2*crcLen) {
		return reader{damaged: true}
	}
	sumAt := headAt + int(head)
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record[:sumAt])
	if sum != binary.BigEndian.Uint32(record[sumAt:]) {
		return reader{damaged: true}
	}
	body, bodySum := record[sumAt+crcLen:len(record)-crcLen], record[len(record)-crcLen:]
	return reader{
		buf: record[headAt:sumAt], body: body,
		bodyDamaged: crc32.Update(sum, castagnoli, body) != binary.BigEndian.Uint32(bodySum),
	}
}

// message writes the fields that do not change while a message is in the queue, but the body.
func (w *writer) message(e *engine.Entry) {
	w.text(e.ID)
	w.signed(e.EnqueuedAt)
	w.signed(int64(e.Born))
	w.due(e)
	w.signed(e.FirstReceivedAt)
	w.extra(e.Extra)
}

// message reads what writer.message wrote, and the body, wherever it is. Of a message with a
// damaged body it leaves what identifies it.
func (r *reader) message(e *engine.Entry) {
	e.ID = r.text()
	e.EnqueuedAt = r.signed()
	e.Born = engine.Instant(r.signed())
	r.due(e)
	e.FirstReceivedAt = r.signed()
	e.Extra = r.extra()
	body := r.body
	if r.bodyInside {
		body = r.take()
	}
	e.Size = uint32(len(body))
	if r.bodyDamaged {
		e.Born, e.Due, e.Marks = 0, 0, engine.Damaged
		return
	}
	e.Body = append([]byte(nil), body...)
}

// further reads the fields behind all others.
func (r *reader) further(e *engine.Entry) {
	if r.bodyInside {
		return // version 2 has none
	}
	for n := r.number(); n > 0 && !r.damaged; n-- {
		tag, value := r.number(), r.take()
		switch {
		case r.bodyDamaged:
		case tag == tagSeal:
			e.Seal = append([]byte(nil), value...)
		case tag == tagDeliverAt && len(value) == 8 && e.Is(engine.Wall):
			e.Due = engine.Instant(binary.BigEndian.Uint64(value))
			extraOf(e).DeliverAt = int64(e.Due)
		case tag == tagLife && len(value) == 16:
			extraOf(e).Life = &engine.Life{
				TTL: time.Duration(binary.BigEndian.Uint64(value)), Ends: int64(binary.BigEndian.Uint64(value[8:])),
			}
		case tag == tagPriority && len(value) == 1:
			e.Priority = min(value[0], driver.MaxPriority)
		case tag == tagUnique && len(value) == len(engine.Digest{})+1:
			marks := value[len(value)-1]
			extraOf(e).Unique = &engine.Unique{
				Key: engine.Digest(value[:len(value)-1]), Held: marks&uniqueHeld != 0, Replaced: marks&uniqueReplaced != 0,
			}
		}
	}
}

// extraOf returns the extra of e, and creates it if there is none.
func extraOf(e *engine.Entry) *engine.Extra {
	if e.Extra == nil {
		e.Extra = &engine.Extra{}
	}
	return e.Extra
}

// dead writes a dead letter, but the body.
func (w *writer) dead(e *engine.Entry) {
	w.message(e)
	w.number(e.Seq)
	w.number(uint64(e.Deliveries))
	w.text(string(e.Extra.Reason))
	w.text(e.Extra.ErrorType)
	w.signed(e.Extra.DeadAt)
}

func (r *reader) dead(e *engine.Entry) {
	r.message(e)
	e.Seq = r.number()
	e.Deliveries = uint32(r.number())
	extraOf(e).Reason = driver.Reason(r.text())
	e.Extra.ErrorType = r.text()
	e.Extra.DeadAt = r.signed()
	r.further(e)
	if r.bodyDamaged {
		e.Extra.Reason, e.Extra.LastError = driver.ReasonIntegrity, errDamaged.Error()
	}
}
