package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// shelterQueue is where messages move to.
const shelterQueue = "shelter"

// moveNeeds is what every case about moving needs.
var moveNeeds = []need{needMove}

var moveCases = []testCase{
	{id: "DLQ-9", title: "ready messages move to the tail of the other queue, in order", needs: moveNeeds, run: movesInOrder},
	{id: "DLQ-9", title: "a message that moves is the same message, with no deliveries", needs: moveNeeds, run: movedIsTheSame},
	{id: "DLQ-9", title: "delayed messages and those in flight stay", needs: moveNeeds, run: onlyReadyMoves},
	{id: "DLQ-9", title: "a message that comes due, or back, can move", needs: moveNeeds, run: returnedMoves},
	{id: "DLQ-9", title: "no more move than the limit says", needs: moveNeeds, run: moveKeepsLimit},
	{id: "DLQ-9", title: "many messages move", needs: moveNeeds, run: manyMove},
	{id: "DLQ-9", title: "a full target stops the move, and nothing is lost", needs: []need{needMove, needAdmin}, run: fullTargetStopsMove},
	{id: "DLQ-9", title: "a target with no room for the bytes stops the move", needs: []need{needMove, needAdmin}, run: heavyMoveStops},
	{id: "DLQ-9", title: "a move makes room where it takes from", config: always(driver.Config{MaxMessages: 2}), needs: moveNeeds, run: moveMakesRoom},
	{id: "DLQ-9", title: "the deliveries of a message that moved count from nothing", needs: []need{needMove, needAdmin, needDeadLetters}, run: movedHasAllDeliveries},
	{id: "DLQ-9", title: "the age of a message that moved begins anew", needs: []need{needMove, needAdmin, needDeadLetters}, run: movedIsYoung},
	{id: "DLQ-9", title: "a move asks no dedup window, and leaves both as they are", needs: []need{needMove, needDedup}, run: moveLeavesKeys},
	{id: "DLQ-9", title: "a move wakes a receiver that waits at the target", needs: moveNeeds, run: moveWakesTarget},
	{id: "DLQ-9", title: "receipts of a message that moved are worth nothing", needs: moveNeeds, run: movedReceiptsExpire},
	{id: "DLQ-9", title: "a message can move there and back", needs: moveNeeds, run: movesThereAndBack},
	{id: "DLQ-9", title: "a move that cannot be is refused and changes nothing", needs: moveNeeds, run: badMoveIsRefused},
	{id: "DLQ-9", title: "a closed handle moves nothing", needs: moveNeeds, run: closedHandleDoesNotMove},
	{id: "DLQ-9", title: "without a target the dead go back to where they died", config: buriedElsewhere, needs: moveNeeds, run: exiledGoHome},
	{id: "DLQ-9", title: "messages without a source queue stay, and hold up no others", config: buriedElsewhere, needs: []need{needMove, needAdmin}, run: homelessStay},
	{id: "DLQ-9", title: "what a message got when it died goes wherever it moves", config: buriedElsewhere, needs: moveNeeds, run: moveTakesDeadAttributes},
	{
		id: "DLQ-9", title: "the dead go home to a queue whose dead letters are full",
		config: func(s *session) driver.Config {
			return driver.Config{MaxDeliveries: 1, MaxDead: 1, DeadLetterTo: graveQueue, RetainReady: driver.Retention{Age: s.hold}}
		},
		needs: []need{needMove, needAdmin, needDeadLetters}, run: exiledGoHomeToFullGraveyard,
	},
	{id: "DLQ-9", title: "a strict group moves in order, and not past what keeps it back", config: strict, needs: []need{needMove, needAdmin}, run: strictGroupsMoveInOrder},
	{id: "DLQ-9", title: "a move lets no group overtake in a strict target", needs: []need{needMove, needAdmin, needGroups}, run: moveToStrictGroups},
	{
		id: "DLQ-9", title: "groups keep their order over several shards",
		config: always(driver.Config{Shards: 3}), needs: []need{needMove, needGroups}, run: shardedMove,
	},
	{id: "DLQ-9", title: "moves in both directions at once lose, double and block nothing", needs: moveNeeds, run: movesCross},
	{id: "DLQ-9", title: "moves cross those of messages that die", config: buriedElsewhere, needs: moveNeeds, run: movesCrossDeaths},
	{id: "DLQ-9", title: "a message is delivered here or moved, and never both", needs: moveNeeds, run: movedOrDelivered},
}

