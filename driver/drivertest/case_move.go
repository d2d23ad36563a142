package drivertest

import (
	"fmt"
	"slices"

	"github.com/mailboxmq/mailbox/driver"
)

// targetQueue is the target of the moves.
const targetQueue = "target"

// moveNeeds are the needs of every case about moving.
var moveNeeds = []need{needMove}

var moveCases = []testCase{
	{id: "DLQ-9", title: "a message that moves is the same message, with no deliveries", needs: moveNeeds, run: movedIsTheSame},
	{id: "DLQ-9", title: "many messages move", needs: moveNeeds, run: manyMove, repeats: true},
	{id: "DLQ-9", title: "a move wakes a receiver that waits at the target", needs: moveNeeds, run: moveWakesTarget},
	{id: "DLQ-9", title: "an impossible move is refused and changes nothing", needs: moveNeeds, run: badMoveIsRefused},
	{id: "DLQ-9", title: "a closed handle moves nothing", needs: moveNeeds, run: closedHandleDoesNotMove},
	{id: "DLQ-9", title: "without a target dead letters move back to their source", config: withDeadLetterTo, needs: moveNeeds, run: exiledGoHome},
	{id: "DLQ-9", title: "messages without a source queue stay, and hold up no others", config: withDeadLetterTo, needs: []need{needMove, needAdmin}, run: homelessStay},
	{id: "DLQ-9", title: "dead-letter attributes move with their message", config: withDeadLetterTo, needs: moveNeeds, run: moveTakesDeadAttributes},
	{
		id: "DLQ-9", title: "dead letters move back to a source whose dead letters are full",
		config: func(e *env) driver.Config {
			return driver.Config{MaxDeliveries: 1, MaxDead: 1, DeadLetterTo: deadLetterQueue, RetainReady: driver.Retention{Age: e.hold}}
		},
		needs: []need{needMove, needAdmin, needDeadLetters}, run: moveToSourceWithFullDeadLetters,
	},
	{id: "DLQ-9", title: "a strict group moves in order, and not past what keeps it back", config: strict, needs: []need{needMove, needAdmin}, run: strictGroupsMoveInOrder},
	{id: "DLQ-9", title: "a move lets no group overtake in a strict target", needs: []need{needMove, needAdmin, needGroups}, run: moveToStrictGroups},
	{
		id: "DLQ-9", title: "groups keep their order over several shards",
		config: always(driver.Config{Shards: 3}), needs: []need{needMove, needGroups}, run: shardedMove,
	},
	{id: "DLQ-9", title: "moves in both directions at once lose, double and block nothing", needs: moveNeeds, run: movesCross},
	{id: "DLQ-9", title: "moves cross those of messages that die", config: withDeadLetterTo, needs: moveNeeds, run: movesCrossDeaths},
	{id: "DLQ-9", title: "a message is delivered here or moved, and never both", needs: moveNeeds, run: movedOrDelivered},
}

// move moves messages and checks how many.
func (e *env) move(q driver.Queue, to string, limit, want int) {
	e.t.Helper()
	moved, err := q.Move(e.ctx(), to, limit)
	e.ok(err, "move to %q", to)
	if moved != want {
		e.failf("move to %q, limit %d: %d moved, want %d", to, limit, moved, want)
	}
}

func movedIsTheSame(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	first := e.receive(q, 1)[0]
	e.nack(q, first, 0, "a cause")
	target := e.open(targetQueue)
	e.sleep(e.tick) // so that times of the move differ
	e.move(q, targetQueue, 0, 1)
	e.sleep(e.tick)
	got := e.receive(target, 1)[0]
	e.expectMessage(got.Message, msg, id, 1)
	if got.LastError != "a cause" {
		e.failf("a message that moved: got LastError %q, want %q", got.LastError, "a cause")
	}
	if !got.EnqueuedAt.Equal(first.EnqueuedAt) || !got.FirstReceivedAt.Equal(first.FirstReceivedAt) {
		e.failf("a message that moved: got EnqueuedAt %v, FirstReceivedAt %v; want %v and %v as before",
			got.EnqueuedAt, got.FirstReceivedAt, first.EnqueuedAt, first.FirstReceivedAt)
	}
	e.ack(target, got)
	e.expectEmpty(target)
}

func manyMove(e *env, q driver.Queue) {
	want := numbered("m", e.rounds(3000, 600))
	target := e.open(targetQueue)
	e.send(q, want...)
	e.move(q, targetQueue, len(want)-10, len(want)-10)
	e.expectStats(q, driver.Stats{Ready: 10})
	e.move(q, targetQueue, 0, 10)
	e.expectEmpty(q)
	e.expectStats(target, driver.Stats{Ready: len(want)})
	e.expectNext(target, want...)
}

