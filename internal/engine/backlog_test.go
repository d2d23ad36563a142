package engine

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// memoryBacklog is the simplest Backlog: it keeps copies of all messages.
type memoryBacklog struct {
	live map[uint64]Entry // by Seq
	dead map[uint64]Entry // by death
}

func newMemoryBacklog() *memoryBacklog {
	return &memoryBacklog{live: map[uint64]Entry{}, dead: map[uint64]Entry{}}
}

// put stores a message in its new state.
func (b *memoryBacklog) put(e *Entry, state State) {
	copied := *e
	copied.group, copied.State = nil, state
	copied.Marks &= Timed | Late | LeasedAgain | First | ReleaseCount | Wall
	if e.Extra != nil {
		extra := *e.Extra
		copied.Extra = &extra
	}
	if state == Dead {
		delete(b.live, e.Seq)
		b.dead[e.Place] = copied
		return
	}
	b.live[e.Seq] = copied
}

// stage stores what was staged.
func (b *memoryBacklog) stage(e *Entry) {
	switch e.Outcome {
	case Leaves, Expires:
		delete(b.live, e.Seq)
	case Dies:
		b.put(e, Dead)
	case Arrives, Waits:
		b.put(e, Ready)
	}
}

func (b *memoryBacklog) CatchUp(effects []Effect) {
	for _, effect := range effects {
		e := effect.Entry
		switch {
		case effect.Recorded:
		case effect.Kind == Leased && e.State == InFlight:
			b.put(e, InFlight)
		case (effect.Kind == Returned || effect.Kind == Rescheduled || effect.Kind == Prioritized || effect.Kind == Replaced) && e.Waits():
			b.put(e, Ready)
		case effect.Kind == Died:
			b.put(e, Dead)
		case effect.Kind == Discarded:
			delete(b.dead, e.Place)
		case effect.Kind == Withdrawn:
			delete(b.live, e.Seq)
		}
	}
}

// sorted yields copies of the entries to keep.
func sorted(entries map[uint64]Entry, keep func(*Entry) bool, compare func(a, b *Entry) int) iter.Seq[*Entry] {
	var found []*Entry
	for e := range maps.Values(entries) {
		if e.Extra != nil {
			extra := *e.Extra
			e.Extra = &extra
		}
		if keep(&e) {
			found = append(found, &e)
		}
	}
	slices.SortFunc(found, compare)
	return slices.Values(found)
}

func byPlace(a, b *Entry) int { return cmp.Compare(a.Place, b.Place) }

func (b *memoryBacklog) Waiting(from uint64) iter.Seq[*Entry] {
	return sorted(b.live, func(e *Entry) bool { return e.Place >= from }, byPlace)
}

func (b *memoryBacklog) Level(priority uint8, from uint64) iter.Seq[*Entry] {
	return sorted(b.live, func(e *Entry) bool { return e.Place >= from && e.Priority == priority }, byPlace)
}

func (b *memoryBacklog) Aged(from uint64) iter.Seq[*Entry] {
	return sorted(b.live, func(e *Entry) bool { return e.Seq >= from },
		func(a, b *Entry) int { return cmp.Compare(a.Seq, b.Seq) })
}

func (b *memoryBacklog) Delayed(wall bool, from DuePoint) iter.Seq[*Entry] {
	return sorted(b.live, func(e *Entry) bool {
		return e.State == Ready && e.Is(Timed) && e.Is(Wall) == wall && !e.duePoint().before(from)
	},
		func(a, b *Entry) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Seq, b.Seq)) })
}

func (b *memoryBacklog) Ends(from DuePoint) iter.Seq[*Entry] {
	return sorted(b.live, func(e *Entry) bool { return e.life() != nil && !e.endPoint().before(from) },
		func(a, b *Entry) int {
			return cmp.Or(cmp.Compare(a.Extra.Life.Ends, b.Extra.Life.Ends), cmp.Compare(a.Seq, b.Seq))
		})
}

func (b *memoryBacklog) Group(name string, from uint64) iter.Seq[*Entry] {
	return sorted(b.live, func(e *Entry) bool { return e.Place >= from && e.groupName() == name }, byPlace)
}

func (b *memoryBacklog) Groups(from GroupPoint, visit func(e *Entry, at GroupPoint) (GroupPoint, bool)) (end bool) {
	point := func(e *Entry) GroupPoint { return GroupPoint{"group " + e.groupName(), e.Place} }
	compare := func(a, b GroupPoint) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Place, b.Place)) }
	more := true
	for e := range sorted(b.live, func(*Entry) bool { return true }, func(a, b *Entry) int { return compare(point(a), point(b)) }) {
		if !more {
			return false
		}
		if compare(point(e), from) >= 0 {
			from, more = visit(e, point(e))
		}
	}
	return more
}

