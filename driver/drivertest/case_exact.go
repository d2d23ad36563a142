package drivertest

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Texts, sizes and durations are used as they are: not trimmed, not folded,
var exactCases = []testCase{
	{
		id: "SND-5", title: "the bound on bytes counts bodies and nothing else",
		config: always(driver.Config{MaxBytes: 10}), run: onlyBodiesAreCounted,
	},
	{id: "RCV-2", title: "a wait ends when it was asked to, to the fraction of a second", run: waitIsNotRounded},
	{id: "SVC-1", title: "configuring a queue keeps its dead letters", needs: []need{needAdmin, needDeadLetters}, run: configuringKeepsDead},
}

func onlyBodiesAreCounted(e *env, q driver.Queue) {
	e.sendOne(q, driver.Outgoing{
		Body: make([]byte, 10), ReplyTo: "answers", CorrelationID: "correlation",
		Attributes: map[string]string{"attribute": "of many bytes, which are not counted"},
	})
	_, err := q.Send(e.ctx(), []driver.Outgoing{{Body: make([]byte, 1)}})
	e.expectFull(err, "send a byte more than the bound")
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

func configuringKeepsDead(e *env, q driver.Queue) {
	e.kill(q, "a")
	if e.reconfigure(driver.Config{MaxMessages: 100}) {
		e.expectDead(q, "a")
	}
}
