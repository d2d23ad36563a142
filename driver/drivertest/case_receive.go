package drivertest

import (
	"context"
	"maps"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var receiveCases = []testCase{
	{id: "RCV-1", title: "a receive takes at most Max messages, and all that are ready if there are fewer", run: receiveTakesAtMostMax},
	{id: "RCV-1", title: "a Max above the largest batch is clamped", run: receiveClampsMax},
	{
		id: "RCV-1", title: "a receive takes what fits into MaxBytes, in order",
		config: always(driver.Config{}), needs: []need{needFIFO}, run: receiveFitsMaxBytes,
	},
	{id: "RCV-1", title: "a receive takes one message even if it is over MaxBytes", run: receiveTakesOneOverMaxBytes},
	{
		id: "RCV-1", title: "no more than MaxInFlight messages are out at once",
		config: always(driver.Config{MaxInFlight: 2}), run: inFlightCeilingHolds,
	},
	{
		id: "RCV-1", title: "the in-flight ceiling is not reached by an empty queue",
		config: always(driver.Config{MaxInFlight: 2}), run: inFlightCeilingNeedsMessages,
	},
	{
		id: "RCV-1", title: "a lease that ends makes room under the in-flight ceiling",
		config: always(driver.Config{MaxInFlight: 1}), run: inFlightCeilingMakesRoom,
	},
	{
		id: "RCV-1", title: "raising the in-flight ceiling wakes a receiver that waits under it",
		config: always(driver.Config{MaxInFlight: 1}), run: raisedCeilingWakes,
	},

	{id: "RCV-2", title: "a receive that does not wait gets what is ready", run: receiveWithoutWaiting},
	{id: "RCV-2", title: "a receive on an empty queue is empty after its wait, not before, and not an error", run: emptyReceiveWaits},
	{id: "RCV-2", title: "a receive that does not wait is empty at once", run: emptyReceiveReturnsAtOnce},
	{id: "RCV-2", title: "a receive does not wait for a full batch", run: receiveDoesNotWaitForMore},

	{id: "RCV-3", title: "a delivery carries everything that was sent", run: deliveryIsComplete},
	{id: "RCV-3", title: "what was not sent is empty", run: deliveryOfBareMessage},
	{id: "RCV-3", title: "the delivery count starts at one and grows by one", run: deliveriesAreCounted},
	{id: "RCV-3", title: "enqueue and first delivery have their true times, in UTC", run: deliveryTimesAreTrue},
	{id: "RCV-3", title: "the last error is the cause of the latest nack", run: lastErrorIsKept},
}

func receiveTakesAtMostMax(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c", "d", "e")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 3, Visibility: s.hold})
	if len(got) > 3 || q.Traits().ExactStats && len(got) != 3 {
		s.failf("receive of 5 ready messages with Max 3: got %d", len(got))
	}
	more := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold})
	if q.Traits().ExactStats && len(more) != 2 {
		s.failf("receive of 2 ready messages with Max 10: got %d", len(more))
	}
}

func receiveClampsMax(s *session, q driver.Queue) {
	const affordable = 5000
	largest := q.Traits().MaxBatch
	if largest > affordable {
		s.t.Logf("not tried with a batch of %d", largest)
		return
	}
	texts := make([]string, largest+5)
	for i := range texts {
		texts[i] = "x"
	}
	s.send(q, texts...)
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: largest + 100, Visibility: s.hold})
	if len(got) > largest || q.Traits().ExactStats && len(got) != largest {
		s.failf("receive of %d ready messages with Max %d: got %d, want %d", len(texts), largest+100, len(got), largest)
	}
	s.receive(q, len(texts)-len(got))
}

func receiveFitsMaxBytes(s *session, q driver.Queue) {
	s.send(q, "1234567890", "1234567890", "1234567890", "12")
	for _, try := range []struct{ maxBytes, want int }{
		{20, 2}, {19, 1}, {29, 2}, {30, 3}, {31, 3}, {32, 4}, {0, 4}, {11, 1},
	} {
		got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, MaxBytes: try.maxBytes, Visibility: s.hold})
		if len(got) != try.want {
			s.failf("receive of 10, 10, 10 and 2 bytes with MaxBytes %d: got %d messages, want %d", try.maxBytes, len(got), try.want)
		}
		s.expire(q, got...)
	}
	s.expectStats(q, driver.Stats{Ready: 4})
}

