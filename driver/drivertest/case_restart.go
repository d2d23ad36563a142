package drivertest

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A restartCase is a claim about the state after a crash.
type restartCase struct {
	id     string
	title  string
	needs  []need
	config func(*env) driver.Config
	// cleanOnly: only an orderly stop promises this. The effects of a delivery need not be on
	// disk before its answer, so a crash may undo them.
	cleanOnly bool
	run       func(e *env, q driver.Queue, how Crash)
}

var restarts = []restartCase{
	{id: "SND-1", title: "what was sent is there, complete and in order", run: sentSurvives},
	{id: "SND-1", title: "ids stay unique", run: idsStayUnique},
	{id: "SND-2", title: "a delayed message does not come early", run: delaySurvives},
	{id: "SND-2", title: "a message with a due time comes then, and not early", needs: []need{needDeliverAt}, run: dueTimeSurvives},
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
	{id: "FLOW-2", title: "a paused queue is paused, and a resumed one is not", needs: []need{needPause}, run: pauseSurvives},
	{id: "FLOW-3", title: "messages that were changed are as they were, and those that were removed are gone", needs: []need{needEdit, needFIFO}, run: editsSurvive},
	{id: "FLOW-4", title: "messages that were given back are as they were, and their releases are counted", needs: []need{needRelease, needFIFO}, run: releasesSurvive},
	{id: "TIME-1", title: "schedules are there, and what was fired is not fired again", needs: []need{needSchedules}, run: schedulesSurvive},
	{id: "DLQ-4", title: "a dead letter is there with its record", needs: []need{needDeadLetters}, run: deadLetterSurvives},
	{id: "DLQ-5", title: "a redriven message is ready and not dead", needs: []need{needDeadLetters}, run: redriveSurvives},
	{
		id: "DLQ-8", title: "a message that moved to another queue is there, once",
		config: withDeadLetterTo, needs: []need{needDeadLetters}, run: moveSurvives,
	},
	{id: "DLQ-9", title: "messages that were moved are there, complete and once", needs: moveNeeds, run: movedSurvives},
	{id: "VIS-7", title: "what was acked late stays gone", needs: lateAckNeeds, run: lateAckSurvives},
	{id: "VIS-7", title: "a late receipt works", needs: lateAckNeeds, cleanOnly: true, run: lateReceiptSurvives},
	{id: "RET-1", title: "a delayed message is not too old when it is due", config: aging, run: delayedAgeSurvives},
	{id: "RET-2", title: "what was dropped stays gone, and what is too old is dropped", config: dropping, needs: dropNeeds, run: droppedStaysGone},
	{id: "RET-2", title: "what was too many stays gone", config: droppingFew(2), needs: dropNeeds, run: tooManyStayGone},
	{id: "SVC-1", title: "the annotation is there", config: annotated, needs: annotationNeeds, run: annotationSurvives},
	{id: "SVC-1", title: "the configuration is in force", config: always(driver.Config{MaxMessages: 3, MaxDeliveries: 4}), run: configSurvives},
}

func forgettingSurvives(e *env, q driver.Queue, how Crash) {
	e.expectFresh(q, keyed("forgotten", "body"), "for the first time")
	e.forgetDedup(q)
	kept := e.expectFresh(q, keyed("kept", "body"), "for the first time")
	q = e.restart(how)
	e.expectFresh(q, keyed("forgotten", "body"), "forgotten before "+how.String())
	e.expectDuplicate(q, keyed("kept", "body"), kept, "sent after forgetting, before "+how.String())
}

// restartCases returns a case for every claim and every crash it is about.
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
				run:    func(e *env, q driver.Queue) { c.run(e, q, how) },
			})
		}
	}
	return cases
}

// expectEventually waits for messages that must not come before due. After a crash they may be
// late: if the clock was lost, messages are late rather than early.
func (e *env) expectEventually(q driver.Queue, due time.Time, late time.Duration, want ...string) []driver.Delivery {
	e.t.Helper()
	got := e.take(q, len(want), e.hold, due.Add(late+e.patience))
	if early := time.Until(due); early > e.slack {
		e.failf("delivery of %q after a restart: %v too early", bodies(got), early)
	}
	return e.expectBodies(q, got, want...)
}

func sentSurvives(e *env, q driver.Queue, how Crash) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	want := numbered("m", 20)
	ids := e.send(q, want...)
	q = e.restart(how)
	e.expectStats(q, driver.Stats{Ready: 21})
	for _, d := range e.receive(q, 21) {
		if d.ID == id {
			e.expectMessage(d.Message, msg, id, 1)
			continue
		}
		if q.Traits().Ordering == driver.OrderingNone {
			continue
		}
		if string(d.Body) != want[0] || d.ID != ids[0] {
			e.failf("after %v: got %q with id %s, want %q with id %s", how, d.Body, d.ID, want[0], ids[0])
		}
		want, ids = want[1:], ids[1:]
	}
	e.expectNothing(q)
}

