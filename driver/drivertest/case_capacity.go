package drivertest

import (
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// trySend sends one body and returns the error.
func trySend(e *env, q driver.Queue, body string) error {
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte(body)}})
	return err
}

func capacityByCount(e *env, q driver.Queue) {
	e.send(q, "a", "b")
	err := trySend(e, q, "c")
	e.expectFull(err, "send of a third message to a queue bounded at two")
	e.expectPositions(err, "send of a third message to a queue bounded at two", driver.ErrFull)
	e.expectStats(q, driver.Stats{Ready: 2})
	e.ack(q, e.receive(q, 1)...)
	e.send(q, "d")
	e.expectFull(trySend(e, q, "e"), "send to a queue that is full again")
}

func capacityByBytes(e *env, q driver.Queue) {
	e.send(q, "12345", "6789")
	e.expectFull(trySend(e, q, "ab"), "send of 2 bytes to a queue with room for 1")
	e.expectStats(q, driver.Stats{Ready: 2})
	e.send(q, "a", "") // exactly full, and a message without a body needs no room
	e.expectFull(trySend(e, q, "b"), "send of 1 byte to a queue with room for none")
	e.expectStats(q, driver.Stats{Ready: 4})

	got := e.receive(q, 4)
	e.expectFull(trySend(e, q, "b"), "send to a queue whose bytes are all in flight")
	for _, d := range got {
		if string(d.Body) == "12345" {
			e.ack(q, d)
		}
	}
	e.send(q, "abcde")
	e.expectFull(trySend(e, q, "f"), "send to a queue that is full again")
}

func capacityCountsAllThatWaits(e *env, q driver.Queue) {
	e.send(q, "in flight")
	held := e.receive(q, 1)
	e.sendLater(q, e.hold, "delayed")
	e.send(q, "ready")
	e.expectStats(q, driver.Stats{Ready: 1, Delayed: 1, InFlight: 1})
	e.expectFull(trySend(e, q, "too many"), "send to a queue full of one ready, one delayed, one in flight")

	e.nack(q, held[0], 0, "")
	e.expectFull(trySend(e, q, "too many"), "send to a queue after a nack, which makes no room")
	e.ack(q, e.receive(q, 1)...)
	e.send(q, "fits")
	if _, err := q.Purge(e.ctx()); err != nil {
		e.failf("purge: %v", err)
	}
	e.send(q, "a", "b", "c")
}

func deadLettersTakeNoRoom(e *env, q driver.Queue) {
	e.send(q, "a")
	e.deadLetter(q, e.receive(q, 1)[0], driver.ReasonFatal)
	e.send(q, "b")
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
}

func deathByTheClockMakesRoom(e *env, q driver.Queue) {
	e.send(q, "a")
	e.receiveFor(q, 1, e.tick)
	e.sleep(e.tick)
	e.send(q, "b") // no call has touched a meanwhile
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
}

func purgeAndDeathFreeBytes(e *env, q driver.Queue) {
	e.send(q, "1234567890")
	e.purge(q, 1)
	e.send(q, "1234567890")
	e.deadLetter(q, e.receive(q, 1)[0], driver.ReasonFatal)
	e.send(q, "12345")
	e.expectFull(trySend(e, q, "123456"), "send of 6 bytes to a queue with room for 5")
	_, err := q.Redrive(e.ctx(), nil, 0)
	e.expectCode(err, driver.ErrFull, "redrive of 10 bytes into room for 5")
	e.ack(q, e.expectNext(q, "12345")...)
	e.redrive(q, nil, 0, 1)
	e.expectFull(trySend(e, q, "1"), "send to a queue that a redrive has filled")
}

func loweredCapacityKeeps(e *env, q driver.Queue) {
	e.send(q, "a", "b", "c")
	if !e.reconfigure(driver.Config{MaxMessages: 2}) {
		return
	}
	e.expectStats(q, driver.Stats{Ready: 3})
	e.expectFull(trySend(e, q, "d"), "send to a queue that holds more than its new bound")
	e.ack(q, e.expectNext(q, "a")...)
	e.expectFull(trySend(e, q, "d"), "send to a queue that is at its new bound")
	e.ack(q, e.expectNext(q, "b")...)
	e.send(q, "d")
}

func batchOverCapacityIsSplit(e *env, q driver.Queue) {
	e.send(q, "a")
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("b")}, {Body: []byte("c")}, {Body: []byte("d")}})
	e.expectPositions(err, "send of three messages to a queue with room for one", fine, driver.ErrFull, driver.ErrFull)
	e.expectFull(err, "send of three messages to a queue with room for one")
	e.expectStats(q, driver.Stats{Ready: 2})
	e.expectNext(q, "a", "b")
}

func batchOverBytesIsSplit(e *env, q driver.Queue) {
	e.send(q, "123456")
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: []byte("large")}, {Body: []byte("ok")}, {Body: []byte("no!")}, {Body: []byte("OK")}})
	e.expectPositions(err, "send to a queue with room for 4 bytes", driver.ErrFull, fine, driver.ErrFull, fine)
	e.expectNext(q, "123456", "ok", "OK")
}

func failedSendLeavesNothing(e *env, q driver.Queue) {
	traits := q.Traits()
	for _, bad := range []driver.Outgoing{
		{Body: []byte("bad"), Delay: -1},
		{Body: []byte("bad"), Delay: traits.MaxDelay + time.Microsecond},
		{Body: []byte("bad"), ReplyTo: strings.Repeat("r", driver.MaxReplyToBytes+1)},
		{Body: []byte("bad"), Attributes: map[string]string{"": "v"}},
		{Body: make([]byte, traits.MaxBodyBytes+1)},
	} {
		if _, err := q.Send(e.ctx(), []driver.Outgoing{bad}); err == nil {
			e.failf("send of a bad message: got nil, want an error")
		}
		e.expectEmpty(q)
	}
	e.send(q, "good")
	e.expectNext(q, "good")
}

func failedSendKeepsDedupKeyFree(e *env, q driver.Queue) {
	e.send(q, "fills the queue")
	keyed := driver.Outgoing{Body: []byte("keyed"), DedupKey: "key"}
	_, err := q.Send(e.ctx(), []driver.Outgoing{keyed})
	e.expectFull(err, "send to a full queue")
	e.ack(q, e.receive(q, 1)...)
	if sent := e.sendOne(q, keyed); sent.Duplicate {
		e.failf("send again after ErrFull: got Duplicate, but the first send failed")
	}
	e.expectNext(q, "keyed")
}