func receiveTakesOneOverMaxBytes(s *session, q driver.Queue) {
	s.send(q, "much too long", "much too long")
	for range 2 {
		got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, MaxBytes: 1, Visibility: s.hold})
		if len(got) != 1 {
			s.failf("receive with MaxBytes 1: got %d messages, want 1", len(got))
		}
	}
}

func inFlightCeilingHolds(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold})
	if len(got) != 2 {
		s.failf("receive of 3 ready messages with MaxInFlight 2: got %d, want 2", len(got))
	}
	start := time.Now()
	_, err := q.Receive(s.ctx(), driver.ReceiveRequest{Max: 10, Visibility: s.hold, Wait: s.tick})
	s.expectFull(err, "receive with the in-flight ceiling reached")
	s.expectTime(time.Now(), start.Add(s.tick), "the refusal, after the wait")
	s.expectStats(q, driver.Stats{Ready: 1, InFlight: 2})
	s.ack(q, got[0])
	s.receive(q, 1)
}

func inFlightCeilingNeedsMessages(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.receive(q, 2)
	s.expectNothing(q) // nothing is kept back, so nothing is full
	s.sendLater(q, s.hold, "later")
	s.expectNothing(q)
}

func inFlightCeilingMakesRoom(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c", "d")
	for _, end := range []struct {
		how string
		do  func(d driver.Delivery)
	}{
		{"an ack", func(d driver.Delivery) { s.ack(q, d) }},
		{"a nack", func(d driver.Delivery) { s.nack(q, d, 0, "") }},
		{"an extend to zero", func(d driver.Delivery) { s.expire(q, d) }},
		{"a dead letter", func(d driver.Delivery) {
			if q.Traits().DeadLetters {
				s.bury(q, d, driver.ReasonFatal)
			} else {
				s.ack(q, d)
			}
		}},
	} {
		held := s.receive(q, 1)[0]
		waiting := s.receiveInBackground(s.ctx(), q, 1)
		end.do(held)
		got := s.await(waiting, end.how+" under the in-flight ceiling")
		s.ok(got.err, "the receive that waited for %s", end.how)
		if len(got.deliveries) != 1 {
			s.failf("the receive that waited for %s: got %d messages, want 1", end.how, len(got.deliveries))
		}
		s.expire(q, got.deliveries...)
	}
}

func raisedCeilingWakes(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	s.expectNext(q, "a")
	waiting := s.receiveInBackground(s.ctx(), q, 1)
	if s.reconfigure(driver.Config{MaxInFlight: 2}) {
		s.expectHandedTo(waiting, "b", "a higher ceiling")
	}
}

func receiveWithoutWaiting(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	got := s.receiveOnce(q, driver.ReceiveRequest{Max: 10, Visibility: s.hold})
	if len(got) == 0 || q.Traits().ExactStats && len(got) != 2 {
		s.failf("receive without waiting: got %d messages of 2 that are ready", len(got))
	}
}

func emptyReceiveWaits(s *session, q driver.Queue) {
	wait := s.waitUpTo(q, s.tick)
	start := time.Now()
	got, err := q.Receive(s.ctx(), driver.ReceiveRequest{Max: 1, Visibility: s.hold, Wait: wait})
	s.ok(err, "receive on an empty queue")
	if len(got) != 0 {
		s.failf("receive on an empty queue: got %q", bodies(got))
	}
	s.expectTime(time.Now(), start.Add(wait), "the empty answer")
}

func emptyReceiveReturnsAtOnce(s *session, q driver.Queue) {
	start := time.Now()
	s.expectNothing(q)
	s.expectPrompt(start, "receive on an empty queue without waiting")
}

func receiveDoesNotWaitForMore(s *session, q driver.Queue) {
	s.send(q, "alone")
	start := time.Now()
	got, err := q.Receive(s.ctx(), driver.ReceiveRequest{Max: 10, Visibility: s.hold, Wait: s.waitUpTo(q, 2*s.patience)})
	s.ok(err, "receive")
	s.expectBodies(q, got, "alone")
	s.expectPrompt(start, "receive of one message with Max 10 and a long wait")
}

func deliveryIsComplete(s *session, q driver.Queue) {
	msg := driver.Outgoing{
		Body:          []byte("body"),
		Attributes:    map[string]string{"k": "v"},
		ReplyTo:       "reply:01J0000000000000000000000Z",
		CorrelationID: "corr-ä-1",
	}
	if q.Traits().Groups {
		msg.Group = "group-ß"
	}
	id := s.sendOne(q, msg).ID
	for deliveries := 1; deliveries <= 2; deliveries++ {
		got := s.receive(q, 1)[0]
		s.expectMessage(got.Message, msg, id, deliveries)
		if got.Receipt.IsZero() {
			s.failf("delivery: the receipt is zero")
		}
		s.expire(q, got)
	}
}

