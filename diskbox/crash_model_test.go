package diskbox

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The model of a crash test is what may be on a disk at any moment. It records an operation
// when it begins, and again when it is answered. Answered operations must be found on the disk;
// operations that have only begun may be found or not; and nothing else may.

// stateSet is a set of states that a message may be in.
type stateSet uint8

const (
	isAbsent stateSet = 1 << iota
	isWaiting
	isDead
)

func (s stateSet) String() string {
	text := ""
	for _, state := range []struct {
		set  stateSet
		name string
	}{{isAbsent, "absent"}, {isWaiting, "waiting"}, {isDead, "dead"}} {
		if s&state.set == 0 {
			continue
		}
		if text != "" {
			text += " or "
		}
		text += state.name
	}
	return text
}

// single reports whether the set has only one state.
func (s stateSet) single() bool { return s&(s-1) == 0 }

type opKind uint8

const (
	opSend opKind = iota
	opReceive
	opAck
	opNack
	opDeadLetter
	opRedrive
	opDiscard
	opPurge
	opPurgeDead
	opMove
	opEdit
	opRemove
	opKinds
)

// A crashOp is an operation that has begun.
type crashOp struct {
	kind   opKind
	model  *crashModel
	tokens []int // of its messages; nil means all
	began  int64 // tick
	at     time.Time
	mode   driver.NackMode // of a nack
}

// A crashSpan is the time of an event, in ticks: after from and before to.
type crashSpan struct {
	from, to int64
	position int // in the batch; negative if unknown
}

const notYet = math.MaxInt64

// A crashMessage is one message. Its token is its index in its model.
type crashMessage struct {
	out driver.Outgoing
	id  string // empty until it is known

	may    stateSet // without the effects of pending operations
	unsent bool     // there is no proof that it was ever sent
	gone   bool     // permanently
	// fuzzy: operations have overlapped, and only its states and its content are known.
	fuzzy   bool
	pending [opKinds]int8
	changed int64 // tick of the latest operation that ended
	goneAt  int64

	place        crashSpan // of the operation that gave it its place
	arrived      crashSpan // of the operation that gave it its age
	sentAt       [2]time.Time
	born         time.Time // retention counts from this time, or later
	bornBy       time.Time // its time to live counts from this time, or earlier; zero if unknown
	notBefore    time.Time // it is not ready earlier
	deadLettered bool      // a client has begun to dead-letter it
	edited       bool      // a client has begun to change its due time
	prioritized  bool      // a client has begun to change its priority
	readied      bool      // it was made ready, and not delayed since
	died         [2]time.Time
	lastError    string
	redrives     int
	// deliveries is the highest possible count, and settledAt the lowest: a crash may forget
	// deliveries, but not those before a settlement.
	deliveries, settledAt int
	deliveredAt           int64 // tick
}

// A crashModel is the model of one queue.
type crashModel struct {
	name       string
	config     driver.Config
	moves      bool // messages move to another queue and back
	configured bool // creating the queue was answered
	messages   []crashMessage
	pending    [opKinds]int // operations that concern all messages
	throttled  crashThrottles
	pause      crashPause
}

// prioritizes reports whether clients give messages priorities.
func (b *crashModel) prioritizes() bool { return b.config.PriorityAging == driver.Off }

// crashModels are the models of all queues of one machine. While the lock is held, an image and
// the models are of the same moment.
type crashModels struct {
	mu     sync.Mutex // guards the fields below
	tick   int64
	queues []*crashModel
}

// snapshotLocked copies the models.
func (l *crashModels) snapshotLocked() []crashModel {
	models := make([]crashModel, len(l.queues))
	for i, b := range l.queues {
		models[i] = *b
		models[i].messages = slices.Clone(b.messages)
	}
	return models
}

// begin records an operation that is about to start.
func (l *crashModels) begin(b *crashModel, kind opKind, tokens []int) *crashOp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beginLocked(b, kind, tokens)
}

