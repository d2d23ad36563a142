package console_test

import (
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/console"
)

// TestEveryChangeIsAudited is CON-1: each changing action of the console leaves its record, and no other.
func TestEveryChangeIsAudited(t *testing.T) {
	delayed := func(out *driver.Outgoing) { out.Delay = time.Hour }
	for _, c := range []struct {
		name    string
		prepare func(d *env) (form []string) // the parameters of the change, and fields of its form
		want    string                       // the operations of the records
	}{
		{"pause", nil, "pause"},
		{"resume", func(d *env) []string { return d.quietly(d.caller("").Pause(d.t.Context(), "orders")) }, "pause, resume"},
		{"purge", nil, "purge"},
		{"redrive", func(d *env) []string { return []string{"id", d.deadLetter("", "orders", "x", "boom")} }, "redrive"},
		{"discard", func(d *env) []string { return []string{"id", d.deadLetter("", "orders", "x", "boom")} }, "discard"},
		{"count", func(d *env) []string { d.deadLetter("", "orders", "x", "boom"); return nil }, "start count job, count job done"},
		{"stop-job", func(d *env) []string {
			d.deadLetters("", "orders", 3)
			return []string{"job", d.slowJob("", "orders").ID}
		}, "start redrive job, stop job, redrive job stopped"},
		{"remove", func(d *env) []string { return []string{"id", d.send("", "orders", "x")} }, "edit remove"},
		{"ready", func(d *env) []string { return []string{"id", d.send("", "orders", "x", delayed)} }, "edit ready"},
		{"due", func(d *env) []string {
			return []string{"id", d.send("", "orders", "x"), "at", time.Now().Add(time.Hour).UTC().Format(time.DateTime)}
		}, "edit due"},
		{"priority", func(d *env) []string {
			return []string{"id", d.send("", "orders", "x"), "priority", "7"}
		}, "edit priority"},
		{"put-schedule", func(d *env) []string { return []string{"schedule", "s", "every", "1h", "body", "x"} }, "put schedule"},
		{"pause-schedule", (*env).scheduled, "put schedule, pause schedule"},
		{"resume-schedule", (*env).scheduled, "put schedule, resume schedule"},
		{"run-schedule", (*env).scheduled, "put schedule, run schedule"},
		{"remove-schedule", (*env).scheduled, "put schedule, remove schedule"},
		{"cancel-request", func(d *env) []string { d.request("", "r", nil); return []string{"slot", "r"} }, "cancel request"},
		{"mint", func(d *env) []string { return []string{"queues", "*", "lifetime", "1h", "operation", "send"} }, "mint token"},
		{"revoke", func(d *env) []string { return []string{"token", d.mint("", nil).Reveal()} }, "revoke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t)
			d.t = t
			d.send("", "orders", "first", func(out *driver.Outgoing) { out.Delay = time.Minute })
			var form []string
			if c.prepare != nil {
				form = c.prepare(d)
			}
			b := d.logIn(d.mint("", nil))
			confirmation := b.post("confirm", append([]string{"csrf", b.csrf(), "do", c.name, "queue", "orders"}, form...)...)
			b.expect(confirmation, 200, `action="do"`)
			a := b.submit(confirmation, form...)
			b.expect(a, http.StatusSeeOther)
			page := b.get(strings.TrimPrefix(a.header.Get("Location"), "./"))
			if c.name == "count" {
				b.await(a)
			}
			if strings.Contains(page.body, "Not done") || c.name != "revoke" && !strings.Contains(page.body, "notice good") {
				t.Errorf("not done: %s", html.UnescapeString(main(page.body)))
			}
			got, want := d.audited(), strings.Split(c.want, ", ")
			slices.Sort(got) // a job ends while it is stopped
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("audited: %q, want %q", got, want)
			}
		})
	}
	if got := console.ActionNames(); !slices.Equal(got, []string{
		"pause", "resume", "purge", "redrive", "discard", "count", "stop-job", "remove", "ready", "due", "priority", "put-schedule", "pause-schedule", "resume-schedule", "run-schedule",
		"remove-schedule", "cancel-request", "mint", "revoke",
	}) {
		t.Errorf("the console has the actions %v; add a case here for each", got)
	}
}

// quietly fails the test if a preparation failed.
func (d *env) quietly(err error) []string {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	return nil
}

// scheduled makes a schedule of queue orders, and returns the parameters that name it.
func (d *env) scheduled() []string {
	d.t.Helper()
	d.schedule("", "orders", "s")
	return []string{"schedule", "s"}
}

// audited returns the operations of the audit log.
func (d *env) audited() (operations []string) {
	d.t.Helper()
	records, _, err := d.caller("").Audit(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, r := range records {
		operations = append(operations, r.Operation)
	}
	return operations
}

// TestAuditIsSearchedAndPaged is CON-1: every record can be found, however many there are.
func TestAuditIsSearchedAndPaged(t *testing.T) {
	d := open(t)
	operator := d.caller("")
	d.send("", "Orders", "x")
	if err := operator.Pause(t.Context(), "Orders"); err != nil {
		t.Fatal(err)
	}
	for n := range 149 {
		queue := queueName(n)
		d.send("", queue, "x")
		if err := operator.Pause(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
	}
	b := d.logIn(d.mint("", nil))
	first, second := b.get("access"), b.get("access?page=2")
	b.expect(first, 200, "Page 1 of 2, 150 records", queueName(148), queueName(49))
	b.lacks(first, queueName(48), "data-live")
	b.expect(second, 200, queueName(48), queueName(0), "<td>Orders</td>")
	b.lacks(second, queueName(49))
	found := b.get("access?q=ORDERS")
	b.expect(found, 200, "1 record<", "<td>Orders</td>")
	b.lacks(found, queueName(0))
	b.expect(b.get("access?q=nothing"), 200, "None of 150 records has this in it.")
}
