package drivertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var wakeCases = []testCase{
	{id: "RCV-2", title: "a send wakes a waiting receiver at once", run: sendWakes},
	{id: "RCV-2", title: "a send through another handle wakes a waiting receiver at once", run: sendOnOtherHandleWakes},
	{id: "RCV-2", title: "a nack wakes a waiting receiver at once", run: nackWakes},
	{id: "RCV-2", title: "an extend to zero wakes a waiting receiver at once", run: endOfLeaseWakes},
	{id: "RCV-2", title: "a lease that runs out wakes a waiting receiver", run: expiryWakes},
	{id: "RCV-2", title: "a lease that is shortened wakes a waiting receiver at its new end", run: shortenedLeaseWakes},
	{id: "RCV-2", title: "a delay that is over wakes a waiting receiver", run: dueDelayWakes},
	{id: "RCV-2", title: "a nack with a delay wakes a waiting receiver when the delay is over", run: delayedNackWakes},
	{id: "RCV-2", title: "an earlier deadline counts although a later one was there first", run: earlierDeadlineWakes},
	{id: "RCV-2", title: "as many waiting receivers as messages get one each", run: everyWaiterGetsOne},
	{id: "RCV-2", title: "a batch sent to waiting receivers leaves nobody stranded", run: batchWakesAllNeeded},
	{id: "RCV-2", title: "a receiver whose message another took waits on and gets the next", run: robbedWaiterWaitsOn},
	{id: "RCV-2", title: "a message goes to the receiver that still waits", run: cancelledWaiterIsPassedOver},

	{id: "RCV-2", title: "cancelling wakes a waiting receiver with the context's error", run: cancelWakes},
	{id: "RCV-2", title: "a context that runs out wakes a waiting receiver with the context's error", run: contextDeadlineWakes},
	{id: "RCV-2", title: "a context that has ended does all or nothing", run: endedContextDoesAllOrNothing},
	{id: "RCV-2", title: "a receive that is cancelled while a message comes in strands nothing", run: cancelStrandsNothing},
	{id: "RCV-2", title: "a message that finds its receiver cancelled goes to the next", run: cancelledPassesOn},
	{id: "RCV-2", title: "a message that finds its receiver closed goes to the next", run: closedPassesOn},
	{id: "RCV-2", title: "a message that finds its receiver's wait over goes to the next", run: expiredWaitPassesOn},
}

func sendWakes(s *session, q driver.Queue) {
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	if s.backend.Virtual {
		s.sleep(s.tick) // it is the send that wakes, not a poll that happens to come by
	}
	s.send(q, "a")
	s.expectHandedTo(waiting, "a", "send")
}

func sendOnOtherHandleWakes(s *session, q driver.Queue) {
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	s.send(s.open(queueName), "a")
	s.expectHandedTo(waiting, "a", "send through another handle")
}

func nackWakes(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	s.nack(q, held, 0, "")
	s.expectHandedTo(waiting, "a", "nack")
}

func endOfLeaseWakes(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	s.expire(q, held)
	s.expectHandedTo(waiting, "a", "extend to zero")
}

func expiryWakes(s *session, q driver.Queue) {
	s.send(q, "a")
	start := time.Now()
	s.receiveFor(q, 1, s.tick)
	s.expectArrival(q, start.Add(s.tick), "a")
}

func shortenedLeaseWakes(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	start := time.Now()
	s.extend(q, held, s.tick)
	s.expectWokenAt(waiting, start.Add(s.tick), "a", "the shortened lease")
}

// expectWokenAt checks that a background receive gets a message when due.
func (s *session) expectWokenAt(waiting <-chan outcome, due time.Time, want, why string) {
	s.t.Helper()
	s.sleep(time.Until(due))
	got := s.await(waiting, why)
	s.expectTime(got.at, due, why)
	s.expectHanded(got, want, why)
}

func dueDelayWakes(s *session, q driver.Queue) {
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	start := time.Now()
	s.sendLater(q, s.tick, "a")
	s.expectWokenAt(waiting, start.Add(s.tick), "a", "the delay")
}

func delayedNackWakes(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	start := time.Now()
	s.nack(q, held, s.tick, "")
	s.expectWokenAt(waiting, start.Add(s.tick), "a", "the nack's delay")
}

func earlierDeadlineWakes(s *session, q driver.Queue) {
	s.sendLater(q, s.hold, "last")
	s.send(q, "held")
	s.receive(q, 1)
	waiting := s.receiveInBackground(s.ctx(), q, 10)
	start := time.Now()
	s.sendLater(q, s.tick, "first")
	s.expectWokenAt(waiting, start.Add(s.tick), "first", "the earlier delay")
}

func everyWaiterGetsOne(s *session, q driver.Queue) {
	const waiters = 20
	var waiting []<-chan outcome
	for range waiters {
		waiting = append(waiting, s.receiveInBackground(s.ctx(), q, 1))
	}
	var want, got []string
	for i := range waiters {
		body := fmt.Sprintf("message %02d", i)
		want = append(want, body)
		s.send(q, body)
	}
	for _, waiter := range waiting {
		result := s.await(waiter, "one send for each waiting receiver")
		s.ok(result.err, "a waiting receive")
		got = append(got, bodies(result.deliveries)...)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.failf("%d waiting receivers and %d sends: got %q, want each message once", waiters, waiters, got)
	}
}

