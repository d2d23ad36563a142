package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A script writes histories by hand. Each event follows the one before it,
// unless overlap makes it begin earlier.
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

// histories pairs what is wrong with what looks alike and is right. A bad one
// must be reported under its rule; a good one has none.
var histories = []struct {
	name  string
	rule  string
	write func(s *script)
}{
	{"a message is lost", "SND-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
	}},
	{"a message is acked", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.ack("a", 1)
	}},
	{"an ack of unknown outcome may have taken it", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.ack("a", 1).Outcome = OutcomeUnknown
	}},
	{"a send of unknown outcome needs to leave nothing", "", func(s *script) {
		s.send("").Outcome = OutcomeUnknown
	}},
	{"a message is gone that was sent after the purge", "SND-1", func(s *script) {
		s.add(Event{Op: OpPurge})
		s.send("a")
	}},
	{"a message is gone that was purged", "", func(s *script) {
		s.send("a")
		s.add(Event{Op: OpPurge, Count: 1})
	}},
	{"a message is gone although another was discarded", "SND-1", func(s *script) {
		s.send("a")
		s.send("b")
		s.add(Event{Op: OpDiscard, ID: "b", Count: 1})
	}},
	{"a message is gone after a crash of a durable queue", "SND-1", func(s *script) {
		s.send("a")
		s.add(Event{Op: OpCrash})
	}},
	{"a message is gone after a crash of a volatile queue", "", func(s *script) {
		s.terms.Traits.Durability = driver.DurabilityNone
		s.send("a")
		s.add(Event{Op: OpCrash})
	}},
	{"an acked message is still there", "ACK-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.ack("a", 1)
		s.left("a", driver.StateReady)
	}},
	{"two messages get one id", "SND-1", func(s *script) {
		s.send("a")
		s.send("a")
		s.left("a", driver.StateReady)
	}},

	{"a delivery comes from nowhere", "SND-6", func(s *script) {
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},
	{"a delivery comes from a send that failed", "SND-6", func(s *script) {
		e := s.send("")
		e.Outcome, e.Digest = OutcomeFail, "body of a"
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},
	{"a delivery comes from a send of unknown outcome", "", func(s *script) {
		e := s.send("")
		e.Outcome, e.Digest = OutcomeUnknown, "body of a"
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},
	{"two messages come from one send of unknown outcome", "SND-6", func(s *script) {
		e := s.send("")
		e.Outcome, e.Digest = OutcomeUnknown, "same"
		s.receive("a", 1).Digest = "same"
		s.receive("b", 1).Digest = "same"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a delivery comes before its send", "SND-6", func(s *script) {
		s.receive("a", 1)
		s.send("a")
		s.left("a", driver.StateInFlight)
	}},
	{"a delivery comes during its send", "", func(s *script) {
		s.receive("a", 1)
		s.send("a")
		s.overlap()
		s.left("a", driver.StateInFlight)
	}},
	{"a stranger is there at the end", "SND-6", func(s *script) {
		s.left("a", driver.StateReady)
	}},
	{"a body changes", "SND-3", func(s *script) {
		s.send("a")
		s.receive("a", 1).Digest = "another"
		s.left("a", driver.StateInFlight)
	}},

	{"a key makes two messages", "DUP-1", func(s *script) {
		s.sendKey("a", "k", "x")
		s.pass(59 * time.Second)
		s.sendKey("b", "k", "x")
		s.left("a", driver.StateReady)
		s.left("b", driver.StateReady)
	}},
	{"a key makes two messages a window apart", "", func(s *script) {
		s.sendKey("a", "k", "x")
		s.pass(time.Minute)
		s.sendKey("b", "k", "x")
		s.left("a", driver.StateReady)
		s.left("b", driver.StateReady)
	}},
	{"a key stands for two bodies", "DUP-2", func(s *script) {
		s.sendKey("a", "k", "x")
		s.sendKey("b", "k", "y")
		s.left("a", driver.StateReady)
		s.left("b", driver.StateReady)
	}},
	{"a repeat gets the first id", "", func(s *script) {
		s.sendKey("a", "k", "x")
		s.pass(59 * time.Second)
		s.sendKey("a", "k", "x").Duplicate = true
		s.left("a", driver.StateReady)
	}},
	{"a repeat with another body gets the first id", "DUP-2", func(s *script) {
		s.sendKey("a", "k", "x")
		s.sendKey("a", "k", "y").Duplicate = true
		s.left("a", driver.StateReady)
	}},
	{"a repeat is a duplicate after the window", "DUP-3", func(s *script) {
		s.sendKey("a", "k", "x")
		s.pass(time.Minute)
		s.sendKey("a", "k", "x").Duplicate = true
		s.left("a", driver.StateReady)
	}},
	{"a repeat is a duplicate of another key", "DUP-1", func(s *script) {
		s.sendKey("a", "k", "x")
		s.sendKey("a", "l", "x").Duplicate = true
		s.left("a", driver.StateReady)
	}},
	{"a repeat is a duplicate of a later send", "DUP-1", func(s *script) {
		s.sendKey("a", "k", "x").Duplicate = true
		s.sendKey("a", "k", "x")
		s.left("a", driver.StateReady)
	}},
	{"a repeat is a duplicate of a send at the same time", "", func(s *script) {
		s.sendKey("a", "k", "x").Duplicate = true
		s.sendKey("a", "k", "x")
		s.overlap()
		s.left("a", driver.StateReady)
	}},
	{"a conflict has a cause", "", func(s *script) {
		s.sendKey("a", "k", "x")
		e := s.sendKey("", "k", "y")
		e.Outcome, e.Code = OutcomeFail, driver.ErrConflict
		s.left("a", driver.StateReady)
	}},
	{"a conflict has none", "DUP-2", func(s *script) {
		s.sendKey("a", "k", "x")
		e := s.sendKey("", "k", "x")
		e.Outcome, e.Code = OutcomeFail, driver.ErrConflict
		s.left("a", driver.StateReady)
	}},

	{"two hold one message", "VIS-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(9 * time.Second)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"one holds after the other", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(10 * time.Second)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"two hold one message across a crash", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.add(Event{Op: OpCrash})
		s.receive("a", 1).Receipt.Nonce = 7
		s.left("a", driver.StateInFlight)
	}},
	{"two hold one message after a crash", "VIS-1", func(s *script) {
		s.send("a")
		s.add(Event{Op: OpCrash})
		s.receive("a", 1)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"two hold an extended message", "VIS-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(9 * time.Second)
		s.settle(OpExtend, "a", 1).Duration = 10 * time.Second
		s.pass(9 * time.Second)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"an extension may not have come in time", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(9 * time.Second)
		e := s.settle(OpExtend, "a", 1)
		e.Duration, e.Outcome = 10*time.Second, OutcomeUnknown
		s.pass(9 * time.Second)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"an extension cuts the lease short", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.settle(OpExtend, "a", 1)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"a nacked message goes to the next", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.settle(OpNack, "a", 1)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"a nack that failed frees a message", "VIS-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.settle(OpNack, "a", 1).Outcome = OutcomeFail
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"a message is held longer than MaxHold", "", func(s *script) {
		s.terms.Config.MaxHold = 1
		s.send("a")
		s.receive("a", 1)
		s.pass(9 * time.Second)
		s.settle(OpExtend, "a", 1).Duration = 10 * time.Second
		s.pass(time.Second)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},

	{"an acked message comes back", "ACK-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.ack("a", 1)
		s.pass(time.Hour)
		s.receive("a", 2)
	}},
	{"an acked message comes back in a receive that began before", "ACK-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.ack("a", 1)
		s.receive("a", 2)
		s.overlap()
	}},
	{"a dead message comes back", "DLQ-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.settle(OpDeadLetter, "a", 1)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"a redriven message comes back", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.settle(OpDeadLetter, "a", 1)
		s.add(Event{Op: OpRedrive, ID: "a", Count: 1})
		s.receive("a", 1).Receipt.Nonce = 7
		s.left("a", driver.StateInFlight)
	}},
	{"a purged message comes back", "CNT-3", func(s *script) {
		s.send("a")
		s.add(Event{Op: OpPurge, Count: 1})
		s.receive("a", 1)
	}},
	{"a message sent during a purge stays", "", func(s *script) {
		s.send("a")
		s.add(Event{Op: OpPurge})
		s.overlap()
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},

	{"a receipt works after its deadline", "VIS-2", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(10 * time.Second)
		s.ack("a", 1)
	}},
	{"a receipt works before its deadline", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(10*time.Second - 1)
		s.ack("a", 1)
	}},
	{"a receipt works after it was extended", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(9 * time.Second)
		s.settle(OpExtend, "a", 1).Duration = 5 * time.Second
		s.pass(4 * time.Second)
		s.ack("a", 1)
	}},
	{"a receipt works after MaxHold", "VIS-2", func(s *script) {
		s.terms.Config.MaxHold = 1
		s.send("a")
		s.receive("a", 1)
		s.pass(9 * time.Second)
		s.settle(OpExtend, "a", 1).Duration = 5 * time.Second
		s.pass(4 * time.Second)
		s.ack("a", 1)
	}},
	{"an old receipt works", "VIS-2", func(s *script) {
		s.send("a")
		s.receive("a", 1).Duration = 0
		s.receive("a", 2)
		s.settle(OpExtend, "a", 1).Duration = time.Second
		s.left("a", driver.StateInFlight)
	}},
	{"a receipt works after a crash gave the message to another", "VIS-2", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.add(Event{Op: OpCrash})
		s.receive("a", 1).Receipt.Nonce = 7
		s.ack("a", 1)
	}},
	{"a receipt works after a crash", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.add(Event{Op: OpCrash})
		s.pass(time.Minute) // the backend's clock stood still
		s.ack("a", 1)
	}},
	{"an old receipt fails", "", func(s *script) {
		s.send("a")
		s.receive("a", 1).Duration = 0
		s.receive("a", 2)
		s.settle(OpExtend, "a", 1).Outcome = OutcomeFail
		s.left("a", driver.StateInFlight)
	}},
	{"a receipt settles twice", "VIS-6", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.settle(OpNack, "a", 1)
		s.ack("a", 1)
		s.overlap()
	}},
	{"a receipt is extended after an ack", "VIS-2", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.ack("a", 1)
		s.settle(OpExtend, "a", 1).Duration = time.Second
	}},
	{"a receipt is extended in a race with an ack", "", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.ack("a", 1)
		s.settle(OpExtend, "a", 1).Duration = time.Second
		s.overlap()
	}},
	{"a receipt works after a purge", "CNT-3", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.add(Event{Op: OpPurge, Count: 1})
		s.settle(OpExtend, "a", 1).Duration = time.Second
	}},
	{"a receipt works that nobody got", "VIS-2", func(s *script) {
		s.send("a")
		s.settle(OpNack, "a", 1)
		s.left("a", driver.StateReady)
	}},
	{"two deliveries share a receipt", "VIS-2", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(time.Minute)
		s.receive("a", 2).Receipt = receiptOf("a", 1)
		s.left("a", driver.StateInFlight)
	}},

	{"a first delivery counts 0", "RCV-3", func(s *script) {
		s.send("a")
		s.receive("a", 1).Deliveries = 0
		s.left("a", driver.StateInFlight)
	}},
	{"two deliveries count the same", "RCV-3", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.pass(time.Minute)
		s.receive("a", 1).Receipt.Nonce = 7
		s.left("a", driver.StateInFlight)
	}},
	{"the count goes down", "RCV-3", func(s *script) {
		s.send("a")
		s.receive("a", 2)
		s.pass(time.Minute)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},
	{"a delivery went to nobody", "RCV-2", func(s *script) {
		s.send("a")
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"a delivery went to a receive of unknown outcome", "", func(s *script) {
		s.send("a")
		s.add(Event{Op: OpReceive, Outcome: OutcomeUnknown})
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"a delivery is one too many", "DLQ-1", func(s *script) {
		s.terms.Config.MaxDeliveries = 1
		s.send("a")
		s.receive("a", 1)
		s.pass(time.Minute)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},

	{"a delayed message comes early", "SND-2", func(s *script) {
		s.send("a").Duration = 5 * time.Second
		s.pass(4 * time.Second)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},
	{"a delayed message comes in time", "", func(s *script) {
		s.send("a").Duration = 5 * time.Second
		s.pass(5 * time.Second)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},
	{"a nacked message comes early", "ACK-1", func(s *script) {
		s.send("a")
		s.receive("a", 1)
		s.settle(OpNack, "a", 1).Duration = 5 * time.Second
		s.pass(4 * time.Second)
		s.receive("a", 2)
		s.left("a", driver.StateInFlight)
	}},
	{"a message comes as early as clocks differ", "", func(s *script) {
		s.terms.Tolerance = time.Second
		s.send("a").Duration = 5 * time.Second
		s.pass(4 * time.Second)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
	}},

	{"a later message overtakes", "ORD-1", func(s *script) {
		s.send("a")
		s.send("b")
		s.receive("b", 1)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a later message overtakes one that still waits", "ORD-1", func(s *script) {
		s.send("a")
		s.send("b")
		s.receive("b", 1)
		s.left("a", driver.StateReady)
		s.left("b", driver.StateInFlight)
	}},
	{"of two sent at once any may come first", "", func(s *script) {
		s.send("a")
		s.send("b")
		s.overlap()
		s.receive("b", 1)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"of two receives at once any may get the first", "", func(s *script) {
		s.send("a")
		s.send("b")
		s.receive("b", 1)
		s.receive("a", 1)
		s.overlap()
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a delayed message is overtaken", "", func(s *script) {
		s.send("a").Duration = time.Second
		s.send("b")
		s.receive("b", 1)
		s.pass(time.Second)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a batch is sent in one order and received in another", "ORD-1", func(s *script) {
		s.send("a")
		*s.send("b") = s.batch()
		s.receive("b", 1)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a batch is received out of order", "ORD-1", func(s *script) {
		s.send("a")
		s.send("b")
		s.receive("b", 1)
		*s.receive("a", 1) = s.batch()
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a batch keeps its order", "", func(s *script) {
		s.send("a")
		*s.send("b") = s.batch()
		s.receive("a", 1)
		*s.receive("b", 1) = s.batch()
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a queue without order keeps none", "", func(s *script) {
		s.terms.Traits.Ordering = driver.OrderingNone
		s.send("a")
		s.send("b")
		s.receive("b", 1)
		s.receive("a", 1)
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"messages of two shards keep no order", "", func(s *script) {
		s.terms.Traits.Ordering = driver.OrderingPerShard
		s.send("a").Group = "x"
		s.send("b").Group = "y"
		s.receive("b", 1).Group = "y"
		s.receive("a", 1).Group = "x"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"messages of one shard keep order", "ORD-1", func(s *script) {
		s.terms.Traits.Ordering = driver.OrderingPerShard
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("b", 1).Group = "x"
		s.receive("a", 1).Group = "x"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a strict group is out twice", "ORD-4", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("a", 1).Group = "x"
		s.receive("b", 1).Group = "x"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a strict group is out in one batch", "", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("a", 1).Group = "x"
		*s.receive("b", 1) = s.batch()
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a strict group is out again", "", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("a", 1).Group = "x"
		s.ack("a", 1)
		s.receive("b", 1).Group = "x"
		s.left("b", driver.StateInFlight)
	}},
	{"two strict groups are out", "", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "y"
		s.receive("a", 1).Group = "x"
		s.receive("b", 1).Group = "y"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},

	{"the counts are too low", "CNT-1", func(s *script) {
		s.send("a")
		s.final.Present["a"] = driver.StateReady
	}},
	{"the counts are too high", "CNT-1", func(s *script) {
		s.send("a")
		s.left("a", driver.StateReady)
		s.final.Stats.Dead++
	}},
	{"a lost message shows in the counts alone", "CNT-1", func(s *script) {
		s.final.Present = nil
		s.send("a")
	}},
	{"a send of unknown outcome is counted", "", func(s *script) {
		s.final.Present = nil
		s.send("a").Outcome = OutcomeUnknown
		s.final.Stats.Ready = 1
	}},
}

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
			t.Errorf("the error does not say %q:\n%v", want, err)
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

func ExampleCheck() {
	recorder := NewRecorder("")
	queue := recorder.Queue(&modelQueue{
		model: NewModel("orders", modelTraits, driver.Config{}, time.Now()),
		clock: func() time.Duration { return 0 },
	})
	ctx := context.Background()
	_, _ = queue.Send(ctx, []driver.Outgoing{{Body: []byte("hello")}})
	deliveries, _ := queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	_ = queue.Ack(ctx, []driver.Receipt{deliveries[0].Receipt})

	final, _ := Observe(ctx, queue)
	report := Check(recorder.History(), final, Terms{Traits: queue.Traits()})
	fmt.Println(report.Messages, report.Deliveries, report.Err())
	// Output: 1 1 <nil>
}
