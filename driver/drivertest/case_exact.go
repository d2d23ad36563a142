package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Texts, sizes and durations are used as they are: not trimmed, not folded,
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
	{id: "ORD-4", title: "groups that differ in case are two groups", config: strict, run: groupsAreNotFolded},
	{
		id: "DLQ-5", title: "a redrive respects the bound on bytes",
		config: always(driver.Config{MaxBytes: 10}), needs: []need{needDeadLetters}, run: redriveRespectsBytes,
	},
	{id: "SVC-1", title: "configuring a queue keeps its dead letters", needs: []need{needAdmin, needDeadLetters}, run: configuringKeepsDead},
}

func spacesAreKept(e *env, q driver.Queue) {
	msg := driver.Outgoing{
		Body: []byte(" body\n"), ReplyTo: " answers ", CorrelationID: "\tcorrelation ",
		Attributes: map[string]string{" key ": " value "},
	}
	id := e.sendOne(q, msg).ID
	e.expectMessage(e.receive(q, 1)[0].Message, msg, id, 1)
}

func onlyBodiesAreCounted(e *env, q driver.Queue) {
	e.sendOne(q, driver.Outgoing{
		Body: make([]byte, 10), ReplyTo: "answers", CorrelationID: "correlation",
		Attributes: map[string]string{"attribute": "of many bytes, which are not counted"},
	})
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: make([]byte, 1)}})
	e.expectFull(err, "send a byte more than the bound")
}

func invalidSendLeavesKeyFree(e *env, q driver.Queue) {
	bad := keyed("key", "bad")
	bad.Delay = -1
	_, err := q.Send(e.ctx(), []driver.Outgoing{bad})
	e.expectCode(driver.At(err, 0), driver.ErrInvalid, "send with a negative delay")
	e.expectFresh(q, keyed("key", "good"), "after an invalid send used it")
	e.expectNext(q, "good")
}

// fraction returns a duration that is not a whole number of seconds; ok is false where the
// clock is real and the difference would not show.
func (e *env) fraction() (d time.Duration, ok bool) {
	if !e.backend.Virtual {
		e.t.Log("to the fraction of a second, and so checked in virtual time only")
	}
	return 2345678 * time.Microsecond, e.backend.Virtual
}

func waitIsNotRounded(e *env, q driver.Queue) {
	wait, ok := e.fraction()
	if !ok {
		return
	}
	start := time.Now()
	if got := e.receiveOnce(q, driver.ReceiveRequest{Max: 1, Visibility: e.hold, Wait: wait}); len(got) > 0 {
		e.failf("an empty queue handed out %d messages", len(got))
	}
	e.expectTime(time.Now(), start.Add(wait), "the end of a wait")
}

func visibilityIsNotRounded(e *env, q driver.Queue) {
	visibility, ok := e.fraction()
	if !ok {
		return
	}
	e.send(q, "a")
	start := time.Now()
	e.receiveFor(q, 1, visibility)
	e.expectArrival(q, start.Add(visibility), "a")
}

func extensionIsNotRounded(e *env, q driver.Queue) {
	visibility, ok := e.fraction()
	if !ok {
		return
	}
	e.send(q, "a")
	held := e.receive(q, 1)[0]
	start := time.Now()
	e.extend(q, held, visibility)
	e.expectArrival(q, start.Add(visibility), "a")
}

func groupsAreNotFolded(e *env, q driver.Queue) {
	e.sendTo(q, "g", "small")
	e.sendTo(q, "G", "large")
	e.sendTo(q, " g", "spaced")
	e.expectAlone(q, "small")
	e.expectAlone(q, "large")
	e.expectAlone(q, "spaced")
}

func redriveRespectsBytes(e *env, q driver.Queue) {
	e.kill(q, "123456", "654321")
	moved, err := q.Redrive(e.ctx(), nil, 0)
	e.expectCode(err, driver.ErrFull, "redrive 12 bytes into a queue of 10")
	if moved != 1 {
		e.failf("redrive of two letters of 6 bytes into a queue of 10: got %d moved, want 1", moved)
	}
	e.expectDead(q, "654321")
}

func configuringKeepsDead(e *env, q driver.Queue) {
	e.kill(q, "a")
	if e.reconfigure(driver.Config{MaxMessages: 100}) {
		e.expectDead(q, "a")
	}
}
