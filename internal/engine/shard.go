package engine

import (
	"math"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Shard is one shard of a queue. It is not safe for concurrent use.
type Shard struct {
	config rules
	stats  driver.Stats
	bytes  int // total size of the bodies that are not dead

	arrivingBytes   int
	arriving, dying int32 // messages staged to arrive, and to die

	nextSeq   uint64 // Seq and Place of the next message that arrives
	nextNonce uint64
	seal      uint64 // secret in the nonces of this shard; see late_ack.go
	deaths    uint64 // how many messages have died: the Place of the latest dead letter

	ready    order        // ready messages that are not in groups, of priority 0
	levels   *levels      // those of higher priorities; nil in most shards. See priority.go
	fetched  fetched      // see fetch.go
	groups   groups       // ready messages of strict and fair groups
	limits   *groupLimits // of groups; nil in most shards. See limit.go
	inFlight leases
	returned leases  // messages that wait after a delivery, if there is no backlog
	timers   timers  // delayed and in-flight messages by Due
	alarms   *alarms // messages that follow the wall clock; nil in most shards. See wall.go
	ages     order   // ready messages by age, if retention needs them
	dead     *deadLetters
	holders  map[Digest]holder // the messages that hold unique keys; nil in most shards. See unique.go
	window   *window           // nil without a backlog: the shard holds all messages

	forwardRoom func() bool // not nil: the owner forwards dead letters, and this reports room in the target

	unseen        int32 // Leaving dead letters that Effects has not returned yet
	keepsExpired  bool  // expired messages are not forwarded
	recordEffects bool
	recordEndings bool
	effects       []Effect
	shown         int32 // how many effects the last call of Effects returned
	caughtUp      int32 // how many of the effects the backlog knows

	endings *[]driver.Ending // see effects.go; nil in most shards

	clock  Instant  // every event up to here has been handled
	wall   Instant  // every alarm up to here has fired
	stamp  Instant  // time of the latest handled event; behind clock after Restore
	moment Moment   // time of the event being handled, or of the latest Advance
	spare  []*Entry // entries for reuse

	taken *group // the last group touched by the batch being received; its nextTaken is the first
}

// maxSpare bounds the entries, and the room for effects, kept for reuse.
const maxSpare = 1024

// New returns an empty shard. Nonces start at nonce. An owner that loses leases
// in a restart passes a random nonce, so that old receipts stay invalid.
func New(config driver.Config, nonce uint64) *Shard {
	s := &Shard{
		config:    rulesOf(&config),
		nextSeq:   1,
		nextNonce: nonce,
		seal:      nonce,
		dead:      noDeadLetters,
	}
	s.clock, s.wall, s.stamp = -never, -never, -never
	s.ages.byAge = true
	s.setLimits(config.GroupLimits)
	return s
}

// Configure changes all settings but StrictGroups and FairGroups, and applies the
// new limits to the messages in the shard.
func (s *Shard) Configure(now Moment, config driver.Config) {
	s.Advance(now)
	agedBefore := s.tracksAge()
	config.StrictGroups, config.FairGroups = s.config.StrictGroups, s.config.FairGroups
	s.config = rulesOf(&config)
	s.setLimits(config.GroupLimits)
	switch {
	case s.window != nil:
		s.window.oldest, s.window.backs = allAges, nil
	case s.tracksAge() && !agedBefore:
		s.rebuildAges()
	case !s.tracksAge():
		s.ages.clear()
	}
	if s.levels != nil {
		s.levels.stale = staleRanks
	}
	s.Advance(now)
}

// Stats counts the messages in each state, as of now.
func (s *Shard) Stats(now Moment) driver.Stats {
	s.Advance(now)
	stats := s.stats
	if s.limits != nil {
		stats.Throttled = s.throttled()
	}
	return stats
}

// SetPaused pauses or resumes the shard. While it is paused, Receive delivers nothing.
func (s *Shard) SetPaused(paused bool) { s.stats.Paused = paused }

// Clock returns the time up to which every event has been handled.
func (s *Shard) Clock() Instant { return s.clock }

// ForwardDead says that the owner forwards dead letters to another queue; room
// reports whether that queue has room. With nil, dead letters stay here. A message
// that dies is then marked Leaving, and the owner answers each Died effect with
// RemoveForwarded or KeepDead and then calls Advance. Until then retention does not
// remove dead letters, so that none goes before the owner has seen it.
func (s *Shard) ForwardDead(room func() bool) {
	s.forwardRoom = room
	if room == nil {
		s.unseen = 0
	}
}

// KeepExpired exempts messages that expire from forwarding: they stay here as dead
// letters. An expired message that is forwarded to its own queue would start with a
// new age and expire again and again.
func (s *Shard) KeepExpired(keep bool) { s.keepsExpired = keep }

// forwards reports whether a message that dies for this reason is forwarded.
func (s *Shard) forwards(reason driver.Reason) bool {
	return s.forwardRoom != nil && !(s.keepsExpired && reason == driver.ReasonExpired)
}

// HasLeaving reports whether Effects will return dead letters that are Leaving.
func (s *Shard) HasLeaving() bool { return s.unseen > 0 }

// Present returns now, or the shard's clock if that is earlier. It is the time to
// use for adding a message without calling Advance first.
func (s *Shard) Present(now Moment) Moment { return now.earlier(min(now.At, s.clock)) }

// wait makes e ready, or delayed until it is due, and records the effect how. Every
// message that is in no order enters one through it.
func (s *Shard) wait(e *Entry, how EffectKind) {
	if x := e.Extra; x != nil {
		if x.Life != nil {
			s.followLife(e)
		}
		if x.Unique != nil {
			s.follow(e)
		}
	}
	if s.inGroup(e) {
		s.waitInGroup(e, how)
		return
	}
	defer s.effect(how, e)
	if e.Due > s.clockOf(e) {
		s.stats.Delayed++
		s.delay(e)
	} else {
		e.State = Ready
		s.stats.Ready++
		s.offer(e)
	}
}

// offer puts a ready message into the order that Receive takes from.
func (s *Shard) offer(e *Entry) {
	if s.inGroup(e) && s.offerInGroup(e) {
		return
	}
	if s.window == nil {
		s.readyFor(e.Priority).push(e)
		return
	}
	if s.admits(e) {
		s.holdReady(e)
		s.trimReady()
	}
}

// delay puts a delayed message among the timers of Advance.
func (s *Shard) delay(e *Entry) {
	e.State = Delayed
	if s.window == nil {
		s.timersOf(e).push(e)
		return
	}
	if e.duePoint().before(s.window.delaysOf(e).horizon) {
		s.holdDelayed(e)
		s.trimDelayed(s.window.delaysOf(e), s.timersOf(e))
	}
}

// extract takes a waiting message out of the middle of its order. It leaves a Gone
// entry there, and returns a copy of the message that is in no order.
func (s *Shard) extract(e *Entry) *Entry {
	if e.HasReturned() {
		s.returned.remove(e)
	}
	if e.life() != nil {
		s.leaveLife(e)
	}
	moved := *e
	wasReady := e.State == Ready
	if wasReady {
		s.stats.Ready--
	} else {
		s.stats.Delayed--
		s.timersOf(e).remove(e)
	}
	s.vanish(e)
	moved.timerIndex = -1
	if moved.group != nil {
		moved.group.waiting.lost()
		s.leaveGroup(&moved)
	} else if wasReady {
		s.readyFor(moved.Priority).lost()
	}
	return &moved
}

// vanish turns e into a Gone entry that keeps no other memory alive. Orders that
// still hold it go on comparing its numbers.
func (s *Shard) vanish(e *Entry) {
	if s.holdsAges() && !e.Is(unaged) {
		defer s.ages.lost()
	}
	*e = Entry{Seq: e.Seq, Place: e.Place, Born: e.Born, timerIndex: -1}
}

// leaveGroup takes e out of its group and updates the group.
func (s *Shard) leaveGroup(e *Entry) {
	if g := e.group; g != nil {
		e.group = nil
		s.regroup(g)
	}
}

// entries yields every message that is not dead, in no particular order.
func (s *Shard) entries(yield func(*Entry) bool) {
	for _, ready := range s.readyOrders() {
		for e := range ready.all {
			if !yield(e) {
				return
			}
		}
	}
	for e := range s.timed {
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

// timed yields every message that waits for a time, delayed or in flight.
func (s *Shard) timed(yield func(*Entry) bool) {
	for e := range s.timers.all {
		if !yield(e) {
			return
		}
	}
	if s.alarms != nil {
		s.alarms.due.all(yield)
	}
}

// newEntry returns an empty entry.
func (s *Shard) newEntry() *Entry {
	if last := len(s.spare) - 1; last >= 0 {
		e := s.spare[last]
		s.spare = s.spare[:last]
		*e = Entry{}
		return e
	}
	return new(Entry)
}

// release keeps an entry that no order holds for reuse. Its numbers stay readable until
// the next message arrives; its content is dropped, so that it does not stay in memory.
// With a backlog it is not reused, because effects may refer to it for longer.
func (s *Shard) release(e *Entry) {
	if s.window == nil && !s.tracksAge() && len(s.spare) < maxSpare {
		e.Content = Content{}
		s.spare = append(s.spare, e)
	}
}

// Purge removes all messages that are not dead and returns their number.
func (s *Shard) Purge(now Moment) (removed int) {
	s.Advance(now)
	removed = s.stats.Waiting()
	s.stats = driver.Stats{Dead: s.stats.Dead, Paused: s.stats.Paused}
	s.bytes = 0
	s.ready.clear()
	s.levels = nil
	s.purgeGroups()
	s.ages.clear()
	s.inFlight, s.returned = leases{}, leases{}
	s.timers, s.alarms = timers{}, nil
	s.holders = nil
	if s.window != nil {
		s.window.empty()
	}
	return removed
}

// rules is the part of a queue's configuration that its shards need. It is smaller
// than driver.Config because most of the many shards are idle.
type rules struct {
	MaxMessages, MaxBytes, MaxInFlight, MaxDead int
	MaxHold, PriorityAging                      time.Duration
	RetainReady, RetainDead                     driver.Retention
	MaxDeliveries                               int32
	StrictGroups, FairGroups, DropExpired       bool
}

func rulesOf(config *driver.Config) rules {
	return rules{
		MaxDeliveries: int32(min(config.MaxDeliveries, math.MaxInt32)), MaxMessages: config.MaxMessages, MaxBytes: config.MaxBytes,
		MaxInFlight: config.MaxInFlight, MaxDead: config.MaxDead, MaxHold: config.MaxHold,
		RetainReady: config.RetainReady, RetainDead: config.RetainDead,
		StrictGroups: config.StrictGroups, FairGroups: config.FairGroups, DropExpired: config.DropExpired,
		PriorityAging: max(config.Effective().PriorityAging, 0),
	}
}

// Usage returns how much of its limits the shard uses.
func (s *Shard) Usage(now Moment) driver.ShardUsage {
	usage := driver.ShardUsage{Stats: s.Stats(now), Bytes: s.bytes}
	if s.config.RetainReady.Age > 0 && s.stats.Ready+s.stats.Delayed > 0 {
		if born, ok := s.oldestBorn(); ok {
			usage.OldestReady = max(time.Duration(now.At-born), 0)
		}
	}
	if s.stats.Dead > 0 && s.unseen == 0 {
		if oldest := s.oldestDead(); oldest != nil {
			usage.OldestDead = max(time.Duration(now.At-oldest.Born), 0)
		}
	}
	return usage
}
