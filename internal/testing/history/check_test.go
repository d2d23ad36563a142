package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A script builds histories by hand. Each event follows the one before it, unless overlap makes
// it begin earlier.
type script struct {
	events []Event
	tick   uint64
	now    time.Duration
	final  FinalState
	terms  Terms
}

func newScript() *script {
	return &script{
		final: FinalState{Present: make(map[string]driver.State)},
		terms: Terms{Traits: driver.Traits{
			Ordering: driver.OrderingFIFO, DedupWindow: time.Minute, Durability: driver.DurabilityDisk,
		}},
	}
}

func (s *script) add(e Event) *Event {
	s.tick += 2
	e.Call = s.tick
	e.Invoke = Stamp{Tick: s.tick, Time: int64(s.now)}
	e.Return = Stamp{Tick: s.tick + 1, Time: int64(s.now)}
	if e.Outcome == "" {
		e.Outcome = OutcomeOK
	}
	s.events = append(s.events, e)
	return &s.events[len(s.events)-1]
}

func (s *script) pass(d time.Duration) { s.now += d }

// overlap makes the last two events concurrent.
func (s *script) overlap() {
	last, before := &s.events[len(s.events)-1], &s.events[len(s.events)-2]
	last.Invoke, before.Return = before.Invoke, last.Return
}

func (s *script) send(id string) *Event {
	return s.add(Event{Op: OpSend, ID: id, Digest: "body of " + id})
}

func (s *script) sendKey(id, key, body string) *Event {
	return s.add(Event{Op: OpSend, ID: id, Digest: body, DedupKey: key})
}

func receiptOf(id string, n int) driver.Receipt { return driver.Receipt{Handle: id, Nonce: uint64(n)} }

// receive delivers a message for ten seconds.
func (s *script) receive(id string, n int) *Event {
	return s.add(Event{
		Op: OpReceive, ID: id, Digest: "body of " + id, Receipt: receiptOf(id, n), Deliveries: n, Duration: 10 * time.Second,
	})
}

func (s *script) settle(op Op, id string, n int) *Event {
	return s.add(Event{Op: op, Receipt: receiptOf(id, n)})
}

func (s *script) ack(id string, n int) *Event { return s.settle(OpAck, id, n) }

func (s *script) left(id string, state driver.State) {
	s.final.Present[id] = state
	switch state {
	case driver.StateReady:
		s.final.Stats.Ready++
	case driver.StateDelayed:
		s.final.Stats.Delayed++
	case driver.StateInFlight:
		s.final.Stats.InFlight++
	case driver.StateDead:
		s.final.Stats.Dead++
	}
}

func (s *script) check() Report { return Check(History{Events: s.events}, s.final, s.terms) }

// A historyTest is a history that breaks a rule, or a similar one that does not.
type historyTest struct {
	name  string
	rule  string // empty if no rule is broken
	write func(s *script)
}

var histories = slices.Concat(originHistories, keyHistories, leaseHistories, attemptHistories, orderHistories)

// batch makes the last event the second element of the call before it.
func (s *script) batch() Event {
	last, before := s.events[len(s.events)-1], s.events[len(s.events)-2]
	last.Call, last.Position, last.Group = before.Call, before.Position+1, before.Group
	last.Invoke, last.Return = before.Invoke, before.Return
	return last
}

func TestCheckTellsGoodFromBad(t *testing.T) {
	for _, test := range histories {
		t.Run(test.name, func(t *testing.T) {
			s := newScript()
			test.write(s)
			report := s.check()
			reported := func(v Violation) bool { return v.Rule == test.rule }
			switch {
			case test.rule == "" && len(report.Violations) > 0:
				t.Errorf("reported although it is fine: %v", report.Err())
			case test.rule != "" && !slices.ContainsFunc(report.Violations, reported):
				t.Errorf("got %v, want a violation of %s", report.Err(), test.rule)
			}
		})
	}
}

func TestEveryRuleOfCheckHasABadHistory(t *testing.T) {
	covered := make(map[string]bool)
	for _, test := range histories {
		covered[test.rule] = true
	}
	for _, rule := range []string{
		"SND-1", "SND-2", "SND-3", "SND-6", "DUP-1", "DUP-2", "DUP-3", "RCV-2", "RCV-3", "VIS-1", "VIS-2", "VIS-6",
		"ACK-1", "ORD-1", "ORD-4", "CNT-1", "CNT-3", "DLQ-1",
	} {
		if !covered[rule] {
			t.Errorf("no bad history for %s", rule)
		}
	}
}

func TestViolationNamesRuleMessageAndEvents(t *testing.T) {
	s := newScript()
	s.send("a")
	s.receive("a", 1)
	s.pass(time.Second)
	s.receive("a", 2)
	s.left("a", driver.StateInFlight)
	err := s.check().Err()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"VIS-1", "message a", "receive #4 (delivery 1)", "receive #6 (delivery 2)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

func TestReorderDepthCountsOvertakenMessages(t *testing.T) {
	s := newScript()
	s.terms.Traits.Ordering = driver.OrderingFIFO
	for _, id := range []string{"a", "b", "c", "d"} {
		s.send(id)
		s.left(id, driver.StateInFlight)
	}
	for _, id := range []string{"a", "d", "b", "c"} {
		s.receive(id, 1)
	}
	if depth := s.check().ReorderDepth; depth != 2 {
		t.Errorf("got reorder depth %d, want 2: d overtook b and c", depth)
	}
}

func TestProcessesAreOrderedByTimeWithTolerance(t *testing.T) {
	for _, test := range []struct {
		tolerance time.Duration
		want      int
	}{{0, 1}, {time.Second, 0}} {
		s := newScript()
		s.terms.Tolerance = test.tolerance
		s.receive("a", 1).Process = "consumer"
		s.pass(time.Second)
		s.send("a").Process = "producer"
		s.left("a", driver.StateInFlight)
		report := s.check()
		if len(report.Violations) != test.want {
			t.Errorf("tolerance %v: got %v, want %d violations", test.tolerance, report.Err(), test.want)
		}
	}
}
