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
	{id: "CNT-2", title: "looking shows messages in every state", needs: []need{needPeek}, run: peekShowsEveryState},
	{id: "CNT-2", title: "looking shows the whole message", needs: []need{needPeek}, run: peekShowsWholeMessage},
	{id: "CNT-2", title: "looking changes nothing", needs: []need{needPeek}, run: peekChangesNothing},
	{id: "CNT-2", title: "ready messages are seen in the order of delivery", needs: []need{needPeek, needFIFO}, run: peekIsInOrder},
	{id: "CNT-2", title: "search by state", needs: []need{needPeek}, run: peekByState},
	{id: "CNT-2", title: "search by id", needs: []need{needPeek}, run: peekByID},
	{id: "CNT-2", title: "search by attributes", needs: []need{needPeek}, run: peekByAttributes},
	{id: "CNT-2", title: "search by age", needs: []need{needPeek}, run: peekByAge},
	{id: "CNT-2", title: "search by reason of death finds only dead letters", needs: []need{needPeek, needDeadLetters}, run: peekByReason},
	{id: "CNT-2", title: "a limit bounds what is seen", needs: []need{needPeek}, run: peekWithLimit},
	{id: "CNT-2", title: "conditions add up", needs: []need{needPeek}, run: peekConditionsAddUp},
	{id: "CNT-2", title: "looking can stop early and does not block others meanwhile", needs: []need{needPeek}, run: peekBlocksNobody},
	{id: "CNT-2", title: "looking that is cancelled ends with the context's error, not as if it were all", needs: []need{needPeek}, run: cancelledPeekSaysSo},
	{id: "CNT-2", title: "looking follows the clock although nobody sweeps", needs: []need{needPeek}, run: peekFollowsTheClock},
	{id: "CNT-2", title: "a query that makes no sense is refused", needs: []need{needPeek}, run: badQueryIsRefused},
}

// peek looks into a queue.
func (s *session) peek(q driver.Queue, query driver.Query) []driver.Peeked {
	s.t.Helper()
	var seen []driver.Peeked
	for message, err := range q.Peek(s.ctx(), query) {
		s.ok(err, "peek %+v", query)
		seen = append(seen, message)
	}
	return seen
}

// peekOne looks at one message.
func (s *session) peekOne(q driver.Queue, id string) driver.Peeked {
	s.t.Helper()
	seen := s.peek(q, driver.Query{ID: id})
	if len(seen) != 1 {
		s.failf("peek by id: got %d messages, want 1", len(seen))
	}
	return seen[0]
}

// expectPeek looks into a queue and checks what there is to see.
func (s *session) expectPeek(q driver.Queue, query driver.Query, want ...string) []driver.Peeked {
	s.t.Helper()
	seen := s.peek(q, query)
	got := make([]string, len(seen))
	for i, message := range seen {
		got[i] = brief(message.Body)
	}
	if q.Traits().Ordering == driver.OrderingNone {
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) {
		s.failf("peek %+v: got %q, want %q", query, got, want)
	}
	return seen
}

// fourStates puts a message into each state the queue has, called after it,
// and two into the ready state.
func (s *session) fourStates(q driver.Queue) {
	s.t.Helper()
	if q.Traits().DeadLetters {
		s.kill(q, "dead")
	}
	s.send(q, "in flight")
	s.receive(q, 1)
	s.send(q, "ready 1", "ready 2")
	s.sendLater(q, s.hold, "delayed")
}

func peekShowsEveryState(s *session, q driver.Queue) {
	s.fourStates(q)
	want := []string{"ready 1", "ready 2", "delayed", "in flight"}
	states := []driver.State{driver.StateReady, driver.StateReady, driver.StateDelayed, driver.StateInFlight}
	if q.Traits().DeadLetters {
		want, states = append(want, "dead"), append(states, driver.StateDead)
	}
	for i, seen := range s.expectPeek(q, driver.Query{}, want...) {
		if q.Traits().Ordering != driver.OrderingNone && seen.State != states[i] {
			s.failf("peek at %q: got state %q, want %q", seen.Body, seen.State, states[i])
		}
		if isDead := seen.State == driver.StateDead; isDead == seen.DeadAt.IsZero() || isDead == (seen.Reason == "") || isDead == (seen.Source == "") {
			s.failf("peek at a message that is %s: got DeadAt %v, reason %q, source %q; want them for dead ones only",
				seen.State, seen.DeadAt, seen.Reason, seen.Source)
		}
		if waits := seen.State == driver.StateDelayed || seen.State == driver.StateInFlight; waits == seen.DueAt.IsZero() {
			s.failf("peek at a message that is %s: got DueAt %v; want it for delayed ones and those in flight", seen.State, seen.DueAt)
		}
	}
}

