package engine

import "github.com/mailboxmq/mailbox/driver"

// Shard is one shard of a queue. It is not safe for concurrent use.
type Shard struct {
	config rules
	stats  driver.Stats
	bytes  int // bodies of what is not dead

	arriving, arrivingBytes int // messages staged to arrive
	dying                   int // messages condemned and not yet buried

	nextSeq   uint64 // Seq and Place of the next message that arrives
	nextNonce uint64
	seal      uint64 // makes nonces that can be told from others; see late.go
	deaths    uint64 // how many messages have died; the Place of the latest

	ready    order  // ready messages that are not in groups
	groups   groups // ready messages of strict and fair groups
	inFlight leases
	returned leases // messages that were delivered and wait again, unless there is a shelf
	timers   timers // delayed and in-flight messages by Due
	ages     order  // ready messages by age, if retention needs them
	dead     *deadLetters
	window   *window // nil: everything is held

	elsewhere func() bool // not nil: the owner sends dead letters where this says there is room
	unseen    int         // leaving letters that it does not know of yet

	keepsExpired  bool // messages that expire are not sent elsewhere
	recordEffects bool
	tellsEndings  bool
	effects       []Effect
	shown         int // how many of them Effects returned last
	caughtUp      int // how many of the effects the shelf knows of

	endings *[]driver.Ending // see ending.go; nil: none, as in most shards

	clock  Instant  // up to when everything has happened
	stamp  Instant  // of the latest that has; behind clock after Restore
	moment Moment   // of what is happening
	spare  []*Entry // entries to use again
	taken  []*group // groups touched by the batch being received
}

// maxSpare bounds the entries, and the room for effects, kept for reuse.
const maxSpare = 1024

// New returns an empty shard. Nonces start at nonce: an owner that forgets
// leases when it restarts passes a random one, so that old receipts stay
// invalid.
func New(config driver.Config, nonce uint64) *Shard {
	s := &Shard{
		config:    rulesOf(&config),
		nextSeq:   1,
		nextNonce: nonce,
		seal:      nonce,
		dead:      noDead,
	}
	s.clock, s.stamp = -never, -never
	s.ages.byAge = true
	return s
}

// Configure changes everything but StrictGroups and FairGroups, and applies new limits to
// what is there.
func (s *Shard) Configure(now Moment, config driver.Config) {
	s.Advance(now)
	agedBefore := s.tracksAge()
	config.StrictGroups, config.FairGroups = s.config.StrictGroups, s.config.FairGroups
	s.config = rulesOf(&config)
	switch {
	case s.window != nil:
		s.window.oldest, s.window.backs = allAges, nil
	case s.tracksAge() && !agedBefore:
		s.rebuildAges()
	case !s.tracksAge():
		s.ages.clear()
	}
	s.expireDeadByCount()
	s.Advance(now)
}

// Stats counts the messages in each state, as of now.
func (s *Shard) Stats(now Moment) driver.Stats {
	s.Advance(now)
	return s.stats
}

// Clock is up to when everything has happened.
func (s *Shard) Clock() Instant { return s.clock }

// RecordEffects makes the shard keep effects for Effects.
func (s *Shard) RecordEffects(on bool) { s.recordEffects = on }

// ForwardDead tells that the owner sends dead letters elsewhere, and how to ask
// whether there is room; nil means that they stay. They are Leaving then when they
// die, and the owner answers each death that Effects tells with GiveAway or
// KeepDead, and then calls Advance: retention must not remove a letter before the
// owner has seen it.
func (s *Shard) ForwardDead(room func() bool) {
	s.elsewhere = room
	if room == nil {
		s.unseen = 0
	}
}

// KeepExpired makes messages that expire from now on stay as dead letters although
// others go elsewhere. Where dead letters come back to the queue they died in, an
// expired one would begin again with a new age, and never end.
func (s *Shard) KeepExpired(keep bool) { s.keepsExpired = keep }

// forwards reports whether a message that dies goes elsewhere.
func (s *Shard) forwards(reason driver.Reason) bool {
	return s.elsewhere != nil && !(s.keepsExpired && reason == driver.ReasonExpired)
}

// HasLeaving reports whether Effects will tell of letters that are Leaving.
func (s *Shard) HasLeaving() bool { return s.unseen > 0 }

// Present returns now, but not later than what has happened so far. An owner that
// adds a message without Advance does so at this moment.
func (s *Shard) Present(now Moment) Moment { return now.earlier(min(now.At, s.clock)) }

// Effects returns what happened since it was last called. The entries are
// valid until the next call of any other method.
func (s *Shard) Effects() []Effect {
	effects := s.effects
	if len(effects) < s.shown { // entries that nobody needs any more are not kept alive
		clear(effects[len(effects):s.shown])
	}
	s.effects, s.shown, s.caughtUp, s.unseen = s.effects[:0], len(effects), 0, 0
	if len(effects) == 0 && cap(effects) > maxSpare {
		s.effects = nil
	}
	return effects
}

