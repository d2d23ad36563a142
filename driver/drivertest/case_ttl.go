package drivertest

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var ttlNeeds = []need{needTTL}

var ttlCases = []testCase{
	{id: "TIME-2", title: "a time to live that is too long is refused, and the longest is kept", needs: ttlNeeds, run: livesHaveALimit},
	{id: "TIME-2", title: "hundreds of lives end each at its own time, whatever their order", needs: ttlNeeds, run: manyLivesEnd},
	{
		id: "TIME-2", title: "messages of schedules have the time to live of their queue, or their own",
		config: func(e *env) driver.Config { return driver.Config{TTL: 2 * e.tick()} }, needs: []need{needTTL, needSchedules}, run: firedMessagesEnd,
	},
	{id: "TIME-2", title: "a forwarded dead letter has no time to live", config: withDeadLetterTo, needs: []need{needTTL, needDeadLetters}, run: forwardedLivesOn},
}

func livesHaveALimit(e *env, q driver.Queue) {
	for _, ttl := range []time.Duration{-1, -time.Hour, driver.MaxTTL + time.Millisecond} {
		e.expectBadSend(q, driver.Outgoing{TTL: ttl}, driver.ErrInvalid, driver.MaxTTL, "time to live")
	}
	e.sendOne(q, driver.Outgoing{Body: []byte("longest"), TTL: driver.MaxTTL})
	e.expectNext(q, "longest")
}

func manyLivesEnd(e *env, q driver.Queue) {
	const n = 300
	start := time.Now()
	msgs := make([]driver.Outgoing, 0, n)
	for i := range n {
		msgs = append(msgs, driver.Outgoing{Body: []byte(fmt.Sprint(i)), TTL: time.Duration(2+i*7%3) * e.tick()})
	}
	for len(msgs) > 0 {
		batch := min(q.Traits().MaxBatch, len(msgs))
		_, err := q.Send(e.ctx(), msgs[:batch])
		e.ok(err, "send")
		msgs = msgs[batch:]
	}
	slow := time.Since(start)
	if !e.backend.Virtual && slow >= 2*e.tick()-e.slack {
		e.tooSlow("sending took %v", slow)
	}
	for i := range 3 {
		end := start.Add(time.Duration(2+i)*e.tick() + slow)
		e.sleep(time.Until(end))
		if stats, err := q.Stats(e.ctx()); err != nil || stats.Ready > n-n/3*(i+1) {
			e.failf("%v after the sends: %+v, %v; want at most %d ready messages", time.Since(start), stats, err, n-n/3*(i+1))
		}
	}
	e.expectStats(q, driver.Stats{Dead: n})
	last := time.Duration(0)
	for _, letter := range e.dead(q) {
		var i int
		_, err := fmt.Sscan(string(letter.Body), &i)
		life := time.Duration(2 + i*7%3)
		if err != nil || letter.Reason != driver.ReasonExpired || life < last {
			e.failf("dead letter %s with a life of %d ticks after one of %d: reason %s", letter.Body, life, last, letter.Reason)
		}
		last = life
	}
}

func firedMessagesEnd(e *env, q driver.Queue) {
	messages := due(time.Time{}, "a", "b")
	messages[1].TTL = e.hold
	e.fired(q, driver.Firing{Name: "hourly", Revision: e.schedule(q, "hourly").Revision, Messages: messages})
	e.expectStats(q, driver.Stats{Ready: 2})
	e.sleep(2 * e.tick())
	e.expectStats(q, driver.Stats{Ready: 1, Dead: 1})
	e.expectDead(q, "a")
	e.expectNext(q, "b")
}

func forwardedLivesOn(e *env, q driver.Queue) {
	e.sendOne(q, driver.Outgoing{Body: []byte("a"), TTL: e.tick()})
	e.sleep(e.tick())
	e.expectStats(q, driver.Stats{})
	e.sleep(2 * e.tick())
	got := e.expectNext(e.open(deadLetterQueue), "a")[0]
	if reason := got.Attributes[driver.AttributeDeadReason]; reason != string(driver.ReasonExpired) {
		e.failf("got the reason %q, want expired", reason)
	}
}
