package drivertest

import (
	"context"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var peekCases = []testCase{
	{id: "CNT-2", title: "a peek shows the whole message", needs: []need{needPeek}, run: peekShowsWholeMessage},
	{id: "CNT-2", title: "a peek can stop early and does not block others", needs: []need{needPeek}, run: peekBlocksNoReceiver},
	{id: "CNT-2", title: "a cancelled peek ends with the context's error", needs: []need{needPeek}, run: cancelledPeekSaysSo},
	{id: "CNT-2", title: "an invalid query is refused", needs: []need{needPeek}, run: badQueryIsRefused},
}

// peek returns the messages that a query finds.
func (e *env) peek(q driver.Queue, query driver.Query) []driver.Peeked {
	e.t.Helper()
	var seen []driver.Peeked
	for message, err := range q.Peek(e.ctx(), query) {
		e.ok(err, "peek %+v", query)
		seen = append(seen, message)
	}
	return seen
}

// peekOne returns one message.
func (e *env) peekOne(q driver.Queue, id string) driver.Peeked {
	e.t.Helper()
	seen := e.peek(q, driver.Query{ID: id})
	if len(seen) != 1 {
		e.failf("peek by id: got %d messages, want 1", len(seen))
	}
	return seen[0]
}

func peekShowsWholeMessage(e *env, q driver.Queue) {
	msg := doomed(q)
	id := e.sendOne(q, msg).ID
	ready := e.peekOne(q, id)
	e.expectMessage(ready.Message, msg, id, 0)
	if !ready.FirstReceivedAt.IsZero() {
		e.failf("peek at a message that was never delivered: got FirstReceivedAt %v", ready.FirstReceivedAt)
	}
	start := time.Now()
	held := e.receive(q, 1)[0]
	out := e.peekOne(q, id)
	e.expectMessage(out.Message, msg, id, 1)
	if !out.EnqueuedAt.Equal(held.EnqueuedAt) || !out.FirstReceivedAt.Equal(held.FirstReceivedAt) {
		e.failf("peek at a message in flight: got enqueued %v, first received %v; its delivery said %v and %v",
			out.EnqueuedAt, out.FirstReceivedAt, held.EnqueuedAt, held.FirstReceivedAt)
	}
	if off := out.DueAt.Sub(start.Add(e.hold)).Abs(); e.backend.Virtual && off > promptness {
		e.failf("peek at a message in flight: got DueAt %v, %v off", out.DueAt, off)
	}
	e.nack(q, held, e.hold, "why")
	if nacked := e.peekOne(q, id); nacked.LastError != "why" || nacked.State != driver.StateDelayed {
		e.failf("peek at a nacked message: got state %q, last error %q; want %q and its cause", nacked.State, nacked.LastError, driver.StateDelayed)
	}
}

func peekBlocksNoReceiver(e *env, q driver.Queue) {
	e.send(q, numbered("m", 50)...)
	seen := 0
	for _, err := range q.Peek(e.ctx(), driver.Query{}) {
		e.ok(err, "peek")
		e.expectUnblocked("receive and ack during a peek", func() error {
			got, err := e.poll(q, driver.ReceiveRequest{Max: 1, Visibility: e.hold})
			if err != nil {
				return err
			}
			return q.Ack(e.ctx(), receipts(got))
		})
		if seen++; seen == 10 {
			break
		}
	}
	e.expectStats(q, driver.Stats{Ready: 40})
}

func cancelledPeekSaysSo(e *env, q driver.Queue) {
	e.send(q, numbered("m", 50)...)
	ctx, cancel := e.cancellable()
	e.expectAllOrCancelled(countUntilCancelled(q.Peek(ctx, driver.Query{}), cancel))
	if q.Traits().DeadLetters {
		for _, d := range e.receive(q, 50) {
			e.deadLetter(q, d, driver.ReasonFatal)
		}
		ctx, cancel := e.cancellable()
		e.expectAllOrCancelled(countUntilCancelled(q.DeadLetters(ctx), cancel))
	}
}

// countUntilCancelled cancels at the first element and counts the elements.
func countUntilCancelled[T any](sequence iter.Seq2[T, error], cancel func()) (seen int, err error) {
	for _, err := range sequence {
		if err != nil {
			return seen, err
		}
		seen++
		cancel()
	}
	return seen, nil
}

func (e *env) expectAllOrCancelled(seen int, err error) {
	e.t.Helper()
	if err != nil {
		e.expectContextError(err, context.Canceled, "a sequence that is cancelled")
	} else if seen != 50 {
		e.failf("a sequence that is cancelled ended after %d elements of 50 without an error", seen)
	}
}

func badQueryIsRefused(e *env, q driver.Queue) {
	for what, query := range map[string]driver.Query{
		"an unknown state":   {States: []driver.State{"limbo"}},
		"an unknown reason":  {Reason: "boredom"},
		"a negative limit":   {Limit: -1},
		"a negative minimum": {OlderThan: -time.Second},
	} {
		err := sequenceError(q.Peek(e.ctx(), query))
		e.expectInvalid(err, driver.ErrInvalid, "", "peek with "+what)
	}
}
