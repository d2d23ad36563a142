package queuemodel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A modelEnv drives a model. Messages are named by their bodies.
type modelEnv struct {
	t     *testing.T
	model *Model
	now   time.Duration
	held  map[string]driver.Receipt // the latest receipt of each message
}

func tell(t *testing.T, config driver.Config) *modelEnv {
	return &modelEnv{
		t: t, model: New("modelEnv", AllTraits, config, Start),
		held: make(map[string]driver.Receipt),
	}
}

func (s *modelEnv) send(bodies ...string) {
	s.t.Helper()
	for _, body := range bodies {
		s.sendAs(driver.Outgoing{Body: []byte(body)}, "")
	}
}

// sendAs sends one message, which must fail with want unless that is empty.
func (s *modelEnv) sendAs(msg driver.Outgoing, want driver.Code) driver.Sent {
	s.t.Helper()
	sent, err := s.model.Send(s.now, []driver.Outgoing{msg})
	s.want(fmt.Sprintf("send %q", msg.Body), driver.At(err, 0), want)
	return sent[0]
}

// receive leases up to most messages, and expects these.
func (s *modelEnv) receive(most int, visibility time.Duration, want ...string) {
	s.t.Helper()
	deliveries, err := s.model.Receive(s.now, driver.ReceiveRequest{Max: most, Visibility: visibility})
	s.want("receive", err, "")
	var got []string
	for _, d := range deliveries {
		got = append(got, string(d.Body))
		s.held[string(d.Body)] = d.Receipt
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("at %v: received %q, want %q", s.now, got, want)
	}
}

func (s *modelEnv) ack(body string, want driver.Code) {
	s.t.Helper()
	err := s.model.Ack(s.now, []driver.Receipt{s.held[body]})
	s.want("ack "+body, driver.At(err, 0), want)
}

func (s *modelEnv) nack(body string, delay time.Duration) {
	s.t.Helper()
	err := s.model.Nack(s.now, []driver.Nack{{Receipt: s.held[body], Delay: delay, Cause: "nacked"}})
	s.want("nack "+body, driver.At(err, 0), "")
}

func (s *modelEnv) extend(body string, visibility time.Duration) {
	s.t.Helper()
	_, err := s.model.Extend(s.now, []driver.Extension{{Receipt: s.held[body], Visibility: visibility}})
	s.want("extend "+body, driver.At(err, 0), "")
}

func (s *modelEnv) deadLetter(body string, want driver.Code) {
	s.t.Helper()
	err := s.model.DeadLetter(s.now, []driver.DeadLetterRequest{{Receipt: s.held[body], Reason: driver.ReasonFatal}})
	s.want("dead-letter "+body, driver.At(err, 0), want)
}

func (s *modelEnv) pass(d time.Duration) { s.now += d }

func (s *modelEnv) counts(ready, delayed, inFlight, dead int) {
	s.t.Helper()
	want := driver.Stats{Ready: ready, Delayed: delayed, InFlight: inFlight, Dead: dead}
	if got := s.model.Stats(s.now); got != want {
		s.t.Errorf("at %v: counts are %+v, want %+v", s.now, got, want)
	}
}

// dead expects these dead letters, as "body reason".
func (s *modelEnv) dead(want ...string) {
	s.t.Helper()
	var got []string
	for _, letter := range s.model.DeadLetters(s.now) {
		got = append(got, fmt.Sprintf("%s %s", letter.Body, letter.Reason))
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("at %v: dead letters are %q, want %q", s.now, got, want)
	}
}

func (s *modelEnv) want(what string, err error, want driver.Code) {
	s.t.Helper()
	if want == "" && err != nil || want != "" && !errors.Is(err, want) {
		s.t.Errorf("at %v: %s: got %v, want %q", s.now, what, err, string(want))
	}
}

const s1, s5, s10 = time.Second, 5 * time.Second, 10 * time.Second

func TestModelDeliversInTheOrderOfSending(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("a", "b", "c")
	s.receive(2, s10, "a", "b")
	s.receive(2, s10, "c")
}

