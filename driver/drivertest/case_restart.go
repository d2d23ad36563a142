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
	{id: "SND-1", title: "ids stay unique", run: idsStayUnique},
	{id: "VIS-1", title: "a message in flight is not lost", run: inFlightSurvives},
	{id: "ORD-2", title: "a message that was in flight is at its place", needs: []need{needFIFO}, run: placeSurvives},
	{id: "ORD-4", title: "a group is in order", config: strict, run: groupSurvives},
	{id: "FAIR-1", title: "a quiet group goes before a backlog", config: fair, needs: fairNeeds, run: fairnessSurvives},
	{id: "FAIR-3", title: "a group is in order", config: fair, needs: fairNeeds, run: fairOrderSurvives},
	{id: "TIME-1", title: "schedules are there, and what was fired is not fired again", needs: []need{needSchedules}, run: schedulesSurvive},
	{id: "RET-1", title: "a delayed message is not too old when it is due", config: aging, run: delayedAgeSurvives},
	{id: "TIME-2", title: "a message ends when its time to live does, also while nothing runs", needs: []need{needTTL}, run: lifeSurvives},
	{id: "SVC-1", title: "the annotation is there", config: annotated, needs: annotationNeeds, run: annotationSurvives},
	{id: "SVC-1", title: "the configuration is in force", config: always(driver.Config{MaxMessages: 3, MaxDeliveries: 4}), run: configSurvives},
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
func (e *env) expectEventually(q driver.Queue, due time.Time, want ...string) []driver.Delivery {
	e.t.Helper()
	got := e.take(q, len(want), e.hold, due)
	if early := time.Until(due); early > e.slack {
		e.failf("delivery of %q after a restart: %v too early", bodies(got), early)
	}
	return e.expectBodies(q, got, want...)
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
	for _, d := range e.take(q, 60, e.hold, time.Now().Add(e.hold)) {
		if receipts[d.Receipt] {
			e.failf("after %v: the receipt of %q was given out again", how, d.Body)
		}
	}
}

func lifeSurvives(e *env, q driver.Queue, how Crash) {
	e.sendOne(q, driver.Outgoing{Body: []byte("a"), TTL: 2 * e.tick()})
	e.sendOne(q, driver.Outgoing{Body: []byte("b"), TTL: 3 * e.tick(), Delay: e.tick()})
	e.sendOne(q, driver.Outgoing{Body: []byte("c"), TTL: e.hold})
	sent := time.Now()
	e.restart(how)
	e.sleep(time.Until(sent.Add(2 * e.tick())))
	q = e.restart(how)
	e.sleep(time.Until(sent.Add(4 * e.tick())))
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 2})
	e.expectDead(q, "a", "b")
	e.expectNext(q, "c")
}

func delayedAgeSurvives(e *env, q driver.Queue, how Crash) {
	sent := time.Now()
	e.sendLater(q, 3*e.tick(), "late")
	q = e.restart(how)
	if took := time.Since(sent); !e.backend.Virtual && took > 3*e.tick() {
		e.tooSlow("after a restart that took %v the message may be too old", took)
	}
	e.expectEventually(q, sent.Add(3*e.tick()), "late")
}

func inFlightSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b")
	start := time.Now()
	e.receiveFor(q, 2, e.tick())
	q = e.restart(how)
	earliest := start // a crash may lose the lease, and then the message is ready
	if how == CrashClean {
		earliest = start.Add(e.tick())
	}
	again := e.expectEventually(q, earliest, "a", "b")
	e.ack(q, again...)
	e.expectEmpty(q)
}

func placeSurvives(e *env, q driver.Queue, how Crash) {
	e.send(q, "a", "b", "c")
	e.expectBodies(q, e.receiveFor(q, 1, e.tick()), "a")
	q = e.restart(how)
	e.send(q, "d")
	e.sleep(3 * e.tick())
	e.expectNext(q, "a", "b", "c", "d")
}

func groupSurvives(e *env, q driver.Queue, how Crash) {
	e.sendTo(q, "g", "g1", "g2", "g3")
	e.ack(q, e.expectAlone(q, "g1"))
	e.receiveFor(q, 1, e.tick())
	q = e.restart(how)
	e.sleep(3 * e.tick())
	for _, want := range []string{"g2", "g3"} {
		held := e.expectAlone(q, want)
		e.expectNothing(q)
		e.ack(q, held)
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

// aging is a queue whose messages may wait for two ticks.
func aging(e *env) driver.Config {
	return driver.Config{RetainReady: driver.Retention{Age: 2 * e.tick()}}
}