func idsStayUnique(e *env, q driver.Queue, how Crash) {
	seen := make(map[string]bool)
	for range 3 {
		for _, id := range e.send(q, numbered("m", 20)...) {
			if seen[id] {
				e.failf("after %v: id %s was given out again", how, id)
			}
			seen[id] = true
		}
		q = e.restart(how)
	}
	receipts := make(map[driver.Receipt]bool)
	for _, d := range e.receive(q, 60) {
		receipts[d.Receipt] = true
		e.expire(q, d)
	}
	q = e.restart(how)
	for _, d := range e.take(q, 60, e.hold, time.Now().Add(e.hold+e.patience)) {
		if receipts[d.Receipt] {
			e.failf("after %v: the receipt of %q was given out again", how, d.Body)
		}
	}
}

func delaySurvives(e *env, q driver.Queue, how Crash) {
	sent := time.Now()
	e.sendLater(q, 2*e.tick, "later")
	q = e.restart(how)
	e.expectEventually(q, sent.Add(2*e.tick), 2*e.tick, "later")
	e.sendLater(q, e.hold, "much later")
	q = e.restart(how)
	e.expectNothing(q)
}

func dueTimeSurvives(e *env, q driver.Queue, how Crash) {
	due := time.Now().Add(2 * e.tick)
	e.sendOne(q, driver.Outgoing{Body: []byte("later"), DeliverAt: due})
	e.sendOne(q, driver.Outgoing{Body: []byte("much later"), DeliverAt: due.Add(e.hold)})
	q = e.restart(how)
	e.ack(q, e.expectEventually(q, due, 2*e.tick, "later")...) // a kill may cost it its lease
	q = e.restart(how)
	e.expectNothing(q)
}

func delayedAgeSurvives(e *env, q driver.Queue, how Crash) {
	sent := time.Now()
	e.sendLater(q, 3*e.tick, "late")
	q = e.restart(how)
	if took := time.Since(sent); !e.backend.Virtual && took > 3*e.tick {
		e.tooSlow("after a restart that took %v the message may be too old", took)
	}
	e.expectEventually(q, sent.Add(3*e.tick), 2*e.tick, "late")
}

func capacitySurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b")
	q = e.restart(how)
	e.expectFull(trySend(e, q, "c"), fmt.Sprintf("send to a full queue after %v", how))
	e.ack(q, e.receive(q, 1)...)
	e.send(q, "c")
}

func dedupSurvives(e *env, q driver.Queue, how Crash) {
	waiting := e.expectFresh(q, keyed("waiting", "1"), "for the first time")
	acked := e.expectFresh(q, keyed("acked", "2"), "for the first time")
	held := e.expectBodies(q, e.receive(q, 2), "1", "2")
	e.ack(q, held[1])
	q = e.restart(how)
	when := fmt.Sprintf("after %v", how)
	e.expectDuplicate(q, keyed("waiting", "1"), waiting, when)
	e.expectDuplicate(q, keyed("acked", "2"), acked, when)
	_, err := q.Send(e.ctx(), []driver.Outgoing{keyed("acked", "other")})
	e.expectCode(err, driver.ErrConflict, "send with a used key and another body %s", when)
}

func ackSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c")
	held := e.expectBodies(q, e.receive(q, 3), "a", "b", "c")
	for _, d := range held {
		e.extend(q, d, e.hold)
	}
	e.ack(q, held...)
	q = e.restart(how)
	e.expectEmpty(q)
	if e.backend.Virtual {
		e.sleep(2 * e.hold)
		e.expectEmpty(q)
	}
	e.expectExpired(q, held[0], fmt.Sprintf("the receipt of an acked message after %v", how))
}

func inFlightSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b")
	start := time.Now()
	e.receiveFor(q, 2, e.tick)
	q = e.restart(how)
	earliest := start // a crash may lose the lease, and then the message is ready
	if how == CrashClean {
		earliest = start.Add(e.tick)
	}
	again := e.expectEventually(q, earliest, 2*e.tick, "a", "b")
	e.ack(q, again...)
	e.expectEmpty(q)
}

func leaseSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c")
	held := e.expectBodies(q, e.receive(q, 3), "a", "b", "c")
	q = e.restart(how)
	e.expectStats(q, driver.Stats{InFlight: 3})
	e.expectNothing(q)
	e.ack(q, held[0])
	e.extend(q, held[1], e.hold)
	e.nack(q, held[2], 0, "after a restart")
	e.expectNext(q, "c")
	e.expire(q, held[1])
	e.expectNext(q, "b")
	e.expectExpired(q, held[1], "a receipt from before the restart, of a message that was delivered again")
}

func placeSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c")
	e.expectBodies(q, e.receiveFor(q, 1, e.tick), "a")
	q = e.restart(how)
	e.send(q, "d")
	e.sleep(3 * e.tick)
	e.expectNext(q, "a", "b", "c", "d")
}

func nackSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b")
	e.nack(q, e.expectNext(q, "a")[0], 0, "why")
	q = e.restart(how)
	e.send(q, "c")
	got := e.expectNext(q, "b", "a", "c")[1]
	if got.Deliveries != 2 || got.LastError != "why" {
		e.failf("a nacked message after %v: got Deliveries %d, LastError %q; want 2 and its cause", how, got.Deliveries, got.LastError)
	}
}

func releasesSurvive(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b")
	e.giveBack(q, "a", 1, driver.MaxReleases-1, driver.NackRelease)
	held := e.expectNext(q, "a", "b")
	e.giveBackOne(q, held[0], driver.Nack{Mode: driver.NackRelease})
	e.giveBackOne(q, held[1], driver.Nack{Mode: driver.NackPutBack, Cause: "why"})
	e.send(q, "c")
	q = e.restart(how)
	got := e.expectNext(q, "a", "b", "c")
	for _, d := range got {
		if d.Deliveries != 1 {
			e.failf("%s after %v: got Deliveries %d, want 1", d.Body, how, d.Deliveries)
		}
	}
	if got[1].LastError != "why" {
		e.failf("a message that was put back after %v: got LastError %q, want its cause", how, got[1].LastError)
	}
	e.giveBackOne(q, got[0], driver.Nack{Mode: driver.NackRelease})
	if d := e.expectNext(q, "a")[0]; d.Deliveries != 2 {
		e.failf("a release too many after %v: got Deliveries %d, want 2", how, d.Deliveries)
	}
}

func groupSurvives(e *env, q driver.Queue, how Crash) {
	e.sendTo(q, "g", "g1", "g2", "g3")
	e.ack(q, e.expectAlone(q, "g1"))
	e.receiveFor(q, 1, e.tick)
	q = e.restart(how)
	e.sleep(3 * e.tick)
	for _, want := range []string{"g2", "g3"} {
		held := e.expectAlone(q, want)
		e.expectNothing(q)
		e.ack(q, held)
	}
}

func statsSurvive(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c")
	e.receive(q, 1)
	e.sendLater(q, e.hold, "d")
	want := driver.Stats{Ready: 2, Delayed: 1, InFlight: 1}
	if q.Traits().DeadLetters {
		e.deadLetter(q, e.receive(q, 1)[0], driver.ReasonFatal)
		want.Ready, want.Dead = 1, 1
	}
	e.expectStats(q, want)
	e.expectStats(e.restart(how), want)
}

func purgeSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b")
	e.receive(q, 1)
	e.sendLater(q, e.hold, "c")
	e.purge(q, 3)
	q = e.restart(how)
	e.expectEmpty(q)
	e.send(q, "d")
	e.expectNext(q, "d")
}

func deadLetterSurvives(e *env, q driver.Queue, how Crash) {
	msg := doomed(q)
	e.sendOne(q, msg)
	first := e.receive(q, 1)[0]
	err := q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{
		Receipt: first.Receipt, Reason: driver.ReasonFatal, Error: "why", ErrorType: "*app.Error",
	}})
	e.ok(err, "dead-letter")
	died := time.Now()
	q = e.restart(how)
	e.expectStats(q, driver.Stats{Dead: 1})
	e.expectNothing(q)
	want := driver.DeadLetter{Reason: driver.ReasonFatal, ErrorType: "*app.Error"}
	want.Deliveries, want.LastError = 1, "why"
	e.expectRecord(q, msg, first, want, died)
}

func redriveSurvives(e *env, q driver.Queue, how Crash) {
	e.kill(q, "a")
	e.redrive(q, nil, 0, 1)
	q = e.restart(how)
	e.expectDead(q)
	got := e.expectNext(q, "a")[0]
	if got.Deliveries != 1 {
		e.failf("a redriven message after %v: got Deliveries %d, want 1", how, got.Deliveries)
	}
	e.deadLetter(q, got, driver.ReasonFatal)
	if redrives := e.expectDead(q, "a")[0].Redrives; redrives != 1 {
		e.failf("a redriven message after %v: got Redrives %d, want 1", how, redrives)
	}
}

func configSurvives(e *env, _ driver.Queue, how Crash) {
	q := e.restart(how)
	got, err := e.opener.(driver.Admin).QueueConfig(e.ctx(), queueName)
	e.ok(err, "read the configuration after %v", how)
	if got.MaxMessages != 3 || got.MaxDeliveries != 4 {
		e.failf("configuration after %v: got %+v", how, got)
	}
	e.send(q, "a", "b", "c")
	e.expectFull(trySend(e, q, "d"), "send over the bound that was configured before the restart")
}

func moveSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b")
	for _, d := range e.receive(q, 2) {
		e.ok(q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}}), "dead-letter")
	}
	q = e.restart(how)
	e.expectStats(q, driver.Stats{})
	letters := e.open(deadLetterQueue)
	e.expectStats(letters, driver.Stats{Ready: 2})
	e.ack(letters, e.receive(letters, 2)...)
	e.expectEmpty(letters)
}
