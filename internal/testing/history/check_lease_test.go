package history

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// leaseHistories are about leases and receipts.
var leaseHistories = []historyTest{
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
		s.terms.Config.MaxHold = 10 * time.Second
		s.send("a")
		s.receive("a", 1).Duration = time.Second
		s.pass(time.Second - 1)
		s.settle(OpExtend, "a", 1).Duration = 20 * time.Second
		s.pass(10 * time.Second)
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
		s.terms.Config.MaxHold = 10 * time.Second
		s.send("a")
		s.receive("a", 1).Duration = time.Second
		s.pass(time.Second - 1)
		s.settle(OpExtend, "a", 1).Duration = 20 * time.Second
		s.pass(10 * time.Second)
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
	{"a receipt works that was never given out", "VIS-2", func(s *script) {
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
}
