package drivertest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailboxmq/mailbox/driver"
)

var settleCases = []testCase{
	{id: "ACK-1", title: "ack removes a message for ever", run: ackIsForEver},
	{id: "ACK-1", title: "ack of one message leaves the others", run: ackLeavesOthers},
	{id: "ACK-1", title: "a nack makes a message ready again at once", run: nackMakesReady},
	{id: "ACK-1", title: "a nack with a delay makes a message ready when the delay is over, not before", run: nackWithDelay},
	{id: "ACK-1", title: "the longest delay of a nack is honoured", run: longestNackDelay},
	{id: "ACK-1", title: "a cause that is too long is cut, not refused", run: longCauseIsCut},
	{id: "ACK-1", title: "a second settlement of one delivery fails", run: settlingTwiceFails},
	{id: "ACK-1", title: "thousands of messages in flight can be settled in any order", run: manySettleInAnyOrder},

	{id: "ACK-2", title: "a batch ack keeps the positions of what failed", run: ackKeepsPositions},
	{id: "ACK-2", title: "a batch nack keeps the positions of what failed", run: nackKeepsPositions},
	{id: "ACK-2", title: "a batch extend keeps the positions of what failed", run: extendKeepsPositions},
	{id: "ACK-2", title: "one receipt twice in a batch settles once", run: receiptTwiceInBatch},
	{id: "ACK-2", title: "empty batches do nothing", run: emptyBatchesDoNothing},
	{id: "ACK-2", title: "a batch settles what several receives handed out", run: batchAcrossReceives},

	{id: "ACK-3", title: "a failed settlement is an error with a code, a position and a text", run: failuresAreErrors},
}

func ackIsForEver(s *session, q driver.Queue) {
	s.send(q, "a")
	s.ack(q, s.receiveFor(q, 1, s.hold)...)
	s.expectEmpty(q)
	if s.backend.Virtual {
		s.sleep(2 * s.hold) // longer than the lease would have been
		s.expectEmpty(q)
	}
}

func ackLeavesOthers(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	held := s.expectBodies(q, s.receive(q, 3), "a", "b", "c")
	s.ack(q, held[1])
	s.expectStats(q, driver.Stats{InFlight: 2})
	s.expire(q, held[0], held[2])
	s.expectNext(q, "a", "c")
}

func nackMakesReady(s *session, q driver.Queue) {
	id := s.send(q, "a")[0]
	s.nack(q, s.receive(q, 1)[0], 0, "not today")
	s.expectStats(q, driver.Stats{Ready: 1})
	got := s.expectNext(q, "a")[0]
	if got.ID != id || got.Deliveries != 2 || got.LastError != "not today" {
		s.failf("delivery after a nack: got id %s, Deliveries %d, LastError %q; want %s, 2 and the cause",
			got.ID, got.Deliveries, got.LastError, id)
	}
}

func nackWithDelay(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	start := time.Now()
	s.nack(q, held, s.tick, "later")
	got := s.expectArrival(q, start.Add(s.tick), "a")[0]
	if got.Deliveries != 2 || got.LastError != "later" {
		s.failf("delivery after a nack: got Deliveries %d, LastError %q; want 2 and the cause", got.Deliveries, got.LastError)
	}
	s.nack(q, got, s.hold, "much later")
	s.expectStats(q, driver.Stats{Delayed: 1})
	s.expectNothing(q)
}

func longestNackDelay(s *session, q driver.Queue) {
	longest := q.Traits().MaxVisibility
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	start := time.Now()
	s.nack(q, held, longest, "")
	s.expectNothing(q)
	if s.backend.Virtual {
		s.expectArrival(q, start.Add(longest), "a")
	}
}

func longCauseIsCut(s *session, q driver.Queue) {
	s.send(q, "a")
	cause := strings.Repeat("漢", driver.MaxCauseBytes) // too long, and the limit is inside a character
	s.nack(q, s.receive(q, 1)[0], 0, cause)
	got := s.receive(q, 1)[0].LastError
	if got != driver.TrimCause(cause) {
		s.failf("LastError of a cause of %d bytes: got %d bytes, valid UTF-8 %v; want its first %d",
			len(cause), len(got), utf8.ValidString(got), driver.MaxCauseBytes)
	}
}

