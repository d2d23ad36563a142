package drivertest

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var closeCases = []testCase{
	{id: "RCV-2", title: "closing a handle wakes its waiting receivers with ErrClosed", run: closeWakes},
	{id: "RCV-2", title: "closing a handle does not disturb receivers of another handle", run: closeDisturbsNobodyElse},
	{id: "RCV-2", title: "a closed handle refuses everything, and closing it again is fine", run: closedHandleRefuses},
	{id: "RCV-2", title: "closing a handle touches no message and no lease", run: closeTouchesNoMessage},
	{id: "RCV-2", title: "a receive that is closed while a message comes in strands nothing", run: closeStrandsNothing},
	{id: "RCV-2", title: "closing the opener closes every handle", needs: []need{needCloser}, run: closingOpenerClosesHandles},
	{id: "RCV-2", title: "opening with a context that has ended opens or returns the context's error", run: openWithEndedContext},
}

func closeWakes(s *session, q driver.Queue) {
	first := s.receiveInBackground(s.ctx(), q, 1)
	second := s.receiveInBackground(s.ctx(), q, 1)
	s.ok(q.Close(), "close")
	s.expectClosed(s.await(first, "close").err, "a receive whose handle is closed")
	s.expectClosed(s.await(second, "close").err, "a second receive whose handle is closed")
}

func closeDisturbsNobodyElse(s *session, q driver.Queue) {
	other := s.open(queueName)
	waiting := s.receiveInBackground(s.ctx(), other, 1)
	s.ok(q.Close(), "close")
	s.settle()
	s.send(other, "a")
	s.expectHandedTo(waiting, "a", "send after another handle was closed")
}

func closedHandleRefuses(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.ok(q.Close(), "close")
	s.ok(q.Close(), "close a second time")

	_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte("b")}})
	s.expectClosed(err, "send on a closed handle")
	_, err = q.Receive(s.ctx(), driver.ReceiveRequest{Max: 1, Visibility: s.hold})
	s.expectClosed(err, "receive on a closed handle")
	s.expectClosed(tryAck(s, q, held), "ack on a closed handle")
	s.expectClosed(tryNack(s, q, held, 0, ""), "nack on a closed handle")
	s.expectClosed(tryExtend(s, q, held, s.hold), "extend on a closed handle")
	_, err = q.Purge(s.ctx())
	s.expectClosed(err, "purge on a closed handle")
	_, err = q.Stats(s.ctx())
	s.expectClosed(err, "stats on a closed handle")

	if q.Traits().DeadLetters {
		s.expectClosed(q.DeadLetter(s.ctx(), []driver.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}}),
			"dead-letter on a closed handle")
		s.expectClosed(sequenceError(q.DeadLetters(s.ctx())), "list dead letters on a closed handle")
		_, err := q.Redrive(s.ctx(), nil, 0)
		s.expectClosed(err, "redrive on a closed handle")
		_, err = q.Discard(s.ctx(), []string{held.ID})
		s.expectClosed(err, "discard on a closed handle")
		_, err = q.PurgeDead(s.ctx())
		s.expectClosed(err, "purge dead letters on a closed handle")
	}
	if q.Traits().Peek {
		s.expectClosed(sequenceError(q.Peek(s.ctx(), driver.Query{})), "peek on a closed handle")
	}
	if traits := q.Traits(); traits.MaxBatch == 0 {
		s.failf("traits of a closed handle: got %+v, want what they were", traits)
	}
	s.expectStats(s.open(queueName), driver.Stats{InFlight: 1})
}

func closeTouchesNoMessage(s *session, q driver.Queue) {
	s.send(q, "held", "waiting")
	held := s.expectBodies(q, s.receive(q, 2), "held", "waiting")
	s.expire(q, held[1])
	s.sendLater(q, s.hold, "later")
	s.ok(q.Close(), "close")

	again := s.open(queueName)
	s.expectStats(again, driver.Stats{Ready: 1, Delayed: 1, InFlight: 1})
	s.ack(again, held[0])
	s.expectNext(again, "waiting")
}

func closeStrandsNothing(s *session, q driver.Queue) {
	for range s.rounds(200, 20) {
		handle := s.open(queueName)
		waiting := s.receiveInBackground(s.ctx(), handle, 1)
		s.parallel(2, func(i int) error {
			if i == 0 {
				return handle.Close()
			}
			_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte("a")}})
			return err
		})
		got := s.await(waiting, "close and send at once")
		if got.err != nil {
			s.expectClosed(got.err, "a receive whose handle is closed")
		}
		if len(got.deliveries) == 0 {
			got.deliveries = s.receive(q, 1)
		}
		s.ack(q, s.expectBodies(q, got.deliveries, "a")...)
	}
	s.expectEmpty(q)
}

func closingOpenerClosesHandles(s *session, q driver.Queue) {
	other := s.open("invoices")
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	s.ok(s.opener.(closer).Close(), "close the opener")
	s.expectClosed(s.await(waiting, "close of the opener").err, "a receive whose backend is closed")
	_, err := other.Stats(s.ctx())
	s.expectClosed(err, "stats after the opener was closed")
	s.expectClosed(trySend(s, other, "a"), "send after the opener was closed")
	_, err = s.opener.OpenQueue(s.ctx(), queueName)
	s.expectClosed(err, "open a queue after the opener was closed")
	s.ok(s.opener.(closer).Close(), "close the opener a second time")
	s.ok(q.Close(), "close a handle after the opener")
}

func openWithEndedContext(s *session, _ driver.Queue) {
	ctx, cancel := s.cancellable()
	cancel()
	q, err := s.opener.OpenQueue(ctx, "invoices")
	if err != nil {
		s.expectContextError(err, context.Canceled, "open with a cancelled context")
		return
	}
	s.expectEmpty(q)
}
