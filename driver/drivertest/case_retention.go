package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// aging is a queue whose messages may wait for two ticks.
func aging(e *env) driver.Config {
	return driver.Config{RetainReady: driver.Retention{Age: 2 * e.tick}}
}

var retentionCases = []testCase{
	{
		id: "RET-1", title: "a ready message that is too old becomes a dead letter, by the clock alone",
		config: aging, needs: []need{needDeadLetters}, run: oldReadyExpires,
	},
	{
		id: "RET-1", title: "the age of a delayed message begins when it is due",
		config: aging, needs: []need{needDeadLetters}, run: delayedAgesWhenDue,
	},
	{
		id: "RET-1", title: "a delayed message keeps no other from expiring",
		config: aging, needs: []need{needDeadLetters}, run: delayedHoldsUpNoAge,
	},
	{
		id: "RET-1", title: "a message nacked with a delay is judged when that ends",
		config: aging, needs: []need{needDeadLetters}, run: nackedIsJudgedWhenDue,
	},
	{
		id: "RET-1", title: "a message in flight does not age out, but does when it comes back",
		config: aging, needs: []need{needDeadLetters}, run: oldInFlightExpiresOnReturn,
	},
	{
		id: "RET-1", title: "a nack does not make a message younger",
		config: aging, needs: []need{needDeadLetters}, run: nackDoesNotRejuvenate,
	},
	{
		id: "RET-1", title: "a redrive makes a message young again",
		config: aging, needs: []need{needDeadLetters}, run: redriveRejuvenates,
	},
	{
		id: "RET-1", title: "a message that is both old and out of deliveries died of the deliveries",
		config: func(e *env) driver.Config {
			config := aging(e)
			config.MaxDeliveries = 1
			return config
		}, needs: []need{needDeadLetters}, run: deliveriesBeforeAge,
	},
	{
		id: "RET-1", title: "of too many waiting messages the oldest become dead letters",
		config: always(driver.Config{RetainReady: driver.Retention{Count: 3}}), needs: []need{needDeadLetters}, run: tooManyReadyExpire,
	},
	{
		id: "RET-1", title: "neither delayed messages nor those in flight count towards the number kept",
		config: always(driver.Config{RetainReady: driver.Retention{Count: 2}}), needs: []need{needDeadLetters}, run: retentionCountsReady,
	},
	{
		id: "RET-1", title: "the oldest is the message that could be delivered first",
		config: always(driver.Config{RetainReady: driver.Retention{Count: 2}}), needs: []need{needDeadLetters}, run: oldestIsByDue,
	},
	{
		id: "RET-1", title: "the oldest is the message sent first, wherever it is now",
		config: always(driver.Config{RetainReady: driver.Retention{Count: 2}}), needs: []need{needDeadLetters}, run: oldestIsBySending,
	},
	{
		id: "RET-1", title: "a message of a strict group expires twice and is then not delivered",
		config: func(e *env) driver.Config {
			config := aging(e)
			config.StrictGroups = true
			return config
		}, needs: []need{needDeadLetters}, run: expiresTwiceInGroup,
	},
	{
		id: "RET-1", title: "a message that is too many does not hold up its strict group",
		config: always(driver.Config{StrictGroups: true, RetainReady: driver.Retention{Count: 2}}),
		needs:  []need{needDeadLetters}, run: expiredHeadFreesGroup,
	},
	{
		id: "RET-1", title: "a dead letter that is too old is removed",
		config: func(e *env) driver.Config { return driver.Config{RetainDead: driver.Retention{Age: e.tick}} },
		needs:  []need{needDeadLetters}, run: oldDeadIsRemoved,
	},
	{
		id: "RET-1", title: "of too many dead letters the oldest deaths are removed",
		config: always(driver.Config{RetainDead: driver.Retention{Count: 2}}), needs: []need{needDeadLetters}, run: tooManyDeadAreRemoved,
	},
	{id: "RET-1", title: "a retention that is set later holds for what is there already", needs: []need{needAdmin, needDeadLetters}, run: laterRetentionHolds},
	{id: "RET-1", title: "a queue without retention keeps what it has", needs: []need{needDeadLetters}, run: noRetentionKeepsAll},
}

// expectExpiredLetter checks the last dead letter.
func (e *env) expectExpiredLetter(q driver.Queue, body string, reason driver.Reason) {
	e.t.Helper()
	letters := e.dead(q)
	if len(letters) == 0 {
		e.failf("no dead letter where %q was expected", body)
	}
	if last := letters[len(letters)-1]; string(last.Body) != body || last.Reason != reason {
		e.failf("dead letter: got %q with reason %q, want %q with reason %q", last.Body, last.Reason, body, reason)
	}
}