func settlingTwiceFails(s *session, _ driver.Queue) {
	settle := map[string]func(q driver.Queue, d driver.Delivery) error{
		"ack":               func(q driver.Queue, d driver.Delivery) error { return tryAck(s, q, d) },
		"nack":              func(q driver.Queue, d driver.Delivery) error { return tryNack(s, q, d, 0, "") },
		"nack with a delay": func(q driver.Queue, d driver.Delivery) error { return tryNack(s, q, d, s.hold, "") },
		"extend to zero":    func(q driver.Queue, d driver.Delivery) error { return tryExtend(s, q, d, 0) },
		"extend":            func(q driver.Queue, d driver.Delivery) error { return tryExtend(s, q, d, s.hold) },
	}
	for first, after := range map[string]driver.Stats{
		"ack":               {},
		"nack":              {Ready: 1},
		"nack with a delay": {Delayed: 1},
		"extend to zero":    {Ready: 1},
	} {
		for second := range settle {
			q := s.open(second + " after " + first)
			s.send(q, "a")
			held := s.receive(q, 1)[0]
			s.ok(settle[first](q, held), "%s", first)
			s.expectCode(settle[second](q, held), driver.ErrReceiptExpired, "%s after %s", second, first)
			s.expectStats(q, after)
		}
	}
}

func manySettleInAnyOrder(s *session, q driver.Queue) {
	messages := s.rounds(5000, 500)
	s.send(q, numbered("m", messages)...)
	held := s.receive(q, messages)
	rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	third := messages / 3
	s.ack(q, held[:third]...)
	for _, d := range held[third : 2*third] {
		s.expire(q, d)
	}
	s.expectStats(q, driver.Stats{Ready: third, InFlight: messages - 2*third})
	s.ack(q, held[2*third:]...)
	back := held[third : 2*third]
	slices.SortFunc(back, func(a, b driver.Delivery) int { return strings.Compare(string(a.Body), string(b.Body)) })
	if q.Traits().Ordering == driver.OrderingFIFO {
		s.expectNext(q, bodies(back)...)
	} else {
		s.receive(q, third)
	}
	s.expectStats(q, driver.Stats{InFlight: third})
}

// someExpired sends five messages, leases them, and lets the second and the
// fourth slip away.
func (s *session) someExpired(q driver.Queue) []driver.Delivery {
	s.t.Helper()
	s.send(q, "a", "b", "c", "d", "e")
	held := s.expectBodies(q, s.receive(q, 5), "a", "b", "c", "d", "e")
	s.expire(q, held[1], held[3])
	return held
}

var oddExpired = []driver.Code{fine, driver.ErrReceiptExpired, fine, driver.ErrReceiptExpired, fine}

func ackKeepsPositions(s *session, q driver.Queue) {
	held := s.someExpired(q)
	err := q.Ack(s.ctx(), receipts(held))
	s.expectPositions(err, "ack of five receipts, two of them expired", oddExpired...)
	s.expectStats(q, driver.Stats{Ready: 2})
	s.expectNext(q, "b", "d")
}

func nackKeepsPositions(s *session, q driver.Queue) {
	held := s.someExpired(q)
	nacks := make([]driver.Nack, len(held))
	for i, d := range held {
		nacks[i] = driver.Nack{Receipt: d.Receipt, Cause: "nacked " + string(d.Body)}
	}
	nacks[0].Delay = -time.Second
	nacks[4].Delay = s.hold
	err := q.Nack(s.ctx(), nacks)
	s.expectPositions(err, "nack of five receipts, two of them expired and one with a bad delay",
		driver.ErrInvalid, driver.ErrReceiptExpired, fine, driver.ErrReceiptExpired, fine)
	s.expectStats(q, driver.Stats{Ready: 3, Delayed: 1, InFlight: 1})
	for _, d := range s.expectNext(q, "b", "d", "c") {
		if nacked := d.LastError != ""; nacked != (string(d.Body) == "c") {
			s.failf("delivery of %q: got LastError %q, but only c was nacked", d.Body, d.LastError)
		}
	}
	s.ack(q, held[0]) // its nack was invalid, so it is still leased
}

