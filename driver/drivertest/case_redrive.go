package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// roomForOneDead has room for one dead letter, and its messages die at their first failure.
var roomForOneDead = always(driver.Config{MaxDeliveries: 1, MaxDead: 1})

var redriveCases = []testCase{
	{id: "DLQ-5", title: "listing leases and changes nothing, and can stop early", needs: []need{needDeadLetters}, run: listingChangesNothing},
	{id: "DLQ-5", title: "dead letters are listed oldest death first", needs: []need{needDeadLetters}, run: listingIsByDeath},
	{id: "DLQ-5", title: "dead letters can be discarded while they are listed", needs: []need{needDeadLetters}, run: discardWhileListing},
	{id: "DLQ-5", title: "redrive of all makes every dead letter ready", needs: []need{needDeadLetters}, run: redriveAll},
	{id: "DLQ-5", title: "redrive by id moves these and skips unknown ones", needs: []need{needDeadLetters}, run: redriveByID},
	{id: "DLQ-5", title: "redrive moves at most limit letters, oldest death first", needs: []need{needDeadLetters}, run: redriveWithLimit},
	{id: "DLQ-5", title: "a redriven message starts over but keeps its identity", needs: []need{needDeadLetters}, run: redrivenStartsOver},
	{id: "DLQ-5", title: "a redriven message goes to the tail", needs: []need{needDeadLetters, needFIFO}, run: redriveGoesToTail},
	{id: "DLQ-5", title: "redrives are counted", needs: []need{needDeadLetters}, run: redrivesAreCounted},
	{
		id: "DLQ-5", title: "a redriven message has all its deliveries again",
		config: mortal, needs: []need{needDeadLetters}, run: redrivenHasAllDeliveries,
	},
	{id: "DLQ-5", title: "redrive wakes a waiting receiver", needs: []need{needDeadLetters}, run: redriveWakes},
	{
		id: "DLQ-5", title: "redrive stops when the queue is full, and says how far it came",
		config: always(driver.Config{MaxMessages: 2}), needs: []need{needDeadLetters}, run: redriveRespectsCapacity,
	},
	{
		id: "DLQ-5", title: "listing, redrive, discard and purge see messages that died by the clock alone",
		config: mortal, needs: []need{needDeadLetters}, run: deadLettersFollowTheClock,
	},
	{id: "DLQ-5", title: "discard removes these and skips unknown ones", needs: []need{needDeadLetters}, run: discardByID},
	{id: "DLQ-5", title: "purging the dead letters removes them and nothing else", needs: []need{needDeadLetters}, run: purgeDead},
	{
		id: "DLQ-5", title: "a full dead-letter store keeps a nacked message in the queue, delayed",
		config: roomForOneDead, needs: []need{needDeadLetters}, run: fullDeadLettersDelayNacked,
	},
	{
		id: "DLQ-5", title: "a full dead-letter store keeps an expired message in the queue, delayed",
		config: roomForOneDead, needs: []need{needDeadLetters}, run: fullDeadLettersDelayExpired,
	},
	{
		id: "DLQ-5", title: "a message kept for lack of room dies when there is room, undelivered",
		config: roomForOneDead, needs: []need{needDeadLetters}, run: keptMessageDiesLater,
	},
	{
		id: "DLQ-5", title: "a message kept for lack of room waits as long as its nack asked",
		config: roomForOneDead, needs: []need{needDeadLetters}, run: keptMessageWaitsAsAsked,
	},
	{
		id: "DLQ-5", title: "a message kept for lack of room has kept its place and its count",
		config: roomForOneDead, needs: []need{needDeadLetters}, run: keptMessageKeepsPlace,
	},
	{
		id: "DLQ-5", title: "dead-lettering into a full store is refused and the message stays in flight",
		config: roomForOneDead, needs: []need{needDeadLetters}, run: fullDeadLettersRefuseMore,
	},
}

// kill sends messages and dead-letters them, one after the other.
func (e *env) kill(q driver.Queue, texts ...string) []string {
	e.t.Helper()
	var ids []string
	for _, text := range texts {
		ids = append(ids, e.send(q, text)...)
		e.deadLetter(q, e.expectNext(q, text)[0], driver.ReasonFatal)
		e.sleep(time.Millisecond)
	}
	return ids
}

