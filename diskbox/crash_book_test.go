package diskbox

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The books of a crash test say what may be found on a disk at any moment. An
// operation is entered when it begins, and again when it is answered. What was
// answered must be found; what has only begun may be found or not; and nothing
// else may.

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

// single reports whether there is only one.
func (s stateSet) single() bool { return s&(s-1) == 0 }

type deedKind uint8

const (
	deedSend deedKind = iota
	deedReceive
	deedAck
	deedNack
	deedDeadLetter
	deedRedrive
	deedDiscard
	deedPurge
	deedPurgeDead
	deedMove
	deedKinds
)

// A crashDeed is an operation that has begun.
type crashDeed struct {
	kind   deedKind
	book   *crashBook
	tokens []int // of the messages it is about; nil: all
	began  int64 // tick
	at     time.Time
}

// A crashSpan is when something happened, in ticks: after from and before to.
type crashSpan struct {
	from, to int64
	position int // in the batch; negative: not known
}

const notYet = math.MaxInt64

// A crashItem is one message. Its token is its index in its book.
type crashItem struct {
	out driver.Outgoing
	id  string // once it is known

	may    stateSet // without the deeds that are pending
	unsent bool     // nothing shows that it was ever sent
	gone   bool     // for good
	// fuzzy: deeds have overlapped, and only its states and its content are
	// known.
	fuzzy   bool
	pending [deedKinds]int8
	changed int64 // tick of the latest deed that ended
	goneAt  int64

	place        crashSpan // of what gave it its place
	arrived      crashSpan // of what gave it its age
	sentAt       [2]time.Time
	born         time.Time // retention counts from here, or later
	notBefore    time.Time // it is not ready earlier
	deadLettered bool      // a client has begun to dead-letter it
	died         [2]time.Time
	lastError    string
	redrives     int
	// deliveries is the most that it can count, and settledAt the least: a
	// crash may forget deliveries, but not before a settlement.
	deliveries, settledAt int
	deliveredAt           int64 // tick
}

// A crashBook is the book of one queue.
type crashBook struct {
	name       string
	config     driver.Config
	moves      bool // messages move to the queue beside it and back
	configured bool // it was answered that the queue is there
	items      []crashItem
	pending    [deedKinds]int // those that concern all messages
}

// A crashLedger is the books of one machine. Its lock makes what an image shows
// one moment of them.
type crashLedger struct {
	mu    sync.Mutex // guards the fields below
	tick  int64
	books []*crashBook
}

// snapshotLocked copies the books.
func (l *crashLedger) snapshotLocked() []crashBook {
	books := make([]crashBook, len(l.books))
	for i, b := range l.books {
		books[i] = *b
		books[i].items = slices.Clone(b.items)
	}
	return books
}

// begin enters a deed that is about to be done.
func (l *crashLedger) begin(b *crashBook, kind deedKind, tokens []int) *crashDeed {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beginLocked(b, kind, tokens)
}

func (l *crashLedger) beginLocked(b *crashBook, kind deedKind, tokens []int) *crashDeed {
	l.tick++
	d := &crashDeed{kind: kind, book: b, tokens: tokens, began: l.tick, at: time.Now()}
	if tokens == nil {
		b.pending[kind]++
	}
	for _, token := range tokens {
		i := &b.items[token]
		i.pending[kind]++
		switch {
		case kind == deedDeadLetter:
			i.deadLettered = true
		case kind == deedSend && i.place.from == 0:
			i.place = crashSpan{from: d.began, to: notYet, position: -1}
			i.arrived = i.place
			i.sentAt[0], i.born, i.notBefore = d.at, d.at.Add(i.out.Delay), d.at.Add(i.out.Delay)
		}
	}
	return d
}

// endLocked takes the deed out of what is pending.
func (l *crashLedger) endLocked(d *crashDeed) {
	l.tick++
	if d.tokens == nil {
		d.book.pending[d.kind]--
	}
	for _, token := range d.tokens {
		d.book.items[token].pending[d.kind]--
	}
}

// addLocked enters a message that is about to be sent.
func (b *crashBook) addLocked(out driver.Outgoing) (token int) {
	b.items = append(b.items, crashItem{out: out, may: isAbsent, unsent: true})
	return len(b.items) - 1
}