func (s *Shard) effect(kind EffectKind, e *Entry) {
	cameBack := kind == Returned || kind == Withdrawn
	if s.recordEffects {
		s.effects = append(s.effects, Effect{Kind: kind, Entry: e, Told: cameBack && e.Is(told)})
	}
	if cameBack {
		e.set(told, false)
	}
}

// Room returns nil if one more message with a body of this size fits, and
// ErrFull if it does not.
func (s *Shard) Room(now Moment, size int) error {
	s.Advance(now)
	if !s.Fits(size) {
		return driver.ErrFull
	}
	return nil
}

// Fits reports whether one more message with a body of this size fits beside what was
// there when time last advanced.
func (s *Shard) Fits(size int) bool {
	if s.config.MaxMessages > 0 && s.stats.Waiting()+s.arriving >= s.config.MaxMessages {
		return false
	}
	return s.config.MaxBytes == 0 || s.bytes+s.arrivingBytes+size <= s.config.MaxBytes
}

// wait makes e ready, or delayed until it is due. It is how every message that
// is in no order enters one; how is the effect.
func (s *Shard) wait(e *Entry, how EffectKind) {
	if s.inGroup(e) {
		s.waitInGroup(e, how)
		return
	}
	defer s.effect(how, e)
	if e.Due > s.clock {
		s.stats.Delayed++
		s.delay(e)
	} else {
		e.State = Ready
		s.stats.Ready++
		s.offer(e)
	}
}

// offer puts a ready message where Receive finds it.
func (s *Shard) offer(e *Entry) {
	if s.inGroup(e) && s.offerInGroup(e) {
		return
	}
	if s.window == nil {
		s.ready.push(e)
		return
	}
	if s.window.admits(e, &s.ready) {
		s.holdReady(e)
		s.trimReady()
	}
}

// delay puts a delayed message where Advance finds it.
func (s *Shard) delay(e *Entry) {
	e.State = Delayed
	if s.window == nil {
		s.timers.push(e)
		return
	}
	if e.duePoint().before(s.window.dueHorizon) {
		s.holdDelayed(e)
		s.trimDelayed()
	}
}

// extract takes a waiting message out of the middle of its order. It leaves a
// Gone entry behind; the copy it returns is the message, in no order at all.
func (s *Shard) extract(e *Entry) *Entry {
	if e.Deliveries > 0 {
		s.returned.remove(e)
	}
	moved := *e
	wasReady := e.State == Ready
	if wasReady {
		s.stats.Ready--
	} else {
		s.stats.Delayed--
		s.timers.remove(e)
	}
	s.vanish(e)
	moved.timerIndex = -1
	if moved.group != nil {
		moved.group.waiting.lost()
		s.leaveGroup(&moved)
	} else if wasReady {
		s.ready.lost()
	}
	return &moved
}

// vanish turns e into a Gone entry that keeps nothing else alive. Orders that
// still hold it go on comparing its numbers.
func (s *Shard) vanish(e *Entry) {
	if s.holdsAges() && !e.Is(unaged) {
		defer s.ages.lost()
	}
	*e = Entry{Seq: e.Seq, Place: e.Place, Born: e.Born, timerIndex: -1}
}

// leaveGroup settles the group of a message that is not in it any more.
func (s *Shard) leaveGroup(e *Entry) {
	if g := e.group; g != nil {
		e.group = nil
		s.settleGroup(g)
	}
}

// entries yields every message that is not dead, in no particular order.
func (s *Shard) entries(yield func(*Entry) bool) {
	for e := range s.ready.all {
		if !yield(e) {
			return
		}
	}
	for _, e := range s.timers {
		if !yield(e) {
			return
		}
	}
	for _, g := range s.groups.byName {
		for e := range g.waiting.all {
			if !yield(e) {
				return
			}
		}
	}
}

// newEntry returns an entry to fill.
func (s *Shard) newEntry() *Entry {
	if last := len(s.spare) - 1; last >= 0 {
		e := s.spare[last]
		s.spare = s.spare[:last]
		*e = Entry{}
		return e
	}
	return new(Entry)
}

// release keeps an entry that no order holds for reuse. It stays readable
// until the next message arrives. With a shelf, effects may outlive that.
func (s *Shard) release(e *Entry) {
	if s.window == nil && !s.tracksAge() && len(s.spare) < maxSpare {
		s.spare = append(s.spare, e)
	}
}

// Purge removes all messages that are not dead and returns how many.
func (s *Shard) Purge(now Moment) (removed int) {
	s.Advance(now)
	removed = s.stats.Waiting()
	s.stats = driver.Stats{Dead: s.stats.Dead}
	s.bytes = 0
	s.ready.clear()
	s.groups = groups{}
	s.ages.clear()
	s.inFlight, s.returned = leases{}, leases{}
	clear(s.timers)
	s.timers = s.timers[:0]
	if s.window != nil {
		s.window.empty()
	}
	return removed
}
