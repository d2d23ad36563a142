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

// expectLimit checks that the next message of q dies after limit failed deliveries.
func (e *env) expectLimit(q driver.Queue, limit int) {
	e.t.Helper()
	e.send(q, "a")
	for delivery := 1; delivery <= limit; delivery++ {
		e.expectStats(q, driver.Stats{Ready: 1})
		e.nack(q, e.expectNext(q, "a")[0], 0, "failed")
	}
	e.expectStats(q, driver.Stats{Dead: 1})
	if letter := e.expectDead(q, "a")[0]; letter.Reason != driver.ReasonMaxDeliveries {
		e.failf("dead letter: got reason %q, want %q", letter.Reason, driver.ReasonMaxDeliveries)
	}
}

func openedQueueHasDefaultLimit(e *env, q driver.Queue) {
	e.expectLimit(q, driver.DefaultMaxDeliveries)
}

// configureAsIs configures a queue without filling in unset settings.
func (e *env) configureAsIs(name string, config driver.Config) driver.Queue {
	e.t.Helper()
	e.ok(e.opener.(driver.Admin).ConfigureQueue(e.ctx(), name, config), "configure queue %q with %+v", name, config)
	return e.open(name)
}

// configOf reads the configuration of a queue.
func (e *env) configOf(name string) driver.Config {
	e.t.Helper()
	config, err := e.opener.(driver.Admin).QueueConfig(e.ctx(), name)
	e.ok(err, "read the configuration of queue %q", name)
	return config
}

func configuredQueueHasDefaultLimit(e *env, _ driver.Queue) {
	q := e.configureAsIs("invoices", driver.Config{MaxMessages: 100})
	if got := e.configOf("invoices").MaxDeliveries; got != driver.DefaultMaxDeliveries {
		e.failf("delivery limit of a queue that was made without one: got %d, want %d", got, driver.DefaultMaxDeliveries)
	}
	e.expectLimit(q, driver.DefaultMaxDeliveries)
}

func offStaysOff(e *env, _ driver.Queue) {
	e.configureAsIs("invoices", driver.Config{MaxDeliveries: driver.Off})
	q := e.configureAsIs("invoices", driver.Config{MaxMessages: 100})
	if got := e.configOf("invoices").MaxDeliveries; got != driver.Off {
		e.failf("delivery limit that is off: got %d, want Off (%d)", got, driver.Off)
	}
	noLimitNoDeath(e, q)
}

func newQueueBoundsDead(e *env, q driver.Queue) {
	e.send(q, "a") // creates the queue, if opening did not
	e.configureAsIs("invoices", driver.Config{})
	for _, name := range []string{queueName, "invoices"} {
		config := e.configOf(name)
		if config.MaxDead <= 0 && config.RetainDead.Age <= 0 && config.RetainDead.Count <= 0 {
			e.failf("dead letters of queue %q have no bound: %+v", name, config)
		}
	}
	e.configureAsIs("receipts", driver.Config{RetainDead: driver.Retention{Count: 7}})
	if got := e.configOf("receipts").RetainDead.Count; got != 7 {
		e.failf("RetainDead.Count: got %d, want 7", got)
	}
}

// settings are configurations with one setting each. A backend may refuse some of them.
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
		"TTL":               {TTL: time.Hour},
		"PriorityAging":     {PriorityAging: time.Hour},
		"nothing":           {},
		"everything off":    complete(driver.Config{}),
	}
}

// configureIfAble configures a queue, and reports whether the backend supports it.
func (e *env) configureIfAble(name string, config driver.Config) bool {
	e.t.Helper()
	err := e.opener.(driver.Admin).ConfigureQueue(e.ctx(), name, config)
	if errors.Is(err, driver.ErrUnsupported) {
		e.t.Logf("refused: %v", err)
		return false
	}
	e.ok(err, "configure queue %q with %+v", name, config)
	return true
}

func unsetIsKept(e *env, _ driver.Queue) {
	for name, config := range settings() {
		if !e.configureIfAble(name, config) {
			continue
		}
		before := e.configOf(name)
		if !configCovers(before, config) {
			e.failf("configuration with %s: got %+v, want %+v", name, before, config)
		}
		e.configureAsIs(name, driver.Config{})
		if after := e.configOf(name); after != before {
			e.failf("configuration with %s after one with nothing set: got %+v, want %+v", name, after, before)
		}
	}
}

func readConfigCanBeGivenBack(e *env, _ driver.Queue) {
	for name, config := range settings() {
		if !e.configureIfAble(name, config) {
			continue
		}
		before := e.configOf(name)
		if effective := before.Effective(); before != effective {
			e.failf("configuration with %s: got %+v, which leaves something unset; want %+v", name, before, effective)
		}
		e.configureAsIs(name, before)
		if after := e.configOf(name); after != before {
			e.failf("configuration with %s that was given back: got %+v, want %+v", name, after, before)
		}
	}
}

func windowOffRefusesKeys(e *env, _ driver.Queue) {
	if !e.configureIfAble("invoices", driver.Config{DedupWindow: driver.Off}) {
		return
	}
	q := e.open("invoices")
	if window := q.Traits().DedupWindow; window != 0 {
		e.failf("Traits.DedupWindow with the window off: got %v, want 0", window)
	}
	_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("key", "a")})
	e.expectInvalid(err, driver.ErrUnsupported, "", "send with a dedup key to a queue whose window is off")
	e.expectEmpty(q)
	e.send(q, "a")
	e.configureAsIs("invoices", driver.Config{DedupWindow: time.Hour})
	e.expectFresh(q, keyed("key", "b"), "after the window was turned on")
}
