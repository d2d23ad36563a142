package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// graveQueue is where the dead of the queues below go.
const graveQueue = "graves"

// buriedElsewhere is a queue whose messages die of their second failed
// delivery and go to another queue.
var buriedElsewhere = always(driver.Config{MaxDeliveries: 2, DeadLetterTo: graveQueue})

var deadLetterToCases = []testCase{
	{id: "DLQ-8", title: "a message that dies of a nack moves to the other queue", config: buriedElsewhere, run: nackMovesElsewhere},
	{id: "DLQ-8", title: "a message that dies of an expired lease moves to the other queue", config: buriedElsewhere, run: expiryMovesElsewhere},
	{
		id: "DLQ-8", title: "a message that is dead-lettered moves to the other queue",
		config: buriedElsewhere, needs: []need{needDeadLetters}, run: burialMovesElsewhere,
	},
	{
		id: "DLQ-8", title: "a message that is too old moves to the other queue",
		config: func(s *session) driver.Config {
			return driver.Config{DeadLetterTo: graveQueue, RetainReady: driver.Retention{Age: s.tick}}
		}, run: ageMovesElsewhere,
	},
	{id: "DLQ-8", title: "the move wakes a receiver that waits at the other queue", config: buriedElsewhere, run: moveWakesReceiver},
	{id: "DLQ-8", title: "the move happens by the clock alone, without a receiver at the first queue", config: buriedElsewhere, run: moveNeedsNoTouch},
	{id: "DLQ-8", title: "where the dead go can be changed on a live queue", config: buriedElsewhere, needs: []need{needDeadLetters}, run: moveCanBeRedirected},
	{
		id: "DLQ-8", title: "deleting the other queue loses no message that dies later",
		config: buriedElsewhere, needs: []need{needDeadLetters}, run: deletedGravesLoseNothing,
	},
	{id: "DLQ-8", title: "the other queue, deleted and made again, gets the dead again", config: buriedElsewhere, run: newGravesAreUsed},
	{
		id: "DLQ-8", title: "retention of the dead takes no message that moves",
		config: always(driver.Config{MaxDeliveries: 1, DeadLetterTo: graveQueue, RetainDead: driver.Retention{Count: 1}}),
		run:    movingEscapesRetention,
	},
	{
		id: "DLQ-8", title: "a message that is too old moves by the clock alone",
		config: func(s *session) driver.Config {
			return driver.Config{DeadLetterTo: graveQueue, RetainReady: driver.Retention{Age: s.tick}}
		}, run: ageNeedsNoTouch,
	},
}

// expectMoved checks that a message left one queue for the other.
func (s *session) expectMoved(q driver.Queue, sent driver.Outgoing, id string, reason driver.Reason, deliveries int, lastError string) {
	s.t.Helper()
	s.expectEmpty(q)
	graves := s.open(graveQueue)
	s.expectStats(graves, driver.Stats{Ready: 1})
	got := s.receive(graves, 1)[0]

	want := maps.Clone(sent.Attributes)
	want["mailbox.dead.reason"] = string(reason)
	want["mailbox.dead.source"] = queueName
	want["mailbox.dead.deliveries"] = fmt.Sprint(deliveries)
	if lastError != "" {
		want["mailbox.dead.error"] = lastError
	} else if text, present := got.Attributes["mailbox.dead.error"]; present && text == "" {
		want["mailbox.dead.error"] = "" // there was none: empty and absent say the same
	}
	sent.Attributes = want
	s.expectMessage(got.Message, sent, id, 1)
	s.ack(graves, got)
	s.expectEmpty(graves)
}

func nackMovesElsewhere(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.nack(q, s.receive(q, 1)[0], 0, "first failure")
	s.nack(q, s.receive(q, 1)[0], s.hold, "second failure")
	s.expectMoved(q, msg, id, driver.ReasonMaxDeliveries, 2, "second failure")
}

func expiryMovesElsewhere(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.nack(q, s.receive(q, 1)[0], 0, "the only cause")
	s.receiveFor(q, 1, s.tick)
	s.sleep(s.tick)
	s.expectMoved(q, msg, id, driver.ReasonMaxDeliveries, 2, "the only cause")
}