func (l *crashModels) beginLocked(b *crashModel, kind opKind, tokens []int) *crashOp {
	l.tick++
	d := &crashOp{kind: kind, model: b, tokens: tokens, began: l.tick, at: time.Now()}
	if tokens == nil {
		b.pending[kind]++
	}
	for _, token := range tokens {
		i := &b.messages[token]
		i.pending[kind]++
		switch {
		case kind == opDeadLetter:
			i.deadLettered = true
		case kind == opNack:
			i.readied = false
		case kind == opSend && i.place.from == 0:
			i.place = crashSpan{from: d.began, to: notYet, position: -1}
			i.arrived = i.place
			i.sentAt[0], i.born, i.notBefore = d.at, d.at.Add(i.out.Delay), d.at.Add(i.out.Delay)
		}
	}
	return d
}

// endLocked removes an operation from the pending ones.
func (l *crashModels) endLocked(d *crashOp) {
	l.tick++
	if d.tokens == nil {
		d.model.pending[d.kind]--
	}
	for _, token := range d.tokens {
		d.model.messages[token].pending[d.kind]--
	}
}

// addLocked adds a message that is about to be sent.
func (b *crashModel) addLocked(out driver.Outgoing) (token int) {
	b.messages = append(b.messages, crashMessage{out: out, may: isAbsent, unsent: true})
	return len(b.messages) - 1
}

// becomes records the state of a message after an operation that has just ended. If another
// operation ended in the meantime, their order is unknown; and if there are several possible
// results, another operation is still pending, and it is unknown what it did before this one. A
// pending redrive may have restarted the message before this operation.
func (l *crashModels) becomes(i *crashMessage, d *crashOp, result stateSet) {
	if i.gone {
		return
	}
	if i.changed > d.began {
		result |= i.may
		i.fuzzy = true
	}
	if !result.single() || i.pending[opRedrive] > 0 || d.model.pending[opRedrive] > 0 {
		i.fuzzy = true
	}
	i.may, i.changed = result, l.tick
	if result == isAbsent && i.pending[opSend] == 0 {
		i.gone, i.goneAt = true, l.tick
	}
}

