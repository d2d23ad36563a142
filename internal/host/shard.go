package host

import (
	"maps"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// shard is an engine behind a mutex.
type shard struct {
	queue  *queue
	number uint64

	mu     sync.Mutex // guards the fields below
	engine *engine.Shard
	ids    *ident.Source
	batch  []*engine.Entry // reused by take
	target *queue          // where dead letters go; nil: they stay
}

func (sh *shard) lock() { sh.mu.Lock() }

// unlock first moves what died to the target queue, so that nobody ever sees a
// message in both or in neither. Locking a shard of the target while holding
// this one is safe: a target has no target itself.
func (sh *shard) unlock() {
	if sh.target != nil {
		sh.forwardLocked()
	}
	sh.mu.Unlock()
}

// Receipts carry the shard in the upper 16 bits of the place and the message's
// number in it in the others.
const placeBits = 48

func (sh *shard) place(seq uint64) uint64 { return sh.number<<placeBits | seq }

// pack copies id and body into one allocation. The text is never written
// again; the body that is handed out has no capacity to reach it.
func pack(id ulid.ULID, body []byte) (text string, copied []byte) {
	buf := make([]byte, ident.TextLen+len(body))
	ident.Encode(id, buf[:ident.TextLen])
	copy(buf[ident.TextLen:], body)
	text = unsafe.String(unsafe.SliceData(buf), ident.TextLen)
	return text, buf[ident.TextLen:len(buf):len(buf)]
}

// sendLocked adds a message that was checked. It returns ErrFull if there is no
// room.
func (sh *shard) sendLocked(now engine.Moment, msg *driver.Outgoing) (text string, id ulid.ULID, err error) {
	if err := sh.engine.Room(now, len(msg.Body)); err != nil {
		return "", id, err
	}
	id = sh.ids.Next(now.Wall)
	text, body := pack(id, msg.Body)
	var extra *engine.Extra
	if len(msg.Attributes) > 0 || msg.Group != "" || msg.ReplyTo != "" || msg.CorrelationID != "" {
		extra = &engine.Extra{
			Attributes:    maps.Clone(msg.Attributes),
			Group:         msg.Group,
			ReplyTo:       msg.ReplyTo,
			CorrelationID: msg.CorrelationID,
		}
	}
	sh.engine.Send(now, text, body, extra, msg.Delay)
	return text, id, nil
}

// forwardLocked sends the messages that have just died to the target queue. One
// that does not fit stays a dead letter here.
func (sh *shard) forwardLocked() {
	for _, effect := range sh.engine.Effects() {
		if effect.Kind != engine.Died || sh.engine.FindDead(effect.Entry.ID) != effect.Entry {
			continue
		}
		if sh.target.acceptDead(sh.queue.name, effect.Entry) {
			sh.engine.Discard(sh.queue.now(), effect.Entry)
		}
	}
	sh.engine.Effects() // of discarding; nobody asks for them
}

// acceptDead takes a message that died in source as a new one, and reports
// whether it fitted.
func (q *queue) acceptDead(source string, letter *engine.Entry) bool {
	extra := *letter.Extra
	extra.Attributes = maps.Clone(extra.Attributes)
	if extra.Attributes == nil {
		extra.Attributes = make(map[string]string, 4)
	}
	extra.Attributes[driver.AttributeDeadReason] = string(extra.Reason)
	extra.Attributes[driver.AttributeDeadSource] = source
	extra.Attributes[driver.AttributeDeadDeliveries] = strconv.Itoa(int(letter.Deliveries))
	if extra.LastError != "" {
		extra.Attributes[driver.AttributeDeadError] = extra.LastError
	}
	extra.Reason, extra.ErrorType, extra.DeadAt = "", "", 0

	sh := q.shardFor(&driver.Outgoing{Group: extra.Group})
	sh.mu.Lock() // not lock: a target has no target
	now := q.now()
	if sh.engine.Room(now, len(letter.Body)) != nil {
		sh.mu.Unlock()
		return false
	}
	sh.engine.Send(now, letter.ID, letter.Body, &extra, 0)
	sh.mu.Unlock()
	q.waiters.wake(1)
	return true
}

// deliver shows an entry in flight to its receiver. It fills d in place: a
// delivery is large, and this is the hot path.
func (sh *shard) deliver(d *driver.Delivery, e *engine.Entry) {
	fill(&d.Message, e)
	d.Receipt = driver.Receipt{Handle: e.ID, Place: sh.place(e.Seq), Nonce: e.Nonce}
}

func fill(m *driver.Message, e *engine.Entry) {
	m.ID = e.ID
	m.Body = e.Body
	m.Deliveries = int(e.Deliveries)
	m.EnqueuedAt = wallTime(e.EnqueuedAt)
	if e.FirstReceivedAt != 0 {
		m.FirstReceivedAt = wallTime(e.FirstReceivedAt)
	}
	if x := e.Extra; x != nil {
		m.Attributes = x.Attributes
		m.Group = x.Group
		m.ReplyTo = x.ReplyTo
		m.CorrelationID = x.CorrelationID
		m.LastError = x.LastError
	}
}

func wallTime(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

func deadLetter(source string, e *engine.Entry) driver.DeadLetter {
	letter := driver.DeadLetter{
		Source:    source,
		Reason:    e.Extra.Reason,
		ErrorType: e.Extra.ErrorType,
		DeadAt:    wallTime(e.Extra.DeadAt),
		Redrives:  e.Extra.Redrives,
	}
	fill(&letter.Message, e)
	return letter
}
