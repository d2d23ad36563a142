package engine

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestBlockedBacklogIsNotReadThrough: a group whose head is in flight may have any
// number of messages in the backlog, and finding the next group costs nothing.
func TestBlockedBacklogIsNotReadThrough(t *testing.T) {
	s, on, send := stocked(driver.Config{StrictGroups: true}, Limits{Messages: 5, Bytes: 1000, Look: 1000})
	for range 500 {
		send("long", 1, 0)
	}
	send("short", 1, 0)
	for i, want := range []string{"long", "short"} {
		on.looked = 0
		got, _ := s.Receive(at(0), 1, 0, time.Hour, nil)
		if len(got) != 1 || got[0].groupName() != want {
			t.Fatalf("receive %d: got %d messages, want one of the group %s", i, len(got), want)
		}
		if on.looked > groupFill {
			t.Errorf("receive %d looked at %d messages", i, on.looked)
		}
		on.CatchUp(s.Effects())
	}
}

// TestHeldGroupIsNotReadThroughAfterRestart: after a restart the shard does not know
// which groups there are.
func TestHeldGroupIsNotReadThroughAfterRestart(t *testing.T) {
	limits := Limits{Messages: 5, Bytes: 1000, Look: 1000, Pass: 20}
	s, on, send := stocked(driver.Config{StrictGroups: true}, limits)
	for range 500 {
		send("long", 1, 0)
	}
	send("short", 1, 0)
	s.Receive(at(0), 1, 0, time.Hour, nil)
	on.CatchUp(s.Effects())
	s = reread(s, on, limits)
	on.looked = 0
	got, _ := s.Receive(at(0), 1, 0, time.Hour, nil)
	if len(got) != 1 || got[0].groupName() != "short" {
		t.Fatalf("got %d messages, want one of the group short", len(got))
	}
	if on.looked > limits.Pass+10 {
		t.Errorf("looked at %d messages", on.looked)
	}
	on.CatchUp(s.Effects())
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if s.Receive(at(0), 1, 0, time.Hour, nil); s.Searching() {
		t.Error("searches on although all groups are known")
	}
}

// TestSendDelaysOfGroupAreNotReadAgain: messages that were sent with a delay stand
// before those that are ready, and are passed over once.
func TestSendDelaysOfGroupAreNotReadAgain(t *testing.T) {
	s, on, send := stocked(driver.Config{StrictGroups: true}, Limits{Messages: 5, Bytes: 1000, Look: 1000})
	for range 300 {
		send("g", 1, time.Hour)
	}
	for i := range 20 {
		on.looked = 0
		send("g", 1, 0)
		got, _ := s.Receive(at(0), 1, 0, time.Hour, nil)
		if len(got) != 1 {
			t.Fatalf("receive %d: got %d messages", i, len(got))
		}
		e, err := s.StageAck(at(0), Delivery{Seq: got[0].Seq, Nonce: got[0].Nonce, ID: got[0].ID})
		if err != nil {
			t.Fatal(err)
		}
		on.CatchUp(s.Effects())
		on.stage(e)
		s.PublishNow(at(0), e)
		on.CatchUp(s.Effects())
		if on.looked > 10 {
			t.Fatalf("round %d looked at %d messages", i, on.looked)
		}
	}
}