// redrive redrives dead letters and checks how many.
func (e *env) redrive(q driver.Queue, ids []string, limit, want int) {
	e.t.Helper()
	moved, err := q.Redrive(e.ctx(), ids, limit)
	e.ok(err, "redrive")
	if moved != want {
		e.failf("redrive of %d ids with limit %d: got %d moved, want %d", len(ids), limit, moved, want)
	}
}

func listingChangesNothing(e *env, q driver.Queue) {
	e.kill(q, "a", "b", "c")
	for range 3 {
		e.expectDead(q, "a", "b", "c")
	}
	for range q.DeadLetters(e.ctx()) {
		break // a listing may be abandoned
	}
	letters := e.dead(q)
	e.sleep(e.tick)
	if again := e.dead(q); !slices.EqualFunc(letters, again, func(a, b driver.DeadLetter) bool {
		return a.ID == b.ID && a.Deliveries == b.Deliveries && a.DeadAt.Equal(b.DeadAt) && a.Redrives == b.Redrives
	}) {
		e.failf("listing twice: got %+v and then %+v", letters, again)
	}
	e.expectStats(q, driver.Stats{Dead: 3})
	e.expectNothing(q)
}

func listingIsByDeath(e *env, q driver.Queue) {
	e.send(q, "sent first", "sent second", "sent third")
	held := e.expectBodies(q, e.receive(q, 3), "sent first", "sent second", "sent third")
	for _, i := range []int{2, 0, 1} {
		e.deadLetter(q, held[i], driver.ReasonFatal)
		e.sleep(time.Millisecond)
	}
	e.expectDead(q, "sent third", "sent first", "sent second")
}

func discardWhileListing(e *env, q driver.Queue) {
	e.kill(q, "a", "b", "c")
	for letter, err := range q.DeadLetters(e.ctx()) {
		e.ok(err, "list dead letters")
		e.expectUnblocked("discard while listing", func() error {
			removed, err := q.Discard(e.ctx(), []string{letter.ID})
			if err == nil && removed != 1 {
				err = fmt.Errorf("got %d removed, want 1", removed)
			}
			return err
		})
	}
	e.expectDead(q)
}

func redriveAll(e *env, q driver.Queue) {
	e.kill(q, "a", "b", "c")
	e.redrive(q, nil, 0, 3)
	e.expectStats(q, driver.Stats{Ready: 3})
	e.expectDead(q)
	e.expectNext(q, "a", "b", "c")
	e.redrive(q, nil, 0, 0)
}

func redriveByID(e *env, q driver.Queue) {
	ids := e.kill(q, "a", "b", "c")
	e.redrive(q, []string{}, 0, 0) // an empty list is not all
	e.redrive(q, []string{"01J00000000000000000000000", "nonsense", ""}, 0, 0)
	e.redrive(q, []string{ids[1], "nonsense"}, 0, 1)
	e.expectDead(q, "a", "c")
	e.expectNext(q, "b")
	e.redrive(q, []string{ids[1]}, 0, 0) // it is not dead
	e.redrive(q, []string{ids[0], ids[0]}, 0, 1)
	e.expectDead(q, "c")
}

func redriveWithLimit(e *env, q driver.Queue) {
	ids := e.kill(q, "a", "b", "c", "d")
	e.redrive(q, nil, 2, 2)
	e.expectNext(q, "a", "b")
	e.expectDead(q, "c", "d")
	e.redrive(q, []string{ids[3], ids[2]}, 1, 1)
	e.expectDead(q, "d") // the limit takes the oldest death, not the first id
	e.redrive(q, nil, 10, 1)
}

func redrivenStartsOver(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	first := e.receive(q, 1)[0]
	e.nack(q, first, 0, "failure")
	e.sleep(e.tick)
	e.deadLetter(q, e.receive(q, 1)[0], driver.ReasonFatal)
	lastError := e.onlyDead(q).LastError
	e.redrive(q, nil, 0, 1)

	got := e.receive(q, 1)[0]
	e.expectMessage(got.Message, msg, id, 1)
	if !got.EnqueuedAt.Equal(first.EnqueuedAt) || !got.FirstReceivedAt.Equal(first.FirstReceivedAt) || got.LastError != lastError {
		e.failf("a redriven message: got enqueued %v, first received %v, last error %q; want %v, %v and %q as before",
			got.EnqueuedAt, got.FirstReceivedAt, got.LastError, first.EnqueuedAt, first.FirstReceivedAt, lastError)
	}
}

