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
	{id: "ACK-1", title: "a cause that is too long is cut, not refused", run: longCauseIsCut},
	{id: "ACK-1", title: "a second settlement of one delivery fails", run: settlingTwiceFails},
	{id: "ACK-1", title: "thousands of messages in flight can be settled in any order", run: manySettleInAnyOrder, repeats: true},

	{id: "ACK-2", title: "a batch nack keeps the positions of what failed", run: nackKeepsPositions},
	{id: "ACK-2", title: "a batch extend keeps the positions of what failed", run: extendKeepsPositions},
	{id: "ACK-2", title: "one receipt twice in a batch settles once", run: receiptTwiceInBatch},
	{id: "ACK-2", title: "empty batches do nothing", run: emptyBatchesDoNothing},

	{id: "ACK-3", title: "a failed settlement is an error with a code, a position and a text", run: failuresAreErrors},
}

func longCauseIsCut(e *env, q driver.Queue) {
	e.send(q, "a")
	cause := strings.Repeat("漢", driver.MaxCauseBytes) // too long, and the limit is inside a character
	e.nack(q, e.receive(q, 1)[0], 0, cause)
	got := e.receive(q, 1)[0].LastError
	if got != driver.TrimCause(cause) {
		e.failf("LastError of a cause of %d bytes: got %d bytes, valid UTF-8 %v; want its first %d",
			len(cause), len(got), utf8.ValidString(got), driver.MaxCauseBytes)
	}
}

func settlingTwiceFails(e *env, _ driver.Queue) {
	settle := map[string]func(q driver.Queue, d driver.Delivery) error{
		"ack":               func(q driver.Queue, d driver.Delivery) error { return tryAck(e, q, d) },
		"nack":              func(q driver.Queue, d driver.Delivery) error { return tryNack(e, q, d, 0, "") },
		"nack with a delay": func(q driver.Queue, d driver.Delivery) error { return tryNack(e, q, d, e.hold, "") },
		"extend to zero":    func(q driver.Queue, d driver.Delivery) error { return tryExtend(e, q, d, 0) },
		"extend":            func(q driver.Queue, d driver.Delivery) error { return tryExtend(e, q, d, e.hold) },
	}
	for first, after := range map[string]driver.Stats{
		"ack":               {},
		"nack":              {Ready: 1},
		"nack with a delay": {Delayed: 1},
		"extend to zero":    {Ready: 1},
	} {
		for second := range settle {
			q := e.open(second + " after " + first)
			e.send(q, "a")
			held := e.receive(q, 1)[0]
			e.ok(settle[first](q, held), "%s", first)
			e.expectCode(settle[second](q, held), driver.ErrReceiptExpired, "%s after %s", second, first)
			e.expectStats(q, after)
		}
	}
}

func manySettleInAnyOrder(e *env, q driver.Queue) {
	messages := e.rounds(5000, 500)
	e.send(q, numbered("m", messages)...)
	held := e.receive(q, messages)
	rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
	third := messages / 3
	e.ack(q, held[:third]...)
	for _, d := range held[third : 2*third] {
		e.expire(q, d)
	}
	e.expectStats(q, driver.Stats{Ready: third, InFlight: messages - 2*third})
	e.ack(q, held[2*third:]...)
	back := held[third : 2*third]
	slices.SortFunc(back, func(a, b driver.Delivery) int { return strings.Compare(string(a.Body), string(b.Body)) })
	if q.Traits().Ordering == driver.OrderingFIFO {
		e.expectNext(q, bodies(back)...)
	} else {
		e.receive(q, third)
	}
	e.expectStats(q, driver.Stats{InFlight: third})
}

// someExpired sends five messages, leases them, and lets the second and the fourth expire.
func (e *env) someExpired(q driver.Queue) []driver.Delivery {
	e.t.Helper()
	e.send(q, "a", "b", "c", "d", "e")
	held := e.expectBodies(q, e.receive(q, 5), "a", "b", "c", "d", "e")
	e.expire(q, held[1], held[3])
	return held
}

