package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// dropping is a queue whose messages may wait for two ticks, and then leave no
// trace.
func dropping(s *session) driver.Config {
	config := aging(s)
	config.DropExpired = true
	return config
}

// droppingFew is a queue that keeps so many messages, and no trace of others.
func droppingFew(count int) func(*session) driver.Config {
	return always(driver.Config{RetainReady: driver.Retention{Count: count}, DropExpired: true})
}

// alsoDropping is dropping with more settings.
func alsoDropping(change func(*driver.Config)) func(*session) driver.Config {
	return func(s *session) driver.Config {
		config := dropping(s)
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
		id: "RET-2", title: "what is dropped does not go where the dead go",
		config: alsoDropping(func(c *driver.Config) { c.DeadLetterTo = graveQueue }), needs: dropNeeds, run: droppedGoesNowhere,
	},
	{
		id: "RET-2", title: "a message that is out of deliveries becomes a dead letter all the same",
		config: alsoDropping(func(c *driver.Config) { c.MaxDeliveries = 1 }), needs: []need{needDropExpired, needDeadLetters}, run: exhaustedIsNotDropped,
	},
	{
		id: "RET-2", title: "full dead letters hold nothing up",
		config: alsoDropping(func(c *driver.Config) { c.MaxDead = 1 }), needs: []need{needDropExpired, needDeadLetters}, run: fullGraveyardDoesNotMatter,
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

// expectNoTrace checks that nothing is left in a queue.
func (s *session) expectNoTrace(q driver.Queue) {
	s.t.Helper()
	s.expectEmpty(q)
	if q.Traits().DeadLetters {
		s.expectDead(q)
	}
}

func oldReadyIsDropped(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a", "b")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{}, "the end of messages that are too old")
	s.expectNoTrace(q)
	s.send(q, "c")
	s.expectNext(q, "c")
}

func oldDelayedIsDropped(s *session, q driver.Queue) {
	sent := time.Now()
	s.sendLater(q, 3*s.tick, "a")
	s.expectStatsAt(q, sent.Add(3*s.tick), driver.Stats{Ready: 1}, "the end of a delay that is longer than messages are kept")
	s.expectStatsAt(q, sent.Add(5*s.tick), driver.Stats{}, "the end of a message that was due for too long")
	s.expectNoTrace(q)
}

func oldInFlightIsDroppedOnReturn(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	held := s.takeBeforeOld(q, sent)
	s.sleep(3 * s.tick)
	s.expectStats(q, driver.Stats{InFlight: 1})
	s.extend(q, held, s.hold)
	s.expire(q, held)
	s.expectNoTrace(q)
	s.expectExpired(q, held, "the receipt of a message that was dropped")
}

func oldNackedIsDropped(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	held := s.takeBeforeOld(q, sent)
	s.sleep(2 * s.tick)
	s.nack(q, held, 0, "failure")
	s.expectNoTrace(q)
	s.expectExpired(q, held, "the receipt of a message that was dropped")
}

func tooManyAreDropped(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)
	s.send(q, "b", "c", "d")
	s.expectStats(q, driver.Stats{Ready: 3, InFlight: 1})
	s.send(q, "e") // b is the oldest that is ready
	s.expectStats(q, driver.Stats{Ready: 3, InFlight: 1})
	s.expire(q, held...) // and now a is
	s.expectStats(q, driver.Stats{Ready: 3})
	s.nack(q, s.expectNext(q, "c")[0], 0, "") // at the tail, and yet the oldest
	s.send(q, "f")
	s.expectStats(q, driver.Stats{Ready: 3})
	s.ack(q, s.expectNext(q, "d", "e", "f")...)
	s.expectNoTrace(q)
}

func droppedGoesNowhere(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{}, "the end of a message that is too old")
	s.expectEmpty(s.open(graveQueue))
}

func exhaustedIsNotDropped(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	held := s.takeBeforeOld(q, sent)
	s.sleep(3 * s.tick)
	s.expire(q, held)
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectExpiredLetter(q, "a", driver.ReasonMaxDeliveries)
}

func fullGraveyardDoesNotMatter(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "dead")
	s.bury(q, s.takeBeforeOld(q, sent), driver.ReasonFatal)
	sent = time.Now()
	s.send(q, "a")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{Dead: 1}, "the end of a message while the dead letters are full")
	s.expectNothing(q)
	s.expectDead(q, "dead")
}

func droppedMakesRoom(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "abc", "def")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{}, "the end of messages that are too old")
	s.send(q, "ghi", "jkl")
	s.expectFull(trySend(s, q, "m"), "send to a full queue")
}

func droppedHeadFreesGroup(s *session, q driver.Queue) {
	s.sendTo(q, "g", "g1", "g2", "g3") // g1 is the oldest of three
	s.ack(q, s.expectAlone(q, "g2"))
	s.ack(q, s.expectAlone(q, "g3"))
	s.expectNoTrace(q)
}

func droppedKeyIsRemembered(s *session, q driver.Queue) {
	sent := time.Now()
	id := s.expectFresh(q, keyed("key", "body"), "for the first time")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{}, "the end of a message that is too old")
	s.expectDuplicate(q, keyed("key", "body"), id, "after its message was dropped")
	s.expectNoTrace(q)
}

func droppingIsSwitched(s *session, q driver.Queue) {
	few := driver.Retention{Count: 2}
	s.send(q, "a", "b", "c")
	s.expectStats(q, driver.Stats{Ready: 2})
	if !s.reconfigure(driver.Config{RetainReady: few}) {
		return
	}
	s.send(q, "d")
	s.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	s.reconfigure(driver.Config{RetainReady: few, DropExpired: true})
	s.send(q, "e")
	s.expectStats(q, driver.Stats{Ready: 2, Dead: 1})
	s.expectDead(q, "b")
	s.reconfigure(driver.Config{RetainReady: driver.Retention{Count: 1}, DropExpired: true})
	s.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
	s.expectNext(q, "e")
}

func droppedStaysGone(s *session, q driver.Queue, how Crash) {
	sent := time.Now()
	s.send(q, "a", "b")
	s.expectStatsAt(q, sent.Add(2*s.tick), driver.Stats{}, "the end of messages that are too old")
	s.send(q, "c")
	q = s.restart(how)
	s.sleep(4 * s.tick) // a clock that was lost is read late rather than early
	s.expectNoTrace(q)
	s.send(q, "d")
	s.expectNext(q, "d")
}

func tooManyStayGone(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b", "c", "d")
	q = s.restart(how)
	s.expectStats(q, driver.Stats{Ready: 2})
	s.send(q, "e")
	s.expectStats(q, driver.Stats{Ready: 2})
	s.ack(q, s.expectNext(q, "d", "e")...)
	s.expectNoTrace(q)
}