// sent records the results of a send. It returns a description of wrong results.
func (l *crashModels) sent(d *crashOp, sent []driver.Sent, err error) (wrong string) {
	if errors.Is(err, driver.ErrUnavailable) {
		return "" // it stays pending: the outcome is unknown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	now := time.Now()
	for n, token := range d.tokens {
		i := &d.model.messages[token]
		if driver.At(err, n) != nil {
			continue
		}
		if i.id != "" && i.id != sent[n].ID {
			wrong = "a repeated send was answered with another id"
		}
		i.id = sent[n].ID
		if !sent[n].Duplicate {
			i.sentAt = [2]time.Time{d.at, now}
			i.bornBy = now.Add(i.out.Delay)
			i.arrived = crashSpan{from: d.began, to: l.tick, position: n}
			if i.place.to == notYet && !i.fuzzy {
				i.place = i.arrived
			}
		}
		if i.unsent {
			i.unsent = false
			l.becomes(i, d, isWaiting)
		}
	}
	return wrong
}

// delivered records the deliveries of a receive. It returns a description of wrong ones.
func (l *crashModels) delivered(d *crashOp, tokens []int, got []driver.Delivery) (wrong string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	for n, token := range tokens {
		i := &d.model.messages[token]
		if i.gone && i.goneAt < d.began {
			wrong = "a message was delivered after it was gone"
		}
		if i.id != "" && i.id != got[n].ID {
			wrong = "a message was delivered under another id"
		}
		i.id = got[n].ID
		if i.unsent {
			i.unsent = false
			l.becomes(i, d, isWaiting)
		}
		i.deliveries, i.deliveredAt = max(i.deliveries, got[n].Deliveries), l.tick
	}
	return wrong
}

// settled records the result of an ack, a nack or a dead-letter.
func (l *crashModels) settled(d *crashOp, held []driver.Delivery, delay time.Duration, err error) {
	if errors.Is(err, driver.ErrUnavailable) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	for n, token := range d.tokens {
		i := &d.model.messages[token]
		if driver.At(err, n) != nil {
			continue
		}
		counted := held[n].Deliveries
		if d.mode != driver.NackFailed {
			counted-- // unless it was released too often
		}
		i.settledAt = max(i.settledAt, counted)
		switch d.kind {
		case opAck: // permanent, whatever else is pending
			i.gone, i.goneAt, i.may = true, l.tick, isAbsent
		case opNack:
			i.lastError = crashCause(token)
			if limit := d.model.config.MaxDeliveries; limit > 0 && counted >= limit {
				l.becomes(i, d, isDead)
				i.died = [2]time.Time{d.at, time.Now()}
				continue
			}
			l.becomes(i, d, isWaiting)
			i.notBefore = d.at.Add(delay)
			if !d.model.config.StrictGroups && d.mode != driver.NackRelease {
				i.place = crashSpan{from: d.began, to: l.tick, position: n}
			}
		case opDeadLetter:
			i.lastError = crashError(token)
			l.becomes(i, d, isDead)
			i.died = [2]time.Time{d.at, time.Now()}
		}
	}
}

// moved records the result of a redrive or a discard of named messages.
func (l *crashModels) moved(d *crashOp, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	for _, token := range d.tokens {
		i := &d.model.messages[token]
		result := isWaiting
		if d.kind == opDiscard {
			result = isAbsent
		}
		some := count < len(d.tokens)
		if some { // unknown which
			result |= d.model.reachable(i, time.Now())
		}
		l.becomes(i, d, result)
		if d.kind == opRedrive {
			i.redriven(d, l.tick, !some)
		}
	}
}

// redriven restarts a message, certainly or perhaps.
func (i *crashMessage) redriven(d *crashOp, tick int64, certain bool) {
	i.redrives++
	i.settledAt, i.died, i.bornBy = 0, [2]time.Time{}, time.Time{}
	if !certain || i.fuzzy {
		i.fuzzy = true
		i.arrived.to = tick
		return
	}
	i.place = crashSpan{from: d.began, to: tick, position: -1}
	i.arrived = i.place
	i.born, i.bornBy, i.notBefore = d.at, time.Now(), d.at
	if i.deliveredAt < d.began {
		i.deliveries = 0
	}
}

// swept records the result of a purge, or of a redrive of all dead letters: every message in
// state from is now in state to.
func (l *crashModels) swept(d *crashOp, from, to stateSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	now := time.Now()
	for n := range d.model.messages {
		i := &d.model.messages[n]
		if i.gone {
			continue
		}
		before := d.model.reachable(i, now)
		if before&from == 0 {
			continue
		}
		l.becomes(i, d, before&^from|to)
		if to == isWaiting {
			i.redriven(d, l.tick, before == from)
		}
	}
}

// reachable returns the states that a message may be in, given the pending operations, at a
// time not before now on the axis of deadlines.
func (b *crashModel) reachable(i *crashMessage, now time.Time) stateSet {
	if i.gone {
		return isAbsent
	}
	pending := func(kind opKind) bool { return i.pending[kind] > 0 || b.pending[kind] > 0 }
	states := i.may
	for {
		before := states
		if states&isAbsent != 0 && i.unsent && pending(opSend) {
			states |= isWaiting
		}
		if states&isWaiting != 0 && (pending(opAck) || pending(opRemove) || pending(opPurge) || b.config.DropExpired && b.canExpire(i, now)) {
			states |= isAbsent
		}
		if states&isWaiting != 0 && (pending(opDeadLetter) || b.canDie(i, now)) {
			states |= isDead
		}
		if states&isDead != 0 && (pending(opRedrive) || b.goingHome()) {
			states |= isWaiting
		}
		if states&isDead != 0 && (pending(opDiscard) || pending(opPurgeDead) || b.canFade(i, now)) {
			states |= isAbsent
		}
		if states == before {
			return states
		}
	}
}

// canDie reports whether a message may have died without a call.
func (b *crashModel) canDie(i *crashMessage, now time.Time) bool {
	return b.canExhaust(i) || b.canExpire(i, now) && !b.config.DropExpired
}

func (b *crashModel) canExhaust(i *crashMessage) bool {
	limit := b.config.MaxDeliveries
	return limit > 0 && i.deliveries+b.pending[opReceive] >= limit
}

func (b *crashModel) canExpire(i *crashMessage, now time.Time) bool {
	retain := b.config.RetainReady
	if ttl := b.ttl(i); ttl > 0 && now.Sub(i.born) >= ttl {
		return true
	}
	if retain.Age > 0 && now.Sub(i.born) >= retain.Age {
		return true
	}
	if retain.Count == 0 {
		return false
	}
	later := 0 // number of messages that may be younger
	for n := range b.messages {
		other := &b.messages[n]
		redriven := other.pending[opRedrive]+int8(b.pending[opRedrive]) > 0
		if other.arrived.to > i.arrived.from || redriven || other.out.Delay > 0 || other.edited {
			later++
		}
	}
	return later > retain.Count // one of them is i
}

// canFade reports whether a dead letter may have been removed by retention.
func (b *crashModel) canFade(i *crashMessage, now time.Time) bool {
	retain := b.config.RetainDead
	return retain.Age > 0 && now.Sub(i.born) >= retain.Age || retain.Count > 0 && len(b.messages) > retain.Count
}

// rebase makes the state that was found after a crash the known state.
func (l *crashModels) rebase(found [][]crashFound) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick++
	for n, b := range l.queues {
		for token := range b.messages {
			i := &b.messages[token]
			uncertain := b.placeUnknown(i)
			if b.goingHome() {
				i.sentAt = [2]time.Time{} // may be the time of its death
			}
			find := found[n][token]
			if i.pending[opEdit] > 0 {
				i.notBefore, i.bornBy = time.Time{}, time.Time{}
			}
			may := find.state | b.reachable(i, time.Now())&b.precursors(find.state)
			i.pending = [opKinds]int8{}
			i.changed = l.tick
			if uncertain { // if it was redriven it is younger, and if it is dead it has died again
				i.arrived = crashSpan{from: i.arrived.from, to: l.tick, position: -1}
				i.died, i.bornBy = [2]time.Time{}, time.Time{}
			}
			if may == isAbsent {
				if !i.gone {
					i.gone, i.goneAt, i.may = true, l.tick, isAbsent
				}
				continue
			}
			i.may, i.fuzzy = may, may != find.state
			if find.state != isAbsent {
				i.unsent, i.id = false, find.id
			}
			if i.fuzzy {
				i.deliveries, i.settledAt = i.deliveries+b.pending[opReceive], 0
				continue
			}
			i.deliveries, i.settledAt = find.deliveries, find.deliveries
			i.redrives, i.lastError = find.redrives, find.lastError
			i.arrived.to, i.place.to = min(i.arrived.to, l.tick), min(i.place.to, l.tick)
			if uncertain {
				i.place = crashSpan{from: 1, to: l.tick, position: -1}
				i.notBefore = time.Time{}
			}
		}
		b.pending, b.throttled.pending = [opKinds]int{}, false
	}
}

// placeUnknown reports whether a pending operation may have given a message another place.
func (b *crashModel) placeUnknown(i *crashMessage) bool {
	return i.fuzzy || b.pending[opMove] > 0 || i.pending[opNack] > 0 || i.pending[opSend] > 1 || i.pending[opRedrive] > 0 || b.pending[opRedrive] > 0
}
