package drivertest

import (
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// deadLetterQueue is the target of dead letters in the cases below.
const deadLetterQueue = "dead-letters"

// withDeadLetterTo is a queue whose messages die after a second failed delivery and move to
// another queue.
var withDeadLetterTo = always(driver.Config{MaxDeliveries: 2, DeadLetterTo: deadLetterQueue})

var deadLetterToCases = []testCase{
	{
		id: "DLQ-8", title: "deleting the other queue loses no message that dies later",
		config: withDeadLetterTo, needs: []need{needDeadLetters}, run: deletedTargetLosesNothing,
	},
	{
		id: "DLQ-8", title: "retention of dead letters takes no message that moves",
		config: always(driver.Config{MaxDeliveries: 1, DeadLetterTo: deadLetterQueue, RetainDead: driver.Retention{Count: 1}}),
		run:    movingEscapesRetention,
	},
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

// movingEscapesRetention lets more messages die at once than are kept as dead letters. All of
// them must move.
func movingEscapesRetention(e *env, q driver.Queue) {
	want := numbered("m", 4)
	e.send(q, want...)
	e.receiveFor(q, 4, e.tick())
	e.sleep(e.tick())
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
