package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// targetQueue is the target of the moves.
const targetQueue = "target"

// moveNeeds are the needs of every case about moving.
var moveNeeds = []need{needMove}

var moveCases = []testCase{
	{id: "DLQ-9", title: "ready messages move to the tail of the other queue, in order", needs: moveNeeds, run: movesInOrder},
	{id: "DLQ-9", title: "a message that moves is the same message, with no deliveries", needs: moveNeeds, run: movedIsTheSame},
	{id: "DLQ-9", title: "delayed messages and those in flight stay", needs: moveNeeds, run: onlyReadyMoves},
	{id: "DLQ-9", title: "a message that comes due, or back, can move", needs: moveNeeds, run: returnedMoves},
	{id: "DLQ-9", title: "no more move than the limit says", needs: moveNeeds, run: moveKeepsLimit},
	{id: "DLQ-9", title: "many messages move", needs: moveNeeds, run: manyMove, repeats: true},
	{id: "DLQ-9", title: "a full target stops the move, and nothing is lost", needs: []need{needMove, needAdmin}, run: fullTargetStopsMove},
	{id: "DLQ-9", title: "a target with no room for the bytes stops the move", needs: []need{needMove, needAdmin}, run: heavyMoveStops},
	{id: "DLQ-9", title: "a move makes room where it takes from", config: always(driver.Config{MaxMessages: 2}), needs: moveNeeds, run: moveMakesRoom},
	{id: "DLQ-9", title: "the deliveries of a message that moved count from nothing", needs: []need{needMove, needAdmin, needDeadLetters}, run: movedHasAllDeliveries},
	{id: "DLQ-9", title: "the age of a message that moved starts again", needs: []need{needMove, needAdmin, needDeadLetters}, run: movedIsYoung},
	{id: "DLQ-9", title: "a move asks no dedup window, and leaves both as they are", needs: []need{needMove, needDedup}, run: moveLeavesKeys},
	{id: "DLQ-9", title: "a move wakes a receiver that waits at the target", needs: moveNeeds, run: moveWakesTarget},
	{id: "DLQ-9", title: "receipts of a message that moved fail", needs: moveNeeds, run: movedReceiptsExpire},
	{id: "DLQ-9", title: "a message can move there and back", needs: moveNeeds, run: movesThereAndBack},
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

func movesInOrder(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	e.send(target, "x")
	e.send(q, "a", "b", "c")
	e.nack(q, e.expectNext(q, "a")[0], 0, "to the tail")
	e.move(q, targetQueue, 0, 3)
	e.expectEmpty(q)
	e.expectStats(target, driver.Stats{Ready: 4})
	e.send(target, "y")
	e.expectNext(target, "x", "b", "c", "a", "y")
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

func onlyReadyMoves(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	e.send(q, "a")
	held := e.expectNext(q, "a")
	e.sendLater(q, e.hold, "b")
	e.send(q, "c")
	e.move(q, targetQueue, 0, 1)
	e.expectStats(q, driver.Stats{Delayed: 1, InFlight: 1})
	e.expectNext(target, "c")
	e.move(q, targetQueue, 0, 0)
	e.ack(q, held...)
	e.expectStats(q, driver.Stats{Delayed: 1})
}

func returnedMoves(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	e.send(q, "a")
	e.sendLater(q, e.tick, "b")
	e.receiveFor(q, 1, e.tick)
	e.sleep(e.tick)
	e.move(q, targetQueue, 0, 2)
	e.expectEmpty(q)
	e.expectNext(target, "a", "b")
}

func moveKeepsLimit(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	e.send(q, "a", "b", "c", "d", "e")
	e.move(q, targetQueue, 2, 2)
	e.expectStats(q, driver.Stats{Ready: 3})
	e.move(q, targetQueue, 1, 1)
	e.expectNext(target, "a", "b", "c")
	e.move(q, targetQueue, 10, 2)
	e.expectNext(target, "d", "e")
	e.expectEmpty(q)
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

// expectMoveStops checks a move that stops because a target is full.
func (e *env) expectMoveStops(q driver.Queue, to string, want int) {
	e.t.Helper()
	moved, err := q.Move(e.ctx(), to, 0)
	e.expectFull(err, "move to a full queue")
	if moved != want {
		e.failf("move to a queue that has room for %d: got %d", want, moved)
	}
}

func fullTargetStopsMove(e *env, q driver.Queue) {
	target := e.configure(targetQueue, driver.Config{MaxMessages: 2})
	e.send(q, "a", "b", "c", "d")
	e.expectMoveStops(q, targetQueue, 2)
	e.expectStats(q, driver.Stats{Ready: 2})
	e.expectStats(target, driver.Stats{Ready: 2})
	e.expectMoveStops(q, targetQueue, 0)
	e.ack(target, e.expectNext(target, "a")...)
	e.expectMoveStops(q, targetQueue, 1)
	e.ack(target, e.expectNext(target, "b", "c")...)
	e.move(q, targetQueue, 0, 1) // it ends because no message is left
	e.expectNext(target, "d")
	e.expectEmpty(q)
}

func heavyMoveStops(e *env, q driver.Queue) {
	target := e.configure(targetQueue, driver.Config{MaxBytes: 10})
	e.send(q, strings.Repeat("a", 4), strings.Repeat("b", 7), "c")
	e.expectMoveStops(q, targetQueue, 1)
	e.expectStats(q, driver.Stats{Ready: 2})
	e.ack(target, e.expectNext(target, "aaaa")...)
	e.move(q, targetQueue, 0, 2)
	e.expectNext(target, "bbbbbbb", "c")
}

func moveMakesRoom(e *env, q driver.Queue) {
	e.open(targetQueue)
	e.send(q, "a", "b")
	e.expectFull(trySend(e, q, "c"), "send to a full queue")
	e.move(q, targetQueue, 1, 1)
	e.send(q, "c")
	e.expectFull(trySend(e, q, "d"), "send to a queue that is full again")
	e.expectNext(q, "b", "c")
}

func movedHasAllDeliveries(e *env, q driver.Queue) {
	target := e.configure(targetQueue, driver.Config{MaxDeliveries: 2})
	e.send(q, "a")
	for range 3 {
		e.expire(q, e.receive(q, 1)...)
	}
	e.move(q, targetQueue, 0, 1)
	e.nack(target, e.expectNext(target, "a")[0], 0, "")
	e.expectStats(target, driver.Stats{Ready: 1})
	e.nack(target, e.expectNext(target, "a")[0], 0, "")
	e.expectStats(target, driver.Stats{Dead: 1})
}

func movedIsYoung(e *env, q driver.Queue) {
	target := e.configure(targetQueue, aging(e))
	e.send(q, "a")
	e.sleep(3 * e.tick)
	moved := time.Now()
	e.move(q, targetQueue, 0, 1)
	e.expectStatsAt(target, moved.Add(2*e.tick), driver.Stats{Dead: 1}, "the end of a message that moved and is too old")
}

func moveLeavesKeys(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	here := e.expectFresh(q, keyed("key", "body"), "for the first time")
	there := e.expectFresh(target, keyed("key", "body"), "in another queue")
	e.move(q, targetQueue, 0, 1)
	e.expectStats(target, driver.Stats{Ready: 2})
	e.expectDuplicate(q, keyed("key", "body"), here, "after its message moved away")
	e.expectDuplicate(target, keyed("key", "body"), there, "after a message with the same key moved here")
	e.expectEmpty(q)
}

func moveWakesTarget(e *env, q driver.Queue) {
	waiting := e.receiveInBackground(e.ctx(), e.open(targetQueue), 1)
	e.send(q, "a")
	e.move(q, targetQueue, 0, 1)
	e.expectHandedTo(waiting, "a", "a move")
}

func movedReceiptsExpire(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.expire(q, held)
	e.move(q, targetQueue, 0, 1)
	e.expectExpired(q, held, "the receipt of a message that moved")
	e.expectExpired(target, held, "a receipt of the queue it moved from")
	e.expectTooLate(q, held, "the receipt of a message that moved")
	e.expectTooLate(target, held, "a receipt of the queue it moved from")
	e.expectStats(target, driver.Stats{Ready: 1})
	again := e.receive(target, 1)[0]
	e.expectTooLate(target, held, "a receipt of the queue it moved from")
	e.ack(target, again)
	e.expectEmpty(target)
}

func movesThereAndBack(e *env, q driver.Queue) {
	target := e.open(targetQueue)
	id := e.send(q, "a", "b")[0]
	held := e.expectNext(q, "a")[0]
	e.expire(q, held)
	e.move(q, targetQueue, 1, 1)
	e.move(target, queueName, 0, 1)
	e.expectTooLate(q, held, "a receipt from before its message moved away and came back")
	e.expectStats(q, driver.Stats{Ready: 2})
	if got := e.expectNext(q, "b", "a")[1]; got.ID != id || got.Deliveries != 1 {
		e.failf("a message that moved away and came back: got id %s, Deliveries %d; want %s and 1", got.ID, got.Deliveries, id)
	}
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
