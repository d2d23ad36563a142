package drivertest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var wakeCases = []testCase{
	{id: "RCV-2", title: "as many waiting receivers as messages get one each", run: everyWaiterGetsOne},
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

// expectWokenAt checks that a background receive gets a message when it is due.
func (e *env) expectWokenAt(waiting <-chan outcome, due time.Time, want, why string) {
	e.t.Helper()
	e.sleep(time.Until(due))
	got := e.await(waiting, why)
	e.expectTime(got.at, due, why)
	e.expectHanded(got, want, why)
}

func everyWaiterGetsOne(e *env, q driver.Queue) {
	const waiters = 20
	var waiting []<-chan outcome
	for range waiters {
		waiting = append(waiting, e.receiveInBackground(e.ctx(), q, 1))
	}
	var want, got []string
	for i := range waiters {
		body := fmt.Sprintf("message %02d", i)
		want = append(want, body)
		e.send(q, body)
	}
	for _, waiter := range waiting {
		result := e.await(waiter, "one send for each waiting receiver")
		e.ok(result.err, "a waiting receive")
		got = append(got, bodies(result.deliveries)...)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		e.failf("%d waiting receivers and %d sends: got %q, want each message once", waiters, waiters, got)
	}
}

func robbedWaiterWaitsOn(e *env, q driver.Queue) {
	for range e.rounds(50, 10) {
		waiting := e.receiveInBackground(e.ctx(), q, 1)
		e.send(q, "a")
		taken := e.receiveOnce(q, driver.ReceiveRequest{Max: 1, Visibility: e.hold}) // often before the woken receiver runs
		if len(taken) > 0 {
			e.settle()
			e.ack(q, taken...)
			e.send(q, "a")
		}
		e.ack(q, e.expectHandedTo(waiting, "a", "send after another receiver was faster"))
	}
	e.expectEmpty(q)
}

func cancelledWaiterIsPassedOver(e *env, q driver.Queue) {
	ctx, cancel := e.cancellable()
	gone := e.receiveInBackground(ctx, q, 1)
	stays := e.receiveInBackground(e.ctx(), q, 1)
	cancel()
	if got := e.await(gone, "cancel"); len(got.deliveries) != 0 {
		e.failf("a cancelled receive on an empty queue: got %q", bodies(got.deliveries))
	}
	e.send(q, "a")
	e.expectHandedTo(stays, "a", "send after another receiver was cancelled")
}

func cancelWakes(e *env, q driver.Queue) {
	ctx, cancel := e.cancellable()
	waiting := e.receiveInBackground(ctx, q, 1)
	cancel()
	e.expectContextError(e.await(waiting, "cancel").err, context.Canceled, "a receive that is cancelled")

	waiting = e.receiveInBackground(ctx, q, 1)
	e.expectContextError(e.await(waiting, "cancel").err, context.Canceled, "a receive that waits with a cancelled context")
	e.send(q, "a")
	e.expectNext(q, "a")
}

// expectContextError checks for the context's own error, unwrapped.
func (e *env) expectContextError(got, want error, what string) {
	e.t.Helper()
	if got != want { //nolint:errorlint // unwrapped is the promise
		e.failf("%s: got %v (%T), want the bare %v", what, got, got, want)
	}
}

func contextDeadlineWakes(e *env, q driver.Queue) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(e.ctx(), e.tick())
	defer cancel()
	_, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: e.waitUpTo(q, e.tick()+4*e.patience)})
	e.expectContextError(err, context.DeadlineExceeded, "a receive whose context runs out")
	e.expectTime(time.Now(), start.Add(e.tick()), "the end of the context")
}

func endedContextDoesAllOrNothing(e *env, q driver.Queue) {
	ctx, cancel := e.cancellable()
	cancel()
	for op, try := range map[string]struct {
		do   func(q driver.Queue, held driver.Delivery) error
		done driver.Stats // the stats if it took effect
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
		q := e.open(op)
		e.send(q, "a", "b")
		held := e.receive(q, 1)[0]
		want := try.done
		if err := try.do(q, held); err != nil {
			e.expectContextError(err, context.Canceled, op+" with a cancelled context")
			want = driver.Stats{Ready: 1, InFlight: 1}
		}
		e.expectStats(q, want)
	}

	e.send(q, "a", "b")
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: e.hold})
	if err != nil {
		e.expectContextError(err, context.Canceled, "receive with a cancelled context")
	}
	e.expectStats(q, driver.Stats{Ready: 2 - len(got), InFlight: len(got)})
	e.ack(q, append(got, e.receive(q, 2-len(got))...)...)
	e.expectEmpty(q)
	if q.Traits().DeadLetters {
		e.endedContextForDeadLetters(ctx, q)
	}
}