func peekShowsWholeMessage(s *session, q driver.Queue) {
	msg := doomed(q)
	id := s.sendOne(q, msg).ID
	ready := s.peekOne(q, id)
	s.expectMessage(ready.Message, msg, id, 0)
	if !ready.FirstReceivedAt.IsZero() {
		s.failf("peek at a message that was never delivered: got FirstReceivedAt %v", ready.FirstReceivedAt)
	}
	start := time.Now()
	held := s.receive(q, 1)[0]
	out := s.peekOne(q, id)
	s.expectMessage(out.Message, msg, id, 1)
	if !out.EnqueuedAt.Equal(held.EnqueuedAt) || !out.FirstReceivedAt.Equal(held.FirstReceivedAt) {
		s.failf("peek at a message in flight: got enqueued %v, first received %v; its delivery said %v and %v",
			out.EnqueuedAt, out.FirstReceivedAt, held.EnqueuedAt, held.FirstReceivedAt)
	}
	if off := out.DueAt.Sub(start.Add(s.hold)).Abs(); s.backend.Virtual && off > promptness {
		s.failf("peek at a message in flight: got DueAt %v, %v off", out.DueAt, off)
	}
	s.nack(q, held, s.hold, "why")
	if nacked := s.peekOne(q, id); nacked.LastError != "why" || nacked.State != driver.StateDelayed {
		s.failf("peek at a nacked message: got state %q, last error %q; want %q and its cause", nacked.State, nacked.LastError, driver.StateDelayed)
	}
}

func peekChangesNothing(s *session, q driver.Queue) {
	s.send(q, "in flight")
	held := s.receive(q, 1)[0]
	s.send(q, "ready")
	for range 5 {
		s.peek(q, driver.Query{})
	}
	s.expectStats(q, driver.Stats{Ready: 1, InFlight: 1})
	got := s.expectNext(q, "ready")[0]
	if got.Deliveries != 1 {
		s.failf("first delivery of a message that was looked at: got Deliveries %d, want 1", got.Deliveries)
	}
	s.ack(q, held, got)
	s.expectEmpty(q)
}

func peekIsInOrder(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c", "d", "e", "f")
	held := s.receive(q, 5)
	s.nack(q, held[0], 0, "")              // to the tail
	s.expire(q, held[4], held[1], held[2]) // each to its place
	s.send(q, "g")
	want := []string{"b", "c", "e", "f", "a", "g"}
	s.expectPeek(q, driver.Query{States: []driver.State{driver.StateReady}}, want...)
	s.expectNext(q, want...)
}

func peekByState(s *session, q driver.Queue) {
	s.fourStates(q)
	in := func(states ...driver.State) driver.Query { return driver.Query{States: states} }
	s.expectPeek(q, in(driver.StateReady), "ready 1", "ready 2")
	s.expectPeek(q, in(driver.StateDelayed), "delayed")
	s.expectPeek(q, in(driver.StateInFlight), "in flight")
	s.expectPeek(q, in(driver.StateInFlight, driver.StateDelayed), "delayed", "in flight")
	if q.Traits().DeadLetters {
		s.expectPeek(q, in(driver.StateDead), "dead")
	}
}

func peekByID(s *session, q driver.Queue) {
	s.fourStates(q)
	for _, seen := range s.peek(q, driver.Query{}) {
		s.expectPeek(q, driver.Query{ID: seen.ID}, string(seen.Body))
	}
	s.expectPeek(q, driver.Query{ID: "01J00000000000000000000000"})
	s.expectPeek(q, driver.Query{ID: "nonsense"})
}

func peekByAttributes(s *session, q driver.Queue) {
	for body, attributes := range map[string]map[string]string{
		"red":        {"colour": "red"},
		"red, large": {"colour": "red", "size": "large"},
		"blue":       {"colour": "blue", "size": "large"},
		"none":       nil,
	} {
		s.sendOne(q, driver.Outgoing{Body: []byte(body), Attributes: attributes})
	}
	find := func(attributes map[string]string, want ...string) {
		var got []string
		for _, seen := range s.peek(q, driver.Query{Attributes: attributes}) {
			got = append(got, string(seen.Body))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			s.failf("peek by attributes %q: got %q, want %q", attributes, got, want)
		}
	}
	find(map[string]string{"colour": "red"}, "red", "red, large")
	find(map[string]string{"colour": "red", "size": "large"}, "red, large")
	find(map[string]string{"size": "large"}, "blue", "red, large")
	find(map[string]string{"colour": "RED"})
	find(map[string]string{"colour": ""})
	find(map[string]string{"weight": "heavy"})
}

func peekByAge(s *session, q driver.Queue) {
	s.send(q, "old")
	s.sleep(s.tick)
	sent := time.Now()
	s.send(q, "young")
	seen := s.peek(q, driver.Query{OlderThan: s.tick})
	if !s.backend.Virtual && time.Since(sent) >= s.tick-s.slack {
		s.t.Skip("the machine is too slow: no message is young any more")
	}
	if len(seen) != 1 || string(seen[0].Body) != "old" {
		s.failf("peek at messages older than %v: got %d, want only the old one", s.tick, len(seen))
	}
	s.expectPeek(q, driver.Query{OlderThan: time.Hour})
}