func batchWakesAllNeeded(s *session, q driver.Queue) {
	const waiters = 8
	var waiting []<-chan outcome
	for range waiters {
		waiting = append(waiting, s.receiveInBackground(s.ctx(), q, 1))
	}
	var batch []string
	for i := range waiters {
		batch = append(batch, fmt.Sprint(i))
	}
	s.send(q, batch...)
	for _, waiter := range waiting {
		result := s.await(waiter, "one batch for all waiting receivers")
		if result.err != nil || len(result.deliveries) != 1 {
			s.failf("a batch of %d for %d waiting receivers: one got %d messages, error %v; want 1 each",
				waiters, waiters, len(result.deliveries), result.err)
		}
	}
	s.expectStats(q, driver.Stats{InFlight: waiters})
}

func robbedWaiterWaitsOn(s *session, q driver.Queue) {
	for range s.rounds(50, 10) {
		waiting := s.receiveInBackground(s.ctx(), q, 1)
		s.send(q, "a")
		taken := s.receiveOnce(q, driver.ReceiveRequest{Max: 1, Visibility: s.hold}) // often before the other has got up
		if len(taken) > 0 {
			s.settle()
			s.ack(q, taken...)
			s.send(q, "a")
		}
		s.ack(q, s.expectHandedTo(waiting, "a", "send after another receiver was faster"))
	}
	s.expectEmpty(q)
}

func cancelledWaiterIsPassedOver(s *session, q driver.Queue) {
	ctx, cancel := s.cancellable()
	gone := s.receiveInBackground(ctx, q, 1)
	stays := s.receiveInBackground(s.ctx(), q, 1)
	cancel()
	if got := s.await(gone, "cancel"); len(got.deliveries) != 0 {
		s.failf("a cancelled receive on an empty queue: got %q", bodies(got.deliveries))
	}
	s.send(q, "a")
	s.expectHandedTo(stays, "a", "send after another receiver was cancelled")
}

func cancelWakes(s *session, q driver.Queue) {
	ctx, cancel := s.cancellable()
	waiting := s.receiveInBackground(ctx, q, 1)
	cancel()
	s.expectContextError(s.await(waiting, "cancel").err, context.Canceled, "a receive that is cancelled")

	waiting = s.receiveInBackground(ctx, q, 1)
	s.expectContextError(s.await(waiting, "cancel").err, context.Canceled, "a receive that waits with a cancelled context")
	s.send(q, "a")
	s.expectNext(q, "a")
}

// expectContextError checks for the context's own error, unwrapped.
func (s *session) expectContextError(got, want error, what string) {
	s.t.Helper()
	if got != want { //nolint:errorlint // unwrapped is the promise
		s.failf("%s: got %v (%T), want the bare %v", what, got, got, want)
	}
}

func contextDeadlineWakes(s *session, q driver.Queue) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx(), s.tick)
	defer cancel()
	_, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: s.hold, Wait: s.waitUpTo(q, s.tick+4*s.patience)})
	s.expectContextError(err, context.DeadlineExceeded, "a receive whose context runs out")
	s.expectTime(time.Now(), start.Add(s.tick), "the end of the context")
}

func endedContextDoesAllOrNothing(s *session, q driver.Queue) {
	ctx, cancel := s.cancellable()
	cancel()
	for op, try := range map[string]struct {
		do   func(q driver.Queue, held driver.Delivery) error
		done driver.Stats // what the queue counts if it was done
	}{
		"send": {func(q driver.Queue, _ driver.Delivery) error {
			_, err := q.Send(ctx, []driver.Outgoing{{Body: []byte("c")}})
			return err
		}, driver.Stats{Ready: 2, InFlight: 1}},
		"ack": {func(q driver.Queue, held driver.Delivery) error {
			return q.Ack(ctx, []driver.Receipt{held.Receipt})
		}, driver.Stats{Ready: 1}},
		"nack": {func(q driver.Queue, held driver.Delivery) error {
			return q.Nack(ctx, []driver.Nack{{Receipt: held.Receipt}})
		}, driver.Stats{Ready: 2}},
		"extend": {func(q driver.Queue, held driver.Delivery) error {
			return extended(q.Extend(ctx, []driver.Extension{{Receipt: held.Receipt}}))
		}, driver.Stats{Ready: 2}},
		"purge": {func(q driver.Queue, _ driver.Delivery) error { _, err := q.Purge(ctx); return err }, driver.Stats{}},
		"stats": {func(q driver.Queue, _ driver.Delivery) error { _, err := q.Stats(ctx); return err }, driver.Stats{Ready: 1, InFlight: 1}},
	} {
		q := s.open(op)
		s.send(q, "a", "b")
		held := s.receive(q, 1)[0]
		want := try.done
		if err := try.do(q, held); err != nil {
			s.expectContextError(err, context.Canceled, op+" with a cancelled context")
			want = driver.Stats{Ready: 1, InFlight: 1}
		}
		s.expectStats(q, want)
	}

	s.send(q, "a", "b")
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: s.hold})
	if err != nil {
		s.expectContextError(err, context.Canceled, "receive with a cancelled context")
	}
	s.expectStats(q, driver.Stats{Ready: 2 - len(got), InFlight: len(got)})
	s.ack(q, append(got, s.receive(q, 2-len(got))...)...)
	s.expectEmpty(q)
	if q.Traits().DeadLetters {
		s.endedContextAtGraveyard(ctx, q)
	}
}