// endedContextForDeadLetters calls the dead-letter operations with a context that has ended.
func (e *env) endedContextForDeadLetters(ctx context.Context, q driver.Queue) {
	e.t.Helper()
	id := e.kill(q, "dead")[0]
	e.send(q, "held")
	held := e.receive(q, 1)[0]
	for op, do := range map[string]func() error{
		"redrive":            func() error { _, err := q.Redrive(ctx, []string{id}, 0); return err },
		"discard":            func() error { _, err := q.Discard(ctx, []string{id}); return err },
		"purge dead letters": func() error { _, err := q.PurgeDead(ctx); return err },
		"dead-letter": func() error {
			return q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}})
		},
	} {
		if err := do(); err != nil {
			e.expectContextError(err, context.Canceled, op+" with a cancelled context")
		}
	}
	if got, err := q.Stats(e.ctx()); err != nil || got.Waiting()+got.Dead > 2 {
		e.failf("two messages are %+v after operations with a cancelled context, error %v", got, err)
	}
}

func cancelStrandsNothing(e *env, q driver.Queue) {
	for round := range e.rounds(200, 20) {
		body := fmt.Sprint("round ", round)
		ctx, cancel := e.cancellable()
		waiting := e.receiveInBackground(ctx, q, 1)
		e.parallel(2, func(i int) error {
			if i == 0 {
				cancel()
				return nil
			}
			_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte(body)}})
			return err
		})
		got := e.await(waiting, "cancel and send at once")
		if got.err != nil {
			e.expectContextError(got.err, context.Canceled, "a receive that is cancelled")
			if len(got.deliveries) > 0 {
				e.failf("a cancelled receive returned both an error and %q", bodies(got.deliveries))
			}
		}
		if len(got.deliveries) == 0 {
			got.deliveries = e.receive(q, 1) // it must be ready at once
		}
		d := e.expectBodies(q, got.deliveries, body)[0]
		if d.Deliveries != 1 {
			e.failf("a message that a cancelled receiver did not get: got Deliveries %d, want 1", d.Deliveries)
		}
		e.ack(q, d)
	}
	e.expectEmpty(q)
}

// expectPassedOn ends one receiver while a message comes in and a later receiver still waits.
// One of them must get the message at once.
func (e *env) expectPassedOn(q driver.Queue, leaving <-chan outcome, leave func() error) {
	e.t.Helper()
	staying := e.receiveInBackground(e.ctx(), q, 1)
	e.parallel(2, func(i int) error {
		if i == 0 {
			return leave()
		}
		return trySend(e, q, "a")
	})
	left := e.await(leaving, "leaving")
	if len(left.deliveries) > 0 {
		e.ack(q, e.expectHanded(left, "a", "a message that comes while its receiver leaves"))
		e.send(q, "a") // for the other receiver
	}
	e.ack(q, e.expectHandedTo(staying, "a", "a message that comes while the receiver before leaves"))
}

func cancelledPassesOn(e *env, q driver.Queue) {
	for range e.rounds(200, 10) {
		ctx, cancel := e.cancellable()
		leaving := e.receiveInBackground(ctx, q, 1)
		e.expectPassedOn(q, leaving, func() error { cancel(); return nil })
	}
	e.expectEmpty(q)
}

func closedPassesOn(e *env, q driver.Queue) {
	for range e.rounds(200, 10) {
		handle := e.open(queueName)
		leaving := e.receiveInBackground(e.ctx(), handle, 1)
		e.expectPassedOn(q, leaving, handle.Close)
	}
	e.expectEmpty(q)
}

func expiredWaitPassesOn(e *env, q driver.Queue) {
	for range e.rounds(200, 10) {
		start := time.Now()
		leaving := e.waitInBackground(e.ctx(), q, 1, e.unit)
		staying := e.receiveInBackground(e.ctx(), q, 1)
		e.rest(time.Until(start.Add(e.unit))) // send just as the wait ends
		e.send(q, "a")
		left := e.await(leaving, "the end of a wait")
		e.ok(left.err, "a receive whose wait ends")
		if len(left.deliveries) > 0 {
			e.ack(q, e.expectHanded(left, "a", "a message that comes as a wait ends"))
			e.send(q, "a")
		}
		e.ack(q, e.expectHandedTo(staying, "a", "a message that comes as another's wait ends"))
	}
	e.expectEmpty(q)
}