func oldReadyExpires(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{Dead: 1}, "the end of a message that is too old")
	e.expectNothing(q)
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func delayedAgesWhenDue(e *env, q driver.Queue) {
	sent := time.Now()
	e.sendLater(q, 3*e.tick, "a")
	e.sendLater(q, 3*e.tick, "b")
	e.expectStatsAt(q, sent.Add(3*e.tick), driver.Stats{Ready: 2}, "the end of a delay that is longer than messages are kept")
	e.expectNext(q, "a")
	e.expectStatsAt(q, sent.Add(5*e.tick), driver.Stats{InFlight: 1, Dead: 1}, "the end of a message that was due for too long")
	e.expectExpiredLetter(q, "b", driver.ReasonExpired)
}

// delayedHoldsUpNoAge sends a message that was sent earlier but is younger, because of its
// delay.
func delayedHoldsUpNoAge(e *env, q driver.Queue) {
	sent := time.Now()
	e.sendLater(q, e.tick, "late")
	e.send(q, "a")
	e.expectStatsAt(q, sent.Add(2*e.tick), driver.Stats{Ready: 1, Dead: 1}, "the end of a message that was sent after a delayed one")
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
	e.expectStatsAt(q, sent.Add(3*e.tick), driver.Stats{Dead: 2}, "the end of a message that was delayed")
	e.expectExpiredLetter(q, "late", driver.ReasonExpired)
}

func nackedIsJudgedWhenDue(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	held := e.takeBeforeOld(q, sent)
	nacked := time.Now()
	e.nack(q, held, 4*e.tick, "later")
	e.sleep(3 * e.tick)
	e.expectStats(q, driver.Stats{Delayed: 1})
	e.expectStatsAt(q, nacked.Add(4*e.tick), driver.Stats{Dead: 1}, "the end of a delay of a message that is too old")
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

// takeBeforeOld receives a message that must not have expired. It skips the case if a slow
// machine let the message expire.
func (e *env) takeBeforeOld(q driver.Queue, sent time.Time) driver.Delivery {
	e.t.Helper()
	got := e.receiveOnce(q, driver.ReceiveRequest{Max: 1, Visibility: e.hold})
	if len(got) == 0 {
		if e.backend.Virtual || time.Since(sent) < 2*e.tick-e.slack {
			e.failf("receive: got nothing %v after the send, want a message that may wait for %v", time.Since(sent), 2*e.tick)
		}
		e.t.Skip("the machine is too slow: the message was old before it could be received")
	}
	return got[0]
}

func oldInFlightExpiresOnReturn(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	held := e.takeBeforeOld(q, sent)
	e.sleep(3 * e.tick)
	e.expectStats(q, driver.Stats{InFlight: 1})
	e.extend(q, held, e.hold)
	e.expire(q, held)
	e.expectStats(q, driver.Stats{Dead: 1})
	e.expectNothing(q)
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func nackDoesNotRejuvenate(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	held := e.takeBeforeOld(q, sent)
	e.sleep(2 * e.tick)
	e.nack(q, held, 0, "failure")
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Dead: 1})
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func redriveRejuvenates(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	e.deadLetter(q, e.takeBeforeOld(q, sent), driver.ReasonFatal)
	e.sleep(3 * e.tick)
	redriven := time.Now()
	e.redrive(q, nil, 0, 1)
	e.expectStatsAt(q, redriven.Add(2*e.tick), driver.Stats{Dead: 1}, "the end of a redriven message that is too old")
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func expiresTwiceInGroup(e *env, q driver.Queue) {
	nackedIsJudgedWhenDue(e, q)
	e.sleep(e.tick)
	redriven := time.Now()
	e.redrive(q, nil, 0, 1)
	e.expectStatsAt(q, redriven.Add(2*e.tick), driver.Stats{Dead: 1}, "the second end of a message that is too old")
	if got := e.receiveOnce(q, driver.ReceiveRequest{Max: 1}); len(got) > 0 {
		e.failf("received %q, which is a dead letter", got[0].Body)
	}
	e.expectStats(q, driver.Stats{Dead: 1})
}

func deliveriesBeforeAge(e *env, q driver.Queue) {
	sent := time.Now()
	e.send(q, "a")
	held := e.takeBeforeOld(q, sent)
	e.sleep(3 * e.tick)
	e.expire(q, held)
	e.expectExpiredLetter(q, "a", driver.ReasonMaxDeliveries)
}

func tooManyReadyExpire(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	e.expectStats(q, driver.Stats{Ready: 3})
	e.send(q, "d", "e") // a and b expire
	e.expectStats(q, driver.Stats{Ready: 3, Dead: 2})
	for _, letter := range e.expectDead(q, "a", "b") {
		if letter.Reason != driver.ReasonExpired {
			e.failf("dead letter %q: got reason %q, want %q", letter.Body, letter.Reason, driver.ReasonExpired)
		}
	}
	e.expectNext(q, "c", "d", "e")
}

func retentionCountsReady(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)
	e.sendLater(q, e.hold, "b")
	e.send(q, "c", "d")
	e.expectStats(q, driver.Stats{Ready: 2, Delayed: 1, InFlight: 1})
	e.send(q, "e") // c is the oldest ready message
	e.expectStats(q, driver.Stats{Ready: 2, Delayed: 1, InFlight: 1, Dead: 1})
	e.expectExpiredLetter(q, "c", driver.ReasonExpired)
	e.sleep(time.Millisecond)
	e.expire(q, held...) // now a is the oldest
	e.expectStats(q, driver.Stats{Ready: 2, Delayed: 1, Dead: 2})
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
	e.expectNext(q, "d", "e")
}

func oldestIsByDue(e *env, q driver.Queue) {
	sent := time.Now()
	e.sendLater(q, e.tick, "late")
	e.send(q, "a", "b")
	e.expectStats(q, driver.Stats{Ready: 2, Delayed: 1})
	e.expectStatsAt(q, sent.Add(e.tick), driver.Stats{Ready: 2, Dead: 1}, "the end of the delay of a message that is one too many")
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
	e.send(q, "c")
	e.expectExpiredLetter(q, "b", driver.ReasonExpired)
	e.send(q, "d")
	e.expectExpiredLetter(q, "late", driver.ReasonExpired)
}

func oldestIsBySending(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	e.nack(q, e.expectNext(q, "a")[0], 0, "") // behind b, but still older
	e.send(q, "c")
	e.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)
	e.expectNext(q, "b", "c")
}