// move moves messages, and checks how many.
func (s *session) move(q driver.Queue, to string, limit, want int) {
	s.t.Helper()
	moved, err := q.Move(s.ctx(), to, limit)
	s.ok(err, "move to %q", to)
	if moved != want {
		s.failf("move to %q, limit %d: %d moved, want %d", to, limit, moved, want)
	}
}

func movesInOrder(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	s.send(shelter, "x")
	s.send(q, "a", "b", "c")
	s.nack(q, s.expectNext(q, "a")[0], 0, "to the tail")
	s.move(q, shelterQueue, 0, 3)
	s.expectEmpty(q)
	s.expectStats(shelter, driver.Stats{Ready: 4})
	s.send(shelter, "y")
	s.expectNext(shelter, "x", "b", "c", "a", "y")
}

func movedIsTheSame(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	first := s.receive(q, 1)[0]
	s.nack(q, first, 0, "a cause")
	shelter := s.open(shelterQueue)
	s.sleep(s.tick) // so that it shows if a time is that of the move
	s.move(q, shelterQueue, 0, 1)
	s.sleep(s.tick)
	got := s.receive(shelter, 1)[0]
	s.expectMessage(got.Message, msg, id, 1)
	if got.LastError != "a cause" {
		s.failf("a message that moved: got LastError %q, want %q", got.LastError, "a cause")
	}
	if !got.EnqueuedAt.Equal(first.EnqueuedAt) || !got.FirstReceivedAt.Equal(first.FirstReceivedAt) {
		s.failf("a message that moved: got EnqueuedAt %v, FirstReceivedAt %v; want %v and %v as before",
			got.EnqueuedAt, got.FirstReceivedAt, first.EnqueuedAt, first.FirstReceivedAt)
	}
	s.ack(shelter, got)
	s.expectEmpty(shelter)
}

func onlyReadyMoves(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	s.send(q, "a")
	held := s.expectNext(q, "a")
	s.sendLater(q, s.hold, "b")
	s.send(q, "c")
	s.move(q, shelterQueue, 0, 1)
	s.expectStats(q, driver.Stats{Delayed: 1, InFlight: 1})
	s.expectNext(shelter, "c")
	s.move(q, shelterQueue, 0, 0)
	s.ack(q, held...)
	s.expectStats(q, driver.Stats{Delayed: 1})
}

func returnedMoves(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	s.send(q, "a")
	s.sendLater(q, s.tick, "b")
	s.receiveFor(q, 1, s.tick)
	s.sleep(s.tick)
	s.move(q, shelterQueue, 0, 2)
	s.expectEmpty(q)
	s.expectNext(shelter, "a", "b")
}

func moveKeepsLimit(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	s.send(q, "a", "b", "c", "d", "e")
	s.move(q, shelterQueue, 2, 2)
	s.expectStats(q, driver.Stats{Ready: 3})
	s.move(q, shelterQueue, 1, 1)
	s.expectNext(shelter, "a", "b", "c")
	s.move(q, shelterQueue, 10, 2)
	s.expectNext(shelter, "d", "e")
	s.expectEmpty(q)
}

func manyMove(s *session, q driver.Queue) {
	want := numbered("m", s.rounds(3000, 600))
	shelter := s.open(shelterQueue)
	s.send(q, want...)
	s.move(q, shelterQueue, len(want)-10, len(want)-10)
	s.expectStats(q, driver.Stats{Ready: 10})
	s.move(q, shelterQueue, 0, 10)
	s.expectEmpty(q)
	s.expectStats(shelter, driver.Stats{Ready: len(want)})
	s.expectNext(shelter, want...)
}

// expectMoveStops checks a move that stops because a target is full.
func (s *session) expectMoveStops(q driver.Queue, to string, want int) {
	s.t.Helper()
	moved, err := q.Move(s.ctx(), to, 0)
	s.expectFull(err, "move to a full queue")
	if moved != want {
		s.failf("move to a queue that has room for %d: got %d", want, moved)
	}
}

func fullTargetStopsMove(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{MaxMessages: 2})
	s.send(q, "a", "b", "c", "d")
	s.expectMoveStops(q, shelterQueue, 2)
	s.expectStats(q, driver.Stats{Ready: 2})
	s.expectStats(shelter, driver.Stats{Ready: 2})
	s.expectMoveStops(q, shelterQueue, 0)
	s.ack(shelter, s.expectNext(shelter, "a")...)
	s.expectMoveStops(q, shelterQueue, 1)
	s.ack(shelter, s.expectNext(shelter, "b", "c")...)
	s.move(q, shelterQueue, 0, 1) // it ends because nothing is left
	s.expectNext(shelter, "d")
	s.expectEmpty(q)
}