func moveWakesTarget(e *env, q driver.Queue) {
	waiting := e.receiveInBackground(e.ctx(), e.open(targetQueue), 1)
	e.send(q, "a")
	e.move(q, targetQueue, 0, 1)
	e.expectHandedTo(waiting, "a", "a move")
}

func badMoveIsRefused(e *env, q driver.Queue) {
	e.open(targetQueue)
	e.send(q, "a")
	mover := q
	for _, bad := range []struct {
		to    string
		limit int
		want  driver.Code
	}{
		{queueName, 0, driver.ErrInvalid},
		{targetQueue, -1, driver.ErrInvalid},
		{"", -1, driver.ErrInvalid},
		{"nowhere", 0, driver.ErrNotFound},
	} {
		moved, err := mover.Move(e.ctx(), bad.to, bad.limit)
		e.expectCode(err, bad.want, "move to %q with limit %d", bad.to, bad.limit)
		if moved != 0 {
			e.failf("a refused move to %q: %d moved", bad.to, moved)
		}
	}
	if _, manages := e.opener.(driver.Admin); manages && slices.Contains(e.queues(), "nowhere") {
		e.failf("a move to an unknown queue has made it")
	}
	e.move(q, "", 0, 0)
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectNext(q, "a")
}

func closedHandleDoesNotMove(e *env, q driver.Queue) {
	e.open(targetQueue)
	e.send(q, "a")
	closed := e.open(queueName)
	e.ok(closed.Close(), "close")
	_, err := closed.Move(e.ctx(), targetQueue, 0)
	e.expectClosed(err, "move on a closed handle")
	e.expectStats(q, driver.Stats{Ready: 1})
}

func exiledGoHome(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	e.send(q, "b")
	for range 2 {
		for _, d := range e.receive(q, 2) {
			e.nack(q, d, 0, "failure")
		}
	}
	e.expectEmpty(q)
	letters := e.open(deadLetterQueue)
	e.move(letters, "", 1, 1)
	e.expectStats(letters, driver.Stats{Ready: 1})
	got := e.receive(q, 1)[0]
	if got.ID == id {
		e.expectMessage(got.Message, msg, id, 1)
	}
	e.move(letters, "", 0, 1)
	e.expectEmpty(letters)
	other := e.receive(q, 1)[0]
	if other.ID == id {
		e.expectMessage(other.Message, msg, id, 1)
	}
	if got.ID == other.ID {
		e.failf("the same message came home twice")
	}
	e.ack(q, got, other)
	e.expectEmpty(q)
}

// moveToSourceWithFullDeadLetters moves between two queues that bound each other: the source
// has room for one dead letter, its target for one message.
func moveToSourceWithFullDeadLetters(e *env, q driver.Queue) {
	letters := e.configure(deadLetterQueue, driver.Config{MaxMessages: 1})
	for _, body := range []string{"a", "b", "c"} { // a moves, b must stay, and c cannot die
		e.send(q, body)
		e.nack(q, e.expectNext(q, body)[0], 0, "dead")
	}
	e.expectUnblocked("move the dead home", func() error {
		moved, err := letters.Move(e.ctx(), "", 0)
		if err == nil && moved != 1 {
			err = fmt.Errorf("%d moved, want 1", moved)
		}
		return err
	})
	e.expectEmpty(letters)
	e.expectUnblocked("move to where the dead go", func() error {
		_, err := q.Move(e.ctx(), deadLetterQueue, 0)
		return err
	})
	e.expectNext(letters, "a")
}

func homelessStay(e *env, q driver.Queue) {
	other := e.configure("invoices", driver.Config{MaxDeliveries: 1, DeadLetterTo: deadLetterQueue})
	letters := e.open(deadLetterQueue)
	e.send(letters, "native")
	e.send(other, "homeless")
	e.nack(other, e.receive(other, 1)[0], 0, "dead")
	e.ok(e.opener.(driver.Admin).DeleteQueue(e.ctx(), "invoices"), "delete a queue")
	e.nack(q, e.secondDelivery(q, "a"), 0, "dead")
	e.sendOne(letters, driver.Outgoing{
		Body: []byte("lost"), Attributes: map[string]string{driver.AttributeDeadSource: deadLetterQueue},
	})
	e.expectStats(letters, driver.Stats{Ready: 4})

	e.move(letters, "", 0, 1)
	e.expectNext(q, "a")
	e.expectNext(letters, "native", "homeless", "lost")
	if slices.Contains(e.queues(), "invoices") {
		e.failf("moving the dead home has made a queue that was deleted")
	}
}

func moveTakesDeadAttributes(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	for range 2 {
		e.nack(q, e.receive(q, 1)[0], 0, "failure")
	}
	letters, target := e.open(deadLetterQueue), e.open(targetQueue)
	e.move(letters, targetQueue, 0, 1)
	got := e.receive(target, 1)[0]
	e.expectMessage(got.Message, msg, id, 1)
	e.ack(target, got)
	e.expectEmpty(letters)
	e.expectEmpty(q)
}
