package engine

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// countingBacklog counts how many messages Waiting and Groups yield.
type countingBacklog struct {
	*memoryBacklog
	looked int
}

func (c *countingBacklog) Waiting(from uint64) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e := range c.memoryBacklog.Waiting(from) {
			c.looked++
			if !yield(e) {
				return
			}
		}
	}
}

func (c *countingBacklog) Groups(from GroupPoint, visit func(e *Entry, at GroupPoint) (GroupPoint, bool)) (end bool) {
	return c.memoryBacklog.Groups(from, func(e *Entry, at GroupPoint) (GroupPoint, bool) {
		c.looked++
		return visit(e, at)
	})
}

// stocked returns a shard with a backlog, and a function that sends to it.
func stocked(config driver.Config, limits Limits) (s *Shard, on *countingBacklog, send func(group string, size int, delay time.Duration)) {
	on = &countingBacklog{memoryBacklog: newMemoryBacklog()}
	s = New(config, 1)
	s.SetBacklog(on, limits)
	s.RecordEffects(true)
	s.Advance(at(0))
	sent := 0
	send = func(group string, size int, delay time.Duration) {
		sent++
		e := s.StageSend(at(0), Content{ID: fmt.Sprint(sent), Body: make([]byte, size), Extra: &Extra{Group: group}}, delay)
		on.stage(e)
		s.PublishNow(at(0), e)
		on.CatchUp(s.Effects())
	}
	return s, on, send
}

// reread restores a shard from its backlog, as a restart does.
func reread(s *Shard, on *countingBacklog, limits Limits) *Shard {
	totals := Totals{Messages: len(on.live), NextSeq: s.nextSeq, Bytes: s.bytes}
	var out []*Entry
	for e := range on.memoryBacklog.Waiting(0) {
		switch {
		case e.State == InFlight:
			out = append(out, e)
		case e.Due > s.clockOf(e):
			totals.Delayed++
		}
	}
	again := New(driver.Config{}, 100)
	again.config = s.config
	again.SetBacklog(on, limits)
	again.RecordEffects(true)
	again.Restore(Moment{At: s.clock, Wall: int64(s.wall)}, totals, out)
	return again
}

// TestReceiveBoundsItsScan: a blocked group or a delay may hold back very many
// messages, and finding the first deliverable one must not hold up other callers.
func TestReceiveBoundsItsScan(t *testing.T) {
	limits := Limits{Messages: 5, Bytes: 1000, Look: 10, Pass: 1000}
	for _, test := range []struct {
		name   string
		config driver.Config
		delay  time.Duration
	}{
		{"a group that is held", driver.Config{StrictGroups: true}, 0},
		{"delayed messages", driver.Config{}, time.Hour},
		{"delayed messages in a group", driver.Config{StrictGroups: true}, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, on, send := stocked(test.config, limits)
			if test.delay == 0 {
				send("held", 1, 0)
				s.Receive(at(0), 1, 0, time.Hour, nil)
				on.CatchUp(s.Effects())
			}
			for range 95 {
				send("held", 1, test.delay)
			}
			send("free", 1, 0)
			s = reread(s, on, limits)
			for rounds := 1; ; rounds++ {
				on.looked = 0
				if s.Available(at(0)) == 0 {
					t.Fatalf("nothing is available in round %d", rounds)
				}
				got, _ := s.Receive(at(0), 1, 0, time.Hour, nil)
				if on.looked > 2*limits.Look {
					t.Fatalf("looked at %d messages, %d at a time", on.looked, limits.Look)
				}
				if len(got) == 1 {
					if got[0].groupName() != "free" || rounds < 3 {
						t.Errorf("received one of group %q in round %d", got[0].groupName(), rounds)
					}
					break
				}
				if !s.Searching() {
					t.Fatalf("gave up in round %d", rounds)
				}
			}
			if got, _ := s.Receive(at(0), 1, 0, time.Hour, nil); len(got) > 0 || s.Searching() {
				t.Errorf("received %d more, searching: %v", len(got), s.Searching())
			}
			if n := s.Available(at(0)); n != 0 {
				t.Errorf("%d are available", n)
			}
		})
	}
}

