package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// deadLetterQueue is the target of dead letters in the cases below.
const deadLetterQueue = "dead-letters"

// withDeadLetterTo is a queue whose messages die after a second failed delivery and move to
// another queue.
var withDeadLetterTo = always(driver.Config{MaxDeliveries: 2, DeadLetterTo: deadLetterQueue})

var deadLetterToCases = []testCase{
	{id: "DLQ-8", title: "a message that dies of a nack moves to the other queue", config: withDeadLetterTo, run: nackMovesElsewhere},
	{id: "DLQ-8", title: "a message that dies of an expired lease moves to the other queue", config: withDeadLetterTo, run: expiryMovesElsewhere},
	{
		id: "DLQ-8", title: "a message that is dead-lettered moves to the other queue",
		config: withDeadLetterTo, needs: []need{needDeadLetters}, run: deadLetteringMovesElsewhere,
	},
	{
		id: "DLQ-8", title: "a message that is too old moves to the other queue",
		config: func(e *env) driver.Config {
			return driver.Config{DeadLetterTo: deadLetterQueue, RetainReady: driver.Retention{Age: e.tick}}
		}, run: ageMovesElsewhere,
	},
	{id: "DLQ-8", title: "the move wakes a receiver that waits at the other queue", config: withDeadLetterTo, run: moveWakesReceiver},
	{id: "DLQ-8", title: "the move happens by the clock alone, without a receiver at the first queue", config: withDeadLetterTo, run: moveNeedsNoTouch},
	{id: "DLQ-8", title: "DeadLetterTo can be changed on a live queue", config: withDeadLetterTo, needs: []need{needDeadLetters}, run: moveCanBeRedirected},
	{
		id: "DLQ-8", title: "deleting the other queue loses no message that dies later",
		config: withDeadLetterTo, needs: []need{needDeadLetters}, run: deletedTargetLosesNothing,
	},
	{id: "DLQ-8", title: "the other queue, deleted and created again, gets dead letters again", config: withDeadLetterTo, run: recreatedTargetIsUsed},
	{
		id: "DLQ-8", title: "retention of dead letters takes no message that moves",
		config: always(driver.Config{MaxDeliveries: 1, DeadLetterTo: deadLetterQueue, RetainDead: driver.Retention{Count: 1}}),
		run:    movingEscapesRetention,
	},
	{
		id: "DLQ-8", title: "a message that is too old moves by the clock alone",
		config: func(e *env) driver.Config {
			return driver.Config{DeadLetterTo: deadLetterQueue, RetainReady: driver.Retention{Age: e.tick}}
		}, run: ageNeedsNoTouch,
	},
}

// expectMoved checks that a message moved from one queue to the other.
func (e *env) expectMoved(q driver.Queue, sent driver.Outgoing, id string, reason driver.Reason, deliveries int, lastError string) {
	e.t.Helper()
	e.expectEmpty(q)
	letters := e.open(deadLetterQueue)
	e.expectStats(letters, driver.Stats{Ready: 1})
	got := e.receive(letters, 1)[0]

	want := maps.Clone(sent.Attributes)
	want["mailbox.dead.reason"] = string(reason)
	want["mailbox.dead.source"] = queueName
	want["mailbox.dead.deliveries"] = fmt.Sprint(deliveries)
	if lastError != "" {
		want["mailbox.dead.error"] = lastError
	} else if text, present := got.Attributes["mailbox.dead.error"]; present && text == "" {
		want["mailbox.dead.error"] = "" // there was no error: empty and absent are the same
	}
	sent.Attributes = want
	e.expectMessage(got.Message, sent, id, 1)
	e.ack(letters, got)
	e.expectEmpty(letters)
}

func nackMovesElsewhere(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	e.nack(q, e.receive(q, 1)[0], 0, "first failure")
	e.nack(q, e.receive(q, 1)[0], e.hold, "second failure")
	e.expectMoved(q, msg, id, driver.ReasonMaxDeliveries, 2, "second failure")
}

func expiryMovesElsewhere(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	e.nack(q, e.receive(q, 1)[0], 0, "the only cause")
	e.receiveFor(q, 1, e.tick)
	e.sleep(e.tick)
	e.expectMoved(q, msg, id, driver.ReasonMaxDeliveries, 2, "the only cause")
}

