package history

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// keyHistories are about dedup keys.
var keyHistories = []historyTest{
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
}
