package drivertest

import (
	"context"

	"github.com/mailboxmq/mailbox/driver"
)

var closeCases = []testCase{
	{id: "RCV-2", title: "a closed handle refuses everything, and closing it again is fine", run: closedHandleRefuses},
	{id: "RCV-2", title: "a receive that is closed while a message comes in strands nothing", run: closeStrandsNothing},
	{id: "RCV-2", title: "closing the opener closes every handle", needs: []need{needCloser}, run: closingOpenerClosesHandles},
	{id: "RCV-2", title: "opening with a context that has ended opens or returns the context's error", run: openWithEndedContext},
}

func closedHandleRefuses(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.ok(q.Close(), "close")
	e.ok(q.Close(), "close a second time")

	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("b")}})
	e.expectClosed(err, "send on a closed handle")
	_, err = q.Receive(e.ctx(), driver.ReceiveRequest{Max: 1, Visibility: e.hold})
	e.expectClosed(err, "receive on a closed handle")
	e.expectClosed(tryAck(e, q, held), "ack on a closed handle")
	e.expectClosed(tryNack(e, q, held, 0, ""), "nack on a closed handle")
	e.expectClosed(tryExtend(e, q, held, e.hold), "extend on a closed handle")
	_, err = q.Purge(e.ctx())
	e.expectClosed(err, "purge on a closed handle")
	_, err = q.Stats(e.ctx())
	e.expectClosed(err, "stats on a closed handle")

	if q.Traits().DeadLetters {
		e.expectClosed(q.DeadLetter(e.ctx(), []driver.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}}),
			"dead-letter on a closed handle")
		e.expectClosed(sequenceError(q.DeadLetters(e.ctx())), "list dead letters on a closed handle")
		_, err := q.Redrive(e.ctx(), nil, 0)
		e.expectClosed(err, "redrive on a closed handle")
		_, err = q.Discard(e.ctx(), []string{held.ID})
		e.expectClosed(err, "discard on a closed handle")
		_, err = q.PurgeDead(e.ctx())
		e.expectClosed(err, "purge dead letters on a closed handle")
	}
	if q.Traits().Peek {
		e.expectClosed(sequenceError(q.Peek(e.ctx(), driver.Query{})), "peek on a closed handle")
	}
	if traits := q.Traits(); traits.MaxBatch == 0 {
		e.failf("traits of a closed handle: got %+v, want what they were", traits)
	}
	e.expectStats(e.open(queueName), driver.Stats{InFlight: 1})
}

func closeStrandsNothing(e *env, q driver.Queue) {
	for range e.rounds(200, 20) {
		handle := e.open(queueName)
		waiting := e.receiveInBackground(e.ctx(), handle, 1)
		e.parallel(2, func(i int) error {
			if i == 0 {
				return handle.Close()
			}
			_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("a")}})
			return err
		})
		got := e.await(waiting, "close and send at once")
		if got.err != nil {
			e.expectClosed(got.err, "a receive whose handle is closed")
		}
		if len(got.deliveries) == 0 {
			got.deliveries = e.receive(q, 1)
		}
		e.ack(q, e.expectBodies(q, got.deliveries, "a")...)
	}
	e.expectEmpty(q)
}

func closingOpenerClosesHandles(e *env, q driver.Queue) {
	other := e.open("invoices")
	waiting := e.receiveInBackground(e.ctx(), q, 1)
	e.ok(e.opener.(closer).Close(), "close the opener")
	e.expectClosed(e.await(waiting, "close of the opener").err, "a receive whose backend is closed")
	_, err := other.Stats(e.ctx())
	e.expectClosed(err, "stats after the opener was closed")
	e.expectClosed(trySend(e, other, "a"), "send after the opener was closed")
	_, err = e.opener.OpenQueue(e.ctx(), queueName)
	e.expectClosed(err, "open a queue after the opener was closed")
	e.ok(e.opener.(closer).Close(), "close the opener a second time")
	e.ok(q.Close(), "close a handle after the opener")
}

func openWithEndedContext(e *env, _ driver.Queue) {
	ctx, cancel := e.cancellable()
	cancel()
	q, err := e.opener.OpenQueue(ctx, "invoices")
	if err != nil {
		e.expectContextError(err, context.Canceled, "open with a cancelled context")
		return
	}
	e.expectEmpty(q)
}
