package drivertest

import (
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// trySend sends one body and returns what the backend said.
func trySend(s *session, q driver.Queue, body string) error {
	_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte(body)}})
	return err
}

func capacityByCount(s *session, q driver.Queue) {
	s.send(q, "a", "b")
	err := trySend(s, q, "c")
	s.expectFull(err, "send of a third message to a queue bounded at two")
	s.expectPositions(err, "send of a third message to a queue bounded at two", driver.ErrFull)
	s.expectStats(q, driver.Stats{Ready: 2})
	s.ack(q, s.receive(q, 1)...)
	s.send(q, "d")
	s.expectFull(trySend(s, q, "e"), "send to a queue that is full again")
}

func capacityByBytes(s *session, q driver.Queue) {
	s.send(q, "12345", "6789")
	s.expectFull(trySend(s, q, "ab"), "send of 2 bytes to a queue with room for 1")
	s.expectStats(q, driver.Stats{Ready: 2})
	s.send(q, "a", "") // exactly full, and a message without a body needs no room
	s.expectFull(trySend(s, q, "b"), "send of 1 byte to a queue with room for none")
	s.expectStats(q, driver.Stats{Ready: 4})

	got := s.receive(q, 4)
	s.expectFull(trySend(s, q, "b"), "send to a queue whose bytes are all in flight")
	for _, d := range got {
		if string(d.Body) == "12345" {
			s.ack(q, d)
		}
	}
	s.send(q, "abcde")
	s.expectFull(trySend(s, q, "f"), "send to a queue that is full again")
}

func capacityCountsAllThatWaits(s *session, q driver.Queue) {
	s.send(q, "in flight")
	held := s.receive(q, 1)
	s.sendLater(q, s.hold, "delayed")
	s.send(q, "ready")
	s.expectStats(q, driver.Stats{Ready: 1, Delayed: 1, InFlight: 1})
	s.expectFull(trySend(s, q, "too many"), "send to a queue full of one ready, one delayed, one in flight")

	s.nack(q, held[0], 0, "")
	s.expectFull(trySend(s, q, "too many"), "send to a queue after a nack, which makes no room")
	s.ack(q, s.receive(q, 1)...)
	s.send(q, "fits")
	if _, err := q.Purge(s.ctx()); err != nil {
		s.failf("purge: %v", err)
	}
	s.send(q, "a", "b", "c")
}

func deadLettersTakeNoRoom(s *session, q driver.Queue) {
	s.send(q, "a")
	s.bury(q, s.receive(q, 1)[0], driver.ReasonFatal)
	s.send(q, "b")
	s.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
}

func deathByTheClockMakesRoom(s *session, q driver.Queue) {
	s.send(q, "a")
	s.receiveFor(q, 1, s.tick)
	s.sleep(s.tick)
	s.send(q, "b") // and nobody has looked at a meanwhile
	s.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
}

func purgeAndDeathFreeBytes(s *session, q driver.Queue) {
	s.send(q, "1234567890")
	s.purge(q, 1)
	s.send(q, "1234567890")
	s.bury(q, s.receive(q, 1)[0], driver.ReasonFatal)
	s.send(q, "12345")
	s.expectFull(trySend(s, q, "123456"), "send of 6 bytes to a queue with room for 5")
	_, err := q.Redrive(s.ctx(), nil, 0)
	s.expectCode(err, driver.ErrFull, "redrive of 10 bytes into room for 5")
	s.ack(q, s.expectNext(q, "12345")...)
	s.redrive(q, nil, 0, 1)
	s.expectFull(trySend(s, q, "1"), "send to a queue that a redrive has filled")
}

func loweredCapacityKeeps(s *session, q driver.Queue) {
	s.send(q, "a", "b", "c")
	if !s.reconfigure(driver.Config{MaxMessages: 2}) {
		return
	}
	s.expectStats(q, driver.Stats{Ready: 3})
	s.expectFull(trySend(s, q, "d"), "send to a queue that holds more than its new bound")
	s.ack(q, s.expectNext(q, "a")...)
	s.expectFull(trySend(s, q, "d"), "send to a queue that is at its new bound")
	s.ack(q, s.expectNext(q, "b")...)
	s.send(q, "d")
}

func batchOverCapacityIsSplit(s *session, q driver.Queue) {
	s.send(q, "a")
	_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte("b")}, {Body: []byte("c")}, {Body: []byte("d")}})
	s.expectPositions(err, "send of three messages to a queue with room for one", fine, driver.ErrFull, driver.ErrFull)
	s.expectFull(err, "send of three messages to a queue with room for one")
	s.expectStats(q, driver.Stats{Ready: 2})
	s.expectNext(q, "a", "b")
}

func batchOverBytesIsSplit(s *session, q driver.Queue) {
	s.send(q, "123456")
	_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: []byte("large")}, {Body: []byte("ok")}, {Body: []byte("no!")}, {Body: []byte("OK")}})
	s.expectPositions(err, "send to a queue with room for 4 bytes", driver.ErrFull, fine, driver.ErrFull, fine)
	s.expectNext(q, "123456", "ok", "OK")
}

func failedSendLeavesNothing(s *session, q driver.Queue) {
	traits := q.Traits()
	for _, bad := range []driver.Outgoing{
		{Body: []byte("bad"), Delay: -1},
		{Body: []byte("bad"), Delay: traits.MaxDelay + time.Nanosecond},
		{Body: []byte("bad"), ReplyTo: strings.Repeat("r", driver.MaxReplyToBytes+1)},
		{Body: []byte("bad"), Attributes: map[string]string{"": "v"}},
		{Body: make([]byte, traits.MaxBodyBytes+1)},
	} {
		if _, err := q.Send(s.ctx(), []driver.Outgoing{bad}); err == nil {
			s.failf("send of a bad message: got nil, want an error")
		}
		s.expectEmpty(q)
	}
	s.send(q, "good")
	s.expectNext(q, "good")
}

func failedSendKeepsDedupKeyFree(s *session, q driver.Queue) {
	s.send(q, "fills the queue")
	keyed := driver.Outgoing{Body: []byte("keyed"), DedupKey: "key"}
	_, err := q.Send(s.ctx(), []driver.Outgoing{keyed})
	s.expectFull(err, "send to a full queue")
	s.ack(q, s.receive(q, 1)...)
	if sent := s.sendOne(q, keyed); sent.Duplicate {
		s.failf("send again after ErrFull: got Duplicate, but the first send failed")
	}
	s.expectNext(q, "keyed")
}
