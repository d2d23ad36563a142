package broker_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// auditor returns a caller whose token names the operation.
func (b *bench) auditor(t *testing.T, tenant string) broker.Caller {
	t.Helper()
	token, err := b.ring.Mint(tenant, capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	return b.Caller(token, broker.Origin{CorrelationID: "corr-1"})
}

func auditOf(t *testing.T, c broker.Caller) []audit.Record {
	t.Helper()
	records, damaged, err := c.Audit(t.Context())
	if err != nil || damaged != 0 {
		t.Fatalf("audit: %d damaged, %v", damaged, err)
	}
	return records
}

func TestAuditRecordsEveryChange(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.auditor(t, "")
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("configure", c.Configure(t.Context(), "orders", driver.Config{MaxDeliveries: 1}))
	b.send(c, "orders", "secret body")
	got := b.receive(c, "orders", 1)
	must("nack", c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[0].Receipt}}))
	must("pause", c.Pause(t.Context(), "orders"))
	must("resume", c.Resume(t.Context(), "orders"))
	_, err := c.Edit(t.Context(), "orders", got[0].ID, driver.Edit{Ready: true})
	expectCode(t, err, driver.ErrConflict, "an edit of a dead message") // changes nothing
	_, err = c.Redrive(t.Context(), "orders", nil, 0)
	must("redrive", err)
	due := time.Now().Add(time.Hour)
	for _, edit := range []driver.Edit{{DeliverAt: due}, {Ready: true}, {Remove: true}} {
		_, err = c.Edit(t.Context(), "orders", got[0].ID, edit)
		must("edit", err)
	}
	for range 2 { // the second changes nothing, and is recorded as one that may have
		_, err = c.PutSchedule(t.Context(), "orders", schedule.Schedule{Name: "often", Every: time.Minute, Body: []byte("secret body")})
		must("put schedule", err)
	}
	_, err = c.PutSchedule(t.Context(), "orders", schedule.Schedule{Name: "often"})
	expectCode(t, err, driver.ErrInvalid, "a wrong schedule") // changes nothing
	_, err = c.PauseSchedule(t.Context(), "orders", "often")
	must("pause schedule", err)
	_, err = c.ResumeSchedule(t.Context(), "orders", "often")
	must("resume schedule", err)
	_, err = c.RunSchedule(t.Context(), "orders", "often")
	must("run schedule", err)
	must("remove schedule", c.RemoveSchedule(t.Context(), "orders", "often"))
	now, _, err := c.Fire(t.Context(), "orders", driver.Firing{Name: "raw", Definition: []byte("secret body")})
	must("fire", err)
	_, done, err := c.Fire(t.Context(), "orders", driver.Firing{Name: "raw", Definition: []byte("x")}) // changes nothing
	if must("fire again", err); done {
		t.Error("a second schedule of one name was made")
	}
	for _, f := range []driver.Firing{
		{Messages: []driver.DueMessage{{Outgoing: driver.Outgoing{Body: []byte("secret body")}}}},
		{Messages: []driver.DueMessage{{Due: now.Now}}, Through: now.Now}, // what a runner does is not recorded
		{Through: now.Now},
		{Remove: true},
	} {
		f.Name, f.Revision = "raw", now.Revision
		now, _, err = c.Fire(t.Context(), "orders", f)
		must("fire", err)
	}
	b.send(c, "orders", "secret body")
	_, err = c.Purge(t.Context(), "orders")
	must("purge", err)
	_, err = c.PurgeDead(t.Context(), "orders")
	must("purge dead letters", err)
	_, err = c.Discard(t.Context(), "orders", []string{"01ARZ3NDEKTSV4RRFFQ69G5FAV"})
	must("discard", err)
	minted, err := c.Mint(t.Context(), "acme", nil)
	must("mint", err)
	must("revoke", c.RevokeToken(t.Context(), minted))
	must("revoke tenant", c.Revoke(t.Context(), revocation.Revocation{Tenant: "acme"}))
	must("delete", c.Delete(t.Context(), "orders"))
	expectCode(t, c.Delete(t.Context(), "orders"), driver.ErrNotFound, "a second delete") // changes nothing
	var story []string
	for _, r := range auditOf(t, c) {
		story = append(story, strings.TrimSpace(r.Operation+" "+r.Queue+" "+r.Subject))
		if r.TokenID != c.TokenID().String() || r.CorrID != "corr-1" || r.Result != "ok" || time.Since(r.At) > time.Minute {
			t.Errorf("record %+v", r)
		}
		text, err := json.Marshal(r)
		if err != nil || strings.Contains(string(text), "secret body") || strings.Contains(string(text), minted.Reveal()) {
			t.Errorf("record %s gives a secret away, %v", text, err)
		}
		if r.Operation == "redrive" && r.Count != 1 || r.Operation == "purge" && r.Count != 4 {
			t.Errorf("%s of %d messages", r.Operation, r.Count)
		}
	}
	want := "configure orders, pause orders, resume orders, redrive orders, edit due orders " + got[0].ID + ", edit ready orders " + got[0].ID + ", edit remove orders " + got[0].ID + ", put schedule orders often, put schedule orders often, pause schedule orders often, resume schedule orders often, run schedule orders often, remove schedule orders often, put schedule orders raw, run schedule orders raw, put schedule orders raw, remove schedule orders raw, purge orders, purge dead letters orders, discard orders, mint token  " + minted.ID().String() +
		", revoke  " + minted.ID().String() + ", revoke  tenant acme, delete orders"
	if got := strings.Join(story, ", "); got != want {
		t.Errorf("the audit says\n%s, want\n%s", got, want)
	}
}

func TestAuditNeedsTokenThatNamesIt(t *testing.T) {
	b := memory(t, broker.Limits{})
	for _, tenant := range []string{"", "acme", "other"} {
		if err := b.as(tenant).Configure(t.Context(), "orders", driver.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := b.as("", capability.AllOperations()).Audit(t.Context())
	expectCode(t, err, driver.ErrForbidden, "a token for all operations that does not name audit")
	if records := auditOf(t, b.auditor(t, "")); len(records) != 3 {
		t.Errorf("the operator sees %d records, want 3", len(records))
	}
	if records := auditOf(t, b.auditor(t, "acme")); len(records) != 1 || records[0].Tenant != "acme" {
		t.Errorf("a tenant sees %v, want its own", records)
	}
}
