package drivertest

import (
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var defaultCases = []testCase{
	{
		id: "DLQ-1", title: "a queue that was only opened has the default delivery limit",
		needs: []need{needDeadLetters}, run: openedQueueHasDefaultLimit,
	},
	{
		id: "DLQ-1", title: "a queue that was configured without a limit has the default one",
		needs: []need{needAdmin, needDeadLetters}, run: configuredQueueHasDefaultLimit,
	},
	{
		id: "DLQ-1", title: "a delivery limit that is off stays off when other settings change",
		needs: []need{needAdmin, needDeadLetters}, run: offStaysOff,
	},
	{
		id: "DLQ-1", title: "dead letters of a new queue are bounded",
		needs: []need{needAdmin, needDeadLetters}, run: newQueueBoundsDead,
	},
	{
		id: "DLQ-1", title: "what a configuration leaves unset is kept",
		needs: []need{needAdmin}, run: unsetIsKept,
	},
	{
		id: "DLQ-1", title: "a configuration that was read has nothing unset and can be given back",
		needs: []need{needAdmin}, run: readConfigCanBeGivenBack,
	},
	{
		id: "DUP-1", title: "with the dedup window off dedup keys are refused",
		needs: []need{needAdmin, needDedup}, run: windowOffRefusesKeys,
	},
}

// expectLimit expects that the next message of q dies of its limit-th failure.
func (s *session) expectLimit(q driver.Queue, limit int) {
	s.t.Helper()
	s.send(q, "a")
	for delivery := 1; delivery <= limit; delivery++ {
		s.expectStats(q, driver.Stats{Ready: 1})
		s.nack(q, s.expectNext(q, "a")[0], 0, "failed")
	}
	s.expectStats(q, driver.Stats{Dead: 1})
	if letter := s.expectDead(q, "a")[0]; letter.Reason != driver.ReasonMaxDeliveries {
		s.failf("dead letter: got reason %q, want %q", letter.Reason, driver.ReasonMaxDeliveries)
	}
}

func openedQueueHasDefaultLimit(s *session, q driver.Queue) {
	s.expectLimit(q, driver.DefaultMaxDeliveries)
}

// configureAsIs configures a queue with exactly what config says.
func (s *session) configureAsIs(name string, config driver.Config) driver.Queue {
	s.t.Helper()
	s.ok(s.opener.(driver.Admin).ConfigureQueue(s.ctx(), name, config), "configure queue %q with %+v", name, config)
	return s.open(name)
}

// configOf reads the configuration of a queue.
func (s *session) configOf(name string) driver.Config {
	s.t.Helper()
	config, err := s.opener.(driver.Admin).QueueConfig(s.ctx(), name)
	s.ok(err, "read the configuration of queue %q", name)
	return config
}

func configuredQueueHasDefaultLimit(s *session, _ driver.Queue) {
	q := s.configureAsIs("invoices", driver.Config{MaxMessages: 100})
	if got := s.configOf("invoices").MaxDeliveries; got != driver.DefaultMaxDeliveries {
		s.failf("delivery limit of a queue that was made without one: got %d, want %d", got, driver.DefaultMaxDeliveries)
	}
	s.expectLimit(q, driver.DefaultMaxDeliveries)
}

func offStaysOff(s *session, _ driver.Queue) {
	s.configureAsIs("invoices", driver.Config{MaxDeliveries: driver.Off})
	q := s.configureAsIs("invoices", driver.Config{MaxMessages: 100})
	if got := s.configOf("invoices").MaxDeliveries; got != driver.Off {
		s.failf("delivery limit that is off: got %d, want Off (%d)", got, driver.Off)
	}
	noLimitNoDeath(s, q)
}

func newQueueBoundsDead(s *session, q driver.Queue) {
	s.send(q, "a") // which makes the queue, if opening did not
	s.configureAsIs("invoices", driver.Config{})
	for _, name := range []string{queueName, "invoices"} {
		config := s.configOf(name)
		if config.MaxDead <= 0 && config.RetainDead.Age <= 0 && config.RetainDead.Count <= 0 {
			s.failf("dead letters of queue %q have no bound: %+v", name, config)
		}
	}
	s.configureAsIs("receipts", driver.Config{RetainDead: driver.Retention{Count: 7}})
	if got := s.configOf("receipts").RetainDead.Count; got != 7 {
		s.failf("RetainDead.Count: got %d, want 7", got)
	}
}

// settings are configurations with one setting each, some of which a backend may
// refuse.
func settings() map[string]driver.Config {
	return map[string]driver.Config{
		"MaxDeliveries":     {MaxDeliveries: 7},
		"MaxMessages":       {MaxMessages: 1000},
		"MaxBytes":          {MaxBytes: 1 << 30},
		"MaxInFlight":       {MaxInFlight: 100},
		"MaxDead":           {MaxDead: 100},
		"DedupWindow":       {DedupWindow: time.Hour},
		"DedupMax":          {DedupMax: 1000},
		"RetainReady.Age":   {RetainReady: driver.Retention{Age: time.Hour}},
		"RetainReady.Count": {RetainReady: driver.Retention{Count: 10}},
		"RetainDead.Age":    {RetainDead: driver.Retention{Age: time.Hour}},
		"RetainDead.Count":  {RetainDead: driver.Retention{Count: 10}},
		"MaxHold":           {MaxHold: time.Hour},
		"nothing":           {},
		"everything off":    complete(driver.Config{}),
	}
}

// configureIfAble configures a queue, and reports whether the backend can.
func (s *session) configureIfAble(name string, config driver.Config) bool {
	s.t.Helper()
	err := s.opener.(driver.Admin).ConfigureQueue(s.ctx(), name, config)
	if errors.Is(err, driver.ErrUnsupported) {
		s.t.Logf("refused: %v", err)
		return false
	}
	s.ok(err, "configure queue %q with %+v", name, config)
	return true
}

func unsetIsKept(s *session, _ driver.Queue) {
	for name, config := range settings() {
		if !s.configureIfAble(name, config) {
			continue
		}
		before := s.configOf(name)
		if !configCovers(before, config) {
			s.failf("configuration with %s: got %+v, want %+v", name, before, config)
		}
		s.configureAsIs(name, driver.Config{})
		if after := s.configOf(name); after != before {
			s.failf("configuration with %s after one with nothing set: got %+v, want %+v", name, after, before)
		}
	}
}

func readConfigCanBeGivenBack(s *session, _ driver.Queue) {
	for name, config := range settings() {
		if !s.configureIfAble(name, config) {
			continue
		}
		before := s.configOf(name)
		if effective := before.Effective(); before != effective {
			s.failf("configuration with %s: got %+v, which leaves something unset; want %+v", name, before, effective)
		}
		s.configureAsIs(name, before)
		if after := s.configOf(name); after != before {
			s.failf("configuration with %s that was given back: got %+v, want %+v", name, after, before)
		}
	}
}

func windowOffRefusesKeys(s *session, _ driver.Queue) {
	if !s.configureIfAble("invoices", driver.Config{DedupWindow: driver.Off}) {
		return
	}
	q := s.open("invoices")
	if window := q.Traits().DedupWindow; window != 0 {
		s.failf("Traits.DedupWindow with the window off: got %v, want 0", window)
	}
	_, err := q.Send(s.ctx(), []driver.Outgoing{keyed("key", "a")})
	s.expectInvalid(err, driver.ErrUnsupported, "", "send with a dedup key to a queue whose window is off")
	s.expectEmpty(q)
	s.send(q, "a")
	s.configureAsIs("invoices", driver.Config{DedupWindow: time.Hour})
	s.expectFresh(q, keyed("key", "b"), "after the window was turned on")
}
