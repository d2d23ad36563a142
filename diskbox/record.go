package diskbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// A record is a sequence of fields: numbers as varints, strings and bytes with their
// length in front, and at the end 16 bytes of BLAKE3 over the key and all fields.
//
//	state:    version place due timed hold nonce deliveries first last-error [restarted]
//	count:    version messages bytes dead next-message deaths [indexed [keys]]
//
// Fields in brackets are left out if they and those behind them are 0, and versions that do not know them ignore them. Restarted is
// engine.Entry.RestartedAfter in microseconds.
//
// Those of messages and dead letters have another form; see messagerecord.go.
const recordVersion = 2

const sumLen = 16

var errDamaged = errors.New("the record is damaged")

// writer writes one record at a time. The key is in the same buffer before the record, so
// that the hash is over contiguous bytes.
type writer struct {
	buf    []byte
	keyLen int
}

// begin starts the record of a key.
func (w *writer) begin(key []byte) {
	w.buf = append(w.buf[:0], key...)
	w.keyLen = len(key)
}

// end adds the hash, and returns the record, which is valid until the next begin.
func (w *writer) end() []byte {
	hash := blake3.Sum256(w.buf)
	w.buf = append(w.buf, hash[:sumLen]...)
	return w.buf[w.keyLen:]
}

func (w *writer) number(n uint64) { w.buf = binary.AppendUvarint(w.buf, n) }
func (w *writer) signed(n int64)  { w.buf = binary.AppendVarint(w.buf, n) }
func (w *writer) text(s string)   { w.number(uint64(len(s))); w.buf = append(w.buf, s...) }
func (w *writer) bytes(b []byte)  { w.number(uint64(len(b))); w.buf = append(w.buf, b...) }

// hashed are buffers for a key and its record.
var hashed = sync.Pool{New: func() any { return new([]byte) }}

// sealed returns the content of a record without its hash; ok is false if the hash does
// not match.
func sealed(key, record []byte) (content []byte, ok bool) {
	if len(record) < sumLen {
		return nil, false
	}
	content = record[:len(record)-sumLen]
	buf := hashed.Get().(*[]byte)
	*buf = append(append((*buf)[:0], key...), content...)
	hash := blake3.Sum256(*buf)
	hashed.Put(buf)
	return content, string(hash[:sumLen]) == string(record[len(content):])
}

// reader reads records of writer. After the first error it reads zeros.
type reader struct {
	buf     []byte
	damaged bool
	// of messages and dead letters: the body, and whether it is damaged, or the body is
	// inside of buf
	body                    []byte
	bodyDamaged, bodyInside bool
}

// open checks the hash of a record and returns a reader of its content.
func open(key, record []byte) reader {
	content, ok := sealed(key, record)
	if !ok {
		return reader{damaged: true}
	}
	r := reader{buf: content}
	if r.number() != recordVersion {
		r.damaged = true
	}
	return r
}

func (r *reader) number() uint64 {
	n, length := binary.Uvarint(r.buf)
	if length <= 0 {
		r.damaged, r.buf = true, nil
		return 0
	}
	r.buf = r.buf[length:]
	return n
}

func (r *reader) signed() int64 {
	n, length := binary.Varint(r.buf)
	if length <= 0 {
		r.damaged, r.buf = true, nil
		return 0
	}
	r.buf = r.buf[length:]
	return n
}

func (r *reader) take() []byte {
	n := r.number()
	if n > uint64(len(r.buf)) {
		r.damaged, r.buf = true, nil
		return nil
	}
	taken := r.buf[:n]
	r.buf = r.buf[n:]
	return taken
}

func (r *reader) text() string { return string(r.take()) }

// noExtra is the extra of most messages: no attributes, four empty texts, no redrives.
const noExtra = "\x00\x00\x00\x00\x00\x00"

func (w *writer) extra(x *engine.Extra) {
	if x == nil {
		w.buf = append(w.buf, noExtra...)
		return
	}
	w.number(uint64(len(x.Attributes)))
	for _, key := range slices.Sorted(maps.Keys(x.Attributes)) {
		w.text(key)
		w.text(x.Attributes[key])
	}
	for _, text := range []string{x.Group, x.ReplyTo, x.CorrelationID, x.LastError} {
		w.text(text)
	}
	w.number(uint64(x.Redrives))
}