func deadLetteringMovesElsewhere(e *env, q driver.Queue) {
	for _, reason := range reasons {
		msg := doomed(q)
		id := e.sendOne(q, msg).ID
		err := q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{
			Receipt: e.receive(q, 1)[0].Receipt, Reason: reason, Error: "why",
		}})
		e.ok(err, "dead-letter with reason %q", reason)
		e.expectDead(q)
		e.expectMoved(q, msg, id, reason, 1, "why")
	}
}

func ageMovesElsewhere(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	e.sleep(e.tick)
	e.expectMoved(q, msg, id, driver.ReasonExpired, 0, "")
}

func moveWakesReceiver(e *env, q driver.Queue) {
	last := e.secondDelivery(q, "a")
	waiting := e.receiveInBackground(e.ctx(), e.open(deadLetterQueue), 1)
	e.nack(q, last, 0, "dead")
	e.expectHandedTo(waiting, "a", "the death of a message")
}

// moveNeedsNoTouch covers a queue whose workers have all crashed: receivers of the dead-letter
// queue must still get its messages.
func moveNeedsNoTouch(e *env, q driver.Queue) {
	last := e.secondDelivery(q, "a")
	waiting := e.receiveInBackground(e.ctx(), e.open(deadLetterQueue), 1)
	start := time.Now()
	e.extend(q, last, e.tick)
	e.expectWokenAt(waiting, start.Add(e.tick), "a", "the death of a message by the clock")
}

func moveCanBeRedirected(e *env, q driver.Queue) {
	for _, step := range []struct{ to, body string }{{"more-dead-letters", "a"}, {"", "b"}, {deadLetterQueue, "c"}} {
		if !e.reconfigure(driver.Config{MaxDeliveries: 2, DeadLetterTo: step.to}) {
			return
		}
		e.nack(q, e.secondDelivery(q, step.body), 0, "dead")
		if step.to == "" {
			e.expectDead(q, step.body)
		} else {
			e.expectNext(e.open(step.to), step.body)
		}
	}
	e.expectStats(q, driver.Stats{Dead: 1})
}

func deletedTargetLosesNothing(e *env, q driver.Queue) {
	letters := e.open(deadLetterQueue)
	e.ok(letters.Close(), "close")
	e.ok(e.opener.(driver.Admin).DeleteQueue(e.ctx(), deadLetterQueue), "delete the other queue")
	e.nack(q, e.secondDelivery(q, "a"), 0, "dead")
	here, err := q.Stats(e.ctx())
	e.ok(err, "stats")
	there, err := e.open(deadLetterQueue).Stats(e.ctx())
	e.ok(err, "stats")
	if total := here.Waiting() + here.Dead + there.Ready; total != 1 {
		e.failf("a message died after the queue of the dead was deleted: %+v here, %+v there; want it in one of them", here, there)
	}
}

func recreatedTargetIsUsed(e *env, q driver.Queue) {
	e.ok(e.open(deadLetterQueue).Close(), "close")
	e.ok(e.opener.(driver.Admin).DeleteQueue(e.ctx(), deadLetterQueue), "delete the other queue")
	letters := e.open(deadLetterQueue)
	e.nack(q, e.secondDelivery(q, "a"), 0, "dead")
	e.expectNext(letters, "a")
	e.expectStats(q, driver.Stats{})
}

// movingEscapesRetention lets more messages die at once than are kept as dead letters. All of
// them must move.
func movingEscapesRetention(e *env, q driver.Queue) {
	want := numbered("m", 4)
	e.send(q, want...)
	e.receiveFor(q, 4, e.tick)
	e.sleep(e.tick)
	e.expectStats(q, driver.Stats{})
	letters := e.open(deadLetterQueue)
	e.expectStats(letters, driver.Stats{Ready: 4})
	for _, d := range e.receive(letters, 4) {
		want = slices.DeleteFunc(want, func(body string) bool { return body == string(d.Body) })
	}
	if len(want) > 0 {
		e.failf("%q died and did not arrive in the other queue", want)
	}
}

func ageNeedsNoTouch(e *env, q driver.Queue) {
	waiting := e.receiveInBackground(e.ctx(), e.open(deadLetterQueue), 1)
	start := time.Now()
	e.send(q, "a")
	e.expectWokenAt(waiting, start.Add(e.tick), "a", "the death of a message by its age")
}