func heavyMoveStops(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{MaxBytes: 10})
	s.send(q, strings.Repeat("a", 4), strings.Repeat("b", 7), "c")
	s.expectMoveStops(q, shelterQueue, 1)
	s.expectStats(q, driver.Stats{Ready: 2})
	s.ack(shelter, s.expectNext(shelter, "aaaa")...)
	s.move(q, shelterQueue, 0, 2)
	s.expectNext(shelter, "bbbbbbb", "c")
}

func moveMakesRoom(s *session, q driver.Queue) {
	s.open(shelterQueue)
	s.send(q, "a", "b")
	s.expectFull(trySend(s, q, "c"), "send to a full queue")
	s.move(q, shelterQueue, 1, 1)
	s.send(q, "c")
	s.expectFull(trySend(s, q, "d"), "send to a queue that is full again")
	s.expectNext(q, "b", "c")
}

func movedHasAllDeliveries(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, driver.Config{MaxDeliveries: 2})
	s.send(q, "a")
	for range 3 {
		s.expire(q, s.receive(q, 1)...)
	}
	s.move(q, shelterQueue, 0, 1)
	s.nack(shelter, s.expectNext(shelter, "a")[0], 0, "")
	s.expectStats(shelter, driver.Stats{Ready: 1})
	s.nack(shelter, s.expectNext(shelter, "a")[0], 0, "")
	s.expectStats(shelter, driver.Stats{Dead: 1})
}

func movedIsYoung(s *session, q driver.Queue) {
	shelter := s.configure(shelterQueue, aging(s))
	s.send(q, "a")
	s.sleep(3 * s.tick)
	moved := time.Now()
	s.move(q, shelterQueue, 0, 1)
	s.expectStatsAt(shelter, moved.Add(2*s.tick), driver.Stats{Dead: 1}, "the end of a message that moved and is too old")
}

func moveLeavesKeys(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	here := s.expectFresh(q, keyed("key", "body"), "for the first time")
	there := s.expectFresh(shelter, keyed("key", "body"), "in another queue")
	s.move(q, shelterQueue, 0, 1)
	s.expectStats(shelter, driver.Stats{Ready: 2})
	s.expectDuplicate(q, keyed("key", "body"), here, "after its message moved away")
	s.expectDuplicate(shelter, keyed("key", "body"), there, "after a message with the same key moved here")
	s.expectEmpty(q)
}

func moveWakesTarget(s *session, q driver.Queue) {
	waiting := s.receiveInBackground(s.ctx(), s.open(shelterQueue), 1)
	s.send(q, "a")
	s.move(q, shelterQueue, 0, 1)
	s.expectHandedTo(waiting, "a", "a move")
}

func movedReceiptsExpire(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.expire(q, held)
	s.move(q, shelterQueue, 0, 1)
	s.expectExpired(q, held, "the receipt of a message that moved")
	s.expectExpired(shelter, held, "a receipt of the queue it moved from")
	s.expectTooLate(q, held, "the receipt of a message that moved")
	s.expectTooLate(shelter, held, "a receipt of the queue it moved from")
	s.expectStats(shelter, driver.Stats{Ready: 1})
	again := s.receive(shelter, 1)[0]
	s.expectTooLate(shelter, held, "a receipt of the queue it moved from")
	s.ack(shelter, again)
	s.expectEmpty(shelter)
}

func movesThereAndBack(s *session, q driver.Queue) {
	shelter := s.open(shelterQueue)
	id := s.send(q, "a", "b")[0]
	held := s.expectNext(q, "a")[0]
	s.expire(q, held)
	s.move(q, shelterQueue, 1, 1)
	s.move(shelter, queueName, 0, 1)
	s.expectTooLate(q, held, "a receipt from before its message moved away and came back")
	s.expectStats(q, driver.Stats{Ready: 2})
	if got := s.expectNext(q, "b", "a")[1]; got.ID != id || got.Deliveries != 1 {
		s.failf("a message that moved away and came back: got id %s, Deliveries %d; want %s and 1", got.ID, got.Deliveries, id)
	}
}

