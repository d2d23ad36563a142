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
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/worker"
)

// A judge looks at a place when all work is over.
type judge struct {
	place   *place
	summary string
	wrong   []string // sentences

	orders  *mailbox.Mailbox[job]
	letters map[string]deadletter.Message[job] // by message id
}

// find takes down that something is wrong.
func (j *judge) find(format string, values ...any) {
	j.wrong = append(j.wrong, j.place.name+": "+fmt.Sprintf(format, values...))
}

// deliver judges in this order: what is left, the letters, a second life for them, and
// then what everybody did and saw from the first send to the last ack.
func (j *judge) deliver(t *testing.T) {
	t.Helper()
	b, q, err := openPatiently(t.Context(), j.place.where)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	survivor := drivertest.NewRecorder(j.place.name + " judge")
	j.orders = mailbox.New(queueName, survivor.Queue(q), &mailbox.Options[job]{})
	j.nothingWaits(t, "after the storm")
	j.readLetters(t)
	acked := j.endings(t)
	redriven := j.redrive(t)
	j.nothingWaits(t, "after the redrive")
	final, err := drivertest.Observe(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if final.Stats != (driver.Stats{}) {
		j.find("there is something left: %+v", final.Stats)
	}
	history := drivertest.History{Events: slices.Collect(j.place.account.events())}
	history.Events = slices.Concat(history.Events, survivor.History().Events, j.place.crashes.History().Events)
	report := drivertest.Check(history, final, drivertest.Terms{Traits: q.Traits(), Config: queueConfig, Tolerance: 20 * time.Millisecond})
	if err := report.Err(); err != nil {
		j.find("%v", err)
	}
	j.summary = fmt.Sprintf("%d messages, %d deliveries, %d acked, %d dead and redriven", report.Messages, report.Deliveries, acked, redriven)
	if report.Deliveries <= report.Messages || acked == 0 || redriven == 0 {
		j.find("this was no storm: %s", j.summary)
	}
}

// nothingWaits checks that all messages are gone or dead.
func (j *judge) nothingWaits(t *testing.T, when string) {
	t.Helper()
	stats, err := j.orders.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Waiting() > 0 {
		j.find("%s there are %+v", when, stats)
	}
}

func (j *judge) readLetters(t *testing.T) {
	t.Helper()
	j.letters = make(map[string]deadletter.Message[job])
	for letter, err := range deadletter.NewQueue(j.orders, nil).List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		j.letters[letter.MessageID] = letter
		k := letter.Body.Kind
		if letter.DecodeErr != nil {
			k = unreadable
		}
		if !reasonFits(k, letter.Reason) || letter.Deliveries == 0 || letter.Reason != mailbox.ReasonMaxDeliveries && letter.LastError == "" {
			j.find("a message that is %s is dead because of %q (%s) after %d deliveries", k, letter.Reason, letter.LastError, letter.Deliveries)
		}
		if mustDie(k) {
			continue
		}
		if letter.Deliveries < min(maxDeliveries, maxDeliveriesOfQueue) {
			j.find("a message that is %s died after %d deliveries", k, letter.Deliveries)
		}
	}
}

// endings checks that every message that was sent is either acked, after its work was done,
// or a dead letter. It returns how many are acked.
func (j *judge) endings(t *testing.T) (acked int) {
	t.Helper()
	receipts := make(map[driver.Receipt]string)
	sent, settled := make(map[string]bool), make(map[string]int)
	events := slices.Collect(j.place.account.events())
	for _, e := range events {
		switch {
		case e.Op == drivertest.OpSend && e.Outcome == drivertest.OutcomeOK:
			sent[e.ID] = true
		case e.Op == drivertest.OpReceive && e.ID != "":
			receipts[e.Receipt] = e.ID
		}
	}
	for _, e := range events {
		if e.Op == drivertest.OpAck && e.Outcome == drivertest.OutcomeOK {
			settled[receipts[e.Receipt]]++
		}
	}
	for id := range sent {
		_, dead := j.letters[id]
		done := j.place.account.done[id]
		switch {
		case settled[id] > 1:
			j.find("message %s was acked %d times", id, settled[id])
		case settled[id] == 1 && dead:
			j.find("message %s was acked and is dead", id)
		case !dead && done == 0:
			// Nobody may remove what nobody has done, whoever heard the answer to the ack.
			j.find("message %s is gone and was never done", id)
		}
		if !dead {
			acked++
		}
	}
	return acked
}

// redrive sends the letters back, all but those that nobody can read, to a loop that
// succeeds with everything. It returns how many there were.
func (j *judge) redrive(t *testing.T) int {
	t.Helper()
	ctx := t.Context()
	box := deadletter.NewQueue(j.orders, nil)
	removed, err := box.Discard(ctx, deadletter.Filter[job]{Match: func(l deadletter.Message[job]) bool { return l.DecodeErr != nil }})
	if err != nil {
		t.Fatal(err)
	}
	redriven, err := box.Redrive(ctx, deadletter.Filter[job]{}, nil)
	if err != nil || redriven.Moved+removed != len(j.letters) {
		j.find("of %d letters, %d were removed and %d sent back, %v", len(j.letters), removed, redriven.Moved, err)
	}
	done := make(map[string]bool)
	heard := make(chan string, redriven.Moved+1)
	loop := newLoop(j.orders, func(context.Context, *mailbox.Message[job]) error { return nil }, func(id string) { heard <- id })
	group := worker.NewGroup(&worker.GroupOptions{NoSignals: true}, loop)
	go stopWhenEmpty(ctx, j.orders.Queue(), group)
	if err := group.Run(ctx); err != nil {
		j.find("%v", err)
	}
	for range len(heard) {
		done[<-heard] = true
	}
	if len(done) != redriven.Moved {
		j.find("%d of %d letters were done the second time", len(done), redriven.Moved)
	}
	return redriven.Moved
}
