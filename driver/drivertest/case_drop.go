package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// dropping is a queue whose messages may wait for two ticks, and are then dropped.
func dropping(e *env) driver.Config {
	config := aging(e)
	config.DropExpired = true
	return config
}

// droppingFew is a queue that keeps count messages and drops the others.
func droppingFew(count int) func(*env) driver.Config {
	return always(driver.Config{RetainReady: driver.Retention{Count: count}, DropExpired: true})
}

var dropNeeds = []need{needDropExpired}

// expectNoTrace checks that a queue is empty.
func (e *env) expectNoTrace(q driver.Queue) {
	e.t.Helper()
	e.expectEmpty(q)
	if q.Traits().DeadLetters {
		e.expectDead(q)
	}
}

func droppedStaysGone(e *env, q driver.Queue, how Crash) {
	sent := time.Now()
	e.send(q, "a", "b")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{}, "the end of messages that are too old")
	e.send(q, "c")
	q = e.restart(how)
	e.sleep(4 * e.tick) // after a lost clock, messages are late rather than early
	e.expectNoTrace(q)
	e.send(q, "d")
	e.expectNext(q, "d")
}

func tooManyStayGone(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c", "d")
	q = e.restart(how)
	e.expectStats(q, driver.Stats{Ready: 2})
	e.send(q, "e")
	e.expectStats(q, driver.Stats{Ready: 2})
	e.ack(q, e.expectNext(q, "d", "e")...)
	e.expectNoTrace(q)
}
