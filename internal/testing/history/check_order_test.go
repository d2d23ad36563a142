package history

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// orderHistories are about order, groups, and counts at the end.
var orderHistories = []historyTest{
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
	{"messages of two fair groups keep no order", "", func(s *script) {
		s.terms.Traits.FairGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "y"
		s.receive("b", 1).Group = "y"
		s.receive("a", 1).Group = "x"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a later message of a fair group overtakes", "FAIR-3", func(s *script) {
		s.terms.Traits.FairGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("b", 1).Group = "x"
		s.receive("a", 1).Group = "x"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a later message overtakes beside fair groups", "FAIR-3", func(s *script) {
		s.terms.Traits.FairGroups = true
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
	{"a strict group is in flight twice", "ORD-4", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("a", 1).Group = "x"
		s.receive("b", 1).Group = "x"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a strict group is in flight in one batch", "", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("a", 1).Group = "x"
		*s.receive("b", 1) = s.batch()
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a strict group's head is in flight again before the rest of its batch is settled", "", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("a", 1).Group = "x"
		*s.receive("b", 1) = s.batch()
		s.settle(OpNack, "a", 1)
		s.receive("a", 2).Group = "x"
		s.left("a", driver.StateInFlight)
		s.left("b", driver.StateInFlight)
	}},
	{"a strict group is in flight again", "", func(s *script) {
		s.terms.Traits.StrictGroups = true
		s.send("a").Group = "x"
		s.send("b").Group = "x"
		s.receive("a", 1).Group = "x"
		s.ack("a", 1)
		s.receive("b", 1).Group = "x"
		s.left("b", driver.StateInFlight)
	}},
	{"two strict groups are in flight", "", func(s *script) {
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
