package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// aging is a queue whose messages may wait for two ticks.
func aging(s *session) driver.Config {
	return driver.Config{RetainReady: driver.Retention{Age: 2 * s.tick}}
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
		config: func(s *session) driver.Config {
			config := aging(s)
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
		id: "RET-1", title: "the oldest is who was sent first, wherever it stands now",
		config: always(driver.Config{RetainReady: driver.Retention{Count: 2}}), needs: []need{needDeadLetters}, run: oldestIsBySending,
	},
	{
		id: "RET-1", title: "a message of a strict group expires twice and is then not delivered",
		config: func(s *session) driver.Config {
			config := aging(s)
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
		config: func(s *session) driver.Config { return driver.Config{RetainDead: driver.Retention{Age: s.tick}} },
		needs:  []need{needDeadLetters}, run: oldDeadIsRemoved,
	},
	{
		id: "RET-1", title: "of too many dead letters the oldest deaths are removed",
		config: always(driver.Config{RetainDead: driver.Retention{Count: 2}}), needs: []need{needDeadLetters}, run: tooManyDeadAreRemoved,
	},
	{id: "RET-1", title: "a retention that is set later holds for what is there already", needs: []need{needAdmin, needDeadLetters}, run: laterRetentionHolds},
	{id: "RET-1", title: "a queue without retention keeps what it has", needs: []need{needDeadLetters}, run: noRetentionKeepsAll},
}

// expectExpiredLetter checks the last of the dead letters.
func (s *session) expectExpiredLetter(q driver.Queue, body string, reason driver.Reason) {
	s.t.Helper()
	letters := s.dead(q)
	if len(letters) == 0 {
		s.failf("no dead letter where %q was expected", body)
	}
	if last := letters[len(letters)-1]; string(last.Body) != body || last.Reason != reason {
		s.failf("dead letter: got %q with reason %q, want %q with reason %q", last.Body, last.Reason, body, reason)
	}
}

func oldReadyExpires(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{Dead: 1}, "the end of a message that is too old")
	s.expectNothing(q)
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func delayedAgesWhenDue(s *session, q driver.Queue) {
	sent := time.Now()
	s.sendLater(q, 3*s.tick, "a")
	s.sendLater(q, 3*s.tick, "b")
	s.expectStatsAt(q, sent.Add(3*s.tick), driver.Stats{Ready: 2}, "the end of a delay that is longer than messages are kept")
	s.expectNext(q, "a")
	s.expectStatsAt(q, sent.Add(5*s.tick), driver.Stats{InFlight: 1, Dead: 1}, "the end of a message that was due for too long")
	s.expectExpiredLetter(q, "b", driver.ReasonExpired)
}

// delayedHoldsUpNoAge sends a message that is older by its send and younger by its age.
func delayedHoldsUpNoAge(s *session, q driver.Queue) {
	sent := time.Now()
	s.sendLater(q, s.tick, "late")
	s.send(q, "a")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{Ready: 1, Dead: 1}, "the end of a message that was sent after a delayed one")
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
	s.expectStatsAt(q, sent.Add(3*s.tick), driver.Stats{Dead: 2}, "the end of a message that was delayed")
	s.expectExpiredLetter(q, "late", driver.ReasonExpired)
}

func nackedIsJudgedWhenDue(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	held := s.takeBeforeOld(q, sent)
	nacked := time.Now()
	s.nack(q, held, 4*s.tick, "later")
	s.sleep(3 * s.tick)
	s.expectStats(q, driver.Stats{Delayed: 1})
	s.expectStatsAt(q, nacked.Add(4*s.tick), driver.Stats{Dead: 1}, "the end of a delay of a message that is too old")
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

// takeBeforeOld receives a message that must not be old yet, and gives the
// case up where a slow machine let it grow old.
func (s *session) takeBeforeOld(q driver.Queue, sent time.Time) driver.Delivery {
	s.t.Helper()
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 1, Visibility: s.hold})
	if len(got) == 0 {
		if s.backend.Virtual || time.Since(sent) < 2*s.tick-s.slack {
			s.failf("receive: got nothing %v after the send, want a message that may wait for %v", time.Since(sent), 2*s.tick)
		}
		s.t.Skip("the machine is too slow: the message was old before it could be received")
	}
	return got[0]
}

