package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Texts, sizes and durations are taken as they are: not trimmed, not folded,
// not rounded.
var exactCases = []testCase{
	{id: "SND-3", title: "texts are kept with their spaces", run: spacesAreKept},
	{
		id: "SND-5", title: "the bound on bytes counts bodies and nothing else",
		config: always(driver.Config{MaxBytes: 10}), run: onlyBodiesAreCounted,
	},
	{id: "SND-6", title: "a send that is invalid leaves its key free", needs: []need{needDedup}, run: invalidSendLeavesKeyFree},
	{id: "RCV-2", title: "a wait ends when it was asked to, to the fraction of a second", run: waitIsNotRounded},
	{id: "VIS-1", title: "a visibility ends when it was asked to, to the fraction of a second", run: visibilityIsNotRounded},
	{id: "VIS-3", title: "an extension ends when it was asked to, to the fraction of a second", run: extensionIsNotRounded},
	{id: "ACK-1", title: "the delay of a nack ends when it was asked to, to the fraction of a second", run: nackDelayIsNotRounded},
	{id: "ORD-4", title: "groups that differ in case are two groups", config: strict, run: groupsAreNotFolded},
	{
		id: "DLQ-5", title: "a redrive respects the bound on bytes",
		config: always(driver.Config{MaxBytes: 10}), needs: []need{needDeadLetters}, run: redriveRespectsBytes,
	},
	{id: "SVC-1", title: "configuring a queue keeps its dead letters", needs: []need{needAdmin, needDeadLetters}, run: configuringKeepsDead},
}

func spacesAreKept(s *session, q driver.Queue) {
	msg := driver.Outgoing{
		Body: []byte(" body\n"), ReplyTo: " answers ", CorrelationID: "\tcorrelation ",
		Attributes: map[string]string{" key ": " value "},
	}
	id := s.sendOne(q, msg).ID
	s.expectMessage(s.receive(q, 1)[0].Message, msg, id, 1)
}

func onlyBodiesAreCounted(s *session, q driver.Queue) {
	s.sendOne(q, driver.Outgoing{
		Body: make([]byte, 10), ReplyTo: "answers", CorrelationID: "correlation",
		Attributes: map[string]string{"attribute": "of many bytes, which nobody counts"},
	})
	_, err := q.Send(s.ctx(), []driver.Outgoing{{Body: make([]byte, 1)}})
	s.expectFull(err, "send a byte more than the bound")
}

func invalidSendLeavesKeyFree(s *session, q driver.Queue) {
	bad := keyed("key", "bad")
	bad.Delay = -1
	_, err := q.Send(s.ctx(), []driver.Outgoing{bad})
	s.expectCode(driver.At(err, 0), driver.ErrInvalid, "send with a negative delay")
	s.expectFresh(q, keyed("key", "good"), "after an invalid send used it")
	s.expectNext(q, "good")
}

// fraction is a duration that is no whole number of seconds; ok is false where
// the clock is real and the difference would not show.
func (s *session) fraction() (d time.Duration, ok bool) {
	if !s.backend.Virtual {
		s.t.Log("to the fraction of a second, and so checked in virtual time only")
	}
	return 2345678 * time.Microsecond, s.backend.Virtual
}

func waitIsNotRounded(s *session, q driver.Queue) {
	wait, ok := s.fraction()
	if !ok {
		return
	}
	start := time.Now()
	if got := s.receiveOnce(q, driver.ReceiveRequest{Max: 1, Visibility: s.hold, Wait: wait}); len(got) > 0 {
		s.failf("an empty queue handed out %d messages", len(got))
	}
	s.expectTime(time.Now(), start.Add(wait), "the end of a wait")
}

func visibilityIsNotRounded(s *session, q driver.Queue) {
	visibility, ok := s.fraction()
	if !ok {
		return
	}
	s.send(q, "a")
	start := time.Now()
	s.receiveFor(q, 1, visibility)
	s.expectArrival(q, start.Add(visibility), "a")
}

func extensionIsNotRounded(s *session, q driver.Queue) {
	visibility, ok := s.fraction()
	if !ok {
		return
	}
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	start := time.Now()
	s.extend(q, held, visibility)
	s.expectArrival(q, start.Add(visibility), "a")
}

func nackDelayIsNotRounded(s *session, q driver.Queue) {
	delay, ok := s.fraction()
	if !ok {
		return
	}
	s.send(q, "a")
	held := s.receive(q, 1)[0]
	start := time.Now()
	s.nack(q, held, delay, "")
	s.expectArrival(q, start.Add(delay), "a")
}

func groupsAreNotFolded(s *session, q driver.Queue) {
	s.sendTo(q, "g", "small")
	s.sendTo(q, "G", "large")
	s.sendTo(q, " g", "spaced")
	s.expectAlone(q, "small")
	s.expectAlone(q, "large")
	s.expectAlone(q, "spaced")
}

func redriveRespectsBytes(s *session, q driver.Queue) {
	s.kill(q, "123456", "654321")
	moved, err := q.Redrive(s.ctx(), nil, 0)
	s.expectCode(err, driver.ErrFull, "redrive 12 bytes into a queue of 10")
	if moved != 1 {
		s.failf("redrive of two letters of 6 bytes into a queue of 10: got %d moved, want 1", moved)
	}
	s.expectDead(q, "654321")
}

func configuringKeepsDead(s *session, q driver.Queue) {
	s.kill(q, "a")
	if s.reconfigure(driver.Config{MaxMessages: 100}) {
		s.expectDead(q, "a")
	}
}
