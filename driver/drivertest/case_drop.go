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

// alsoDropping is dropping with further settings.
func alsoDropping(change func(*driver.Config)) func(*env) driver.Config {
	return func(e *env) driver.Config {
		config := dropping(e)
		change(&config)
		return config
	}
}

var dropNeeds = []need{needDropExpired}

var dropCases = []testCase{
	{id: "RET-2", title: "a ready message that is too old is gone, by the clock alone", config: dropping, needs: dropNeeds, run: oldReadyIsDropped},
	{id: "RET-2", title: "a delayed message is gone when it was due for too long", config: dropping, needs: dropNeeds, run: oldDelayedIsDropped},
	{id: "RET-2", title: "a message in flight is not dropped, but is when it comes back", config: dropping, needs: dropNeeds, run: oldInFlightIsDroppedOnReturn},
	{id: "RET-2", title: "a nacked message that is too old is gone", config: dropping, needs: dropNeeds, run: oldNackedIsDropped},
	{id: "RET-2", title: "of too many ready messages the oldest are gone", config: droppingFew(3), needs: dropNeeds, run: tooManyAreDropped},
	{
		id: "RET-2", title: "a dropped message does not go to the dead-letter queue",
		config: alsoDropping(func(c *driver.Config) { c.DeadLetterTo = deadLetterQueue }), needs: dropNeeds, run: droppedGoesNowhere,
	},
	{
		id: "RET-2", title: "a message at its delivery limit still becomes a dead letter",
		config: alsoDropping(func(c *driver.Config) { c.MaxDeliveries = 1 }), needs: []need{needDropExpired, needDeadLetters}, run: exhaustedIsNotDropped,
	},
	{
		id: "RET-2", title: "full dead letters hold nothing up",
		config: alsoDropping(func(c *driver.Config) { c.MaxDead = 1 }), needs: []need{needDropExpired, needDeadLetters}, run: fullDeadLettersDoNotMatter,
	},
	{
		id: "RET-2", title: "what is dropped makes room",
		config: alsoDropping(func(c *driver.Config) { c.MaxMessages, c.MaxBytes = 2, 6 }), needs: dropNeeds, run: droppedMakesRoom,
	},
	{
		id: "RET-2", title: "a message that is dropped does not hold up its strict group",
		config: always(driver.Config{StrictGroups: true, RetainReady: driver.Retention{Count: 2}, DropExpired: true}),
		needs:  dropNeeds, run: droppedHeadFreesGroup,
	},
	{id: "RET-2", title: "its dedup key is remembered", config: dropping, needs: []need{needDropExpired, needDedup}, run: droppedKeyIsRemembered},
	{
		id: "RET-2", title: "it can be switched on and off, and keeps the dead letters that are there",
		config: droppingFew(2), needs: []need{needDropExpired, needDeadLetters}, run: droppingIsSwitched,
	},
}

// expectNoTrace checks that a queue is empty.
func (e *env) expectNoTrace(q driver.Queue) {
	e.t.Helper()
	e.expectEmpty(q)
	if q.Traits().DeadLetters {
		e.expectDead(q)
	}
}

func oldReadyIsDropped(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a", "b")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{}, "the end of messages that are too old")
	e.expectNoTrace(q)
	e.send(q, "c")
	e.expectNext(q, "c")
}

func oldDelayedIsDropped(e *env, q driver.Queue) {
	sent := time.Now()
	e.sendLater(q, 3*e.tick, "a")
	e.expectStatsAt(q, sent.Add(3*e.tick), driver.Stats{Ready: 1}, "the end of a delay that is longer than messages are kept")
	e.expectStatsAt(q, sent.Add(5*e.tick), driver.Stats{}, "the end of a message that was due for too long")
	e.expectNoTrace(q)
}

func oldInFlightIsDroppedOnReturn(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	held := e.takeBeforeOld(q, sent)
	e.sleep(3 * e.tick)
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.extend(q, held, e.hold)
	e.expire(q, held)
	e.expectNoTrace(q)
	e.expectExpired(q, held, "the receipt of a message that was dropped")
}

func oldNackedIsDropped(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	held := e.takeBeforeOld(q, sent)
	e.sleep(2 * e.tick)
	e.nack(q, held, 0, "failure")
	e.expectNoTrace(q)
	e.expectExpired(q, held, "the receipt of a message that was dropped")
}

func tooManyAreDropped(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)
	e.send(q, "b", "c", "d")
	e.expectStats(q, driver.Stats{Ready: 3, InFlight: 1})
	e.send(q, "e") // b is the oldest ready message
	e.expectStats(q, driver.Stats{Ready: 3, InFlight: 1})
	e.expire(q, held...) // now a is the oldest
	e.expectStats(q, driver.Stats{Ready: 3})
	e.nack(q, e.expectNext(q, "c")[0], 0, "") // at the tail, but still the oldest
	e.send(q, "f")
	e.expectStats(q, driver.Stats{Ready: 3})
	e.ack(q, e.expectNext(q, "d", "e", "f")...)
	e.expectNoTrace(q)
}

func droppedGoesNowhere(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{}, "the end of a message that is too old")
	e.expectEmpty(e.open(deadLetterQueue))
}

func exhaustedIsNotDropped(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	held := e.takeBeforeOld(q, sent)
	e.sleep(3 * e.tick)
	e.expire(q, held)
	e.expectStats(q, driver.Stats{Dead: 1})
	e.expectExpiredLetter(q, "a", driver.ReasonMaxDeliveries)
}

func fullDeadLettersDoNotMatter(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "dead")
	e.deadLetter(q, e.takeBeforeOld(q, sent), driver.ReasonFatal)
	sent = time.Now()
	e.send(q, "a")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{Dead: 1}, "the end of a message while the dead letters are full")
	e.expectNothing(q)
	e.expectDead(q, "dead")
}

func droppedMakesRoom(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "abc", "def")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{}, "the end of messages that are too old")
	e.send(q, "ghi", "jkl")
	e.expectFull(trySend(e, q, "m"), "send to a full queue")
}

func droppedHeadFreesGroup(e *env, q driver.Queue) {
	e.sendTo(q, "g", "g1", "g2", "g3") // g1 is the oldest of three
	e.ack(q, e.expectAlone(q, "g2"))
	e.ack(q, e.expectAlone(q, "g3"))
	e.expectNoTrace(q)
}

func droppedKeyIsRemembered(e *env, q driver.Queue) {
	sent := time.Now()
	id := e.expectFresh(q, keyed("key", "body"), "for the first time")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{}, "the end of a message that is too old")
	e.expectDuplicate(q, keyed("key", "body"), id, "after its message was dropped")
	e.expectNoTrace(q)
}

func droppingIsSwitched(e *env, q driver.Queue) {
	few := driver.Retention{Count: 2}
	e.send(q, "a", "b", "c")
	e.expectStats(q, driver.Stats{Ready: 2})
	if !e.reconfigure(driver.Config{RetainReady: few}) {
		return
	}
	e.send(q, "d")
	e.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	e.reconfigure(driver.Config{RetainReady: few, DropExpired: true})
	e.send(q, "e")
	e.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	e.expectDead(q, "b")
	e.reconfigure(driver.Config{RetainReady: driver.Retention{Count: 1}, DropExpired: true})
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
	e.expectNext(q, "e")
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
