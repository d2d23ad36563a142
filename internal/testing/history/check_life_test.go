package history

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// originHistories are about the start and the end of messages.
var originHistories = []historyTest{
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
}

// attemptHistories are about delivery counts and delays.
var attemptHistories = []historyTest{
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
	{"a delivery was lost", "RCV-2", func(s *script) {
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
}