func nackKeepsPositions(e *env, q driver.Queue) {
	held := e.someExpired(q)
	nacks := make([]driver.Nack, len(held))
	for i, d := range held {
		nacks[i] = driver.Nack{Receipt: d.Receipt, Cause: "nacked " + string(d.Body)}
	}
	nacks[0].Delay = -time.Second
	nacks[4].Delay = e.hold
	err := q.Nack(e.ctx(), nacks)
	e.expectPositions(err, "nack of five receipts, two of them expired and one with a bad delay",
		driver.ErrInvalid, driver.ErrReceiptExpired, fine, driver.ErrReceiptExpired, fine)
	e.expectStats(q, driver.Stats{Ready: 3, Delayed: 1, InFlight: 1})
	for _, d := range e.expectNext(q, "b", "d", "c") {
		if nacked := d.LastError != ""; nacked != (string(d.Body) == "c") {
			e.failf("delivery of %q: got LastError %q, but only c was nacked", d.Body, d.LastError)
		}
	}
	e.ack(q, held[0]) // its nack was invalid, so it is still leased
}

func extendKeepsPositions(e *env, q driver.Queue) {
	held := e.someExpired(q)
	extensions := make([]driver.Extension, len(held))
	for i, d := range held {
		extensions[i] = driver.Extension{Receipt: d.Receipt, Visibility: e.hold}
	}
	extensions[0].Visibility = q.Traits().MaxVisibility + 1
	extensions[4].Visibility = 0
	granted, err := q.Extend(e.ctx(), extensions)
	e.expectPositions(err, "extend of five receipts, two of them expired and one with a bad visibility",
		driver.ErrInvalid, driver.ErrReceiptExpired, fine, driver.ErrReceiptExpired, fine)
	if want := []time.Duration{0, 0, e.hold, 0, 0}; !slices.Equal(granted, want) {
		e.failf("extend of five receipts, two of them expired and one with a bad visibility: granted %v, want %v", granted, want)
	}
	e.expectStats(q, driver.Stats{Ready: 3, InFlight: 2})
	e.expectNext(q, "b", "d", "e")
	e.ack(q, held[0], held[2])
}

func receiptTwiceInBatch(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	held := e.expectBodies(q, e.receive(q, 2), "a", "b")
	err := q.Ack(e.ctx(), []driver.Receipt{held[0].Receipt, held[1].Receipt, held[0].Receipt})
	e.expectPositions(err, "ack of one receipt twice", fine, fine, driver.ErrReceiptExpired)
	e.expectEmpty(q)

	e.send(q, "c")
	held = e.receive(q, 1)
	err = q.Nack(e.ctx(), []driver.Nack{{Receipt: held[0].Receipt, Cause: "first"}, {Receipt: held[0].Receipt, Cause: "second"}})
	e.expectPositions(err, "nack of one receipt twice", fine, driver.ErrReceiptExpired)
	if got := e.expectNext(q, "c")[0]; got.LastError != "first" {
		e.failf("nack of one receipt twice: got LastError %q, want that of the first", got.LastError)
	}
}

func emptyBatchesDoNothing(e *env, q driver.Queue) {
	e.send(q, "a")
	e.receive(q, 1)
	e.ok(q.Ack(e.ctx(), nil), "ack of nothing")
	e.ok(q.Ack(e.ctx(), []driver.Receipt{}), "ack of nothing")
	e.ok(q.Nack(e.ctx(), nil), "nack of nothing")
	e.ok(extended(q.Extend(e.ctx(), nil)), "extend of nothing")
	if q.Traits().DeadLetters {
		e.ok(q.DeadLetter(e.ctx(), nil), "dead-letter of nothing")
	}
	e.expectStats(q, driver.Stats{InFlight: 1})
}

func failuresAreErrors(e *env, q driver.Queue) {
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	e.ack(q, held)
	for op, err := range map[string]error{
		"ack":    tryAck(e, q, held),
		"nack":   tryNack(e, q, held, 0, ""),
		"extend": tryExtend(e, q, held, e.hold),
	} {
		e.expectPositions(err, op+" of one expired receipt", driver.ErrReceiptExpired)
		if detail, _ := errors.AsType[*driver.Error](err); detail.Op != op {
			e.failf("%s of an expired receipt: the error names operation %q: %v", op, detail.Op, err)
		}
		if !strings.Contains(err.Error(), string(driver.ErrReceiptExpired)) {
			e.failf("%s of an expired receipt: the error text does not mention it: %v", op, err)
		}
	}
}
