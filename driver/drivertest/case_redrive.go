package drivertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// crampedGraveyard has room for one dead letter, and messages die at once.
var crampedGraveyard = always(driver.Config{MaxDeliveries: 1, MaxDead: 1})

var redriveCases = []testCase{
	{id: "DLQ-5", title: "listing leases and changes nothing, and can stop early", needs: []need{needDeadLetters}, run: listingChangesNothing},
	{id: "DLQ-5", title: "dead letters are listed oldest death first", needs: []need{needDeadLetters}, run: listingIsByDeath},
	{id: "DLQ-5", title: "dead letters can be discarded while they are listed", needs: []need{needDeadLetters}, run: discardWhileListing},
	{id: "DLQ-5", title: "redrive of all makes every dead letter ready", needs: []need{needDeadLetters}, run: redriveAll},
	{id: "DLQ-5", title: "redrive by id moves these and passes over unknown ones", needs: []need{needDeadLetters}, run: redriveByID},
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
		id: "DLQ-5", title: "listing, redrive, discard and purge see who died by the clock alone",
		config: mortal, needs: []need{needDeadLetters}, run: graveyardFollowsTheClock,
	},
	{id: "DLQ-5", title: "discard removes these and passes over unknown ones", needs: []need{needDeadLetters}, run: discardByID},
	{id: "DLQ-5", title: "purging the dead letters removes them and nothing else", needs: []need{needDeadLetters}, run: purgeDead},
	{
		id: "DLQ-5", title: "a full dead-letter store keeps a nacked message in the queue, delayed",
		config: crampedGraveyard, needs: []need{needDeadLetters}, run: fullGraveyardDelaysNacked,
	},
	{
		id: "DLQ-5", title: "a full dead-letter store keeps an expired message in the queue, delayed",
		config: crampedGraveyard, needs: []need{needDeadLetters}, run: fullGraveyardDelaysExpired,
	},
	{
		id: "DLQ-5", title: "a message kept for lack of room dies when there is room, undelivered",
		config: crampedGraveyard, needs: []need{needDeadLetters}, run: keptMessageDiesLater,
	},
	{
		id: "DLQ-5", title: "a message kept for lack of room waits as long as its nack asked",
		config: crampedGraveyard, needs: []need{needDeadLetters}, run: keptMessageWaitsAsAsked,
	},
	{
		id: "DLQ-5", title: "a message kept for lack of room has kept its place and its count",
		config: crampedGraveyard, needs: []need{needDeadLetters}, run: keptMessageKeepsPlace,
	},
	{
		id: "DLQ-5", title: "dead-lettering into a full store is refused and the message stays in flight",
		config: crampedGraveyard, needs: []need{needDeadLetters}, run: fullGraveyardRefusesBurial,
	},
}

// kill sends messages and dead-letters them, each at a time of its own.
func (s *session) kill(q driver.Queue, texts ...string) []string {
	s.t.Helper()
	var ids []string
	for _, text := range texts {
		ids = append(ids, s.send(q, text)...)
		s.bury(q, s.expectNext(q, text)[0], driver.ReasonFatal)
		s.sleep(time.Millisecond)
	}
	return ids
}

// redrive redrives, and checks how many moved.
func (s *session) redrive(q driver.Queue, ids []string, limit, want int) {
	s.t.Helper()
	moved, err := q.Redrive(s.ctx(), ids, limit)
	s.ok(err, "redrive")
	if moved != want {
		s.failf("redrive of %d ids with limit %d: got %d moved, want %d", len(ids), limit, moved, want)
	}
}

func listingChangesNothing(s *session, q driver.Queue) {
	s.kill(q, "a", "b", "c")
	for range 3 {
		s.expectDead(q, "a", "b", "c")
	}
	for range q.DeadLetters(s.ctx()) {
		break // what was promised to be read need not be
	}
	letters := s.dead(q)
	s.sleep(s.tick)
	if again := s.dead(q); !slices.EqualFunc(letters, again, func(a, b driver.DeadLetter) bool {
		return a.ID == b.ID && a.Deliveries == b.Deliveries && a.DeadAt.Equal(b.DeadAt) && a.Redrives == b.Redrives
	}) {
		s.failf("listing twice: got %+v and then %+v", letters, again)
	}
	s.expectStats(q, driver.Stats{Dead: 3})
	s.expectNothing(q)
}