func TestModelDelayedMessageKeepsItsPlace(t *testing.T) {
	s := tell(t, driver.Config{})
	s.sendAs(driver.Outgoing{Body: []byte("a"), Delay: s5}, "")
	s.send("b", "c")
	s.counts(2, 1, 0, 0)
	s.receive(1, s10, "b")
	s.pass(s5)
	s.counts(2, 0, 1, 0)
	s.receive(2, s10, "a", "c")
}

func TestModelExpiredMessageKeepsItsPlace(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("a", "b")
	s.receive(1, s5, "a")
	s.pass(s5 - 1)
	s.counts(1, 0, 1, 0)
	s.pass(1)
	s.counts(2, 0, 0, 0)
	s.receive(2, s5, "a", "b")
}

func TestModelNackGoesToTheTail(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("a", "b")
	s.receive(1, s10, "a")
	s.nack("a", s5)
	s.send("c")
	s.pass(s5)
	s.receive(3, s10, "b", "a", "c") // the time of the nack gives the place
}

func TestModelReceiptEndsAtTheDeadline(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("a")
	s.receive(1, s5, "a")
	s.pass(s5)
	s.ack("a", driver.ErrReceiptExpired)
	s.receive(1, s5, "a")
	s.pass(s5 - 1)
	s.ack("a", "")
	s.ack("a", driver.ErrReceiptExpired)
}

func TestModelVisibilityZeroDeliversAndReturns(t *testing.T) {
	s := tell(t, driver.Config{MaxDeliveries: 2})
	s.send("a")
	s.receive(1, 0, "a")
	s.counts(1, 0, 0, 0)
	s.receive(1, 0, "a")
	s.dead("a max_attempts")
}

func TestModelExtendIsRelativeToNowAndBoundedByMaxHold(t *testing.T) {
	s := tell(t, driver.Config{MaxHold: time.Minute})
	s.send("a")
	s.receive(1, s5, "a")
	s.pass(s1)
	s.extend("a", s1) // earlier than before
	s.pass(s1)
	s.counts(1, 0, 0, 0)
	s.receive(1, s5, "a")
	s.extend("a", time.Hour)
	s.pass(time.Minute - 1)
	s.counts(0, 0, 1, 0)
	s.pass(1)
	s.counts(1, 0, 0, 0)
	s.receive(1, s10, "a")
	s.extend("a", time.Hour)
	s.pass(10*s10 - 1) // ten times the visibility is longer
	s.counts(0, 0, 1, 0)
	s.pass(1)
	s.counts(1, 0, 0, 0)
}

func TestModelExhaustedMessageDies(t *testing.T) {
	s := tell(t, driver.Config{MaxDeliveries: 1})
	s.send("a", "b", "c")
	s.receive(2, s5, "a", "b")
	s.nack("b", 0)
	s.pass(s5)
	s.dead("b max_attempts", "a max_attempts")
	s.receive(3, s5, "c")
}

func TestModelLoweredLimitMovesInsteadOfDelivering(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("a", "b")
	s.receive(1, 0, "a")
	s.model.Configure(s.now, driver.Config{MaxDeliveries: 1})
	s.counts(2, 0, 0, 0)
	s.receive(1, s5, "b")
	s.dead("a max_attempts")
}

func TestModelFullDeadLettersKeepTheMessage(t *testing.T) {
	s := tell(t, driver.Config{MaxDeliveries: 1, MaxDead: 1})
	s.send("a", "b")
	s.receive(2, s5, "a", "b")
	s.deadLetter("a", "")
	s.deadLetter("b", driver.ErrFull)
	s.counts(0, 0, 1, 1)
	s.nack("b", s1)
	s.counts(0, 1, 0, 1)
	s.pass(driver.DeadRetry)
	s.counts(1, 0, 0, 1)
	s.receive(1, s5) // still no room
	s.counts(0, 1, 0, 1)
	s.model.PurgeDead(s.now)
	s.pass(driver.DeadRetry)
	s.receive(1, s5)
	s.dead("b max_attempts")
}