// expectMessage checks that a message is what was sent.
func (s *session) expectMessage(got driver.Message, sent driver.Outgoing, id string, deliveries int) {
	s.t.Helper()
	if got.ID != id || string(got.Body) != string(sent.Body) || !maps.Equal(got.Attributes, sent.Attributes) ||
		got.Group != sent.Group || got.ReplyTo != sent.ReplyTo || got.CorrelationID != sent.CorrelationID ||
		got.Deliveries != deliveries {
		s.failf("got message %+v, want id %s, %d deliveries, and what was sent: %+v", got, id, deliveries, sent)
	}
}

func deliveryOfBareMessage(s *session, q driver.Queue) {
	id := s.sendOne(q, driver.Outgoing{}).ID
	got := s.receive(q, 1)[0]
	s.expectMessage(got.Message, driver.Outgoing{}, id, 1)
	if got.LastError != "" {
		s.failf("delivery of a message that was never nacked: got LastError %q", got.LastError)
	}
}

func deliveriesAreCounted(s *session, q driver.Queue) {
	s.send(q, "a")
	again := []func(d driver.Delivery){
		func(d driver.Delivery) { s.expire(q, d) },
		func(d driver.Delivery) { s.nack(q, d, 0, "") },
		func(d driver.Delivery) { s.expire(q, d) },
	}
	for i, giveBack := range again {
		got := s.receive(q, 1)[0]
		if got.Deliveries != i+1 {
			s.failf("delivery %d: got Deliveries %d", i+1, got.Deliveries)
		}
		giveBack(got)
	}
}

func deliveryTimesAreTrue(s *session, q driver.Queue) {
	sent := time.Now()
	s.send(q, "a")
	s.sleep(s.tick)
	first := s.receive(q, 1)[0]
	received := time.Now()
	s.expire(q, first)
	s.sleep(s.tick)
	second := s.receive(q, 1)[0]

	// Wall clocks of two machines may be two minutes apart.
	tolerance := 2 * time.Minute
	if s.backend.Virtual {
		tolerance = promptness
	}
	if off := first.EnqueuedAt.Sub(sent).Abs(); off > tolerance {
		s.failf("EnqueuedAt: got %v, %v off", first.EnqueuedAt, off)
	}
	if off := first.FirstReceivedAt.Sub(received).Abs(); off > tolerance {
		s.failf("FirstReceivedAt: got %v, %v off", first.FirstReceivedAt, off)
	}
	if waited := first.FirstReceivedAt.Sub(first.EnqueuedAt); waited < s.tick-s.slack {
		s.failf("FirstReceivedAt is %v after EnqueuedAt, want at least %v", waited, s.tick)
	}
	if !second.EnqueuedAt.Equal(first.EnqueuedAt) || !second.FirstReceivedAt.Equal(first.FirstReceivedAt) {
		s.failf("second delivery: got enqueued %v, first received %v; the first delivery said %v and %v",
			second.EnqueuedAt, second.FirstReceivedAt, first.EnqueuedAt, first.FirstReceivedAt)
	}
	for _, at := range []time.Time{first.EnqueuedAt, first.FirstReceivedAt, second.EnqueuedAt, second.FirstReceivedAt} {
		if _, offset := at.Zone(); offset != 0 {
			s.failf("times are UTC: got %v", at)
		}
	}
}

func lastErrorIsKept(s *session, q driver.Queue) {
	s.send(q, "a")
	s.nack(q, s.receive(q, 1)[0], 0, "first cause")
	got := s.receive(q, 1)[0]
	if got.LastError != "first cause" {
		s.failf("delivery after a nack: got LastError %q, want %q", got.LastError, "first cause")
	}
	s.expire(q, got)
	got = s.receive(q, 1)[0]
	if got.LastError != "first cause" {
		s.failf("delivery after a nack and an expiry: got LastError %q, want %q", got.LastError, "first cause")
	}
	s.nack(q, got, 0, "zweite Ursache ✗")
	if got = s.receive(q, 1)[0]; got.LastError != "zweite Ursache ✗" {
		s.failf("delivery after a second nack: got LastError %q, want its cause", got.LastError)
	}
}

// cancellable is a context that ends with the case at the latest.
func (s *session) cancellable() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(s.ctx())
	s.t.Cleanup(cancel)
	return ctx, cancel
}