// TestByteLimitHoldsForAllStates: large bodies fill the window by bytes, not by count.
func TestByteLimitHoldsForAllStates(t *testing.T) {
	limits := Limits{Messages: 1000, Bytes: 1000, Look: 1000}
	const size, sent, most = 100, 200, 2*1000 + 100
	held := func(s *Shard) (ready, delayed, dead int) {
		s.ready.all(func(e *Entry) bool { ready += len(e.Body); return true })
		for _, g := range s.groups.byName {
			g.waiting.all(func(e *Entry) bool { ready += len(e.Body); return true })
		}
		for e := range s.timers.all {
			if e.State == Delayed {
				delayed += len(e.Body)
			}
		}
		s.dead.byDeath.all(func(e *Entry) bool { dead += len(e.Body); return true })
		return ready, delayed, dead
	}
	check := func(t *testing.T, s *Shard) {
		t.Helper()
		if ready, delayed, dead := held(s); ready > most || delayed > most || dead > most {
			t.Fatalf("holds %d bytes of ready, %d of delayed and %d of dead messages with a limit of %d", ready, delayed, dead, limits.Bytes)
		}
	}
	t.Run("ready and dead", func(t *testing.T) {
		s, on, send := stocked(driver.Config{MaxDeliveries: 1}, limits)
		for range sent {
			send("", size, 0)
		}
		check(t, s)
		s.Receive(at(0), sent, 0, time.Second, nil)
		on.CatchUp(s.Effects())
		s.Advance(at(2))
		check(t, s)
		if s.stats.Dead != sent {
			t.Fatalf("%+v", s.stats)
		}
		on.CatchUp(s.Effects())
		for range sent { // read again, the oldest first
			s.Discard(at(2), s.oldestDead())
			on.CatchUp(s.Effects())
			check(t, s)
		}
	})
	t.Run("ready ones that come back", func(t *testing.T) {
		s, on, send := stocked(driver.Config{}, limits)
		for range sent {
			send("", size, 0)
		}
		s.Receive(at(0), sent, 0, time.Second, nil)
		on.CatchUp(s.Effects())
		s.Advance(at(2))
		check(t, s)
	})
	t.Run("delayed", func(t *testing.T) {
		s, on, send := stocked(driver.Config{}, limits)
		for i := range sent {
			send("", size, time.Duration(sent-i)*time.Second)
			check(t, s)
		}
		for i := range sent {
			s.Advance(at(i))
			on.CatchUp(s.Effects())
			check(t, s)
		}
	})
	t.Run("fair groups", func(t *testing.T) {
		s, on, send := stocked(driver.Config{FairGroups: true}, limits)
		for i := range sent {
			send(fmt.Sprint(i%40), size, 0)
			check(t, s)
		}
		for i := range 2 {
			s.Receive(at(3*i), sent, 0, time.Second, nil)
			on.CatchUp(s.Effects())
			check(t, s)
			s.Advance(at(3*i + 2)) // they come back
			on.CatchUp(s.Effects())
			check(t, s)
			s = reread(s, on, limits)
		}
		if got, _ := s.Receive(at(9), sent, 0, time.Second, nil); len(got) != sent {
			t.Fatalf("received %d", len(got))
		}
	})
	t.Run("groups that are held", func(t *testing.T) {
		s, on, send := stocked(driver.Config{StrictGroups: true}, limits)
		for i := range 40 {
			send(fmt.Sprint(i), size, 0)
		}
		s.Receive(at(0), 40, 0, time.Hour, nil)
		on.CatchUp(s.Effects())
		for i := range sent {
			send(fmt.Sprint(i%40), size, 0)
		}
		check(t, s)
		s = reread(s, on, limits)
		if got, _ := s.Receive(at(0), 1, 0, time.Hour, nil); len(got) > 0 {
			t.Fatalf("received %d", len(got))
		}
		check(t, s)
	})
}
