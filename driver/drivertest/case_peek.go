package drivertest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var peekCases = []testCase{
	{id: "CNT-2", title: "a peek shows messages in every state", needs: []need{needPeek}, run: peekShowsEveryState},
	{id: "CNT-2", title: "a peek shows the whole message", needs: []need{needPeek}, run: peekShowsWholeMessage},
	{id: "CNT-2", title: "a peek changes nothing", needs: []need{needPeek}, run: peekChangesNothing},
	{id: "CNT-2", title: "a peek shows ready messages in the order of delivery", needs: []need{needPeek, needFIFO}, run: peekIsInOrder},
	{id: "CNT-2", title: "search by state", needs: []need{needPeek}, run: peekByState},
	{id: "CNT-2", title: "search by id", needs: []need{needPeek}, run: peekByID},
	{id: "CNT-2", title: "search by attributes", needs: []need{needPeek}, run: peekByAttributes},
	{id: "CNT-2", title: "search by age", needs: []need{needPeek}, run: peekByAge},
	{id: "CNT-2", title: "search by reason of death finds only dead letters", needs: []need{needPeek, needDeadLetters}, run: peekByReason},
	{id: "CNT-2", title: "a limit bounds the results of a peek", needs: []need{needPeek}, run: peekWithLimit},
	{id: "CNT-2", title: "conditions add up", needs: []need{needPeek}, run: peekConditionsAddUp},
	{id: "CNT-2", title: "a peek can stop early and does not block others", needs: []need{needPeek}, run: peekBlocksNoReceiver},
	{id: "CNT-2", title: "a cancelled peek ends with the context's error", needs: []need{needPeek}, run: cancelledPeekSaysSo},
	{id: "CNT-2", title: "a peek follows the clock without a sweep", needs: []need{needPeek}, run: peekFollowsTheClock},
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

// expectPeek checks the results of a query.
func (e *env) expectPeek(q driver.Queue, query driver.Query, want ...string) []driver.Peeked {
	e.t.Helper()
	seen := e.peek(q, query)
	got := make([]string, len(seen))
	for i, message := range seen {
		got[i] = brief(message.Body)
	}
	if q.Traits().Ordering == driver.OrderingNone {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		e.failf("peek %+v: got %q, want %q", query, got, want)
	}
	return seen
}

// fourStates puts a message into each state the queue has, with the state as its body, and two
// into the ready state.
func (e *env) fourStates(q driver.Queue) {
	e.t.Helper()
	if q.Traits().DeadLetters {
		e.kill(q, "dead")
	}
	e.send(q, "in flight")
	e.receive(q, 1)
	e.send(q, "ready 1", "ready 2")
	e.sendLater(q, e.hold, "delayed")
}

func peekShowsEveryState(e *env, q driver.Queue) {
	e.fourStates(q)
	want := []string{"ready 1", "ready 2", "delayed", "in flight"}
	states := []driver.State{driver.StateReady, driver.StateReady, driver.StateDelayed, driver.StateInFlight}
	if q.Traits().DeadLetters {
		want, states = append(want, "dead"), append(states, driver.StateDead)
	}
	for i, seen := range e.expectPeek(q, driver.Query{}, want...) {
		if q.Traits().Ordering != driver.OrderingNone && seen.State != states[i] {
			e.failf("peek at %q: got state %q, want %q", seen.Body, seen.State, states[i])
		}
		if isDead := seen.State == driver.StateDead; isDead == seen.DeadAt.IsZero() || isDead == (seen.Reason == "") || isDead == (seen.Source == "") {
			e.failf("peek at a message that is %s: got DeadAt %v, reason %q, source %q; want them for dead ones only",
				seen.State, seen.DeadAt, seen.Reason, seen.Source)
		}
		if waits := seen.State == driver.StateDelayed || seen.State == driver.StateInFlight; waits == seen.DueAt.IsZero() {
			e.failf("peek at a message that is %s: got DueAt %v; want it for delayed ones and those in flight", seen.State, seen.DueAt)
		}
	}
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

func peekChangesNothing(e *env, q driver.Queue) {
	e.send(q, "in flight")
	held := e.receive(q, 1)[0]
	e.send(q, "ready")
	for range 5 {
		e.peek(q, driver.Query{})
	}
	e.expectStats(q, driver.Stats{Ready: 1, InFlight: 1})
	got := e.expectNext(q, "ready")[0]
	if got.Deliveries != 1 {
		e.failf("first delivery of a message that was looked at: got Deliveries %d, want 1", got.Deliveries)
	}
	e.ack(q, held, got)
	e.expectEmpty(q)
}

func peekIsInOrder(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c", "d", "e", "f")
	held := e.receive(q, 5)
	e.nack(q, held[0], 0, "")              // to the tail
	e.expire(q, held[4], held[1], held[2]) // each keeps its place
	e.send(q, "g")
	want := []string{"b", "c", "e", "f", "a", "g"}
	e.expectPeek(q, driver.Query{States: []driver.State{driver.StateReady}}, want...)
	e.expectNext(q, want...)
}

func peekByState(e *env, q driver.Queue) {
	e.fourStates(q)
	in := func(states ...driver.State) driver.Query { return driver.Query{States: states} }
	e.expectPeek(q, in(driver.StateReady), "ready 1", "ready 2")
	e.expectPeek(q, in(driver.StateDelayed), "delayed")
	e.expectPeek(q, in(driver.StateInFlight), "in flight")
	e.expectPeek(q, in(driver.StateInFlight, driver.StateDelayed), "delayed", "in flight")
	if q.Traits().DeadLetters {
		e.expectPeek(q, in(driver.StateDead), "dead")
	}
}

func peekByID(e *env, q driver.Queue) {
	e.fourStates(q)
	for _, seen := range e.peek(q, driver.Query{}) {
		e.expectPeek(q, driver.Query{ID: seen.ID}, string(seen.Body))
	}
	e.expectPeek(q, driver.Query{ID: "01J00000000000000000000000"})
	e.expectPeek(q, driver.Query{ID: "nonsense"})
}

func peekByAttributes(e *env, q driver.Queue) {
	for body, attributes := range map[string]map[string]string{
		"red":        {"colour": "red"},
		"red, large": {"colour": "red", "size": "large"},
		"blue":       {"colour": "blue", "size": "large"},
		"none":       nil,
	} {
		e.sendOne(q, driver.Outgoing{Body: []byte(body), Attributes: attributes})
	}
	find := func(attributes map[string]string, want ...string) {
		var got []string
		for _, seen := range e.peek(q, driver.Query{Attributes: attributes}) {
			got = append(got, string(seen.Body))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			e.failf("peek by attributes %q: got %q, want %q", attributes, got, want)
		}
	}
	find(map[string]string{"colour": "red"}, "red", "red, large")
	find(map[string]string{"colour": "red", "size": "large"}, "red, large")
	find(map[string]string{"size": "large"}, "blue", "red, large")
	find(map[string]string{"colour": "RED"})
	find(map[string]string{"colour": ""})
	find(map[string]string{"weight": "heavy"})
}

func peekByAge(e *env, q driver.Queue) {
	e.send(q, "old")
	e.sleep(e.tick)
	sent := time.Now()
	e.send(q, "young")
	seen := e.peek(q, driver.Query{OlderThan: e.tick})
	if !e.backend.Virtual && time.Since(sent) >= e.tick-e.slack {
		e.tooSlow("no message is young any more")
	}
	if len(seen) != 1 || string(seen[0].Body) != "old" {
		e.failf("peek at messages older than %v: got %d, want only the old one", e.tick, len(seen))
	}
	e.expectPeek(q, driver.Query{OlderThan: time.Hour})
}

func peekByReason(e *env, q driver.Queue) {
	e.send(q, "ready")
	held := e.receive(q, 1)
	for _, reason := range []driver.Reason{driver.ReasonFatal, driver.ReasonParse, driver.ReasonFatal} {
		e.send(q, string(reason))
		e.deadLetter(q, e.receive(q, 1)[0], reason)
	}
	e.expire(q, held...)
	e.expectPeek(q, driver.Query{Reason: driver.ReasonFatal}, "fatal", "fatal")
	e.expectPeek(q, driver.Query{Reason: driver.ReasonParse}, "parse")
	e.expectPeek(q, driver.Query{Reason: driver.ReasonOperator})
	e.expectPeek(q, driver.Query{Reason: driver.ReasonFatal, States: []driver.State{driver.StateReady}})
}

func peekWithLimit(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	for limit, want := range map[int]int{0: 3, 1: 1, 2: 2, 3: 3, 4: 3} {
		if got := len(e.peek(q, driver.Query{Limit: limit})); got != want {
			e.failf("peek at 3 messages with limit %d: got %d, want %d", limit, got, want)
		}
	}
	e.sendOne(q, driver.Outgoing{Body: []byte("d"), Attributes: map[string]string{"k": "v"}})
	e.expectPeek(q, driver.Query{Attributes: map[string]string{"k": "v"}, Limit: 1}, "d") // the limit counts matches
}

func peekConditionsAddUp(e *env, q driver.Queue) {
	attributes := map[string]string{"k": "v"}
	id := e.sendOne(q, driver.Outgoing{Body: []byte("ready"), Attributes: attributes}).ID
	e.sendOne(q, driver.Outgoing{Body: []byte("delayed"), Attributes: attributes, Delay: e.hold})
	e.send(q, "other")
	ready := []driver.State{driver.StateReady}
	e.expectPeek(q, driver.Query{States: ready, Attributes: attributes}, "ready")
	e.expectPeek(q, driver.Query{States: ready, Attributes: attributes, ID: id}, "ready")
	e.expectPeek(q, driver.Query{States: []driver.State{driver.StateDelayed}, ID: id})
	e.expectPeek(q, driver.Query{ID: id, Attributes: map[string]string{"k": "w"}})
	if !maps.Equal(attributes, map[string]string{"k": "v"}) {
		e.failf("peek changed the caller's query: %q", attributes)
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

func peekFollowsTheClock(e *env, q driver.Queue) {
	e.sendLater(q, e.tick, "delayed")
	e.send(q, "expired")
	e.receiveFor(q, 1, e.tick)
	e.sleep(e.tick)
	for _, seen := range e.expectPeek(q, driver.Query{}, "delayed", "expired") {
		if seen.State != driver.StateReady {
			e.failf("peek at a message that is due: got state %q, want %q", seen.State, driver.StateReady)
		}
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
