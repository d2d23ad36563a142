package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
)

// TestWallClockDecidesNothing runs the same program twice, once with a wall clock that
// jumps back and forth by minutes. Delays, leases, dedup and retention must not
// change.
func TestWallClockDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := anyConfig(t)
		steady, jumpy := New(config, 1), New(config, 1)
		now, sent := 0, 0
		var deliveries []Delivery
		both := func(do func(s *Shard, now Moment) string) {
			moment := at(now)
			steadily := do(steady, moment)
			moment.Wall += int64(rapid.IntRange(-120, 120).Draw(t, "jump")) * int64(time.Second)
			if jumpily := do(jumpy, moment); jumpily != steadily {
				t.Fatalf("steady: %s\njumpy: %s", steadily, jumpily)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				sent++
				delay := time.Duration(rapid.IntRange(0, 4).Draw(t, "delay")) * time.Second
				both(func(s *Shard, now Moment) string {
					if err := s.Room(now, 1); err != nil {
						return err.Error()
					}
					s.Send(now, Content{ID: fmt.Sprint(sent), Body: []byte{1}}, delay)
					return "sent"
				})
			},
			"receive": func(t *rapid.T) {
				visibility := time.Duration(rapid.IntRange(0, 6).Draw(t, "visibility")) * time.Second
				var got []Delivery
				both(func(s *Shard, now Moment) (result string) {
					entries, blocked := s.Receive(now, 2, 0, visibility, nil)
					got = nil
					for _, e := range entries {
						got = append(got, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
						result += fmt.Sprintf("%s#%d ", e.ID, e.Deliveries)
					}
					return fmt.Sprint(result, blocked)
				})
				deliveries = append(deliveries, got...)
			},
			"nack": func(t *rapid.T) {
				if len(deliveries) > 0 {
					d, mode := rapid.SampledFrom(deliveries).Draw(t, "delivery"), anyMode(t)
					both(func(s *Shard, now Moment) string { return fmt.Sprint(s.Nack(now, d, time.Second, "", mode)) })
				}
			},
			"time": func(t *rapid.T) {
				now += rapid.IntRange(0, 8).Draw(t, "seconds")
				both(func(s *Shard, now Moment) string { return fmt.Sprint(s.Stats(now)) })
			},
		})
	})
}

// dueAfter sends a message with a due time, in seconds on the wall clock.
func dueAfter(s *Shard, now Moment, id string, wall int) {
	s.Send(now, Content{ID: id, Extra: &Extra{DeliverAt: int64(wall) * int64(time.Second)}}, 0)
}

// skewed returns a moment in seconds since the start whose wall clock is ahead by so many.
func skewed(now, ahead int) Moment {
	m := at(now)
	m.Wall += int64(ahead) * int64(time.Second)
	return m
}

func TestDueTimeFollowsStepsOfWallClock(t *testing.T) {
	const due = 100
	for _, test := range []struct {
		name string
		// ahead is how far the wall clock steps in second 10, and ready is the second in
		// which the message must become ready.
		ahead, ready int
	}{
		{"no step", 0, due},
		{"forward", 30, due - 30},
		{"forward past it", 200, 10},
		{"back", -50, due + 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New(driver.Config{}, 1)
			dueAfter(s, at(0), "a", due)
			s.Send(at(0), Content{ID: "b"}, 60*time.Second)
			for second := 1; second <= test.ready; second++ {
				ahead := 0
				if second >= 10 {
					ahead = test.ahead
				}
				s.Advance(skewed(second, ahead))
				if at, ok := s.NextDeadline(); second < test.ready && (!ok || at > s.clock.Add(wallLook)) {
					t.Fatalf("second %d: the next look is at %v", second, at)
				}
				if isReady := slices.ContainsFunc(slices.Collect(s.InState(Ready)), func(e *Entry) bool { return e.ID == "a" }); isReady != (second == test.ready) {
					t.Fatalf("second %d: ready is %v", second, isReady)
				}
			}
		})
	}
}

// A message that became ready stays ready when the wall clock is set back, and one that is sent
// meanwhile waits for as long as its due time says.
func TestWallClockSetBackUndoesNothing(t *testing.T) {
	s := New(driver.Config{}, 1)
	dueAfter(s, at(0), "a", 50)
	s.Advance(skewed(1, 100))
	if got := s.Stats(skewed(2, 0)); got != (driver.Stats{Ready: 1}) {
		t.Fatalf("after the clock was set back: %+v", got)
	}
	dueAfter(s, skewed(2, 0), "b", 12)
	for second := 2; second < 12; second++ {
		if got := s.Stats(skewed(second, 0)); got != (driver.Stats{Ready: 1, Delayed: 1}) {
			t.Fatalf("second %d: %+v", second, got)
		}
	}
	if got := s.Stats(skewed(12, 0)); got != (driver.Stats{Ready: 2}) {
		t.Fatalf("when it is due: %+v", got)
	}
}