func (r *reader) extra() *engine.Extra {
	if bytes.HasPrefix(r.buf, []byte(noExtra)) {
		r.buf = r.buf[len(noExtra):]
		return nil
	}
	x := &engine.Extra{}
	if n := r.number(); n > 0 && !r.damaged {
		x.Attributes = make(map[string]string, min(n, driver.MaxAttributes))
		for range n {
			key := r.text()
			x.Attributes[key] = r.text()
			if r.damaged {
				return nil
			}
		}
	}
	x.Group, x.ReplyTo, x.CorrelationID, x.LastError = r.text(), r.text(), r.text(), r.text()
	x.Redrives = int(r.number())
	if x.Attributes == nil && x.Group == "" && x.ReplyTo == "" && x.CorrelationID == "" && x.LastError == "" && x.Redrives == 0 {
		return nil
	}
	return x
}

// state writes the fields that a delivery changes.
func (w *writer) state(e *engine.Entry) {
	w.number(recordVersion)
	w.number(e.Place)
	w.due(e)
	w.signed(int64(e.HoldUntil))
	w.number(e.Nonce)
	w.number(uint64(e.Deliveries))
	w.signed(e.FirstReceivedAt)
	if e.Extra != nil {
		w.text(e.Extra.LastError)
	} else {
		w.text("")
	}
	if restarted := e.RestartedAfter(); restarted > 0 {
		w.number(uint64(restarted.Microseconds()))
	}
}

func (r *reader) state(e *engine.Entry) {
	e.Place = r.number()
	r.due(e)
	e.HoldUntil = engine.Instant(r.signed())
	e.Nonce = r.number()
	e.Deliveries = uint32(r.number())
	e.FirstReceivedAt = r.signed()
	if last := r.text(); last != "" {
		extraOf(e).LastError = last
	}
	if len(r.buf) > 0 {
		e.SetRestartedAfter(time.Duration(min(r.number(), uint64(maxRestarted.Microseconds()))) * time.Microsecond)
	}
	if e.Is(engine.Wall) && e.Extra != nil && e.Extra.DeliverAt != 0 { // a further field of the message
		e.Due = engine.Instant(e.Extra.DeliverAt)
	}
}

// maxRestarted is more than any message waits; a higher number is damage.
const maxRestarted = 100 * 366 * 24 * time.Hour

// lasting are the marks that are stored.
const lasting = engine.Timed | engine.Damaged | engine.Leaving | engine.Late | engine.LeasedAgain | engine.First | engine.ReleaseCount | engine.Wall

// due writes when a message is due, and its marks.
func (w *writer) due(e *engine.Entry) {
	due := e.Due
	if e.Is(engine.Wall) { // a further field has the due time
		due = e.Born
	}
	w.signed(int64(due))
	w.number(uint64(e.Marks & lasting))
}

func (r *reader) due(e *engine.Entry) {
	e.Due = engine.Instant(r.signed())
	e.Marks = engine.Marks(r.number()) & lasting
}

// totals writes the counts of a shard.
func (w *writer) totals(t *engine.Totals) {
	w.number(recordVersion)
	w.number(uint64(t.Messages))
	w.number(uint64(t.Bytes))
	w.number(uint64(t.Dead))
	w.number(t.NextSeq)
	w.number(t.Deaths)
	if t.Indexed != 0 || t.Keys != 0 {
		w.number(t.Indexed)
	}
	if t.Keys != 0 {
		w.number(uint64(t.Keys))
	}
}

func (r *reader) totals() (t engine.Totals) {
	t.Messages = int(r.number())
	t.Bytes = int(r.number())
	t.Dead = int(r.number())
	t.NextSeq = r.number()
	t.Deaths = r.number()
	if len(r.buf) > 0 {
		t.Indexed = r.number()
	}
	if len(r.buf) > 0 {
		t.Keys = int(r.number())
	}
	return t
}