func peekByReason(s *session, q driver.Queue) {
	s.send(q, "ready")
	held := s.receive(q, 1)
	for _, reason := range []driver.Reason{driver.ReasonFatal, driver.ReasonParse, driver.ReasonFatal} {
		s.send(q, string(reason))
		s.bury(q, s.receive(q, 1)[0], reason)
	}
	s.expire(q, held...)
	s.expectPeek(q, driver.Query{Reason: driver.ReasonFatal}, "fatal", "fatal")
	s.expectPeek(q, driver.Query{Reason: driver.ReasonParse}, "parse")
	s.expectPeek(q, driver.Query{Reason: driver.ReasonOperator})
	s.expectPeek(q, driver.Query{Reason: driver.ReasonFatal, States: []driver.State{driver.StateReady}})
}

func peekWithLimit(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	for limit, want := range map[int]int{0: 3, 1: 1, 2: 2, 3: 3, 4: 3} {
		if got := len(s.peek(q, driver.Query{Limit: limit})); got != want {
			s.failf("peek at 3 messages with limit %d: got %d, want %d", limit, got, want)
		}
	}
	s.sendOne(q, driver.Outgoing{Body: []byte("d"), Attributes: map[string]string{"k": "v"}})
	s.expectPeek(q, driver.Query{Attributes: map[string]string{"k": "v"}, Limit: 1}, "d") // what matches is counted, not what is seen
}

func peekConditionsAddUp(s *session, q driver.Queue) {
	attributes := map[string]string{"k": "v"}
	id := s.sendOne(q, driver.Outgoing{Body: []byte("ready"), Attributes: attributes}).ID
	s.sendOne(q, driver.Outgoing{Body: []byte("delayed"), Attributes: attributes, Delay: s.hold})
	s.send(q, "other")
	ready := []driver.State{driver.StateReady}
	s.expectPeek(q, driver.Query{States: ready, Attributes: attributes}, "ready")
	s.expectPeek(q, driver.Query{States: ready, Attributes: attributes, ID: id}, "ready")
	s.expectPeek(q, driver.Query{States: []driver.State{driver.StateDelayed}, ID: id})
	s.expectPeek(q, driver.Query{ID: id, Attributes: map[string]string{"k": "w"}})
	if !maps.Equal(attributes, map[string]string{"k": "v"}) {
		s.failf("peek changed the caller's query: %q", attributes)
	}
}

func peekBlocksNobody(s *session, q driver.Queue) {
	s.send(q, numbered("m", 50)...)
	seen := 0
	for _, err := range q.Peek(s.ctx(), driver.Query{}) {
		s.ok(err, "peek")
		s.expectUnblocked("receive and ack while somebody looks", func() error {
			got, err := s.poll(q, driver.ReceiveRequest{Max: 1, Visibility: s.hold})
			if err != nil {
				return err
			}
			return q.Ack(s.ctx(), receipts(got))
		})
		if seen++; seen == 10 {
			break
		}
	}
	s.expectStats(q, driver.Stats{Ready: 40})
}

func cancelledPeekSaysSo(s *session, q driver.Queue) {
	s.send(q, numbered("m", 50)...)
	ctx, cancel := s.cancellable()
	s.expectAllOrCancelled(countUntilCancelled(q.Peek(ctx, driver.Query{}), cancel))
	if q.Traits().DeadLetters {
		for _, d := range s.receive(q, 50) {
			s.bury(q, d, driver.ReasonFatal)
		}
		ctx, cancel := s.cancellable()
		s.expectAllOrCancelled(countUntilCancelled(q.DeadLetters(ctx), cancel))
	}
}

// countUntilCancelled cancels at the first element and counts how many come.
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

func (s *session) expectAllOrCancelled(seen int, err error) {
	s.t.Helper()
	if err != nil {
		s.expectContextError(err, context.Canceled, "a sequence that is cancelled")
	} else if seen != 50 {
		s.failf("a sequence that is cancelled ended after %d elements of 50 without an error", seen)
	}
}

func peekFollowsTheClock(s *session, q driver.Queue) {
	s.sendLater(q, s.tick, "delayed")
	s.send(q, "expired")
	s.receiveFor(q, 1, s.tick)
	s.sleep(s.tick)
	for _, seen := range s.expectPeek(q, driver.Query{}, "delayed", "expired") {
		if seen.State != driver.StateReady {
			s.failf("peek at a message that is due: got state %q, want %q", seen.State, driver.StateReady)
		}
	}
}

func badQueryIsRefused(s *session, q driver.Queue) {
	for what, query := range map[string]driver.Query{
		"an unknown state":   {States: []driver.State{"limbo"}},
		"an unknown reason":  {Reason: "boredom"},
		"a negative limit":   {Limit: -1},
		"a negative minimum": {OlderThan: -time.Second},
	} {
		err := sequenceError(q.Peek(s.ctx(), query))
		s.expectInvalid(err, driver.ErrInvalid, "", "peek with "+what)
	}
}