func oldInFlightExpiresOnReturn(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	held := s.takeBeforeOld(q, sent)
	s.sleep(3 * s.tick)
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.extend(q, held, s.hold)
	s.expire(q, held)
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectNothing(q)
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func nackDoesNotRejuvenate(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	held := s.takeBeforeOld(q, sent)
	s.sleep(2 * s.tick)
	s.nack(q, held, 0, "failure")
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func redriveRejuvenates(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	s.bury(q, s.takeBeforeOld(q, sent), driver.ReasonFatal)
	s.sleep(3 * s.tick)
	redriven := time.Now()
	s.redrive(q, nil, 0, 1)
	s.expectStatsAt(q, redriven.Add(2*s.tick), driver.Stats{Dead: 1}, "the end of a redriven message that is too old")
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
}

func expiresTwiceInGroup(s *session, q driver.Queue) {
	nackedIsJudgedWhenDue(s, q)
	s.sleep(s.tick)
	redriven := time.Now()
	s.redrive(q, nil, 0, 1)
	s.expectStatsAt(q, redriven.Add(2*s.tick), driver.Stats{Dead: 1}, "the second end of a message that is too old")
	if got := s.receiveOnce(q, driver.ReceiveRequest{Max: 1}); len(got) > 0 {
		s.failf("received %q, which is a dead letter", got[0].Body)
	}
	s.expectStats(q, driver.Stats{Dead: 1})
}

func deliveriesBeforeAge(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	held := s.takeBeforeOld(q, sent)
	s.sleep(3 * s.tick)
	s.expire(q, held)
	s.expectExpiredLetter(q, "a", driver.ReasonMaxDeliveries)
}

func tooManyReadyExpire(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	s.expectStats(q, driver.Stats{Ready: 3})
	s.send(q, "d", "e") // a and b expire
	s.expectStats(q, driver.Stats{Ready: 3, Dead: 2})
	for _, letter := range s.expectDead(q, "a", "b") {
		if letter.Reason != driver.ReasonExpired {
			s.failf("dead letter %q: got reason %q, want %q", letter.Body, letter.Reason, driver.ReasonExpired)
		}
	}
	s.expectNext(q, "c", "d", "e")
}

func retentionCountsReady(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)
	s.sendLater(q, s.hold, "b")
	s.send(q, "c", "d")
	s.expectStats(q, driver.Stats{Ready: 2, Delayed: 1, InFlight: 1})
	s.send(q, "e") // c is the oldest that is ready
	s.expectStats(q, driver.Stats{Ready: 2, Delayed: 1, InFlight: 1, Dead: 1})
	s.expectExpiredLetter(q, "c", driver.ReasonExpired)
	s.sleep(time.Millisecond)
	s.expire(q, held...) // and now a is
	s.expectStats(q, driver.Stats{Ready: 2, Delayed: 1, Dead: 2})
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
	s.expectNext(q, "d", "e")
}

func oldestIsByDue(s *session, q driver.Queue) {
	sent := time.Now()
	s.sendLater(q, s.tick, "late")
	s.send(q, "a", "b")
	s.expectStats(q, driver.Stats{Ready: 2, Delayed: 1})
	s.expectStatsAt(q, sent.Add(s.tick), driver.Stats{Ready: 2, Dead: 1}, "the end of the delay of a message that is one too many")
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
	s.send(q, "c")
	s.expectExpiredLetter(q, "b", driver.ReasonExpired)
	s.send(q, "d")
	s.expectExpiredLetter(q, "late", driver.ReasonExpired)
}

func oldestIsBySending(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.nack(q, s.expectNext(q, "a")[0], 0, "") // behind b, and yet older
	s.send(q, "c")
	s.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)
	s.expectNext(q, "b", "c")
}

func expiredHeadFreesGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3") // g1 is the oldest of three
	s.expectExpiredLetter(q, "g1", driver.ReasonExpired)
	s.ack(q, s.expectAlone(q, "g2"))
	s.expectAlone(q, "g3")
}

func oldDeadIsRemoved(s *session, q driver.Queue) {
	s.send(q, "a")
	s.sleep(2 * s.tick) // it is the time since death that counts
	held := s.receive(q, 1)[0]
	died := time.Now()
	s.bury(q, held, driver.ReasonFatal)
	s.expectStatsAt(q, died.Add(s.tick), driver.Stats{}, "the removal of a dead letter that is too old")
	s.expectDead(q)
	s.redrive(q, nil, 0, 0)
}

func tooManyDeadAreRemoved(s *session, q driver.Queue) {
	s.kill(q, "a", "b", "c", "d")
	s.expectStats(q, driver.Stats{Dead: 2})
	s.expectDead(q, "c", "d")
}

func laterRetentionHolds(s *session, q driver.Queue) {
	s.kill(q, "dead 1", "dead 2")
	s.send(q, "a", "b", "c")
	s.expire(q, s.expectNext(q, "a")...)
	if !s.reconfigure(driver.Config{RetainReady: driver.Retention{Count: 2}}) {
		return
	}
	s.expectStats(q, driver.Stats{Ready: 2, Dead: 3})
	s.expectExpiredLetter(q, "a", driver.ReasonExpired)

	s.sleep(s.tick)
	s.reconfigure(driver.Config{RetainReady: driver.Retention{Age: s.tick}})
	s.expectStats(q, driver.Stats{Dead: 5})
	s.reconfigure(driver.Config{RetainDead: driver.Retention{Count: 4}})
	s.expectStats(q, driver.Stats{Dead: 4})
	s.sleep(s.tick)
	s.reconfigure(driver.Config{RetainDead: driver.Retention{Age: s.tick}})
	s.expectEmpty(q)
	s.reconfigure(driver.Config{})
	s.send(q, "d")
	s.sleep(2 * s.tick)
	s.expectNext(q, "d")
}

func noRetentionKeepsAll(s *session, q driver.Queue) {
	s.kill(q, "dead")
	s.send(q, "ready")
	if s.backend.Virtual {
		s.sleep(365 * 24 * time.Hour)
	}
	s.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
	s.expectNext(q, "ready")
}