func redriveGoesToTail(e *env, q driver.Queue) {
	e.kill(q, "old")
	e.send(q, "a", "b")
	e.redrive(q, nil, 0, 1)
	e.send(q, "c")
	e.expectNext(q, "a", "b", "old", "c")
}

func redrivesAreCounted(e *env, q driver.Queue) {
	e.send(q, "a")
	for redrives := range 3 {
		e.deadLetter(q, e.expectNext(q, "a")[0], driver.ReasonFatal)
		if got := e.expectDead(q, "a")[0].Redrives; got != redrives {
			e.failf("dead letter that was redriven %d times: got Redrives %d", redrives, got)
		}
		e.redrive(q, nil, 0, 1)
	}
}

func redrivenHasAllDeliveries(e *env, q driver.Queue) {
	e.nack(q, e.secondDelivery(q, "a"), 0, "dead")
	e.redrive(q, nil, 0, 1)
	for delivery := 1; delivery <= 2; delivery++ {
		got := e.expectNext(q, "a")[0]
		if got.Deliveries != delivery {
			e.failf("delivery %d after a redrive: got Deliveries %d", delivery, got.Deliveries)
		}
		e.nack(q, got, 0, "again")
	}
	e.expectStats(q, driver.Stats{Dead: 1})
}

func redriveWakes(e *env, q driver.Queue) {
	e.kill(q, "a")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.redrive(q, nil, 0, 1)
	e.expectHandedTo(waiting, "a", "redrive")
}

func redriveRespectsCapacity(e *env, q driver.Queue) {
	e.kill(q, "a", "b", "c")
	e.send(q, "x")
	moved, err := q.Redrive(e.ctx(), nil, 0)
	e.expectCode(err, driver.ErrFull, "redrive of three letters into room for one")
	if moved != 1 {
		e.failf("redrive of three letters into room for one: got %d moved, want 1", moved)
	}
	e.expectStats(q, driver.Stats{Ready: 2, Dead: 2})
	e.expectDead(q, "b", "c")
	e.expectNext(q, "x", "a")
}

func deadLettersFollowTheClock(e *env, q driver.Queue) {
	// dying leaves a message whose last lease has ended unnoticed.
	dying := func(body string) (id string) {
		last := e.secondDelivery(q, body)
		e.extend(q, last, e.tick)
		e.sleep(e.tick)
		return last.ID
	}
	dying("listed")
	e.expectDead(q, "listed")
	e.roomAgain(q)
	dying("purged")
	if removed, err := q.PurgeDead(e.ctx()); err != nil || removed != 1 {
		e.failf("purge of a message that died by the clock alone: got %d removed, error %v; want 1", removed, err)
	}
	id := dying("discarded")
	if removed, err := q.Discard(e.ctx(), []string{id}); err != nil || removed != 1 {
		e.failf("discard of a message that died by the clock alone: got %d removed, error %v; want 1", removed, err)
	}
	id = dying("redriven")
	e.redrive(q, []string{id}, 0, 1)
	e.ack(q, e.expectNext(q, "redriven")...)
	dying("redriven with all")
	e.redrive(q, nil, 0, 1)
	e.ack(q, e.expectNext(q, "redriven with all")...)
	e.expectEmpty(q)
}

func discardByID(e *env, q driver.Queue) {
	ids := e.kill(q, "a", "b", "c")
	alive := e.send(q, "alive")
	removed, err := q.Discard(e.ctx(), []string{ids[1], alive[0], "nonsense", ids[1]})
	e.ok(err, "discard")
	if removed != 1 {
		e.failf("discard of one dead letter twice, one live message and one unknown id: got %d removed, want 1", removed)
	}
	e.expectDead(q, "a", "c")
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 2})
	removed, err = q.Discard(e.ctx(), nil)
	e.ok(err, "discard of nothing")
	if removed != 0 {
		e.failf("discard of no ids: got %d removed, want 0", removed)
	}
}

