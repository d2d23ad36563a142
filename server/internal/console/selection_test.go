package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// deadIn sends a message of a group and dead-letters it with an error.
func (d *env) deadIn(queue, body, group, cause string) string {
	d.t.Helper()
	id := d.send("", queue, body, func(out *driver.Outgoing) {
		out.Group, out.Attributes = group, map[string]string{"region": group + "-1"}
	})
	d.kill(queue, 1, func(int) string { return cause })
	return id
}

// TestDeadLettersOfFilterAreRedriven is CON-2: a filter, its dry run, and the job on exactly what matched.
func TestDeadLettersOfFilterAreRedriven(t *testing.T) {
	d := open(t)
	for i := range 3 {
		d.deadIn("orders", fmt.Sprintf("order %d", i), "eu", "refused")
		d.deadIn("orders", fmt.Sprintf("order %d", i), "us", "refused")
	}
	d.deadIn("orders", "invoice", "eu", "invalid")
	b := d.logIn(d.mint("", nil))
	b.expect(b.get("queue?name=orders&state=dead&group=eu"), 200, `href="dead?group=eu&amp;queue=orders"`)
	a := b.get("dead?queue=orders&group=eu&text=order")
	b.expect(a, 200, "3 dead letters of 7, in 1 cause.", `name="group" value="eu"`, "Redrive matching…", `href="confirm?do=redrive&amp;group=eu&amp;queue=orders&amp;text=order"`)
	_, cause, _ := strings.Cut(a.body, `href="dead?cause=`)
	cause, _, _ = strings.Cut(cause, "&")
	b.expect(b.get("dead?queue=orders&group=eu&text=order&cause="+cause), 200, "Redrive 3…", "Discard 3…")
	b.expect(b.get("dead?queue=orders&attribute=region%3Dus-1"), 200, "3 dead letters of 7")
	b.expect(b.get("dead?queue=orders&group=nowhere"), 200, "No dead letter matches.")
	b.expect(b.get("dead?queue=orders&older=soon"), 200, "want a duration")
	b.expect(b.get("confirm?do=redrive&queue=orders&group=nowhere"), http.StatusNotFound, "no dead letter matches any more")
	confirmation := b.get("confirm?do=redrive&queue=orders&group=eu&text=order")
	b.expect(confirmation, 200, "Redrive 3 dead letters", "where the body contains order and group is eu")
	d.deadIn("orders", "order 9", "eu", "refused") // after the question
	b.expect(b.await(b.submit(confirmation)), 200, "done", "3 messages", "group=eu")
	if got, want := d.stats("", "orders"), "3 ready, 0 delayed, 0 in flight, 5 dead, paused false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.finish("do=discard&queue=orders&reason=fatal&group=us", "done", "3 messages")
	if got, want := d.stats("", "orders"), "3 ready, 0 delayed, 0 in flight, 2 dead, paused false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestFilterOfManyDeadLettersIsCountedByJob is CON-2: the dry run of more than a page looks at.
func TestFilterOfManyDeadLettersIsCountedByJob(t *testing.T) {
	d := open(t)
	d.console = console.New(console.Options{Broker: d.broker, LookTime: 1})
	for i := range 600 {
		d.send("", "orders", fmt.Sprintf("order %d.", i), inGroup(fmt.Sprint("g", i%3)))
	}
	for n := 0; n < 600; n += 100 {
		d.kill("orders", 100, func(int) string { return "boom" })
	}
	b := d.logIn(d.mint("", nil))
	a := b.get("confirm?do=redrive&queue=orders&group=g1")
	_, counting, _ := strings.Cut(a.body, `<a href="confirm?do=count`)
	counting, _, _ = strings.Cut(counting, `"`)
	if !strings.Contains(counting, "group=g1") {
		t.Fatalf("the count of a filter counts other dead letters: %q in %s", counting, main(a.body))
	}
	job := b.await(b.submit(b.get("confirm?do=count&queue=orders&group=g1")))
	b.expect(job, 200, "done", "200 messages")
	_, redrive, _ := strings.Cut(job.body, `href="confirm?do=redrive`)
	redrive, _, _ = strings.Cut(redrive, `"`)
	redrive = strings.ReplaceAll(redrive, "&amp;", "&")
	if !strings.Contains(redrive, "group=g1") {
		t.Fatalf("the redrive after a count has other conditions: %q", redrive)
	}
	b.expect(b.get("confirm?do=redrive"+strings.Replace(redrive, "group=g1", "group=g2", 1)), 400, "has not counted these dead letters")
	b.expect(b.await(b.submit(b.get("confirm?do=redrive"+redrive), "rate", "0")), 200, "done", "200 messages")
	if got := d.stats("", "orders"); !strings.HasPrefix(got, "200 ready") {
		t.Error(got)
	}
}

// TestRedriveByAgeTouchesOnlyWhatWasOld is CON-1: what got old enough after the question stays.
func TestRedriveByAgeTouchesOnlyWhatWasOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		for _, body := range []string{"old", "young"} {
			d.send("", "orders", body)
			time.Sleep(time.Minute)
		}
		b := d.logIn(d.mint("", nil))
		got, err := d.caller("").Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 2, Visibility: time.Minute})
		if err != nil || len(got) != 2 {
			t.Fatalf("received %d, %v", len(got), err)
		}
		for _, i := range []int{1, 0} { // the older dies last
			if err := d.caller("").DeadLetter(t.Context(), "orders", []broker.DeadLetterRequest{{Receipt: got[i].Receipt, Reason: driver.ReasonFatal, Error: "boom"}}); err != nil {
				t.Fatal(err)
			}
		}
		confirmation := b.get("confirm?" + url.Values{"do": {"redrive"}, "queue": {"orders"}, "older": {"90s"}}.Encode())
		b.expect(confirmation, 200, "Redrive 1 dead letter")
		time.Sleep(time.Minute)
		b.await(b.submit(confirmation))
		for m, err := range d.caller("").Peek(t.Context(), "orders", driver.Query{States: []driver.State{driver.StateReady}}) {
			if err != nil || string(m.Body) != "old" {
				t.Errorf("redriven: %s, %v", m.Body, err)
			}
		}
		if got := d.stats("", "orders"); !strings.HasPrefix(got, "1 ready") {
			t.Error(got)
		}
	})
}
