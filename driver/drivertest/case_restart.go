package drivertest

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A restartCase is a claim about what a crash leaves.
type restartCase struct {
	id     string
	title  string
	needs  []need
	config func(*session) driver.Config
	// cleanOnly: only an orderly end promises this. What a delivery changes
	// need not be on disk before it is answered, so a crash may undo it.
	cleanOnly bool
	run       func(s *session, q driver.Queue, how Crash)
}

var restarts = []restartCase{
	{id: "SND-1", title: "what was sent is there, complete and in order", run: sentSurvives},
	{id: "SND-1", title: "ids stay unique", run: idsStayUnique},
	{id: "SND-2", title: "a delayed message does not come early", run: delaySurvives},
	{id: "SND-5", title: "a full queue is full", config: always(driver.Config{MaxMessages: 2}), run: capacitySurvives},
	{id: "DUP-3", title: "dedup keys are remembered", needs: []need{needDedup}, run: dedupSurvives},
	{id: "DUP-3", title: "forgotten dedup keys stay forgotten", needs: []need{needDedup, needForget}, run: forgettingSurvives},
	{id: "ACK-1", title: "what was acked stays gone", run: ackSurvives},
	{id: "VIS-1", title: "a message in flight is not lost", run: inFlightSurvives},
	{id: "VIS-1", title: "a lease holds and its receipt works", cleanOnly: true, run: leaseSurvives},
	{id: "ORD-2", title: "a message that was in flight is at its place", needs: []need{needFIFO}, run: placeSurvives},
	{id: "ORD-2", title: "a nacked message is at the tail, with its count and its cause", needs: []need{needFIFO}, cleanOnly: true, run: nackSurvives},
	{id: "ORD-4", title: "a group is in order", config: strict, run: groupSurvives},
	{id: "FAIR-1", title: "a quiet group goes before a backlog", config: fair, needs: fairNeeds, run: fairnessSurvives},
	{id: "FAIR-1", title: "a group is as busy as it was", config: fair, needs: fairNeeds, cleanOnly: true, run: loadSurvives},
	{id: "FAIR-3", title: "a group is in order", config: fair, needs: fairNeeds, run: fairOrderSurvives},
	{id: "CNT-1", title: "stats are what they were", needs: []need{needExactStats}, cleanOnly: true, run: statsSurvive},
	{id: "CNT-3", title: "what was purged stays gone", run: purgeSurvives},
	{id: "DLQ-4", title: "a dead letter is there with its record", needs: []need{needDeadLetters}, run: deadLetterSurvives},
	{id: "DLQ-5", title: "a redriven message is ready and not dead", needs: []need{needDeadLetters}, run: redriveSurvives},
	{
		id: "DLQ-8", title: "a message that moved to another queue is there, once",
		config: buriedElsewhere, needs: []need{needDeadLetters}, run: moveSurvives,
	},
	{id: "DLQ-9", title: "messages that were moved are there, complete and once", needs: moveNeeds, run: movedSurvives},
	{id: "VIS-7", title: "what was acked late stays gone", needs: lateAckNeeds, run: lateAckSurvives},
	{id: "VIS-7", title: "a late receipt is as good", needs: lateAckNeeds, cleanOnly: true, run: lateReceiptSurvives},
	{id: "RET-1", title: "a delayed message is not too old when it is due", config: aging, run: delayedAgeSurvives},
	{id: "RET-2", title: "what was dropped stays gone, and what is too old is dropped", config: dropping, needs: dropNeeds, run: droppedStaysGone},
	{id: "RET-2", title: "what was too many stays gone", config: droppingFew(2), needs: dropNeeds, run: tooManyStayGone},
	{id: "SVC-1", title: "the annotation is there", config: annotated, needs: annotationNeeds, run: annotationSurvives},
	{id: "SVC-1", title: "the configuration is in force", config: always(driver.Config{MaxMessages: 3, MaxDeliveries: 4}), run: configSurvives},
}

func forgettingSurvives(s *session, q driver.Queue, how Crash) {
	s.expectFresh(q, keyed("forgotten", "body"), "for the first time")
	s.forgetDedup(q)
	kept := s.expectFresh(q, keyed("kept", "body"), "for the first time")
	q = s.restart(how)
	s.expectFresh(q, keyed("forgotten", "body"), "forgotten before "+how.String())
	s.expectDuplicate(q, keyed("kept", "body"), kept, "sent after forgetting, before "+how.String())
}

// restartCases is every claim for every crash that it is about.
func restartCases() []testCase {
	var cases []testCase
	for _, how := range []Crash{CrashClean, CrashKill, CrashPower} {
		for _, c := range restarts {
			if c.cleanOnly && how != CrashClean {
				continue
			}
			cases = append(cases, testCase{
				id:     c.id,
				title:  fmt.Sprintf("after %v: %s", how, c.title),
				needs:  append([]need{needCrash(how)}, c.needs...),
				config: c.config,
				run:    func(s *session, q driver.Queue) { c.run(s, q, how) },
			})
		}
	}
	return cases
}