func purgeDead(e *env, q driver.Queue) {
	e.kill(q, "a", "b")
	e.send(q, "ready")
	for _, want := range []int{2, 0} {
		removed, err := q.PurgeDead(e.ctx())
		e.ok(err, "purge dead letters")
		if removed != want {
			e.failf("purge dead letters: got %d removed, want %d", removed, want)
		}
	}
	e.expectStats(q, driver.Stats{Ready: 1})
	e.expectNext(q, "ready")
}

// fillDeadLetters makes the only dead letter that roomForOneDead has room for, and leases one
// more message.
func (e *env) fillDeadLetters(q driver.Queue) driver.Delivery {
	e.t.Helper()
	e.kill(q, "first dead")
	e.send(q, "kept")
	return e.expectNext(q, "kept")[0]
}

func fullDeadLettersDelayNacked(e *env, q driver.Queue) {
	held := e.fillDeadLetters(q)
	e.nack(q, held, 0, "failure")
	e.expectStats(q, driver.Stats{Delayed: 1, Dead: 1})
	e.expectNothing(q)
	e.expectExpired(q, held, "the receipt of a nacked message")
	e.expectDead(q, "first dead")
}

func fullDeadLettersDelayExpired(e *env, q driver.Queue) {
	e.expire(q, e.fillDeadLetters(q))
	e.expectStats(q, driver.Stats{Delayed: 1, Dead: 1})
	e.send(q, "expires")
	e.receiveFor(q, 1, e.tick)
	e.sleep(e.tick)
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Delayed: 2, Dead: 1})
	e.expectDead(q, "first dead")
}

// roomAgain removes the dead letters.
func (e *env) roomAgain(q driver.Queue) {
	e.t.Helper()
	_, err := q.PurgeDead(e.ctx())
	e.ok(err, "purge dead letters")
}

// virtualOnly reports whether the case can wait for driver.DeadRetry.
func (e *env) virtualOnly() bool {
	if !e.backend.Virtual {
		e.t.Logf("waits for %v and so is checked in virtual time only", driver.DeadRetry)
	}
	return e.backend.Virtual
}

func keptMessageDiesLater(e *env, q driver.Queue) {
	e.nack(q, e.fillDeadLetters(q), 0, "failure")
	if !e.virtualOnly() {
		return
	}
	e.sleep(driver.DeadRetry)
	e.expectNothing(q) // still no room
	e.expectStats(q, driver.Stats{Delayed: 1, Dead: 1})
	e.roomAgain(q)
	e.sleep(driver.DeadRetry)
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Dead: 1})
	letter := e.expectDead(q, "kept")[0]
	if letter.Reason != driver.ReasonMaxDeliveries || letter.Deliveries != 1 || letter.LastError != "failure" {
		e.failf("dead letter: got reason %q, %d deliveries, last error %q; want %q, 1 and the nack's cause",
			letter.Reason, letter.Deliveries, letter.LastError, driver.ReasonMaxDeliveries)
	}
}

func keptMessageWaitsAsAsked(e *env, q driver.Queue) {
	held := e.fillDeadLetters(q)
	start := time.Now()
	e.nack(q, held, e.hold, "failure")
	if !e.virtualOnly() {
		return
	}
	e.roomAgain(q)
	e.sleep(driver.DeadRetry)
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Delayed: 1})
	e.sleep(time.Until(start.Add(e.hold)))
	e.expectNothing(q)
	e.expectStats(q, driver.Stats{Dead: 1})
}

func keptMessageKeepsPlace(e *env, q driver.Queue) {
	e.nack(q, e.fillDeadLetters(q), 0, "failure")
	e.send(q, "later")
	if !e.virtualOnly() {
		return
	}
	e.configure(queueName, driver.Config{MaxDeliveries: 3, MaxDead: 1})
	e.sleep(driver.DeadRetry)
	if got := e.expectNext(q, "kept", "later")[0]; got.Deliveries != 2 {
		e.failf("a message kept for lack of room among the dead letters: got Deliveries %d, want 2", got.Deliveries)
	}
}

func fullDeadLettersRefuseMore(e *env, q driver.Queue) {
	held := e.fillDeadLetters(q)
	err := q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}})
	e.expectPositions(err, "dead-letter into a full store", driver.ErrFull)
	e.expectStats(q, driver.Stats{InFlight: 1, Dead: 1})
	e.extend(q, held, e.hold)
	e.roomAgain(q)
	e.deadLetter(q, held, driver.ReasonFatal)
	e.expectDead(q, "kept")
}
