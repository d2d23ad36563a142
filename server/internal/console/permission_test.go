package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
)

// TestTenantsSeeOnlyTheirQueues is CON-1.
func TestTenantsSeeOnlyTheirQueues(t *testing.T) {
	d := open(t)
	mine, theirs := d.send("a", "orders", "body of a"), d.send("b", "orders", "body of b")
	d.send("b", "only-b", "x")
	d.deadLetter("b", "failed-b", "x", "boom of b")
	d.schedule("b", "orders", "nightly-b")
	b := d.logIn(d.mint("a", nil))
	for _, page := range pages(mine) {
		if !strings.Contains(page, "schedule=") {
			b.expect(b.get(page), 200)
		}
		b.lacks(b.get(page), "only-b", "failed-b", "body of b", "nightly-b", theirs)
	}
	for _, page := range []string{
		"message?queue=orders&id=" + theirs, "queue?name=only-b", "dead?queue=failed-b", "schedule?queue=orders&schedule=nightly-b",
		"queue?name=orders&tenant=b", "queues?tenant=b", "message?queue=orders&tenant=b&id=" + theirs, "dead?queue=failed-b&tenant=b", "confirm?do=purge&queue=only-b", "confirm?do=purge&queue=orders&tenant=b",
	} {
		a := b.get(page)
		if a.status != http.StatusForbidden && a.status != http.StatusNotFound {
			t.Errorf("%s: status %d: %s", page, a.status, main(a.body))
		}
		b.lacks(a, "body of b", "boom of b")
	}
}

// TestOperatorReadsTenantsAndChangesNothing is CON-1.
func TestOperatorReadsTenantsAndChangesNothing(t *testing.T) {
	d := open(t)
	id := d.deadLetter("a", "orders", "body of a", "boom")
	d.send("a", "orders", "y")
	b := d.logIn(d.mint("", nil))
	b.expect(b.get(""), 200, "queue?name=orders&amp;tenant=a")
	b.expect(b.get("queue?name=orders&tenant=a"), 200, "body of a", "You look into tenant")
	for _, page := range []string{"queue?name=orders&tenant=a", "dead?queue=orders&tenant=a", "message?queue=orders&tenant=a&id=" + id} {
		b.lacks(b.get(page), `href="confirm`)
	}
	for _, change := range []string{"purge", "pause", "redrive", "discard"} {
		b.expect(b.get("confirm?do="+change+"&queue=orders&tenant=a"), http.StatusForbidden)
	}
	// Without the tenant an address is about the operator's own queue, which does not exist.
	b.expect(b.get("confirm?do=purge&queue=orders"), http.StatusNotFound)
}

// TestReadersSeeNoButtons is CON-1.
func TestReadersSeeNoButtons(t *testing.T) {
	d := open(t)
	id := d.deadLetter("", "orders", "x", "boom")
	waiting := d.send("", "orders", "y")
	d.schedule("", "orders", "nightly")
	reader := d.logIn(d.mint("", []capability.Operation{capability.OpStats, capability.OpPeek}, capability.Queue("orders")))
	readOnly := d.logIn(d.mint("", nil), "read_only", "yes")
	for _, b := range []*browser{reader, readOnly} {
		for _, page := range append(pages(id), "message?queue=orders&id="+waiting) {
			b.lacks(b.get(page), `href="confirm`, `action="confirm"`)
		}
		_, csrf, _ := strings.Cut(b.get("").body, `name="csrf" value="`)
		csrf = csrf[:strings.IndexByte(csrf, '"')]
		for _, change := range []string{"pause", "resume", "purge", "redrive", "discard", "count", "stop-job", "remove", "ready", "due", "priority", "pause-schedule", "resume-schedule", "run-schedule", "remove-schedule", "mint", "revoke"} {
			fields := []string{"do", change, "queue", "orders", "id", id, "schedule", "nightly", "touched", "9", "csrf", csrf, "token", id, "at", "2030-01-01 00:00", "priority", "1"}
			if change == "remove" || change == "ready" || change == "due" || change == "priority" {
				fields[5] = waiting
			}
			b.expect(b.post("do", fields...), http.StatusForbidden)
			b.expect(b.get("confirm?do="+change+"&queue=orders&id="+id+"&schedule=nightly"), http.StatusForbidden)
		}
	}
	if got, want := d.stats("", "orders"), "1 ready, 0 delayed, 0 in flight, 1 dead, paused false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	reader.expect(reader.get("queues"), 200, "orders", "queues that your token names")
	reader.expect(reader.get("dead?queue=orders"), 200, "does not allow <code>dlq</code>")
	reader.expect(reader.get("access"), 200, "does not allow <code>audit</code>")
	reader.expect(reader.get("queue?name=other"), http.StatusForbidden)
	readOnly.expect(readOnly.get("queue?name=orders"), 200, "max deliveries")
}

func TestLookingIsNotCountedAsRefused(t *testing.T) {
	d := open(t)
	id := d.send("", "orders", "x")
	b := d.logIn(d.mint("", []capability.Operation{capability.OpPeek}, capability.Queue("orders")))
	for _, page := range []string{"", "queues", "queue?name=orders", "message?queue=orders&id=" + id, "dead", "dead?queue=orders", "schedules", "access", "health"} {
		b.expect(b.get(page), 200)
	}
	families, err := d.broker.Metrics().Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "mailbox_auth_failures_total" {
			t.Errorf("pages that were allowed counted refusals: %v", family)
		}
	}
}

// TestPartsWithoutPermissionSayWhatIsMissing is CON-1.
func TestPartsWithoutPermissionSayWhatIsMissing(t *testing.T) {
	d := open(t)
	d.send("", "orders", "secret body")
	counter := d.logIn(d.mint("", []capability.Operation{capability.OpStats}, capability.Queue("orders")))
	a := counter.get("queue?name=orders")
	counter.expect(a, 200, "does not allow <code>peek</code>")
	counter.lacks(a, "secret body")
	looker := d.logIn(d.mint("", []capability.Operation{capability.OpPeek}, capability.Queue("orders")))
	looker.expect(looker.get("queue?name=orders"), 200, "secret body", "does not allow <code>stats</code>")
	health := looker.get("health")
	looker.expect(health, 200, "answer")
	looker.lacks(health, "listen.http", "macronode")
	operator := d.logIn(d.mint("", nil))
	operator.expect(operator.get("health"), 200, "listen.http", "macronode", "1.2.3", "console sessions", "console streams")
}
