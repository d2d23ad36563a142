package engine

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestQuietGroupIsFoundDuringBacklog: after a restart the groups behind a long backlog
// are unknown. They are found while it is delivered, and one call reads some of it.
func TestQuietGroupIsFoundDuringBacklog(t *testing.T) {
	limits := Limits{Messages: 5, Bytes: 1000, Look: 10}
	s, on, send := stocked(driver.Config{FairGroups: true}, limits)
	for range 95 {
		send("noisy", 1, 0)
	}
	send("quiet", 1, 0)
	s = reread(s, on, limits)
	for received := 1; ; received++ {
		on.looked = 0
		got, _ := s.Receive(at(0), 1, 0, time.Hour, nil)
		on.CatchUp(s.Effects())
		if len(got) != 1 {
			t.Fatalf("receive %d got %d messages", received, len(got))
		}
		if on.looked > 2*limits.Look {
			t.Fatalf("looked at %d messages, %d at a time", on.looked, limits.Look)
		}
		if got[0].groupName() == "quiet" {
			break
		}
		if received > 12 {
			t.Fatal("the quiet group is not found")
		}
	}
	on.looked = 0
	if got, _ := s.Receive(at(0), 10, 0, time.Hour, nil); len(got) != 10 || on.looked > 0 {
		t.Errorf("then received %d, and looked at %d", len(got), on.looked)
	}
}

// TestFairGroupsBeyondLimitAreDelivered: messages of groups beyond the limit wait like
// messages without a group, and none is lost.
func TestFairGroupsBeyondLimitAreDelivered(t *testing.T) {
	volume.InFull(t)
	randomly(t, 20, func(t *rapid.T) {
		limits := Limits{
			Messages: rapid.IntRange(1, 4).Draw(t, "messages"), Bytes: 1000, Groups: 2,
			Look: rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "look"),
		}
		s, on, _ := stocked(driver.Config{FairGroups: true}, limits)
		now, sent := 0, 0
		waits := make(map[string]bool)
		var out []Delivery
		put := func(e *Entry, err error) {
			if err != nil {
				return
			}
			s.backlog() // passes it the effects
			on.stage(e)
			s.PublishNow(at(now), e)
		}
		receive := func(most int, visibility time.Duration) (got []*Entry) {
			for got == nil {
				got, _ = s.Receive(at(now), most, 0, visibility, nil)
				if len(got) == 0 && !s.Searching() {
					return nil
				}
			}
			return got
		}
		anyOut := func(t *rapid.T) Delivery {
			if len(out) == 0 {
				return Delivery{Seq: 1, Nonce: 1, ID: "1"}
			}
			return rapid.SampledFrom(out).Draw(t, "delivery")
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				sent++
				group := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "group")
				delay := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "delay")) * time.Second
				waits[fmt.Sprint(sent)] = true
				put(s.StageSend(at(now), Content{ID: fmt.Sprint(sent), Extra: &Extra{Group: group}}, delay), nil)
			},
			"receive": func(t *rapid.T) {
				for _, e := range receive(rapid.IntRange(1, 4).Draw(t, "most"), 3*time.Second) {
					out = append(out, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
				}
			},
			"ack": func(t *rapid.T) {
				d := anyOut(t)
				e, err := s.StageAck(at(now), d)
				put(e, err)
				if err == nil {
					delete(waits, d.ID)
				}
			},
			"nack": func(t *rapid.T) {
				put(s.StageNack(at(now), anyOut(t), time.Duration(rapid.IntRange(0, 2).Draw(t, "delay"))*time.Second, "", anyMode(t)))
			},
			"extend late": func(t *rapid.T) {
				_, _ = s.ExtendLate(at(now), anyOut(t), 3*time.Second)
			},
			"time": func(t *rapid.T) {
				now += rapid.IntRange(0, 3).Draw(t, "seconds")
				s.Advance(at(now))
			},
			"restart": func(*rapid.T) {
				s.Advance(at(now))
				on.CatchUp(s.Effects())
				s = reread(s, on, limits)
			},
			"": func(t *rapid.T) {
				on.CatchUp(s.Effects())
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
				if known := len(s.groups.byName); known > limits.Groups {
					t.Fatalf("%d groups are known, with a limit of %d", known, limits.Groups)
				}
			},
		})
		now += 100
		for e := receive(1, time.Hour); e != nil; e = receive(1, time.Hour) {
			if !waits[e[0].ID] {
				t.Fatalf("%s was acked, or delivered twice", e[0].ID)
			}
			delete(waits, e[0].ID)
			on.CatchUp(s.Effects())
		}
		if len(waits) > 0 {
			t.Fatalf("%v are lost", waits)
		}
	})
}

