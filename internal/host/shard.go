package host

import (
	"maps"
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
	reader engine.Reader // of the journal; nil: there is none
	ids    ident.Source
	batch  []*engine.Entry // reused by take
	target *queue          // where dead letters go; nil: they stay
	staged int             // operations that wait for the journal
	// alongside is another shard that is locked together with this one, or nil, and
	// holdsTarget says that all shards of the target are.
	alongside   *shard
	holdsTarget bool
	// survivors are the messages with lower numbers: they were there when an
	// earlier process ended without closing.
	survivors uint64
	// settlers is how many wait for a moment at which none does, and calm, if
	// it is not nil, is closed when they have had it.
	settlers int
	calm     chan struct{}
}

func (sh *shard) lock() { sh.mu.Lock() }

// unlock first does what effects ask for, so that nobody sees it half done. The caller
// holds no other shard.
func (sh *shard) unlock() {
	var reached []*shard
	if sh.target != nil || sh.queue.journal != nil {
		reached = sh.actLocked()
	}
	endings := sh.endingsLocked()
	sh.mu.Unlock()
	sh.queue.tell(endings)
	for _, to := range reached { // what arrived there may have consequences
		to.lock()
		to.unlock()
	}
}

// actLocked moves what died to the target queue, and writes down what happened
// without being asked for: leases, and what came of time alone. It may unlock the
// shard for a moment to lock it together with the target. It returns the shards of
// the target that letters were to go to; the caller locks and unlocks them when it holds no
// other.
func (sh *shard) actLocked() (reached []*shard) {
	target := sh.lockTargetLocked()
	out := forwarding{from: sh}
	recorded := false
	for effects := sh.engine.Effects(); len(effects) > 0; effects = sh.engine.Effects() {
		decided := false
		for _, effect := range effects {
			leaving := effect.Kind == engine.Died && effect.Entry.State == engine.Dead && effect.Entry.Is(engine.Leaving)
			decided = decided || leaving
			if leaving && out.sendOff(effect) {
				continue
			}
			if sh.queue.journal != nil && sh.recordEffect(effect) {
				recorded = true
			}
		}
		out.fulfil()
		if decided { // retention has waited for that
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

// recordEffect writes down an effect, unless it was written down before.
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
	default:
		return false
	}
	return true
}

// Receipts carry the shard in the upper 16 bits of the place and the message's
// number in it in the others.
const placeBits = 48

func (sh *shard) place(seq uint64) uint64 { return uint64(sh.id.Shard)<<placeBits | seq }

// parcel is a message on its way into a shard: what can be made ready before
// the shard is locked. It holds the id, when there is one, and the body in one
// allocation. The text is never written again; the body that is handed out has
// no capacity to reach it.
type parcel struct {
	buf   []byte
	extra *engine.Extra
	delay time.Duration
}

func pack(msg *driver.Outgoing) parcel {
	p := parcel{buf: make([]byte, ident.TextLen+len(msg.Body)), delay: msg.Delay}
	copy(p.buf[ident.TextLen:], msg.Body)
	if len(msg.Attributes) > 0 || msg.Group != "" || msg.ReplyTo != "" || msg.CorrelationID != "" {
		p.extra = &engine.Extra{
			Attributes:    maps.Clone(msg.Attributes),
			Group:         msg.Group,
			ReplyTo:       msg.ReplyTo,
			CorrelationID: msg.CorrelationID,
		}
	}
	return p
}

// stageLocked prepares a message that was checked. It returns ErrFull if there
// is no room.
func (sh *shard) stageLocked(now engine.Moment, p parcel) (*engine.Entry, error) {
	text, body := p.buf[:ident.TextLen], p.buf[ident.TextLen:len(p.buf):len(p.buf)]
	if err := sh.engine.Room(now, len(body)); err != nil {
		return nil, err
	}
	sh.ids.Next(now.Wall, text)
	id := unsafe.String(unsafe.SliceData(text), len(text)) //nolint:gosec // see parcel
	return sh.engine.StageSend(now, id, body, p.extra, p.delay), nil
}

// deliver shows an entry in flight to its receiver. It fills d in place: a
// delivery is large, and this is the hot path.
func (sh *shard) deliver(d *driver.Delivery, e *engine.Entry) {
	fill(&d.Message, e)
	d.Receipt = driver.Receipt{Handle: e.ID, Place: sh.place(e.Seq), Nonce: e.Nonce}
	d.Shard = int(sh.id.Shard)
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