func burialMovesElsewhere(s *session, q driver.Queue) {
	for _, reason := range reasons {
		msg := doomed(q)
		id := s.sendOne(q, msg).ID
		err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{
			Receipt: s.receive(q, 1)[0].Receipt, Reason: reason, Error: "why",
		}})
		s.ok(err, "dead-letter with reason %q", reason)
		s.expectDead(q)
		s.expectMoved(q, msg, id, reason, 1, "why")
	}
}

func ageMovesElsewhere(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.sleep(s.tick)
	s.expectMoved(q, msg, id, driver.ReasonExpired, 0, "")
}

func moveWakesReceiver(s *session, q driver.Queue) {
	last := s.secondDelivery(q, "a")
	waiting := s.receiveInBackground(s.ctx(), s.open(graveQueue), 1)
	s.nack(q, last, 0, "dead")
	s.expectHandedTo(waiting, "a", "the death of a message")
}

// moveNeedsNoTouch is the queue whose workers have all crashed: who tends the
// graves must still learn of it.
func moveNeedsNoTouch(s *session, q driver.Queue) {
	last := s.secondDelivery(q, "a")
	waiting := s.receiveInBackground(s.ctx(), s.open(graveQueue), 1)
	start := time.Now()
	s.extend(q, last, s.tick)
	s.expectWokenAt(waiting, start.Add(s.tick), "a", "the death of a message by the clock")
}

func moveCanBeRedirected(s *session, q driver.Queue) {
	for _, step := range []struct{ to, body string }{{"crypt", "a"}, {"", "b"}, {graveQueue, "c"}} {
		if !s.reconfigure(driver.Config{MaxDeliveries: 2, DeadLetterTo: step.to}) {
			return
		}
		s.nack(q, s.secondDelivery(q, step.body), 0, "dead")
		if step.to == "" {
			s.expectDead(q, step.body)
		} else {
			s.expectNext(s.open(step.to), step.body)
		}
	}
	s.expectStats(q, driver.Stats{Dead: 1})
}

func deletedGravesLoseNothing(s *session, q driver.Queue) {
	graves := s.open(graveQueue)
	s.ok(graves.Close(), "close")
	s.ok(s.opener.(driver.Admin).DeleteQueue(s.ctx(), graveQueue), "delete the other queue")
	s.nack(q, s.secondDelivery(q, "a"), 0, "dead")
	here, err := q.Stats(s.ctx())
	s.ok(err, "stats")
	there, err := s.open(graveQueue).Stats(s.ctx())
	s.ok(err, "stats")
	if total := here.Waiting() + here.Dead + there.Ready; total != 1 {
		s.failf("a message died after the queue of the dead was deleted: %+v here, %+v there; want it in one of them", here, there)
	}
}

func newGravesAreUsed(s *session, q driver.Queue) {
	s.ok(s.open(graveQueue).Close(), "close")
	s.ok(s.opener.(driver.Admin).DeleteQueue(s.ctx(), graveQueue), "delete the other queue")
	graves := s.open(graveQueue)
	s.nack(q, s.secondDelivery(q, "a"), 0, "dead")
	s.expectNext(graves, "a")
	s.expectStats(q, driver.Stats{})
}

// movingEscapesRetention lets more messages die at once than are kept of the
// dead: but none of them is to be kept here.
func movingEscapesRetention(s *session, q driver.Queue) {
	want := numbered("m", 4)
	s.send(q, want...)
	s.receiveFor(q, 4, s.tick)
	s.sleep(s.tick)
	s.expectStats(q, driver.Stats{})
	graves := s.open(graveQueue)
	s.expectStats(graves, driver.Stats{Ready: 4})
	for _, d := range s.receive(graves, 4) {
		want = slices.DeleteFunc(want, func(body string) bool { return body == string(d.Body) })
	}
	if len(want) > 0 {
		s.failf("%q died and did not arrive in the other queue", want)
	}
}

func ageNeedsNoTouch(s *session, q driver.Queue) {
	waiting := s.receiveInBackground(s.ctx(), s.open(graveQueue), 1)
	start := time.Now()
	s.send(q, "a")
	s.expectWokenAt(waiting, start.Add(s.tick), "a", "the death of a message by its age")
}