// TestStrictGroupsBeyondLimitAreDelivered: a shard knows a limited number of groups,
// and loses no message of the others.
func TestStrictGroupsBeyondLimitAreDelivered(t *testing.T) {
	volume.InFull(t)
	randomly(t, 20, func(t *rapid.T) {
		limits := Limits{
			Messages: rapid.IntRange(1, 4).Draw(t, "messages"), Bytes: 1000, Groups: rapid.SampledFrom([]int{2, 4, 100}).Draw(t, "groups"),
			Look: rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "look"),
			Pass: rapid.SampledFrom([]int{0, 2, 1000}).Draw(t, "pass"),
		}
		s, on, _ := stocked(driver.Config{StrictGroups: true}, limits)
		r := &strictRun{t: t, s: s, on: on, limits: limits, next: make(map[string][]int)}
		t.Repeat(map[string]func(*rapid.T){
			"send":    r.send,
			"receive": func(t *rapid.T) { r.receive(rapid.IntRange(1, 4).Draw(t, "most")) },
			"settle":  r.settle,
			"time":    func(t *rapid.T) { r.now += rapid.IntRange(0, 3).Draw(t, "seconds"); r.s.Advance(at(r.now)) },
			"restart": func(*rapid.T) {
				r.s.Advance(at(r.now))
				r.on.CatchUp(r.s.Effects())
				r.s = reread(r.s, r.on, limits)
			},
			"": r.check,
		})
		r.drain()
	})
}

// strictRun is a shard with few known groups, and the messages it should have.
type strictRun struct {
	t         *rapid.T
	s         *Shard
	on        *countingBacklog
	limits    Limits
	now, sent int
	next      map[string][]int // numbers of the messages that wait or are in flight, by group
	out       []Delivery
}

func (r *strictRun) put(e *Entry, err error) bool {
	if err != nil {
		return false
	}
	r.s.backlog() // passes it the effects
	r.on.stage(e)
	r.s.PublishNow(at(r.now), e)
	return true
}

func (r *strictRun) send(t *rapid.T) {
	group := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "group")
	delay := time.Duration(rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(t, "delay")) * time.Second
	r.sent++
	r.next[group] = append(r.next[group], r.sent)
	r.put(r.s.StageSend(at(r.now), Content{ID: fmt.Sprint(r.sent), Extra: &Extra{Group: group}}, delay), nil)
}

// receive repeats until it has a message or there is none.
func (r *strictRun) receive(most int) (got []*Entry) {
	for got == nil {
		got, _ = r.s.Receive(at(r.now), most, 0, 3*time.Second, nil)
		if len(got) == 0 && !r.s.Searching() {
			return nil
		}
	}
	for _, e := range got {
		r.out = append(r.out, Delivery{Seq: e.Seq, Nonce: e.Nonce, ID: e.ID})
	}
	return got
}

func (r *strictRun) settle(t *rapid.T) {
	if len(r.out) == 0 {
		return
	}
	d := rapid.SampledFrom(r.out).Draw(t, "delivery")
	if rapid.Bool().Draw(t, "ack") {
		if r.put(r.s.StageAck(at(r.now), d)) {
			r.forget(d.ID)
		}
		return
	}
	delay := time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second
	r.put(r.s.StageNack(at(r.now), d, delay, "", driver.NackFailed))
}

func (r *strictRun) forget(id string) {
	for group, numbers := range r.next {
		for i, n := range numbers {
			if fmt.Sprint(n) == id {
				r.next[group] = append(numbers[:i:i], numbers[i+1:]...)
			}
		}
	}
}

func (r *strictRun) check(t *rapid.T) {
	r.on.CatchUp(r.s.Effects())
	if err := r.s.Check(); err != nil {
		t.Fatal(err)
	}
}

// drain receives and acks everything, which comes in order within each group.
func (r *strictRun) drain() {
	r.now += 100
	for got := r.receive(1); got != nil; got = r.receive(1) {
		group, d := got[0].groupName(), Delivery{Seq: got[0].Seq, Nonce: got[0].Nonce, ID: got[0].ID}
		if len(r.next[group]) == 0 || fmt.Sprint(r.next[group][0]) != d.ID {
			r.t.Fatalf("got %s of group %q, want the first of %v", d.ID, group, r.next[group])
		}
		if !r.put(r.s.StageAck(at(r.now), d)) {
			r.t.Fatalf("%s cannot be acked", d.ID)
		}
		r.on.CatchUp(r.s.Effects())
		r.next[group] = r.next[group][1:]
	}
	for group, left := range r.next {
		if len(left) > 0 {
			r.t.Fatalf("%v of group %q are lost", left, group)
		}
	}
}
