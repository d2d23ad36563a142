package drivertest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var peekCases = []testCase{
	{id: "CNT-2", title: "a peek shows the whole message", needs: []need{needPeek}, run: peekShowsWholeMessage},
	{id: "CNT-2", title: "a peek can stop early and does not block others", needs: []need{needPeek}, run: peekBlocksNoReceiver},
	{id: "CNT-2", title: "a cancelled peek ends with the context's error", needs: []need{needPeek}, run: cancelledPeekSaysSo},
	{id: "CNT-2", title: "an invalid query is refused", needs: []need{needPeek}, run: badQueryIsRefused},
	{id: "CNT-2", title: "peeks with a cursor show each message once", needs: []need{needPeekCursor, needDeadLetters}, run: cursorShowsEachMessageOnce},
	{
		id: "CNT-2", title: "peeks with a cursor in shards show each message once",
		config: always(driver.Config{Shards: 4}), needs: []need{needPeekCursor, needDeadLetters}, run: cursorShowsEachMessageOnce,
	},
	{
		id: "CNT-2", title: "peeks with a cursor in strict groups show each message once",
		config: strict, needs: []need{needPeekCursor, needDeadLetters}, run: cursorShowsEachMessageOnce,
	},
	{
		id: "CNT-2", title: "peeks with a cursor in fair groups show each message once",
		config: fair, needs: append([]need{needPeekCursor, needDeadLetters}, fairNeeds...), run: cursorShowsEachMessageOnce,
	},
	{id: "CNT-2", title: "a cursor is behind what a peek has yielded", needs: []need{needPeekCursor}, run: cursorIsBehindYielded},
	{id: "CNT-2", title: "a peek at the last messages ends with the newest", needs: []need{needPeekLast, needDeadLetters}, run: lastAreNewest(1)},
	{
		id: "CNT-2", title: "a peek at the last messages of shards ends with the newest",
		config: always(driver.Config{Shards: 4}), needs: []need{needPeekLast, needDeadLetters}, run: lastAreNewest(4),
	},
	{
		id: "CNT-2", title: "a peek at the last messages of strict groups ends with the newest",
		config: strict, needs: []need{needPeekLast, needDeadLetters}, run: lastAreNewest(1),
	},
	{
		id: "CNT-2", title: "a peek at the last messages of fair groups ends with the newest",
		config: fair, needs: append([]need{needPeekLast, needDeadLetters}, fairNeeds...), run: lastAreNewest(1),
	},
	{id: "CNT-2", title: "an invalid cursor is refused", needs: []need{needPeekCursor}, run: badCursorIsRefused},
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

// peekIDs returns the ids of the messages that a query finds.
func (e *env) peekIDs(q driver.Queue, query driver.Query) []string {
	e.t.Helper()
	var ids []string
	for _, seen := range e.peek(q, query) {
		ids = append(ids, seen.ID)
	}
	return ids
}

// sendVaried sends messages with the groups and priorities that the queue takes, in one batch if it may be.
func (e *env) sendVaried(q driver.Queue, name string, n int) {
	e.t.Helper()
	var all []driver.Outgoing
	for i, body := range numbered(name, n) {
		m := driver.Outgoing{Body: []byte(body)}
		if q.Traits().Groups && i%4 != 0 {
			m.Group = body
		}
		if q.Traits().Priorities && i%3 == 0 {
			m.Priority = i % (driver.MaxPriority + 1)
		}
		all = append(all, m)
	}
	for batch := range slices.Chunk(all, q.Traits().MaxBatch) {
		_, err := q.Send(e.ctx(), batch)
		e.ok(err, "send %s messages", name)
	}
}

// cursorShowsEachMessageOnce reads each state in pages, while others take messages away.
func cursorShowsEachMessageOnce(e *env, q driver.Queue) {
	for i := range 2 { // those of a batch fall due together
		batch := make([]driver.Outgoing, min(8, q.Traits().MaxBatch))
		for k := range batch {
			batch[k] = driver.Outgoing{Body: fmt.Append(nil, "later", i, k), Delay: e.hold}
			if k%2 == 1 && q.Traits().DeliverAt {
				batch[k].Delay, batch[k].DeliverAt = 0, time.Now().Add(e.hold)
			}
		}
		_, err := q.Send(e.ctx(), batch)
		e.ok(err, "send delayed messages")
	}
	e.sendVaried(q, "dead", 12)
	for _, d := range e.receive(q, 12) {
		e.deadLetter(q, d, driver.ReasonFatal)
	}
	e.sendVaried(q, "held", 14)
	held := e.receive(q, 14)
	e.sendVaried(q, "ready", 23)
	e.nack(q, held[0], 0, "")
	e.nack(q, held[1], 0, "")
	const pageLen = 5
	for _, state := range []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead} {
		states := []driver.State{state}
		want := e.peekIDs(q, driver.Query{States: states})
		var got []string
		cursor := ""
		for pages := 0; ; pages++ {
			page := e.peekIDs(q, driver.Query{States: states, Limit: pageLen, Cursor: &cursor})
			got = append(got, page...)
			if cursor == "" {
				break
			}
			if len(page) == 0 || pages > len(want) {
				e.failf("peek at %s messages from cursor %q: got a page of %d, and more to come", state, cursor, len(page))
			}
			if state == driver.StateReady && pages == 1 {
				taken := e.receive(q, 3)
				e.ack(q, taken...)
				for _, d := range taken {
					if !slices.Contains(got, d.ID) {
						want = slices.DeleteFunc(want, func(id string) bool { return id == d.ID })
					}
				}
			}
		}
		if !slices.Equal(got, want) {
			e.failf("pages of %s messages: got %d, %q; want %d, %q", state, len(got), got, len(want), want)
		}
	}
}