func expiredHeadFreesGroup(e *env, q driver.Queue) {
	e.sendTo(q, "g", "g1", "g2", "g3") // g1 is the oldest of three
	e.expectExpiredLetter(q, "g1", driver.ReasonExpired)
	e.ack(q, e.expectAlone(q, "g2"))
	e.expectAlone(q, "g3")
}

func oldDeadIsRemoved(e *env, q driver.Queue) {
	e.send(q, "a")
	e.sleep(2 * e.tick) // the time since death counts
	held := e.receive(q, 1)[0]
	died := time.Now()
	e.deadLetter(q, held, driver.ReasonFatal)
	e.expectStatsAt(q, died.Add(e.tick), driver.Stats{}, "the removal of a dead letter that is too old")
	e.expectDead(q)
	e.redrive(q, nil, 0, 0)
}

func tooManyDeadAreRemoved(e *env, q driver.Queue) {
	e.kill(q, "a", "b", "c", "d")
	e.expectStats(q, driver.Stats{Dead: 2})
	e.expectDead(q, "c", "d")
}

func laterRetentionHolds(e *env, q driver.Queue) {
	e.kill(q, "dead 1", "dead 2")
	e.send(q, "a", "b", "c")
	e.expire(q, e.expectNext(q, "a")...)
	if !e.reconfigure(driver.Config{RetainReady: driver.Retention{Count: 2}}) {
		return
	}
	e.expectStats(q, driver.Stats{Ready: 2, Dead: 3})
	e.expectExpiredLetter(q, "a", driver.ReasonExpired)

	e.sleep(e.tick)
	e.reconfigure(driver.Config{RetainReady: driver.Retention{Age: e.tick}})
	e.expectStats(q, driver.Stats{Dead: 5})
	e.reconfigure(driver.Config{RetainDead: driver.Retention{Count: 4}})
	e.expectStats(q, driver.Stats{Dead: 4})
	e.sleep(e.tick)
	e.reconfigure(driver.Config{RetainDead: driver.Retention{Age: e.tick}})
	e.expectEmpty(q)
	e.reconfigure(driver.Config{})
	e.send(q, "d")
	e.sleep(2 * e.tick)
	e.expectNext(q, "d")
}

func noRetentionKeepsAll(e *env, q driver.Queue) {
	e.kill(q, "dead")
	e.send(q, "ready")
	if e.backend.Virtual {
		e.sleep(365 * 24 * time.Hour)
	}
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
	e.expectNext(q, "ready")
}