func (b *memoryBacklog) Dead(from uint64) iter.Seq[*Entry] {
	return sorted(b.dead, func(e *Entry) bool { return e.Place >= from }, byPlace)
}

func (b *memoryBacklog) FindDead(id string) *Entry {
	for e := range b.Dead(0) {
		if e.ID == id {
			return e
		}
	}
	return nil
}

func (b *memoryBacklog) Err() error { return nil }

// TestShardWithBacklogBehavesLikeOneWithout runs the same program on a shard that
// holds a few messages and on one that holds all, with staging and publishing apart,
// and restores the first from its backlog now and then.
func TestShardWithBacklogBehavesLikeOneWithout(t *testing.T) {
	volume.InFull(t)
	randomly(t, 200, func(t *rapid.T) {
		config := anyConfig(t)
		limit := rapid.IntRange(1, 6).Draw(t, "limit")
		p := &pair{t: t, whole: New(config, 1), store: newMemoryBacklog(), limits: Limits{
			Messages: limit,
			Bytes:    rapid.SampledFrom([]int{3, 1000}).Draw(t, "bytes"),
			Look:     rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "look"),
			Pass:     rapid.SampledFrom([]int{0, 2, 1000}).Draw(t, "pass"),
		}}
		if rapid.Bool().Draw(t, "shares room") {
			p.room = &room{}
			p.limits.Room = p.room
		}
		if config.FairGroups || config.StrictGroups {
			p.limits.Look = 1000 // a receive that stops early may find another group
		}
		p.windowed = New(config, 1)
		p.windowed.SetBacklog(p.store, p.limits)
		var forwards func() bool
		if rapid.Bool().Draw(t, "forwards") {
			room := rapid.Bool().Draw(t, "room in the target")
			forwards = func() bool { return room }
		}
		for _, s := range []*Shard{p.whole, p.windowed} {
			s.RecordEffects(true)
			s.ForwardDead(forwards)
		}
		seconds := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Second
		}
		t.Repeat(map[string]func(*rapid.T){
			"send":      p.send,
			"receive":   p.receive,
			"step wall": p.stepWall,
			"ack": func(*rapid.T) {
				p.settle(func(s *Shard, d Delivery) (*Entry, error) { return s.StageAck(p.moment(), d) })
			},
			"ack late": func(*rapid.T) {
				p.settle(func(s *Shard, d Delivery) (*Entry, error) { return s.StageLateAck(p.moment(), d) })
			},
			"nack": func(t *rapid.T) {
				delay, mode := seconds("delay", 4), anyMode(t)
				p.settle(func(s *Shard, d Delivery) (*Entry, error) { return s.StageNack(p.moment(), d, delay, "cause", mode) })
			},
			"dead-letter": func(*rapid.T) {
				p.settle(func(s *Shard, d Delivery) (*Entry, error) {
					return s.StageDeadLetter(p.moment(), d, "fatal", "", "")
				})
			},
			"extend": func(t *rapid.T) {
				visibility := seconds("visibility", 4)
				if len(p.deliveries) > 0 {
					d := rapid.SampledFrom(p.deliveries).Draw(t, "delivery")
					p.step(func(s *Shard) string { return fmt.Sprint(s.Extend(p.moment(), d, visibility)) })
				}
			},
			"edit":    p.edit,
			"forward": p.forward,
			"move":    p.move,
			"redrive": p.redrive,
			"discard": p.discard,
			"publish": func(*rapid.T) { p.publish() },
			"time": func(t *rapid.T) {
				p.now += rapid.IntRange(0, 3).Draw(t, "seconds")
				p.step(func(s *Shard) string { return fmt.Sprint(s.Stats(p.moment())) })
			},
			"look":     p.look,
			"throttle": p.throttle,
			"restore":  func(t *rapid.T) { p.restore(t, config) },
			"others":   p.othersTake,
			"give":     p.giveRoom,
			"configure": func(t *rapid.T) {
				other := anyConfig(t)
				p.step(func(s *Shard) string { s.Configure(p.moment(), other); return "" })
				other.StrictGroups, other.FairGroups = config.StrictGroups, config.FairGroups
				config = other
			},
			"purge": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					p.publishAll()
					p.step(func(s *Shard) string {
						removed := s.Purge(p.moment())
						if s == p.windowed {
							s.backlog() // passes it the effects
							clear(p.store.live)
						}
						return fmt.Sprint(removed)
					})
				}
			},
		})
	})
}
