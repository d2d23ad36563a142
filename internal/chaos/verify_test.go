package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/worker"
)

// A verifier checks an env after all work is over.
type verifier struct {
	env     *env
	summary string
	wrong   []string // sentences

	orders      *mailbox.Mailbox[job]
	deadLetters map[string]deadletter.Message[job] // by message id
}

// fail records a violation.
func (v *verifier) fail(format string, values ...any) {
	v.wrong = append(v.wrong, v.env.name+": "+fmt.Sprintf(format, values...))
}

// verify checks that no message waits, that each message was acked or is dead, and that the
// dead letters can be redriven and finished. Then it checks the recorded history from the first
// send to the last ack.
func (v *verifier) verify(t *testing.T) {
	t.Helper()
	b, q, err := openWithRetry(t.Context(), v.env.where)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	survivor := history.NewRecorder(v.env.name + " verifier")
	v.orders = mailbox.New(queueName, survivor.Queue(q), &mailbox.Options[job]{})
	if !v.nothingWaits(t, "after the disturbances") {
		return // the messages that wait are neither done nor lost
	}
	v.readDeadLetters(t)
	acked := v.outcomes(t)
	redriven := v.redrive(t)
	v.nothingWaits(t, "after the redrive")
	final, err := history.Observe(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if final.Stats != (driver.Stats{}) {
		v.fail("messages are left: %+v", final.Stats)
	}
	recorded := history.History{Events: slices.Collect(v.env.records.events())}
	recorded.Events = slices.Concat(recorded.Events, survivor.History().Events, v.env.crashes.History().Events)
	report := history.Check(recorded, final, history.Terms{Traits: q.Traits(), Config: queueConfig, Tolerance: 20 * time.Millisecond})
	if err := report.Err(); err != nil {
		v.fail("%v", err)
	}
	v.summary = fmt.Sprintf("%d messages, %d deliveries, %d acked, %d dead and redriven", report.Messages, report.Deliveries, acked, redriven)
	if report.Deliveries <= report.Messages || acked == 0 || redriven == 0 {
		v.fail("too few redeliveries, acks or dead letters to prove anything: %s", v.summary)
	}
}

// nothingWaits checks that all messages are gone or dead, and reports whether they are.
func (v *verifier) nothingWaits(t *testing.T, when string) bool {
	t.Helper()
	stats, err := v.orders.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Waiting() > 0 {
		v.fail("%s messages wait: %+v", when, stats)
	}
	return stats.Waiting() == 0
}

func (v *verifier) readDeadLetters(t *testing.T) {
	t.Helper()
	v.deadLetters = make(map[string]deadletter.Message[job])
	for letter, err := range deadletter.NewQueue(v.orders, nil).List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		v.deadLetters[letter.MessageID] = letter
		k := letter.Body.Kind
		if letter.DecodeErr != nil {
			k = unreadable
		}
		if !reasonFits(k, letter.Reason) || letter.Deliveries == 0 || letter.Reason != mailbox.ReasonMaxDeliveries && letter.LastError == "" {
			v.fail("a message of kind %s is dead because of %q (%s) after %d deliveries", k, letter.Reason, letter.LastError, letter.Deliveries)
		}
		if mustDie(k) {
			continue
		}
		if letter.Deliveries < min(maxDeliveries, maxDeliveriesOfQueue) {
			v.fail("a message of kind %s died after %d deliveries", k, letter.Deliveries)
		}
	}
}

// outcomes checks that every sent message was either acked, after its work was done, or is a
// dead letter. It returns the number of acked messages.
func (v *verifier) outcomes(t *testing.T) (acked int) {
	t.Helper()
	receipts := make(map[driver.Receipt]string)
	sent, settled := make(map[string]bool), make(map[string]int)
	events := slices.Collect(v.env.records.events())
	for _, e := range events {
		switch {
		case e.Op == history.OpSend && e.Outcome == history.OutcomeOK:
			sent[e.ID] = true
		case e.Op == history.OpReceive && e.ID != "":
			receipts[e.Receipt] = e.ID
		}
	}
	for _, e := range events {
		if e.Op == history.OpAck && e.Outcome == history.OutcomeOK {
			settled[receipts[e.Receipt]]++
		}
	}
	for id := range sent {
		_, dead := v.deadLetters[id]
		done := v.env.records.done[id]
		switch {
		case settled[id] > 1:
			v.fail("message %s was acked %d times", id, settled[id])
		case settled[id] == 1 && dead:
			v.fail("message %s was acked and is a dead letter", id)
		case !dead && done == 0:
			// An ack is allowed only after the work, even if its answer was lost.
			v.fail("message %s is gone and was never done", id)
		}
		if !dead {
			acked++
		}
	}
	return acked
}

// redrive discards the dead letters that cannot be decoded and redrives the others to a loop
// whose handler always succeeds. It returns the number of redriven messages.
func (v *verifier) redrive(t *testing.T) int {
	t.Helper()
	ctx := t.Context()
	letters := deadletter.NewQueue(v.orders, nil)
	removed, err := letters.Discard(ctx, deadletter.Filter[job]{Match: func(l deadletter.Message[job]) bool { return l.DecodeErr != nil }})
	if err != nil {
		t.Fatal(err)
	}
	redriven, err := letters.Redrive(ctx, deadletter.Filter[job]{}, nil)
	if err != nil || redriven.Moved+removed != len(v.deadLetters) {
		v.fail("of %d dead letters, %d were discarded and %d redriven: %v", len(v.deadLetters), removed, redriven.Moved, err)
	}
	done := make(map[string]bool)
	heard := make(chan string, redriven.Moved+1)
	loop := newLoop(v.orders, func(context.Context, *mailbox.Message[job]) error { return nil }, func(id string) { heard <- id })
	group := worker.NewGroup(&worker.GroupOptions{NoSignals: true}, loop)
	go stopWhenEmpty(ctx, v.orders.Queue(), group)
	if err := group.Run(ctx); err != nil {
		v.fail("%v", err)
	}
	for range len(heard) {
		done[<-heard] = true
	}
	if len(done) != redriven.Moved {
		v.fail("%d of %d redriven messages were done", len(done), redriven.Moved)
	}
	return redriven.Moved
}
