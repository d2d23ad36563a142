package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// await follows the answer to a change to the page of its job, and returns that when the job has ended.
func (b *browser) await(a answer) answer {
	b.t.Helper()
	b.expect(a, http.StatusSeeOther)
	for {
		page := b.get(strings.TrimPrefix(a.header.Get("Location"), "./"))
		if !strings.Contains(page.body, ">running<") {
			return page
		}
	}
}

// finish makes a change that is a job, and checks the page of the job at its end.
func (b *browser) finish(confirmation string, shown ...string) {
	b.t.Helper()
	b.expect(b.await(b.submit(b.get("confirm?"+confirmation))), 200, shown...)
}

// deadLetters makes n dead letters in one queue.
func (d *env) deadLetters(tenant, queue string, n int) {
	d.t.Helper()
	for range n {
		d.deadLetter(tenant, queue, "x", "boom")
	}
}

// slowJob starts a job that does not end before it is stopped.
func (d *env) slowJob(tenant, queue string) broker.Job {
	d.t.Helper()
	j, err := d.caller(tenant).StartJob(d.t.Context(), broker.JobRequest{Queue: queue, Action: broker.JobRedrive, Rate: 1})
	if err != nil {
		d.t.Fatal(err)
	}
	return j
}

// TestJobIsWatchedAndStopped is CON-1 and CON-2: the page of a job shows how far it is, and stopping it is confirmed.
func TestJobIsWatchedAndStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.deadLetters("", "orders", 50)
		b := d.logIn(d.mint("", nil))
		b.expect(b.get("jobs"), 200, "No job runs")
		started := b.submit(b.get("confirm?do=redrive&queue=orders"), "rate", "2")
		at := strings.TrimPrefix(started.header.Get("Location"), "./")
		time.Sleep(2*time.Second + time.Millisecond)
		b.expect(b.get(at), 200, "running", "Started: redriving dead letters of orders", "5 messages", "at most 2 a second", "Stop…", `max="50"`)
		b.expect(b.get("jobs?queue=orders"), 200, "running", "Redrive", `href="job?id=`)
		_, id, _ := strings.Cut(at, "id=")
		b.expect(b.get("confirm?do=stop-job&queue=orders&job="+id), 200, "made ready 5 messages of orders", "stay dead")
		b.change("do=stop-job&queue=orders&job="+id, "The job is stopped after 5 messages")
		b.expect(b.get(at), 200, `<span class="state ">stopped</span>`, "stopped by token") // with the colour of no state
		b.lacks(b.get(at), "Stop…")
		if got, want := d.stats("", "orders"), "5 ready, 0 delayed, 0 in flight, 45 dead, paused false"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		b.submit(b.get("confirm?do=discard&queue=orders"), "rate", "many")
		b.expect(b.get("jobs"), 200, "Not done", "want a number")
	})
}

// TestCountIsDryRunOfJob: what a job has counted is redriven, and not what died since.
func TestCountIsDryRunOfJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		d.deadLetters("", "orders", 7)
		b := d.logIn(d.mint("", nil))
		started := b.submit(b.get("confirm?do=count&queue=orders"))
		time.Sleep(time.Second)
		at := strings.TrimPrefix(started.header.Get("Location"), "./")
		b.expect(b.get(at), 200, "done", "7 messages", "Redrive 7…", "Discard 7…")
		_, id, _ := strings.Cut(at, "id=")
		d.deadLetters("", "orders", 2)
		next := "do=redrive&queue=orders&job=" + id
		b.expect(b.get("confirm?"+next), 200, "Redrive 7 dead letters")
		b.finish(next, "done", "7 messages")
		b.expect(b.get("confirm?do=redrive&queue=other&job="+id), http.StatusBadRequest)
	})
}

func TestJobsAreShownToTheirTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		for _, tenant := range []string{"", "a", "b"} {
			d.deadLetters(tenant, "orders", 50)
		}
		j := d.slowJob("a", "orders")
		page := "job?id=" + j.ID
		other := d.logIn(d.mint("b", nil))
		other.lacks(other.get("jobs"), j.ID[:8])
		other.expect(other.get(page), http.StatusNotFound)
		other.expect(other.get("confirm?do=stop-job&queue=orders&job="+j.ID), http.StatusNotFound)
		operator := d.logIn(d.mint("", nil))
		operator.expect(operator.get(page), http.StatusNotFound)
		operator.expect(operator.get(page+"&tenant=a"), 200, "running", "You look into tenant")
		operator.lacks(operator.get(page+"&tenant=a"), `href="confirm`)
		reader := d.logIn(d.mint("a", nil), "read_only", "yes")
		reader.expect(reader.get(page), 200, "running")
		reader.lacks(reader.get(page), `href="confirm`)
		reader.expect(reader.get("confirm?do=stop-job&queue=orders&job="+j.ID), http.StatusForbidden)
		sender := d.logIn(d.mint("a", []capability.Operation{capability.OpStats, capability.OpPeek}, capability.AnyQueue()))
		sender.expect(sender.get(page), http.StatusForbidden)
		sender.lacks(sender.get("jobs"), j.ID[:8])
		if now, err := d.caller("a").Job(t.Context(), j.ID); err != nil || now.State != broker.JobRunning {
			t.Errorf("%+v, %v", now, err)
		}
	})
}

// TestJobIsStoppedByKeyboardInBrowser is CON-2 in Chromium: live progress, keys, the accessibility checker.
func TestJobIsStoppedByKeyboardInBrowser(t *testing.T) {
	d := open(t)
	d.deadLetters("", "orders", 600) // at a rate of 1 it does not end meanwhile
	j := d.slowJob("", "orders")
	p := d.openTab(t)
	p.signIn(d.mint("", nil).Reveal())
	p.Type("gj")
	p.at("Jobs")
	p.WaitFor(`document.querySelector("#jobs progress")?.max === 600`)
	p.show("job?id=" + j.ID)
	p.Eval("window.first = document.getElementById('job').textContent", nil)
	p.WaitFor(`document.getElementById("job").textContent !== window.first`) // without a reload
	p.Eval(`document.querySelector("main a.button.danger").focus()`, nil)
	p.Type("\n")
	p.at("Stop a job")
	p.Eval(`document.querySelector("main form button").focus()`, nil)
	p.Type("\n")
	p.WaitFor(`document.querySelector(".notice.good")?.textContent.includes("The job is stopped")`)
	p.sound("job")
	ended, err := d.caller("").Job(t.Context(), j.ID)
	if got, want := d.stats("", "orders"), fmt.Sprintf("%d ready, 0 delayed, 0 in flight, %d dead, paused false", ended.Done, 600-ended.Done); got != want || err != nil {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
