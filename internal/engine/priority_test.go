package engine

import (
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// countedBacklog counts the messages that are read.
type countedBacklog struct {
	*memoryBacklog
	read int
}

func (b *countedBacklog) Level(priority uint8, from uint64) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e := range b.memoryBacklog.Level(priority, from) {
			b.read++
			if !yield(e) {
				return
			}
		}
	}
}

// TestLevelsAreFlat: a receive reads no more of the backlog than a window holds, whatever the
// number and the order of the priorities.
func TestLevelsAreFlat(t *testing.T) {
	const n, window = 3000, 20
	for name, priority := range map[string]func(i int) uint8{
		"in turn":    func(i int) uint8 { return uint8(i % priorities) },
		"in blocks":  func(i int) uint8 { return uint8(i / (n / priorities)) },
		"0 is last":  func(i int) uint8 { return uint8(9 * ((n - i) / (n - 5))) },
		"0 is first": func(i int) uint8 { return min(uint8(i/10), 9) },
	} {
		t.Run(name, func(t *testing.T) {
			store := &countedBacklog{memoryBacklog: newMemoryBacklog()}
			s := New(driver.Config{}, 1)
			s.SetBacklog(store, Limits{Messages: window, Bytes: 1 << 20, Look: 1000, Pass: 64})
			s.RecordEffects(true)
			s.Advance(at(0))
			for i := range n {
				e := s.StageSend(at(0), Content{ID: fmt.Sprint(i), Priority: priority(i)}, 0)
				store.stage(e)
				s.PublishNow(at(0), e)
				store.CatchUp(s.Effects())
			}
			for i := range 200 {
				store.read = 0
				got, _ := s.Receive(at(1), 1, 0, time.Minute, nil)
				store.CatchUp(s.Effects())
				if len(got) != 1 || store.read > 2*window {
					t.Fatalf("receive %d got %d messages and read %d, want 1 and at most %d", i, len(got), store.read, 2*window)
				}
			}
		})
	}
}

// TestLowPriorityIsDeliveredUnderFlood: under a flood of priority 9, a message of priority 0 is
// delivered within the longer of ten ageing periods and the time to deliver the messages of
// priority 9 that were sent before it.
func TestLowPriorityIsDeliveredUnderFlood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		aging := rapid.IntRange(1, 7).Draw(t, "aging")
		before := rapid.IntRange(0, 150).Draw(t, "sent before")
		rate := rapid.IntRange(1, 3).Draw(t, "receives a second")
		s := New(driver.Config{PriorityAging: time.Duration(aging) * time.Second}, 1)
		s.Advance(at(0))
		send := func(now int, id string, priority uint8) {
			s.Send(at(now), Content{ID: id, Priority: priority}, 0)
		}
		for range before {
			send(0, "high", 9)
		}
		send(0, "low", 0)
		limit := max(10*aging, before/rate+1)
		for now := 0; now <= limit; now++ {
			for range rate {
				send(now, "high", 9)
				got, _ := s.Receive(at(now), 1, 0, time.Hour, nil)
				if got[0].ID == "low" {
					if now < 9*aging {
						t.Fatalf("it was delivered after %d s, below level 9", now)
					}
					return
				}
			}
		}
		t.Fatalf("it was not delivered within %d s", limit)
	})
}

// TestChangedAgingChangesNextMessage: levels are those of the configuration of now, also of
// heads whose ranks are known.
func TestChangedAgingChangesNextMessage(t *testing.T) {
	s := New(driver.Config{PriorityAging: time.Hour}, 1)
	for _, priority := range []uint8{0, 3, 3} {
		s.Send(at(0), Content{ID: fmt.Sprint(priority), Priority: priority}, 0)
	}
	for i, step := range []struct {
		aging time.Duration
		want  string
	}{{time.Hour, "3"}, {time.Second, "0"}} {
		s.Configure(at(10), driver.Config{PriorityAging: step.aging})
		got, _ := s.Receive(at(10), 1, 0, time.Minute, nil)
		if len(got) != 1 || got[0].ID != step.want {
			t.Errorf("receive %d: got %d messages, want one of priority %s", i, len(got), step.want)
		}
	}
}

// An age that was restarted is kept to the microsecond, and bounded.
func TestRestartedAgeFitsInEntry(t *testing.T) {
	for _, c := range []struct{ set, want time.Duration }{
		{0, 0}, {-time.Second, 0}, {time.Microsecond, time.Microsecond}, {time.Hour + 1, time.Hour},
		{8 * 366 * 24 * time.Hour, 8 * 366 * 24 * time.Hour}, {1<<63 - 1, (1<<48 - 1) * time.Microsecond},
	} {
		var e Entry
		e.SetRestartedAfter(c.set)
		if got := e.RestartedAfter(); got != c.want {
			t.Errorf("%v: got %v, want %v", c.set, got, c.want)
		}
	}
}

// BenchmarkReceive receives and releases a message of many that wait.
func BenchmarkReceive(b *testing.B) {
	for _, c := range []struct {
		name       string
		waiting    int
		priorities int
	}{{"plain-1000", 1000, 1}, {"plain-1000000", 1_000_000, 1}, {"priorities-1000000", 1_000_000, priorities}} {
		b.Run(c.name, func(b *testing.B) {
			s := New(driver.Config{}, 1)
			s.Advance(at(0))
			for i := range c.waiting {
				s.Send(at(0), Content{ID: "m", Priority: uint8(i % c.priorities)}, 0)
			}
			out := make([]*Entry, 0, 1)
			runtime.GC() // of what was built, not of the loop
			b.ReportAllocs()
			for b.Loop() {
				out, _ = s.Receive(at(1), 1, 0, time.Minute, out[:0])
				e := out[0]
				if err := s.Ack(at(1), Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID}); err != nil {
					b.Fatal(err)
				}
				s.Send(at(1), Content{ID: "m", Priority: uint8(e.Seq % uint64(c.priorities))}, 0)
			}
		})
	}
}