func TestModelRedriveStartsANewLife(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("a", "b")
	s.receive(1, s5, "a")
	s.deadLetter("a", "")
	if moved, err := s.model.Redrive(s.now, nil, 0); moved != 1 || err != nil {
		t.Errorf("moved %d, %v", moved, err)
	}
	deliveries, _ := s.model.Receive(s.now, driver.ReceiveRequest{Max: 2, Visibility: s5})
	if len(deliveries) != 2 || string(deliveries[1].Body) != "a" || deliveries[1].Deliveries != 1 || deliveries[1].ID != "m1" {
		t.Errorf("got %+v, want b and then a for the first time again", deliveries)
	}
}

func TestModelRedriveStopsWhenFull(t *testing.T) {
	s := tell(t, driver.Config{MaxMessages: 1})
	s.send("a")
	s.receive(1, s5, "a")
	s.deadLetter("a", "")
	s.send("b")
	moved, err := s.model.Redrive(s.now, nil, 0)
	if moved != 0 || !errors.Is(err, driver.ErrFull) {
		t.Errorf("moved %d, %v; want none and ErrFull", moved, err)
	}
	if moved, err := s.model.Redrive(s.now, []string{}, 0); moved != 0 || err != nil {
		t.Errorf("no ids moved %d, %v; want none and no error", moved, err)
	}
}

func TestModelRetentionByAge(t *testing.T) {
	s := tell(t, driver.Config{RetainReady: driver.Retention{Age: s10}, RetainDead: driver.Retention{Age: s5}})
	s.send("a", "b")
	s.receive(1, time.Minute, "a")
	s.pass(s10)
	s.dead("b expired")
	s.counts(0, 0, 1, 1) // retention applies to a when its lease ends
	s.nack("a", s1)
	s.dead("b expired", "a expired")
	s.pass(s5)
	s.counts(0, 0, 0, 0)
}

func TestModelRetentionByCount(t *testing.T) {
	s := tell(t, driver.Config{RetainReady: driver.Retention{Count: 2}, RetainDead: driver.Retention{Count: 1}})
	s.send("a", "b")
	s.receive(1, s5, "a")
	s.send("c", "d")
	s.dead("b expired")
	s.pass(s5) // the lease of a ends, and a is the oldest
	s.dead("a expired")
	s.counts(2, 0, 0, 1)
}

func TestModelRetentionWaitsForRoom(t *testing.T) {
	s := tell(t, driver.Config{MaxDead: 1, RetainReady: driver.Retention{Age: s5}})
	s.send("a", "b")
	s.pass(s5)
	s.counts(1, 0, 0, 1)
	s.pass(s1)
	s.model.PurgeDead(s.now)
	s.dead("b expired")
	if diedAt := s.model.DeadLetters(s.now)[0].DeadAt.Sub(Start); diedAt != s5+s1 {
		t.Errorf("b died at %v, want when there was room, at %v", diedAt, s5+s1)
	}
}

func TestModelCapacityCountsEverythingNotDead(t *testing.T) {
	s := tell(t, driver.Config{MaxMessages: 3, MaxBytes: 4})
	s.send("aa")
	s.receive(1, s5, "aa")
	s.sendAs(driver.Outgoing{Body: []byte("b"), Delay: s5}, "")
	s.sendAs(driver.Outgoing{Body: []byte("cc")}, driver.ErrFull)
	s.send("d")
	s.sendAs(driver.Outgoing{}, driver.ErrFull)
	s.deadLetter("aa", "")
	s.send("e")
}

func TestModelInFlightCeiling(t *testing.T) {
	s := tell(t, driver.Config{MaxInFlight: 2})
	s.send("a", "b", "c")
	s.receive(3, s5, "a", "b")
	_, err := s.model.Receive(s.now, driver.ReceiveRequest{Max: 1})
	s.want("receive at the ceiling", err, driver.ErrFull)
	if driver.RetryAfter(err) == 0 {
		t.Error("no hint")
	}
	s.ack("a", "")
	s.receive(3, s5, "c")
	s.receive(1, s5) // nothing is ready: no error
}