// becomes enters that a deed, which has just ended, made of a message what
// result says. Where another deed ended meanwhile, it is unknown which was first;
// and where there are several results, another deed is still under way, of which
// it is unknown what it did before this one.
func (l *crashLedger) becomes(i *crashItem, d *crashDeed, result stateSet) {
	if i.gone {
		return
	}
	if i.changed > d.began {
		result |= i.may
		i.fuzzy = true
	}
	if !result.single() {
		i.fuzzy = true
	}
	i.may, i.changed = result, l.tick
	if result == isAbsent && i.pending[deedSend] == 0 {
		i.gone, i.goneAt = true, l.tick
	}
}

// sent enters the answers to a send. It returns what is wrong with them.
func (l *crashLedger) sent(d *crashDeed, sent []driver.Sent, err error) (wrong string) {
	if errors.Is(err, driver.ErrUnavailable) {
		return "" // it stays pending: its outcome is unknown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	now := time.Now()
	for n, token := range d.tokens {
		i := &d.book.items[token]
		if driver.At(err, n) != nil {
			continue
		}
		if i.id != "" && i.id != sent[n].ID {
			wrong = "a repeated send was answered with another id"
		}
		i.id = sent[n].ID
		if !sent[n].Duplicate {
			i.sentAt = [2]time.Time{d.at, now}
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

// delivered enters what a receive got. It returns what is wrong with it.
func (l *crashLedger) delivered(d *crashDeed, tokens []int, got []driver.Delivery) (wrong string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	for n, token := range tokens {
		i := &d.book.items[token]
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

// settled enters the answer to an ack, a nack or a dead-letter.
func (l *crashLedger) settled(d *crashDeed, held []driver.Delivery, delay time.Duration, err error) {
	if errors.Is(err, driver.ErrUnavailable) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	for n, token := range d.tokens {
		i := &d.book.items[token]
		if driver.At(err, n) != nil {
			continue
		}
		i.settledAt = max(i.settledAt, held[n].Deliveries)
		switch d.kind {
		case deedAck: // nothing brings it back, whatever else is going on
			i.gone, i.goneAt, i.may = true, l.tick, isAbsent
		case deedNack:
			i.lastError = crashCause(token)
			if limit := d.book.config.MaxDeliveries; limit > 0 && held[n].Deliveries >= limit {
				l.becomes(i, d, isDead)
				i.died = [2]time.Time{d.at, time.Now()}
				continue
			}
			l.becomes(i, d, isWaiting)
			i.notBefore = d.at.Add(delay)
			if !d.book.config.StrictGroups {
				i.place = crashSpan{from: d.began, to: l.tick, position: n}
			}
		case deedDeadLetter:
			i.lastError = crashError(token)
			l.becomes(i, d, isDead)
			i.died = [2]time.Time{d.at, time.Now()}
		}
	}
}

// moved enters the answer to a redrive or a discard of the messages that it
// names.
func (l *crashLedger) moved(d *crashDeed, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	for _, token := range d.tokens {
		i := &d.book.items[token]
		result := isWaiting
		if d.kind == deedDiscard {
			result = isAbsent
		}
		some := count < len(d.tokens)
		if some { // it is unknown which
			result |= d.book.reachable(i, time.Now())
		}
		l.becomes(i, d, result)
		if d.kind == deedRedrive {
			i.redriven(d, l.tick, !some)
		}
	}
}

// redriven starts the life of a message again, for certain or perhaps.
func (i *crashItem) redriven(d *crashDeed, tick int64, certain bool) {
	i.redrives++
	i.settledAt, i.died = 0, [2]time.Time{}
	if !certain || i.fuzzy {
		i.fuzzy = true
		i.arrived.to = tick
		return
	}
	i.place = crashSpan{from: d.began, to: tick, position: -1}
	i.arrived = i.place
	i.born, i.notBefore = d.at, d.at
	if i.deliveredAt < d.began {
		i.deliveries = 0
	}
}

// swept enters the answer to a purge, or to a redrive of everything that is
// dead: it took every message that was in state from to state to.
func (l *crashLedger) swept(d *crashDeed, from, to stateSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(d)
	now := time.Now()
	for n := range d.book.items {
		i := &d.book.items[n]
		if i.gone {
			continue
		}
		before := d.book.reachable(i, now)
		if before&from == 0 {
			continue
		}
		l.becomes(i, d, before&^from|to)
		if to == isWaiting {
			i.redriven(d, l.tick, before == from)
		}
	}
}

// reachable is the states that a message may be in, given what is pending, at a
// time that is not before now on the axis of deadlines.
func (b *crashBook) reachable(i *crashItem, now time.Time) stateSet {
	if i.gone {
		return isAbsent
	}
	pending := func(kind deedKind) bool { return i.pending[kind] > 0 || b.pending[kind] > 0 }
	states := i.may
	for {
		before := states
		if states&isAbsent != 0 && i.unsent && pending(deedSend) {
			states |= isWaiting
		}
		if states&isWaiting != 0 && (pending(deedAck) || pending(deedPurge) || b.config.DropExpired && b.canExpire(i, now)) {
			states |= isAbsent
		}
		if states&isWaiting != 0 && (pending(deedDeadLetter) || b.canDie(i, now)) {
			states |= isDead
		}
		if states&isDead != 0 && (pending(deedRedrive) || b.goingHome()) {
			states |= isWaiting
		}
		if states&isDead != 0 && (pending(deedDiscard) || pending(deedPurgeDead) || b.canFade(i, now)) {
			states |= isAbsent
		}
		if states == before {
			return states
		}
	}
}

// canDie reports whether a message may have died of its own.
func (b *crashBook) canDie(i *crashItem, now time.Time) bool {
	return b.canExhaust(i) || b.canExpire(i, now) && !b.config.DropExpired
}

func (b *crashBook) canExhaust(i *crashItem) bool {
	limit := b.config.MaxDeliveries
	return limit > 0 && i.deliveries+b.pending[deedReceive] >= limit
}

func (b *crashBook) canExpire(i *crashItem, now time.Time) bool {
	retain := b.config.RetainReady
	if retain.Age > 0 && now.Sub(i.born) >= retain.Age {
		return true
	}
	if retain.Count == 0 {
		return false
	}
	later := 0 // messages that may be younger
	for n := range b.items {
		other := &b.items[n]
		redriven := other.pending[deedRedrive]+int8(b.pending[deedRedrive]) > 0
		if other.arrived.to > i.arrived.from || redriven || other.out.Delay > 0 {
			later++
		}
	}
	return later > retain.Count // one of them is i
}

// canFade reports whether a dead letter may have been removed by retention.
func (b *crashBook) canFade(i *crashItem, now time.Time) bool {
	retain := b.config.RetainDead
	return retain.Age > 0 && now.Sub(i.born) >= retain.Age || retain.Count > 0 && len(b.items) > retain.Count
}

// rebase makes what was found after a crash what is known.
func (l *crashLedger) rebase(found [][]crashFind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick++
	for n, b := range l.books {
		for token := range b.items {
			i := &b.items[token]
			uncertain := b.placeUnknown(i)
			if b.goingHome() {
				i.sentAt = [2]time.Time{} // it may be the time of its death
			}
			find := found[n][token]
			may := find.state | b.reachable(i, time.Now())&b.precursors(find.state)
			i.pending = [deedKinds]int8{}
			i.changed = l.tick
			if uncertain { // it may have been redriven: then it is younger, and if it is dead it has died again
				i.arrived = crashSpan{from: i.arrived.from, to: l.tick, position: -1}
				i.died = [2]time.Time{}
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
				i.deliveries, i.settledAt = i.deliveries+b.pending[deedReceive], 0
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
		b.pending = [deedKinds]int{}
	}
}

// placeUnknown reports whether something that is pending may have given a message
// another place.
func (b *crashBook) placeUnknown(i *crashItem) bool {
	return i.fuzzy || b.pending[deedMove] > 0 || i.pending[deedNack] > 0 || i.pending[deedSend] > 1 || i.pending[deedRedrive] > 0 || b.pending[deedRedrive] > 0
}

// precursors are the states from which time alone leads to state. What time did
// before it was written down, another crash can undo.
func (b *crashBook) precursors(state stateSet) stateSet {
	mortal := b.config.MaxDeliveries > 0 || b.config.RetainReady != (driver.Retention{})
	switch {
	case state == isDead && mortal:
		return isWaiting
	case state == isAbsent && b.config.RetainDead != (driver.Retention{}):
		return isWaiting | isDead
	case state == isAbsent && b.config.DropExpired:
		return isWaiting
	}
	return 0
}

// A crashFind is what was found of a message.
type crashFind struct {
	state      stateSet
	id         string
	deliveries int
	redrives   int
	lastError  string
}