func badMoveIsRefused(s *session, q driver.Queue) {
	s.open(shelterQueue)
	s.send(q, "a")
	mover := q
	for _, bad := range []struct {
		to    string
		limit int
		want  driver.Code
	}{
		{queueName, 0, driver.ErrInvalid},
		{shelterQueue, -1, driver.ErrInvalid},
		{"", -1, driver.ErrInvalid},
		{"nowhere", 0, driver.ErrNotFound},
	} {
		moved, err := mover.Move(s.ctx(), bad.to, bad.limit)
		s.expectCode(err, bad.want, "move to %q with limit %d", bad.to, bad.limit)
		if moved != 0 {
			s.failf("a refused move to %q: %d moved", bad.to, moved)
		}
	}
	if _, manages := s.opener.(driver.Admin); manages && slices.Contains(s.queues(), "nowhere") {
		s.failf("a move to an unknown queue has made it")
	}
	s.move(q, "", 0, 0)
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectNext(q, "a")
}

func closedHandleDoesNotMove(s *session, q driver.Queue) {
	s.open(shelterQueue)
	s.send(q, "a")
	closed := s.open(queueName)
	s.ok(closed.Close(), "close")
	_, err := closed.Move(s.ctx(), shelterQueue, 0)
	s.expectClosed(err, "move on a closed handle")
	s.expectStats(q, driver.Stats{Ready: 1})
}

func exiledGoHome(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	s.send(q, "b")
	for range 2 {
		for _, d := range s.receive(q, 2) {
			s.nack(q, d, 0, "failure")
		}
	}
	s.expectEmpty(q)
	graves := s.open(graveQueue)
	s.move(graves, "", 1, 1)
	s.expectStats(graves, driver.Stats{Ready: 1})
	got := s.receive(q, 1)[0]
	if got.ID == id {
		s.expectMessage(got.Message, msg, id, 1)
	}
	s.move(graves, "", 0, 1)
	s.expectEmpty(graves)
	other := s.receive(q, 1)[0]
	if other.ID == id {
		s.expectMessage(other.Message, msg, id, 1)
	}
	if got.ID == other.ID {
		s.failf("the same message came home twice")
	}
	s.ack(q, got, other)
	s.expectEmpty(q)
}

// exiledGoHomeToFullGraveyard moves between two queues of which one has to ask the
// other whether there is room for its dead.
func exiledGoHomeToFullGraveyard(s *session, q driver.Queue) {
	graves := s.configure(graveQueue, driver.Config{MaxMessages: 1})
	for _, body := range []string{"a", "b", "c"} { // a moves, b has to stay, and c cannot even die
		s.send(q, body)
		s.nack(q, s.expectNext(q, body)[0], 0, "dead")
	}
	s.expectUnblocked("move the dead home", func() error {
		moved, err := graves.Move(s.ctx(), "", 0)
		if err == nil && moved != 1 {
			err = fmt.Errorf("%d moved, want 1", moved)
		}
		return err
	})
	s.expectEmpty(graves)
	s.expectUnblocked("move to where the dead go", func() error {
		_, err := q.Move(s.ctx(), graveQueue, 0)
		return err
	})
	s.expectNext(graves, "a")
}

func homelessStay(s *session, q driver.Queue) {
	other := s.configure("invoices", driver.Config{MaxDeliveries: 1, DeadLetterTo: graveQueue})
	graves := s.open(graveQueue)
	s.send(graves, "native")
	s.send(other, "homeless")
	s.nack(other, s.receive(other, 1)[0], 0, "dead")
	s.ok(s.opener.(driver.Admin).DeleteQueue(s.ctx(), "invoices"), "delete a queue")
	s.nack(q, s.secondDelivery(q, "a"), 0, "dead")
	s.sendOne(graves, driver.Outgoing{
		Body: []byte("lost"), Attributes: map[string]string{driver.AttributeDeadSource: graveQueue},
	})
	s.expectStats(graves, driver.Stats{Ready: 4})

	s.move(graves, "", 0, 1)
	s.expectNext(q, "a")
	s.expectNext(graves, "native", "homeless", "lost")
	if slices.Contains(s.queues(), "invoices") {
		s.failf("moving the dead home has made a queue that was deleted")
	}
}

func moveTakesDeadAttributes(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	for range 2 {
		s.nack(q, s.receive(q, 1)[0], 0, "failure")
	}
	graves, shelter := s.open(graveQueue), s.open(shelterQueue)
	s.move(graves, shelterQueue, 0, 1)
	got := s.receive(shelter, 1)[0]
	s.expectMessage(got.Message, msg, id, 1)
	s.ack(shelter, got)
	s.expectEmpty(graves)
	s.expectEmpty(q)
}
