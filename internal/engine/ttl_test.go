package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// mortal sends a message with a time to live in seconds.
func mortal(s *Shard, now Moment, id string, ttl int, delay time.Duration) {
	s.Send(now, Content{ID: id, Extra: &Extra{Life: &Life{TTL: time.Duration(ttl) * time.Second}}}, delay)
}

func TestTimeToLiveFollowsStepsOfWallClock(t *testing.T) {
	const ttl = 100
	for _, test := range []struct {
		name string
		// ahead is how far the wall clock steps in second 10, and dead is the second in
		// which the message must die.
		ahead, dead int
	}{
		{"no step", 0, ttl},
		{"forward", 30, ttl - 30},
		{"forward past it", 200, 10},
		{"back", -50, ttl + 50},
	} {
		for _, delay := range []time.Duration{0, ttl * time.Second / 2} {
			t.Run(fmt.Sprint(test.name, ", delayed by ", delay), func(t *testing.T) {
				s := New(driver.Config{}, 1)
				mortal(s, at(0), "a", ttl-int(delay/time.Second), delay)
				for second := 1; second <= test.dead; second++ {
					ahead := 0
					if second >= 10 {
						ahead = test.ahead
					}
					s.Advance(skewed(second, ahead))
					if at, ok := s.NextDeadline(); second < test.dead && (!ok || at > s.clock.Add(wallLook)) {
						t.Fatalf("second %d: the next look is at %v", second, at)
					}
					if isDead := s.stats.Dead == 1; isDead != (second == test.dead) {
						t.Fatalf("second %d: dead is %v", second, isDead)
					}
				}
			})
		}
	}
}

// A message that is sent after the wall clock was set back lives as long as any other.
func TestTimeToLiveOfMessageSentAfterStepBack(t *testing.T) {
	s := New(driver.Config{}, 1)
	s.Advance(skewed(1, 1000))
	mortal(s, skewed(2, 0), "a", 10, 0)
	if got := s.Stats(skewed(11, 0)); got != (driver.Stats{Ready: 1}) {
		t.Fatalf("before its end: %+v", got)
	}
	if got := s.Stats(skewed(12, 0)); got != (driver.Stats{Dead: 1}) {
		t.Fatalf("at its end: %+v", got)
	}
}

// While the dead letters are full, messages whose time is over are met by one receive, not
// delivered, and die in the order of their ends as soon as there is room.
func TestOutlivedMessagesWaitForRoomAmongDeadLetters(t *testing.T) {
	for _, strict := range []bool{false, true} {
		s := New(driver.Config{MaxDead: 1, StrictGroups: strict}, 1)
		for id, ttl := range map[string]int{"c": 3, "a": 1, "b": 2} {
			mortal(s, at(0), id, ttl, 0)
		}
		s.Send(at(0), Content{ID: "d"}, 0)
		if got := s.Stats(at(5)); got != (driver.Stats{Ready: 3, Dead: 1}) {
			t.Fatalf("with full dead letters: %+v", got)
		}
		got, _ := s.Receive(at(5), 10, 0, time.Hour, nil)
		if len(got) != 1 || got[0].ID != "d" {
			t.Fatalf("received %d messages", len(got))
		}
		if stats := s.Stats(at(5)); stats != (driver.Stats{Delayed: 2, InFlight: 1, Dead: 1}) {
			t.Fatalf("after the receive: %+v", stats)
		}
		for _, id := range []string{"a", "b", "c"} {
			dead := s.FindDead(id)
			if dead == nil || dead.Extra.Reason != driver.ReasonExpired {
				t.Fatalf("strict %v: %s is not dead", strict, id)
			}
			s.Discard(at(6), dead)
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A message that was given back late in its life dies when that is over, not when its delay
// ends, and no longer blocks its group.
func TestDelayAfterNackDoesNotProlongLife(t *testing.T) {
	s := New(driver.Config{StrictGroups: true}, 1)
	mortal(s, at(0), "a", 10, 0)
	s.Send(at(0), Content{ID: "b"}, 0)
	got, _ := s.Receive(at(1), 1, 0, time.Hour, nil)
	if err := s.Nack(at(2), Delivery{Seq: got[0].Seq, Nonce: got[0].Nonce, ID: "a"}, time.Hour, "", driver.NackRelease); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Receive(at(9), 1, 0, time.Hour, nil); len(got) != 0 {
		t.Fatalf("received %s although its group is blocked", got[0].ID)
	}
	if got, _ := s.Receive(at(10), 1, 0, time.Hour, nil); len(got) != 1 || got[0].ID != "b" {
		t.Fatal("the group is still blocked")
	}
}

// A message is not delivered at the moment when its time is over either, also while the dead
// letters have no room for it.
func TestMessageIsNotDeliveredAtItsEnd(t *testing.T) {
	s := New(driver.Config{MaxDead: 1}, 1)
	mortal(s, at(0), "a", 1, 0)
	mortal(s, at(0), "b", 3, 0)
	if got, _ := s.Receive(at(3), 1, 0, time.Hour, nil); len(got) != 0 {
		t.Fatalf("received %s at its end", got[0].ID)
	}
	if got := s.Stats(at(3)); got != (driver.Stats{Delayed: 1, Dead: 1}) {
		t.Fatalf("at the end of b: %+v", got)
	}
}

// A new configuration handles what it makes late in the order of time: the old dead letter goes,
// and makes room, before the time to live of b is over. That it is one too many comes later.
func TestNewConfigurationActsInOrderOfTime(t *testing.T) {
	s := New(driver.Config{MaxDead: 2}, 1)
	mortal(s, at(0), "old", 1, 0)
	mortal(s, at(0), "young", 4, 0)
	s.Send(at(3), Content{ID: "a"}, 0)
	mortal(s, at(3), "b", 2, 0)
	if got := s.Stats(at(5)); got != (driver.Stats{Ready: 2, Dead: 2}) {
		t.Fatalf("with full dead letters: %+v", got)
	}
	s.Configure(at(5), driver.Config{
		MaxDead: 2, DropExpired: true,
		RetainReady: driver.Retention{Count: 1}, RetainDead: driver.Retention{Age: 2 * time.Second, Count: 1},
	})
	if got := s.Stats(at(5)); got != (driver.Stats{Dead: 1}) {
		t.Fatalf("with the new configuration: %+v", got)
	}
}