func TestModelDedupWindowStartsAtTheFirstSend(t *testing.T) {
	s := tell(t, driver.Config{DedupWindow: s10, DedupMax: 1})
	msg := driver.Outgoing{Body: []byte("a"), DedupKey: "k"}
	first := s.sendAs(msg, "")
	s.receive(1, s5, "a")
	s.ack("a", "")
	s.pass(s5)
	if again := s.sendAs(msg, ""); !again.Duplicate || again.ID != first.ID {
		t.Errorf("got %+v, want a duplicate of %s", again, first.ID)
	}
	s.sendAs(driver.Outgoing{Body: []byte("b"), DedupKey: "k"}, driver.ErrConflict)
	_, err := s.model.Send(s.now, []driver.Outgoing{{DedupKey: "l"}})
	s.want("send with a full table", driver.At(err, 0), driver.ErrFull)
	if hint := driver.RetryAfter(err); hint != s5 {
		t.Errorf("the hint is %v, want %v", hint, s5)
	}
	s.pass(s5)
	if again := s.sendAs(msg, ""); again.Duplicate {
		t.Error("still a duplicate after the window")
	}
}

func TestModelMaxBytesTakesAPrefix(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("aaaa", "bb", "c")
	for _, want := range []int{1, 2} {
		deliveries, _ := s.model.Receive(s.now, driver.ReceiveRequest{Max: 9, MaxBytes: 3, Visibility: s5})
		if len(deliveries) != want {
			t.Errorf("got %d messages, want %d", len(deliveries), want)
		}
	}
}

func TestModelStrictGroups(t *testing.T) {
	s := tell(t, driver.Config{StrictGroups: true})
	for _, text := range strings.Fields("x1 x2 y1 x3 y2") {
		s.sendAs(driver.Outgoing{Body: []byte(text), Group: text[:1]}, "")
	}
	s.receive(2, s10, "x1", "x2")
	s.receive(1, s10, "y1")
	s.receive(9, s10) // both groups are blocked
	s.counts(2, 0, 3, 0)
	s.ack("x1", "")
	s.receive(9, s10) // x2 is still in flight
	s.nack("x2", s1)
	s.receive(9, s10) // and comes before x3 when it is due
	s.pass(s1)
	s.receive(9, s10, "x2", "x3")
	s.ack("y1", "")
	s.receive(9, s10, "y2")
}

func TestModelPurgeLeavesDeadLettersAndKeys(t *testing.T) {
	s := tell(t, driver.Config{})
	s.sendAs(driver.Outgoing{Body: []byte("a"), DedupKey: "k"}, "")
	s.send("b", "c")
	s.receive(2, s5, "a", "b")
	s.deadLetter("a", "")
	if removed := s.model.Purge(s.now); removed != 2 {
		t.Errorf("purged %d, want 2", removed)
	}
	s.ack("b", driver.ErrReceiptExpired)
	s.dead("a fatal")
	if again := s.sendAs(driver.Outgoing{Body: []byte("a"), DedupKey: "k"}, ""); !again.Duplicate {
		t.Error("the purge emptied the dedup table")
	}
}

func TestModelPeekOrdersByStateAndTime(t *testing.T) {
	s := tell(t, driver.Config{})
	s.send("flight", "dead", "ready")
	s.receive(2, s10, "flight", "dead")
	s.deadLetter("dead", "")
	s.sendAs(driver.Outgoing{Body: []byte("later"), Delay: s5}, "")
	s.sendAs(driver.Outgoing{Body: []byte("soon"), Delay: s1}, "")
	var got []string
	for _, peeked := range s.model.Peek(s.now, driver.Query{}) {
		got = append(got, fmt.Sprintf("%s %s", peeked.State, peeked.Body))
	}
	want := []string{"ready ready", "delayed soon", "delayed later", "in flight flight", "dead dead"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.counts(1, 2, 1, 1)
}
