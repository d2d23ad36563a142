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