func listingIsByDeath(s *session, q driver.Queue) {
	s.send(q, "sent first", "sent second", "sent third")
	held := s.expectBodies(q, s.receive(q, 3), "sent first", "sent second", "sent third")
	for _, i := range []int{2, 0, 1} {
		s.bury(q, held[i], driver.ReasonFatal)
		s.sleep(time.Millisecond)
	}
	s.expectDead(q, "sent third", "sent first", "sent second")
}

func discardWhileListing(s *session, q driver.Queue) {
	s.kill(q, "a", "b", "c")
	for letter, err := range q.DeadLetters(s.ctx()) {
		s.ok(err, "list dead letters")
		s.expectUnblocked("discard while listing", func() error {
			removed, err := q.Discard(s.ctx(), []string{letter.ID})
			if err == nil && removed != 1 {
				err = fmt.Errorf("got %d removed, want 1", removed)
			}
			return err
		})
	}
	s.expectDead(q)
}

func redriveAll(s *session, q driver.Queue) {
	s.kill(q, "a", "b", "c")
	s.redrive(q, nil, 0, 3)
	s.expectStats(q, driver.Stats{Ready: 3})
	s.expectDead(q)
	s.expectNext(q, "a", "b", "c")
	s.redrive(q, nil, 0, 0)
}

func redriveByID(s *session, q driver.Queue) {
	ids := s.kill(q, "a", "b", "c")
	s.redrive(q, []string{}, 0, 0) // no ids are not all ids
	s.redrive(q, []string{"01J00000000000000000000000", "nonsense", ""}, 0, 0)
	s.redrive(q, []string{ids[1], "nonsense"}, 0, 1)
	s.expectDead(q, "a", "c")
	s.expectNext(q, "b")
	s.redrive(q, []string{ids[1]}, 0, 0) // it is alive
	s.redrive(q, []string{ids[0], ids[0]}, 0, 1)
	s.expectDead(q, "c")
}

func redriveWithLimit(s *session, q driver.Queue) {
	ids := s.kill(q, "a", "b", "c", "d")
	s.redrive(q, nil, 2, 2)
	s.expectNext(q, "a", "b")
	s.expectDead(q, "c", "d")
	s.redrive(q, []string{ids[3], ids[2]}, 1, 1)
	s.expectDead(q, "d") // the limit takes the oldest death, not the first id
	s.redrive(q, nil, 10, 1)
}

func redrivenStartsOver(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	first := s.receive(q, 1)[0]
	s.nack(q, first, 0, "failure")
	s.sleep(s.tick)
	s.bury(q, s.receive(q, 1)[0], driver.ReasonFatal)
	lastError := s.onlyDead(q).LastError
	s.redrive(q, nil, 0, 1)

	got := s.receive(q, 1)[0]
	s.expectMessage(got.Message, msg, id, 1)
	if !got.EnqueuedAt.Equal(first.EnqueuedAt) || !got.FirstReceivedAt.Equal(first.FirstReceivedAt) || got.LastError != lastError {
		s.failf("a redriven message: got enqueued %v, first received %v, last error %q; want %v, %v and %q as before",
			got.EnqueuedAt, got.FirstReceivedAt, got.LastError, first.EnqueuedAt, first.FirstReceivedAt, lastError)
	}
}

func redriveGoesToTail(s *session, q driver.Queue) {
	s.kill(q, "old")
	s.send(q, "a", "b")
	s.redrive(q, nil, 0, 1)
	s.send(q, "c")
	s.expectNext(q, "a", "b", "old", "c")
}

