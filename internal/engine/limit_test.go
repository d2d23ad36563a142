package engine

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// TestManyGroupsAtTheirLimitCostNothing: a receive does not look at groups at their limit, and
// wakes them one by one.
func TestManyGroupsAtTheirLimitCostNothing(t *testing.T) {
	const groups = 1000
	s := New(driver.Config{FairGroups: true, GroupLimits: "rate=0.001,burst=1"}, 1)
	send := func(now int, name string) {
		s.Send(at(now), Content{ID: name, Extra: &Extra{Group: name}}, 0)
	}
	s.Advance(at(0))
	for i := range groups {
		for range 2 {
			send(0, fmt.Sprint("g", i))
		}
	}
	if got, _ := s.Receive(at(0), 2*groups, 0, time.Hour, nil); len(got) != groups {
		t.Fatalf("got %d messages, want %d", len(got), groups)
	}
	if s.groups.eligible.len() != 0 || s.Available(at(1)) != 0 {
		t.Errorf("%d groups at their limit are in the heap", s.groups.eligible.len())
	}
	if stats := s.Stats(at(1)); stats.Throttled != groups || stats.Ready != groups {
		t.Errorf("got %+v, want %d throttled", stats, groups)
	}
	send(1, "new")
	if got, _ := s.Receive(at(1), 10, 0, time.Hour, nil); len(got) != 1 || got[0].ID != "new" {
		t.Errorf("got %d messages, want the new one", len(got))
	}
	if next, ok := s.NextDeadline(); !ok || next != Instant(1000*time.Second) {
		t.Errorf("the next event is at %v, want that of the first token", next)
	}
	if got, _ := s.Receive(at(1000), 2*groups, 0, time.Hour, nil); len(got) != groups {
		t.Errorf("got %d messages when the tokens are back, want %d", len(got), groups)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestForgottenGroupsHaveFullBuckets: a shard remembers an empty group until its bucket is full.
func TestForgottenGroupsHaveFullBuckets(t *testing.T) {
	s := New(driver.Config{FairGroups: true, GroupLimits: "rate=0.1,burst=2"}, 1)
	for now, want := range []int{1, 1, 0} { // at 2 s the bucket is empty
		s.Send(at(now), Content{ID: "m", Extra: &Extra{Group: "g"}}, 0)
		got, _ := s.Receive(at(now), 10, 0, time.Hour, nil)
		if len(got) != want {
			t.Fatalf("after %d s: got %d messages, want %d", now, len(got), want)
		}
		for _, e := range got {
			if err := s.Ack(at(now), Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Purge(at(3))
	if s.Advance(at(19)); len(s.groups.byName) != 1 {
		t.Errorf("the group is forgotten before its bucket is full")
	}
	s.Advance(at(20))
	if s.Advance(at(21)); len(s.groups.byName) != 0 || len(s.limits.wakes) != 0 {
		t.Errorf("the group is kept after its bucket is full")
	}
}

// BenchmarkLimits receives, acks and sends a message of many groups, half of which have one in
// flight and so are at their limit, and the same without limits and without groups.
func BenchmarkLimits(b *testing.B) {
	const groups = 10_000
	for _, test := range []struct {
		name   string
		config driver.Config
	}{
		{"limits", driver.Config{FairGroups: true, GroupLimits: "in-flight=1,rate=1000000,burst=1000000"}},
		{"groups", driver.Config{FairGroups: true}},
		{"plain", driver.Config{}},
	} {
		b.Run(test.name, func(b *testing.B) {
			s := New(test.config, 1)
			s.Advance(at(0))
			for i := range 3 * groups {
				s.Send(at(0), Content{ID: "m", Extra: &Extra{Group: fmt.Sprint("g", i%groups)}}, 0)
			}
			s.Receive(at(0), groups/2, 0, time.Hour, nil)
			out := make([]*Entry, 0, 1)
			runtime.GC() // of what was built, not of the loop
			b.ReportAllocs()
			for b.Loop() {
				out, _ = s.Receive(at(1), 1, 0, time.Minute, out[:0])
				e := out[0]
				extra := e.Extra
				if err := s.Ack(at(1), Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID}); err != nil {
					b.Fatal(err)
				}
				s.Send(at(1), Content{ID: "m", Extra: extra}, 0)
			}
		})
	}
}
