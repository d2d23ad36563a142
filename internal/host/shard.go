package host

import (
	"maps"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// shard is an engine behind a mutex.
type shard struct {
	queue *queue
	id    ShardID

	mu     sync.Mutex // guards the fields below
	engine *engine.Shard
	reader engine.Reader // of the journal; nil without a journal
	ids    ident.Source
	batch  []*engine.Entry // reused by take
	target *queue          // where dead letters are forwarded; nil: they are kept
	staged int             // operations that wait for the journal
	// received is when messages were last asked for.
	received engine.Instant
	// alongside is another shard that is locked together with this one, or nil;
	// holdsTarget says that all shards of the target are locked.
	alongside   *shard
	holdsTarget bool
	// survivors: messages with a lower Seq existed when an earlier process ended
	// without closing.
	survivors uint64
	// stagingBlocks counts the calls of lockUnstaged that block staging;
	// stagingAllowed, if it is not nil, is closed when there are none.
	stagingBlocks  int
	stagingAllowed chan struct{}
}

func (sh *shard) lock() { sh.mu.Lock() }

// unlock first handles the effects, so that no other goroutine sees a change half done.
// The caller holds no other shard.
func (sh *shard) unlock() {
	var reached []*shard
	if sh.target != nil || sh.queue.journal != nil {
		reached = sh.actLocked()
	}
	endings := sh.endingsLocked()
	sh.mu.Unlock()
	sh.queue.notify(endings)
	for _, to := range reached { // handles the effects of the arrivals
		to.lock()
		to.unlock()
	}
}

// actLocked handles effects: it forwards dead letters to the target queue, and records
// leases and the events of time. It may unlock the shard for a moment to lock it together
// with the target. It returns the shards of the target that dead letters were meant for;
// the caller locks and unlocks them when it holds no other shard.
func (sh *shard) actLocked() (reached []*shard) {
	target := sh.lockTargetLocked()
	out := forwarding{from: sh}
	recorded := false
	for effects := sh.engine.Effects(); len(effects) > 0; effects = sh.engine.Effects() {
		decided := false
		for _, effect := range effects {
			leaving := effect.Kind == engine.Died && effect.Entry.State == engine.Dead && effect.Entry.Is(engine.Leaving)
			decided = decided || leaving
			if leaving && out.forwardOrKeep(effect) {
				continue
			}
			if sh.queue.journal != nil && sh.recordEffect(effect) {
				recorded = true
			}
		}
		out.publishOwn()
		if decided { // retention waits for the decision
			sh.engine.Advance(sh.queue.now())
		}
	}
	if target != nil {
		sh.unlockTargetLocked(target)
	}
	if recorded {
		sh.queue.journal.Ride()
	}
	return out.reached
}

// recordEffect records an effect, unless it is recorded already.
func (sh *shard) recordEffect(effect engine.Effect) bool {
	if effect.Recorded {
		return false
	}
	journal := sh.queue.journal
	journal.Lock()
	defer journal.Unlock()
	switch {
	case effect.Kind == engine.Leased && effect.Entry.State == engine.InFlight:
		journal.Leased(sh.id, effect.Entry)
	case effect.Kind == engine.Returned && effect.Entry.Waits():
		journal.Waits(sh.id, effect.Entry, sh.engine.Clock())
	case effect.Kind == engine.Died:
		journal.Died(sh.id, effect.Entry)
	case effect.Kind == engine.Discarded:
		journal.Discarded(sh.id, effect.Entry)
	case effect.Kind == engine.Withdrawn:
		journal.Withdrawn(sh.id, effect.Entry)
	case effect.Kind == engine.Rescheduled:
		journal.Rescheduled(sh.id, effect.Was, effect.Entry, sh.engine.Clock())
	case effect.Kind == engine.Replaced:
		journal.Replaced(sh.id, effect.Was, effect.Entry, sh.engine.Clock())
	case effect.Kind == engine.Prioritized:
		journal.Prioritized(sh.id, effect.Was, effect.Entry)
	default:
		return false
	}
	return true
}

// Receipts carry the shard in the upper 16 bits of the place and the message's
// number in it in the others.
const placeBits = 48

func (sh *shard) place(seq uint64) uint64 { return uint64(sh.id.Shard)<<placeBits | seq }

// packed is a message that was prepared before its shard is locked. The id, once it is
// assigned, the seal and the body share one allocation. The id is never written again, and
// what receivers get has no capacity to reach the rest.
type packed struct {
	buf      []byte
	seal     int // its length
	priority uint8
	extra    *engine.Extra
	delay    time.Duration
}

func packMessage(msg *driver.Outgoing, ttl time.Duration) packed {
	p := packed{buf: make([]byte, ident.TextLen+len(msg.Seal)+len(msg.Body)), seal: len(msg.Seal), priority: uint8(msg.Priority), delay: msg.Delay}
	copy(p.buf[ident.TextLen:], msg.Seal)
	copy(p.buf[ident.TextLen+len(msg.Seal):], msg.Body)
	if len(msg.Attributes) > 0 || msg.Group != "" || msg.ReplyTo != "" || msg.CorrelationID != "" || !msg.DeliverAt.IsZero() || ttl > 0 {
		p.extra = &engine.Extra{
			DeliverAt:     wallNanos(msg.DeliverAt),
			Attributes:    maps.Clone(msg.Attributes),
			Group:         msg.Group,
			ReplyTo:       msg.ReplyTo,
			CorrelationID: msg.CorrelationID,
		}
	}
	if ttl > 0 {
		p.extra.Life = &engine.Life{TTL: ttl}
	}
	return p
}

// setKey gives the message a unique key.
func (p *packed) setKey(key engine.Digest) {
	if p.extra == nil {
		p.extra = &engine.Extra{}
	}
	p.extra.Unique = &engine.Unique{Key: key}
}

// wipe lets the collector overwrite the message with zeros as soon as no queue and no
// receiver refers to it. Overwriting it when it leaves the queue would be too early:
// receivers share the memory.
func (p *packed) wipe() {
	n := len(p.buf)
	runtime.SetFinalizer(&p.buf[0], func(first *byte) { clear(unsafe.Slice(first, n)) })
}

// stageLocked stages a valid message. It returns ErrFull if there is no room.
func (sh *shard) stageLocked(now engine.Moment, p packed) (*engine.Entry, error) {
	if err := sh.engine.Room(now, len(p.buf)-ident.TextLen-p.seal); err != nil {
		return nil, err
	}
	return sh.stageRoomyLocked(now, p), nil
}

// stageRoomyLocked stages a valid message for which there is room.
func (sh *shard) stageRoomyLocked(now engine.Moment, p packed) *engine.Entry {
	content := p.content()
	sh.ids.Next(now.Wall, p.buf[:ident.TextLen])
	return sh.engine.StageSend(now, content, p.delay)
}

// content returns the message as the engine takes it. Its id is what the owner writes to the
// begin of p.buf.
func (p *packed) content() engine.Content {
	const sealAt = ident.TextLen
	bodyAt := sealAt + p.seal
	text := p.buf[:sealAt]
	content := engine.Content{Body: p.buf[bodyAt:len(p.buf):len(p.buf)], Resident: true, Priority: p.priority, Extra: p.extra}
	if p.seal > 0 {
		content.Seal = p.buf[sealAt:bodyAt:bodyAt]
	}
	content.ID = unsafe.String(unsafe.SliceData(text), len(text)) //nolint:gosec // see packed
	return content
}

// deliver fills d with an entry in flight. It writes in place because a delivery is large
// and this is the hot path.
func (sh *shard) deliver(d *driver.Delivery, e *engine.Entry) {
	fill(&d.Message, e)
	d.Receipt = driver.Receipt{Handle: e.ID, Place: sh.place(e.Seq), Nonce: e.Nonce}
	d.Shard = int(sh.id.Shard)
	d.Released = e.Releases() > 0
}

func fill(m *driver.Message, e *engine.Entry) {
	m.ID = e.ID
	m.Body = e.Body
	m.Seal = e.Seal
	m.Resident = e.Resident
	m.Priority = int(e.Priority)
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

// wallNanos returns a due time in Unix nanoseconds; 0 if there is none. The future of a valid
// one is limited, and how long it is past does not matter.
func wallNanos(at time.Time) int64 {
	switch {
	case at.IsZero():
		return 0
	case at.Unix() <= 0:
		return 1
	}
	return at.UnixNano()
}

func wallTime(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

func deadLetter(source string, e *engine.Entry) driver.DeadLetter {
	dead := driver.DeadLetter{
		Source:    source,
		Reason:    e.Extra.Reason,
		ErrorType: e.Extra.ErrorType,
		DeadAt:    wallTime(e.Extra.DeadAt),
		Redrives:  e.Extra.Redrives,
	}
	fill(&dead.Message, e)
	return dead
}