// cursorIsBehindYielded stops a loop over a peek, and goes on.
func cursorIsBehindYielded(e *env, q driver.Queue) {
	e.send(q, numbered("m", 10)...)
	states := []driver.State{driver.StateReady}
	want := e.peekIDs(q, driver.Query{States: states})
	var got []string
	cursor := ""
	for seen, err := range q.Peek(e.ctx(), driver.Query{States: states, Cursor: &cursor}) {
		e.ok(err, "peek")
		if got = append(got, seen.ID); len(got) == 4 {
			break
		}
	}
	if cursor == "" {
		e.failf("a peek that was stopped after 4 of 10 messages: got no cursor")
	}
	got = append(got, e.peekIDs(q, driver.Query{States: states, Cursor: &cursor})...)
	if cursor != "" || !slices.Equal(got, want) {
		e.failf("a peek that was stopped after 4 messages, and the rest: got %q, cursor %q; want %q and none", got, cursor, want)
	}
}

// lastAreNewest looks at the last ready and dead messages of a queue with this many shards.
func lastAreNewest(shards int) func(e *env, q driver.Queue) {
	return func(e *env, q driver.Queue) {
		e.sendVaried(q, "dead", 12)
		for _, d := range e.receive(q, 12) {
			e.deadLetter(q, d, driver.ReasonFatal)
		}
		e.sendVaried(q, "ready", 40)
		for _, state := range []driver.State{driver.StateReady, driver.StateDead} {
			states := []driver.State{state}
			all := e.peekIDs(q, driver.Query{States: states})
			for _, n := range []int{1, 5, 1000} {
				got := e.peekIDs(q, driver.Query{States: states, Last: n})
				suffix := all[max(0, len(all)-len(got)):]
				switch {
				case len(got) == 0 || len(got) > n*shards || got[len(got)-1] != all[len(all)-1]:
					e.failf("peek at the last %d %s messages: got %q, want at most %d that end with %q", n, state, got, n*shards, all[len(all)-1])
				case (shards == 1 || n == 1000) && !slices.Equal(got, suffix) || n == 1000 && len(got) != len(all):
					e.failf("peek at the last %d %s messages: got %q, want the end of %q", n, state, got, all)
				}
			}
		}
		ready := []driver.State{driver.StateReady}
		for what, query := range map[string]driver.Query{
			"all states": {Last: 1}, "delayed ones": {States: []driver.State{driver.StateDelayed}, Last: 1}, "less than none": {States: ready, Last: -1},
			"those behind a cursor": {States: ready, Last: 1, Cursor: new(string)},
		} {
			e.expectInvalid(sequenceError(q.Peek(e.ctx(), query)), driver.ErrInvalid, "", "peek at the last of "+what)
		}
	}
}

func badCursorIsRefused(e *env, q driver.Queue) {
	nonsense, long, beginning := "nonsense", strings.Repeat("A", 1<<16), ""
	ready := []driver.State{driver.StateReady}
	for what, query := range map[string]driver.Query{
		"a cursor that none returned": {States: ready, Cursor: &nonsense},
		"a cursor that is too long":   {States: ready, Cursor: &long},
		"a cursor in all states":      {Cursor: &beginning},
		"a cursor and an id":          {States: ready, ID: unknownID, Cursor: &beginning},
	} {
		e.expectInvalid(sequenceError(q.Peek(e.ctx(), query)), driver.ErrInvalid, "", "peek with "+what)
	}
}