// TestFairGroupBeyondLimitIsExtendedLate: the group of a message may be unknown when its lease
// is renewed, because other groups took its room.
func TestFairGroupBeyondLimitIsExtendedLate(t *testing.T) {
	s, on, send := stocked(driver.Config{FairGroups: true}, Limits{Messages: 5, Bytes: 1000, Look: 10, Groups: 2})
	for _, group := range []string{"a", "b", "c"} {
		send(group, 1, 0)
	}
	got, _ := s.Receive(at(0), 3, 0, time.Second, nil)
	if len(got) != 3 || got[2].groupName() != "c" {
		t.Fatalf("received %d messages, want that of c last", len(got))
	}
	late := Delivery{Seq: got[2].Seq, Nonce: got[2].Nonce, ID: got[2].ID}
	s.Advance(at(2))
	on.CatchUp(s.Effects())
	if granted, err := s.ExtendLate(at(2), late, time.Second); err != nil || granted != time.Second {
		t.Errorf("extended by %v, %v; want a second", granted, err)
	}
	on.CatchUp(s.Effects())
	if stats := s.Stats(at(2)); stats.InFlight != 1 || stats.Ready != 2 {
		t.Errorf("got %+v, want one message in flight", stats)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestFairGroupsCostNothingWithoutGroups compares allocations per message.
func TestFairGroupsCostNothingWithoutGroups(t *testing.T) {
	allocations := func(config driver.Config) float64 {
		cycle := ungrouped(config)
		for range 2000 {
			cycle()
		}
		return testing.AllocsPerRun(2000, cycle)
	}
	if plain, fair := allocations(driver.Config{}), allocations(driver.Config{FairGroups: true}); fair > plain {
		t.Errorf("%v allocations with fair groups, %v without", fair, plain)
	}
}

// ungrouped returns a function that sends, receives and acks a message without a
// group, while others wait.
func ungrouped(config driver.Config) func() {
	s := New(config, 1)
	for range 100 {
		s.Send(at(0), Content{ID: "id"}, 0)
	}
	var got []*Entry
	now := 0
	return func() {
		now++
		s.Send(at(now), Content{ID: "id"}, 0)
		got, _ = s.Receive(at(now), 1, 0, time.Hour, got[:0])
		_ = s.Ack(at(now), Delivery{Seq: got[0].Seq, Nonce: got[0].Nonce, ID: "id"})
	}
}

func BenchmarkWithoutGroups(b *testing.B) {
	for name, config := range map[string]driver.Config{"plain": {}, "fair": {FairGroups: true}} {
		b.Run(name, func(b *testing.B) {
			cycle := ungrouped(config)
			b.ReportAllocs()
			for b.Loop() {
				cycle()
			}
		})
	}
}

// BenchmarkFairGroups sends, receives and acks while a backlog of one group, and
// some of many others, wait.
func BenchmarkFairGroups(b *testing.B) {
	for _, groups := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(groups), func(b *testing.B) {
			s := New(driver.Config{FairGroups: true}, 1)
			extras := make([]*Extra, groups)
			for i := range extras {
				extras[i] = &Extra{Group: fmt.Sprint("tenant ", i)}
			}
			for i := range 20_000 {
				s.Send(at(0), Content{ID: "id", Extra: extras[i%groups]}, 0)
			}
			var got []*Entry
			now := 0
			b.ReportAllocs()
			for b.Loop() {
				now++
				s.Send(at(now), Content{ID: "id", Extra: extras[now%groups]}, 0)
				got, _ = s.Receive(at(now), 1, 0, time.Hour, got[:0])
				_ = s.Ack(at(now), Delivery{Seq: got[0].Seq, Nonce: got[0].Nonce, ID: "id"})
			}
		})
	}
}