func redrivesAreCounted(s *session, q driver.Queue) {
	s.send(q, "a")
	for redrives := range 3 {
		s.bury(q, s.expectNext(q, "a")[0], driver.ReasonFatal)
		if got := s.expectDead(q, "a")[0].Redrives; got != redrives {
			s.failf("dead letter that was redriven %d times: got Redrives %d", redrives, got)
		}
		s.redrive(q, nil, 0, 1)
	}
}

func redrivenHasAllDeliveries(s *session, q driver.Queue) {
	s.nack(q, s.secondDelivery(q, "a"), 0, "dead")
	s.redrive(q, nil, 0, 1)
	for delivery := 1; delivery <= 2; delivery++ {
		got := s.expectNext(q, "a")[0]
		if got.Deliveries != delivery {
			s.failf("delivery %d after a redrive: got Deliveries %d", delivery, got.Deliveries)
		}
		s.nack(q, got, 0, "again")
	}
	s.expectStats(q, driver.Stats{Dead: 1})
}

func redriveWakes(s *session, q driver.Queue) {
	s.kill(q, "a")
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	s.redrive(q, nil, 0, 1)
	s.expectHandedTo(waiting, "a", "redrive")
}

func redriveRespectsCapacity(s *session, q driver.Queue) {
	s.kill(q, "a", "b", "c")
	s.send(q, "x")
	moved, err := q.Redrive(s.ctx(), nil, 0)
	s.expectCode(err, driver.ErrFull, "redrive of three letters into room for one")
	if moved != 1 {
		s.failf("redrive of three letters into room for one: got %d moved, want 1", moved)
	}
	s.expectStats(q, driver.Stats{Ready: 2, Dead: 2})
	s.expectDead(q, "b", "c")
	s.expectNext(q, "x", "a")
}

func graveyardFollowsTheClock(s *session, q driver.Queue) {
	// dying leaves a message whose last lease has run out unnoticed.
	dying := func(body string) (id string) {
		last := s.secondDelivery(q, body)
		s.extend(q, last, s.tick)
		s.sleep(s.tick)
		return last.ID
	}
	dying("listed")
	s.expectDead(q, "listed")
	s.roomAgain(q)
	dying("purged")
	if removed, err := q.PurgeDead(s.ctx()); err != nil || removed != 1 {
		s.failf("purge of a message that died by the clock alone: got %d removed, error %v; want 1", removed, err)
	}
	id := dying("discarded")
	if removed, err := q.Discard(s.ctx(), []string{id}); err != nil || removed != 1 {
		s.failf("discard of a message that died by the clock alone: got %d removed, error %v; want 1", removed, err)
	}
	id = dying("redriven")
	s.redrive(q, []string{id}, 0, 1)
	s.ack(q, s.expectNext(q, "redriven")...)
	dying("redriven with all")
	s.redrive(q, nil, 0, 1)
	s.ack(q, s.expectNext(q, "redriven with all")...)
	s.expectEmpty(q)
}

func discardByID(s *session, q driver.Queue) {
	ids := s.kill(q, "a", "b", "c")
	alive := s.send(q, "alive")
	removed, err := q.Discard(s.ctx(), []string{ids[1], alive[0], "nonsense", ids[1]})
	s.ok(err, "discard")
	if removed != 1 {
		s.failf("discard of one dead letter twice, one live message and one unknown id: got %d removed, want 1", removed)
	}
	s.expectDead(q, "a", "c")
	s.expectStats(q, driver.Stats{Ready: 1, Dead: 2})
	removed, err = q.Discard(s.ctx(), nil)
	s.ok(err, "discard of nothing")
	if removed != 0 {
		s.failf("discard of no ids: got %d removed, want 0", removed)
	}
}

func purgeDead(s *session, q driver.Queue) {
	s.kill(q, "a", "b")
	s.send(q, "ready")
	for _, want := range []int{2, 0} {
		removed, err := q.PurgeDead(s.ctx())
		s.ok(err, "purge dead letters")
		if removed != want {
			s.failf("purge dead letters: got %d removed, want %d", removed, want)
		}
	}
	s.expectStats(q, driver.Stats{Ready: 1})
	s.expectNext(q, "ready")
}