func extendKeepsPositions(s *session, q driver.Queue) {
	held := s.someExpired(q)
	extensions := make([]driver.Extension, len(held))
	for i, d := range held {
		extensions[i] = driver.Extension{Receipt: d.Receipt, Visibility: s.hold}
	}
	extensions[0].Visibility = q.Traits().MaxVisibility + 1
	extensions[4].Visibility = 0
	granted, err := q.Extend(s.ctx(), extensions)
	s.expectPositions(err, "extend of five receipts, two of them expired and one with a bad visibility",
		driver.ErrInvalid, driver.ErrReceiptExpired, fine, driver.ErrReceiptExpired, fine)
	if want := []time.Duration{0, 0, s.hold, 0, 0}; !slices.Equal(granted, want) {
		s.failf("extend of five receipts, two of them expired and one with a bad visibility: granted %v, want %v", granted, want)
	}
	s.expectStats(q, driver.Stats{Ready: 3, InFlight: 2})
	s.expectNext(q, "b", "d", "e")
	s.ack(q, held[0], held[2])
}

func receiptTwiceInBatch(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	held := s.expectBodies(q, s.receive(q, 2), "a", "b")
	err := q.Ack(s.ctx(), []driver.Receipt{held[0].Receipt, held[1].Receipt, held[0].Receipt})
	s.expectPositions(err, "ack of one receipt twice", fine, fine, driver.ErrReceiptExpired)
	s.expectEmpty(q)

	s.send(q, "c")
	held = s.receive(q, 1)
	err = q.Nack(s.ctx(), []driver.Nack{{Receipt: held[0].Receipt, Cause: "first"}, {Receipt: held[0].Receipt, Cause: "second"}})
	s.expectPositions(err, "nack of one receipt twice", fine, driver.ErrReceiptExpired)
	if got := s.expectNext(q, "c")[0]; got.LastError != "first" {
		s.failf("nack of one receipt twice: got LastError %q, want that of the first", got.LastError)
	}
}

func emptyBatchesDoNothing(s *session, q driver.Queue) {
	s.send(q, "a")
	s.receive(q, 1)
	s.ok(q.Ack(s.ctx(), nil), "ack of nothing")
	s.ok(q.Ack(s.ctx(), []driver.Receipt{}), "ack of nothing")
	s.ok(q.Nack(s.ctx(), nil), "nack of nothing")
	s.ok(extended(q.Extend(s.ctx(), nil)), "extend of nothing")
	if q.Traits().DeadLetters {
		s.ok(q.DeadLetter(s.ctx(), nil), "dead-letter of nothing")
	}
	s.expectStats(q, driver.Stats{InFlight: 1})
}

func batchAcrossReceives(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	var held []driver.Delivery
	for range 3 {
		held = append(held, s.receive(q, 1)...)
	}
	s.ok(q.Ack(s.ctx(), receipts(held)), "ack of three receives in one batch")
	s.expectEmpty(q)
}

func failuresAreErrors(s *session, q driver.Queue) {
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	s.ack(q, held)
	for op, err := range map[string]error{
		"ack":    tryAck(s, q, held),
		"nack":   tryNack(s, q, held, 0, ""),
		"extend": tryExtend(s, q, held, s.hold),
	} {
		s.expectPositions(err, op+" of one expired receipt", driver.ErrReceiptExpired)
		if detail, _ := errors.AsType[*driver.Error](err); detail.Op != op {
			s.failf("%s of an expired receipt: the error names operation %q: %v", op, detail.Op, err)
		}
		if !strings.Contains(err.Error(), string(driver.ErrReceiptExpired)) {
			s.failf("%s of an expired receipt: the error text does not say so: %v", op, err)
		}
	}
}