// endedContextAtGraveyard tries what concerns dead letters with a context that
// has ended.
func (s *session) endedContextAtGraveyard(ctx context.Context, q driver.Queue) {
	s.t.Helper()
	id := s.kill(q, "dead")[0]
	s.send(q, "held")
	held := s.receive(q, 1)[0]
	for op, do := range map[string]func() error{
		"redrive":            func() error { _, err := q.Redrive(ctx, []string{id}, 0); return err },
		"discard":            func() error { _, err := q.Discard(ctx, []string{id}); return err },
		"purge dead letters": func() error { _, err := q.PurgeDead(ctx); return err },
		"dead-letter": func() error {
			return q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}})
		},
	} {
		if err := do(); err != nil {
			s.expectContextError(err, context.Canceled, op+" with a cancelled context")
		}
	}
	if got, err := q.Stats(s.ctx()); err != nil || got.Waiting()+got.Dead > 2 {
		s.failf("two messages are %+v after operations with a cancelled context, error %v", got, err)
	}
}

func cancelStrandsNothing(s *session, q driver.Queue) {
	for round := range s.rounds(200, 20) {
		body := fmt.Sprint("round ", round)
		ctx, cancel := s.cancellable()
		waiting := s.receiveInBackground(ctx, q, 1)
		s.parallel(2, func(i int) error {
			if i == 0 {
				cancel()
				return nil
			}
			_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte(body)}})
			return err
		})
		got := s.await(waiting, "cancel and send at once")
		if got.err != nil {
			s.expectContextError(got.err, context.Canceled, "a receive that is cancelled")
			if len(got.deliveries) > 0 {
				s.failf("a cancelled receive returned both an error and %q", bodies(got.deliveries))
			}
		}
		if len(got.deliveries) == 0 {
			got.deliveries = s.receive(q, 1) // it must be there, at once
		}
		d := s.expectBodies(q, got.deliveries, body)[0]
		if d.Deliveries != 1 {
			s.failf("a message that a cancelled receiver did not get: got Deliveries %d, want 1", d.Deliveries)
		}
		s.ack(q, d)
	}
	s.expectEmpty(q)
}

// expectPassedOn lets one receiver leave while a message comes in and another
// receiver, that came later, stays. One of them must get the message, at once.
func (s *session) expectPassedOn(q driver.Queue, leaving <-chan outcome, leave func() error) {
	s.t.Helper()
	staying := s.receiveInBackground(s.ctx(), q, 1)
	s.parallel(2, func(i int) error {
		if i == 0 {
			return leave()
		}
		return trySend(s, q, "a")
	})
	left := s.await(leaving, "leaving")
	if len(left.deliveries) > 0 {
		s.ack(q, s.expectHanded(left, "a", "a message that comes while its receiver leaves"))
		s.send(q, "a") // for the other one
	}
	s.ack(q, s.expectHandedTo(staying, "a", "a message that comes while the receiver before leaves"))
}

func cancelledPassesOn(s *session, q driver.Queue) {
	for range s.rounds(200, 10) {
		ctx, cancel := s.cancellable()
		leaving := s.receiveInBackground(ctx, q, 1)
		s.expectPassedOn(q, leaving, func() error { cancel(); return nil })
	}
	s.expectEmpty(q)
}

func closedPassesOn(s *session, q driver.Queue) {
	for range s.rounds(200, 10) {
		handle := s.open(queueName)
		leaving := s.receiveInBackground(s.ctx(), handle, 1)
		s.expectPassedOn(q, leaving, handle.Close)
	}
	s.expectEmpty(q)
}

func expiredWaitPassesOn(s *session, q driver.Queue) {
	for range s.rounds(200, 10) {
		start := time.Now()
		leaving := s.waitInBackground(s.ctx(), q, 1, s.tick)
		staying := s.receiveInBackground(s.ctx(), q, 1)
		time.Sleep(time.Until(start.Add(s.tick))) // the send comes just as the wait ends
		s.send(q, "a")
		left := s.await(leaving, "the end of a wait")
		s.ok(left.err, "a receive whose wait ends")
		if len(left.deliveries) > 0 {
			s.ack(q, s.expectHanded(left, "a", "a message that comes as a wait ends"))
			s.send(q, "a")
		}
		s.ack(q, s.expectHandedTo(staying, "a", "a message that comes as another's wait ends"))
	}
	s.expectEmpty(q)
}