// expectEventually waits for messages that must not come before due. After a
// crash they may be late: a clock that was lost is read late rather than early.
func (s *session) expectEventually(q driver.Queue, due time.Time, late time.Duration, want ...string) []driver.Delivery {
	s.t.Helper()
	got := s.take(q, len(want), s.hold, due.Add(late+s.patience))
	if early := time.Until(due); early > s.slack {
		s.failf("delivery of %q after a restart: %v too early", bodies(got), early)
	}
	return s.expectBodies(q, got, want...)
}

func sentSurvives(s *session, q driver.Queue, how Crash) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	want := numbered("m", 20)
	ids := s.send(q, want...)
	q = s.restart(how)
	s.expectStats(q, driver.Stats{Ready: 21})
	for _, d := range s.receive(q, 21) {
		if d.ID == id {
			s.expectMessage(d.Message, msg, id, 1)
			continue
		}
		if q.Traits().Ordering == driver.OrderingNone {
			continue
		}
		if string(d.Body) != want[0] || d.ID != ids[0] {
			s.failf("after %v: got %q with id %s, want %q with id %s", how, d.Body, d.ID, want[0], ids[0])
		}
		want, ids = want[1:], ids[1:]
	}
	s.expectNothing(q)
}

func idsStayUnique(s *session, q driver.Queue, how Crash) {
	seen := make(map[string]bool)
	for range 3 {
		for _, id := range s.send(q, numbered("m", 20)...) {
			if seen[id] {
				s.failf("after %v: id %s was given out again", how, id)
			}
			seen[id] = true
		}
		q = s.restart(how)
	}
	receipts := make(map[driver.Receipt]bool)
	for _, d := range s.receive(q, 60) {
		receipts[d.Receipt] = true
		s.expire(q, d)
	}
	q = s.restart(how)
	for _, d := range s.take(q, 60, s.hold, time.Now().Add(s.hold+s.patience)) {
		if receipts[d.Receipt] {
			s.failf("after %v: the receipt of %q was given out again", how, d.Body)
		}
	}
}

func delaySurvives(s *session, q driver.Queue, how Crash) {
	sent := time.Now()
	s.sendLater(q, 2*s.tick, "later")
	q = s.restart(how)
	s.expectEventually(q, sent.Add(2*s.tick), 2*s.tick, "later")
	s.sendLater(q, s.hold, "much later")
	q = s.restart(how)
	s.expectNothing(q)
}

func delayedAgeSurvives(s *session, q driver.Queue, how Crash) {
	sent := time.Now()
	s.sendLater(q, 3*s.tick, "late")
	q = s.restart(how)
	s.expectEventually(q, sent.Add(3*s.tick), 2*s.tick, "late")
}

func capacitySurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b")
	q = s.restart(how)
	s.expectFull(trySend(s, q, "c"), fmt.Sprintf("send to a full queue after %v", how))
	s.ack(q, s.receive(q, 1)...)
	s.send(q, "c")
}

func dedupSurvives(s *session, q driver.Queue, how Crash) {
	waiting := s.expectFresh(q, keyed("waiting", "1"), "for the first time")
	acked := s.expectFresh(q, keyed("acked", "2"), "for the first time")
	held := s.expectBodies(q, s.receive(q, 2), "1", "2")
	s.ack(q, held[1])
	q = s.restart(how)
	when := fmt.Sprintf("after %v", how)
	s.expectDuplicate(q, keyed("waiting", "1"), waiting, when)
	s.expectDuplicate(q, keyed("acked", "2"), acked, when)
	_, err := q.Send(s.ctx(), []driver.Outgoing{keyed("acked", "other")})
	s.expectCode(err, driver.ErrConflict, "send with a used key and another body %s", when)
}

func ackSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b", "c")
	held := s.expectBodies(q, s.receive(q, 3), "a", "b", "c")
	for _, d := range held {
		s.extend(q, d, s.hold)
	}
	s.ack(q, held...)
	q = s.restart(how)
	s.expectEmpty(q)
	if s.backend.Virtual {
		s.sleep(2 * s.hold)
		s.expectEmpty(q)
	}
	s.expectExpired(q, held[0], fmt.Sprintf("the receipt of an acked message after %v", how))
}

func inFlightSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b")
	start := time.Now()
	s.receiveFor(q, 2, s.tick)
	q = s.restart(how)
	earliest := start // a crash may forget the lease, and then the message is ready
	if how == CrashClean {
		earliest = start.Add(s.tick)
	}
	again := s.expectEventually(q, earliest, 2*s.tick, "a", "b")
	s.ack(q, again...)
	s.expectEmpty(q)
}

func leaseSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b", "c")
	held := s.expectBodies(q, s.receive(q, 3), "a", "b", "c")
	q = s.restart(how)
	s.expectStats(q, driver.Stats{InFlight: 3})
	s.expectNothing(q)
	s.ack(q, held[0])
	s.extend(q, held[1], s.hold)
	s.nack(q, held[2], 0, "after a restart")
	s.expectNext(q, "c")
	s.expire(q, held[1])
	s.expectNext(q, "b")
	s.expectExpired(q, held[1], "a receipt from before the restart, of a message that was delivered again")
}

func placeSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b", "c")
	s.expectBodies(q, s.receiveFor(q, 1, s.tick), "a")
	q = s.restart(how)
	s.send(q, "d")
	s.sleep(3 * s.tick)
	s.expectNext(q, "a", "b", "c", "d")
}

func nackSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b")
	s.nack(q, s.expectNext(q, "a")[0], 0, "why")
	q = s.restart(how)
	s.send(q, "c")
	got := s.expectNext(q, "b", "a", "c")[1]
	if got.Deliveries != 2 || got.LastError != "why" {
		s.failf("a nacked message after %v: got Deliveries %d, LastError %q; want 2 and its cause", how, got.Deliveries, got.LastError)
	}
}

func groupSurvives(s *session, q driver.Queue, how Crash) {
	s.sendTo(q, "g", "g1", "g2", "g3")
	s.ack(q, s.expectAlone(q, "g1"))
	s.receiveFor(q, 1, s.tick)
	q = s.restart(how)
	s.sleep(3 * s.tick)
	for _, want := range []string{"g2", "g3"} {
		held := s.expectAlone(q, want)
		s.expectNothing(q)
		s.ack(q, held)
	}
}

func statsSurvive(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b", "c")
	s.receive(q, 1)
	s.sendLater(q, s.hold, "d")
	want := driver.Stats{Ready: 2, Delayed: 1, InFlight: 1}
	if q.Traits().DeadLetters {
		s.bury(q, s.receive(q, 1)[0], driver.ReasonFatal)
		want.Ready, want.Dead = 1, 1
	}
	s.expectStats(q, want)
	s.expectStats(s.restart(how), want)
}

func purgeSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b")
	s.receive(q, 1)
	s.sendLater(q, s.hold, "c")
	s.purge(q, 3)
	q = s.restart(how)
	s.expectEmpty(q)
	s.send(q, "d")
	s.expectNext(q, "d")
}

func deadLetterSurvives(s *session, q driver.Queue, how Crash) {
	msg := doomed(q)
	s.sendOne(q, msg)
	first := s.receive(q, 1)[0]
	err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{
		Receipt: first.Receipt, Reason: driver.ReasonFatal, Error: "why", ErrorType: "*app.Error",
	}})
	s.ok(err, "dead-letter")
	died := time.Now()
	q = s.restart(how)
	s.expectStats(q, driver.Stats{Dead: 1})
	s.expectNothing(q)
	want := driver.DeadLetter{Reason: driver.ReasonFatal, ErrorType: "*app.Error"}
	want.Deliveries, want.LastError = 1, "why"
	s.expectRecord(q, msg, first, want, died)
}

func redriveSurvives(s *session, q driver.Queue, how Crash) {
	s.kill(q, "a")
	s.redrive(q, nil, 0, 1)
	q = s.restart(how)
	s.expectDead(q)
	got := s.expectNext(q, "a")[0]
	if got.Deliveries != 1 {
		s.failf("a redriven message after %v: got Deliveries %d, want 1", how, got.Deliveries)
	}
	s.bury(q, got, driver.ReasonFatal)
	if redrives := s.expectDead(q, "a")[0].Redrives; redrives != 1 {
		s.failf("a redriven message after %v: got Redrives %d, want 1", how, redrives)
	}
}

func configSurvives(s *session, _ driver.Queue, how Crash) {
	q := s.restart(how)
	got, err := s.opener.(driver.Admin).QueueConfig(s.ctx(), queueName)
	s.ok(err, "read the configuration after %v", how)
	if got.MaxMessages != 3 || got.MaxDeliveries != 4 {
		s.failf("configuration after %v: got %+v", how, got)
	}
	s.send(q, "a", "b", "c")
	s.expectFull(trySend(s, q, "d"), "send over the bound that was configured before the restart")
}

func moveSurvives(s *session, q driver.Queue, how Crash) {
	s.send(q, "a", "b")
	for _, d := range s.receive(q, 2) {
		s.ok(q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}), "dead-letter")
	}
	q = s.restart(how)
	s.expectStats(q, driver.Stats{})
	graves := s.open(graveQueue)
	s.expectStats(graves, driver.Stats{Ready: 2})
	s.ack(graves, s.receive(graves, 2)...)
	s.expectEmpty(graves)
}
