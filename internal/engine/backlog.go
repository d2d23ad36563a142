package engine

import (
	"iter"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// A Shelf is where an owner keeps the messages of a shard that holds only some
// of them. The shard reads from it, and the owner writes to it what was staged
// and what effects tell. A message is on the shelf before it is published, and
// off it before its removal is; and before each read the shard tells the shelf
// what has happened since. So a shelf may be ahead of the shard, by what is
// staged, but it is never behind.
type Shelf interface {
	// CatchUp tells what happened of itself since the last call.
	CatchUp(effects []Effect)
	Reader
}

// A Reader reads what is on a shelf.
//
// Sequences yield entries that belong to the shard from then on, with
// everything set but State. They end early where the shelf cannot be read; Err
// tells.
type Reader interface {
	// Waiting yields the messages that are not dead by Place, the first at or
	// after from.
	Waiting(from uint64) iter.Seq[*Entry]
	// Aged yields the same by Seq.
	Aged(from uint64) iter.Seq[*Entry]
	// Delayed yields the messages that wait for their Due, by Due and Seq, the
	// first at or after from.
	Delayed(from DuePoint) iter.Seq[*Entry]
	// Group yields the messages of a group that are not dead by Place, the first
	// at or after from, where groups are strict, or fair and the name not empty.
	Group(name string, from uint64) iter.Seq[*Entry]
	// Dead yields the dead letters by death, the first at or after from.
	Dead(from uint64) iter.Seq[*Entry]
	// FindDead returns the dead letter with this id, or nil.
	FindDead(id string) *Entry
	// Err returns why the shelf cannot be read, or nil. It stays like that.
	Err() error
}

// Limits say about how much of each kind (ready, delayed, dead) a shard with a
// shelf holds: up to Messages, and no more once they have Bytes. To find a
// message that may go it looks at Look of them at a time, see Searching. It tells
// Groups fair groups apart, and any number if that is 0; see heldfair.go.
type Limits struct {
	Messages int
	Bytes    int
	Look     int
	Groups   int
}

// enough reports whether no more than n messages with so many bytes are to be
// held.
func (l Limits) enough(n, bytes int) bool {
	return n >= l.Messages || (bytes >= l.Bytes && n > 0)
}

// tooMany reports whether far more are held than enough.
func (l Limits) tooMany(n, bytes int) bool {
	return n > 2*l.Messages || (bytes > 2*l.Bytes && n > 1)
}

// prefix returns how many of the first messages are enough.
func (l Limits) prefix(entries []*Entry) (n int) {
	bytes := 0
	for n < len(entries) && !l.enough(n, bytes) {
		bytes += int(entries[n].Size)
		n++
	}
	return n
}

// window is the part of a shelf that a shard holds: every ready message whose
// place is before horizon, every delayed one whose due point is before
// dueHorizon, and every dead letter whose death is before deadHorizon. The
// others are only counted. Messages of groups are held otherwise: see
// heldgroups.go.
type window struct {
	Shelf
	limits Limits

	horizon    uint64
	heldReady  int
	readyBytes int

	dueHorizon   DuePoint
	heldDelayed  int
	delayedBytes int

	deadHorizon uint64

	oldest agePoint
	backs  []agePoint // ready messages that are not found from oldest on, by age

	unpublished []uint64 // places given to staged messages, ascending

	reread bool // look at strict groups anew, from the first place on
	// strayed: ready may hold messages of fair groups that are not known.
	strayed bool
	looks   int // messages that may yet be looked at to find a quieter fair group
}

// Nothing is at or beyond these: all there is is held.
const allPlaces = ^uint64(0)

var allTimes = DuePoint{Due: never, Seq: ^uint64(0)}

// SetShelf makes the shard hold a limited number of messages and read the
// others from shelf. It is called before anything else.
func (s *Shard) SetShelf(shelf Shelf, limits Limits) {
	s.window = &window{Shelf: shelf, limits: limits}
	s.window.empty()
	s.window.deadHorizon = allPlaces
}

// empty forgets everything but the dead.
func (w *window) empty() {
	w.horizon, w.heldReady, w.readyBytes = allPlaces, 0, 0
	w.dueHorizon, w.heldDelayed, w.delayedBytes = allTimes, 0, 0
	w.oldest, w.backs = noAges, nil
}

// shelf returns the shelf after telling it what it may not know yet.
func (s *Shard) shelf() Shelf {
	if news := s.effects[s.caughtUp:]; len(news) > 0 {
		s.caughtUp = len(s.effects)
		s.window.CatchUp(news)
		for i := range news {
			news[i].Told = true
		}
	}
	return s.window.Shelf
}

// published notes that a message that was given a place has got it. Nearly
// always it is the first that was; forwarding a dead letter jumps the queue.
func (w *window) published(e *Entry) {
	i, _ := slices.BinarySearch(w.unpublished, e.Place)
	if i == 0 {
		w.unpublished = w.unpublished[1:]
		return
	}
	w.unpublished = slices.Delete(w.unpublished, i, i+1)
}

// isStaged reports whether a message from the shelf is at a place that is not
// published yet.
func (w *window) isStaged(e *Entry) bool {
	_, staged := slices.BinarySearch(w.unpublished, e.Place)
	return staged
}

// stopped reports whether a read ended because the shelf is broken.
func (w *window) stopped() bool { return w.Err() != nil }

// news reports whether the shelf is ahead of the shard, or behind it, with a
// message: it is in flight, or staged. What is to be held of it is held when it
// is published or comes back. One that is damaged is buried on the spot.
func (s *Shard) news(e *Entry) bool {
	if s.inFlight.get(e.Seq) != nil {
		return true
	}
	if s.window.isStaged(e) {
		return true
	}
	if e.Is(Damaged | Misplaced) {
		s.buryDamaged(e)
		return true
	}
	return false
}

// buryDamaged makes a dead letter of a message that the shelf cannot read, or
// not all of it. One that is held is as good as ever: it was read before.
func (s *Shard) buryDamaged(e *Entry) {
	w := s.window
	if s.heldWaiting(e.Seq) != nil {
		return
	}
	if e.Due > s.clock || !e.duePoint().before(w.dueHorizon) { // else it has fallen due, and was held then
		s.stats.Delayed--
		w.reread = s.config.StrictGroups // its group, if anybody knows which, may go now
	} else {
		s.stats.Ready--
	}
	s.condemn(s.moment, e, driver.ReasonIntegrity)
	if e.Is(Damaged) {
		e.set(Leaving, false) // nobody could make use of it
	}
	e.extra().LastError = "what was stored is damaged"
	s.bury(e)
}

// heldWaiting returns the waiting message with this Seq if it is held, or nil. It
// looks at everything that is.
func (s *Shard) heldWaiting(seq uint64) *Entry {
	for e := range s.entries {
		if e.Seq == seq && e.Waits() {
			return e
		}
	}
	return nil
}

// whole returns e, or what is held of it if the shelf cannot read it any more.
func (s *Shard) whole(e *Entry) *Entry {
	if e.Is(Damaged | Misplaced) {
		if held := s.heldWaiting(e.Seq); held != nil {
			copied := *held
			copied.group = nil
			return &copied
		}
	}
	return e
}

// let counts a ready message in the window, and letGo one that leaves it.
func (w *window) let(e *Entry) {
	w.heldReady++
	w.readyBytes += int(e.Size)
}

func (w *window) letGo(e *Entry) {
	w.heldReady--
	w.readyBytes -= int(e.Size)
}

// full reports whether no more ready messages are to be held.
func (w *window) full() bool { return w.limits.enough(w.heldReady, w.readyBytes) }

// Searching reports whether messages that may go are to be looked for where the
// last Receive stopped. It takes nothing then although something may be ready,
// or less than it could: one call does not look at all that there is.
func (s *Shard) Searching() bool {
	w := s.window
	if w == nil || w.horizon == allPlaces || s.stats.Ready == 0 || w.stopped() {
		return false
	}
	return s.ready.head() == nil && len(s.groups.eligible) == 0
}