// fillGraveyard makes the only dead letter a cramped graveyard has room for,
// and leases one more message.
func (s *session) fillGraveyard(q driver.Queue) driver.Delivery {
	s.t.Helper()
	s.kill(q, "first dead")
	s.send(q, "kept")
	return s.expectNext(q, "kept")[0]
}

func fullGraveyardDelaysNacked(s *session, q driver.Queue) {
	held := s.fillGraveyard(q)
	s.nack(q, held, 0, "failure")
	s.expectStats(q, driver.Stats{Delayed: 1, Dead: 1})
	s.expectNothing(q)
	s.expectExpired(q, held, "the receipt of a nacked message")
	s.expectDead(q, "first dead")
}

func fullGraveyardDelaysExpired(s *session, q driver.Queue) {
	s.expire(q, s.fillGraveyard(q))
	s.expectStats(q, driver.Stats{Delayed: 1, Dead: 1})
	s.send(q, "expires")
	s.receiveFor(q, 1, s.tick)
	s.sleep(s.tick)
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{Delayed: 2, Dead: 1})
	s.expectDead(q, "first dead")
}

// roomAgain empties the graveyard.
func (s *session) roomAgain(q driver.Queue) {
	s.t.Helper()
	_, err := q.PurgeDead(s.ctx())
	s.ok(err, "purge dead letters")
}

// virtualOnly reports whether the case can wait for driver.DeadRetry.
func (s *session) virtualOnly() bool {
	if !s.backend.Virtual {
		s.t.Logf("waits for %v and so is checked in virtual time only", driver.DeadRetry)
	}
	return s.backend.Virtual
}

func keptMessageDiesLater(s *session, q driver.Queue) {
	s.nack(q, s.fillGraveyard(q), 0, "failure")
	if !s.virtualOnly() {
		return
	}
	s.sleep(driver.DeadRetry)
	s.expectNothing(q) // still no room
	s.expectStats(q, driver.Stats{Delayed: 1, Dead: 1})
	s.roomAgain(q)
	s.sleep(driver.DeadRetry)
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{Dead: 1})
	letter := s.expectDead(q, "kept")[0]
	if letter.Reason != driver.ReasonMaxDeliveries || letter.Deliveries != 1 || letter.LastError != "failure" {
		s.failf("dead letter: got reason %q, %d deliveries, last error %q; want %q, 1 and the nack's cause",
			letter.Reason, letter.Deliveries, letter.LastError, driver.ReasonMaxDeliveries)
	}
}

func keptMessageWaitsAsAsked(s *session, q driver.Queue) {
	held := s.fillGraveyard(q)
	start := time.Now()
	s.nack(q, held, s.hold, "failure")
	if !s.virtualOnly() {
		return
	}
	s.roomAgain(q)
	s.sleep(driver.DeadRetry)
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{Delayed: 1})
	s.sleep(time.Until(start.Add(s.hold)))
	s.expectNothing(q)
	s.expectStats(q, driver.Stats{Dead: 1})
}

func keptMessageKeepsPlace(s *session, q driver.Queue) {
	s.nack(q, s.fillGraveyard(q), 0, "failure")
	s.send(q, "later")
	if !s.virtualOnly() {
		return
	}
	s.configure(queueName, driver.Config{MaxDeliveries: 3, MaxDead: 1})
	s.sleep(driver.DeadRetry)
	if got := s.expectNext(q, "kept", "later")[0]; got.Deliveries != 2 {
		s.failf("a message kept for lack of room among the dead letters: got Deliveries %d, want 2", got.Deliveries)
	}
}

func fullGraveyardRefusesBurial(s *session, q driver.Queue) {
	held := s.fillGraveyard(q)
	err := q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}})
	s.expectPositions(err, "dead-letter into a full store", driver.ErrFull)
	s.expectStats(q, driver.Stats{InFlight: 1, Dead: 1})
	s.extend(q, held, s.hold)
	s.roomAgain(q)
	s.bury(q, held, driver.ReasonFatal)
	s.expectDead(q, "kept")
}
