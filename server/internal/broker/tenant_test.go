package broker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestTenantCannotNameQueueOfAnother(t *testing.T) {
	b := memory(t, broker.Limits{})
	acme, other, untenanted := b.as("acme"), b.as("other"), b.as("")
	b.send(acme, "orders", "of acme")
	for _, spelled := range []string{"orders", "~acme~orders", "acme/orders", "~~acme~orders", "~other~~acme~orders", "../acme/orders"} {
		for name, c := range map[string]broker.Caller{"another tenant": other, "no tenant": untenanted} {
			b.make(c, spelled)
			if got := b.receive(c, spelled, 1); len(got) > 0 {
				t.Errorf("%s got a message of acme from %q", name, spelled)
			}
		}
	}
	if got := b.receive(acme, "orders", 1); len(got) != 1 || string(got[0].Body) != "of acme" || got[0].Queue != "orders" {
		t.Errorf("acme got %v", got)
	}
	for queue, err := range acme.Queues(t.Context()) {
		if err != nil || queue != "orders" {
			t.Errorf("acme sees %q, %v", queue, err)
		}
	}
}

func TestTenantsUseNamesWithColons(t *testing.T) {
	b := memory(t, broker.Limits{})
	for _, tenant := range []string{"", "acme", "acme.eu"} {
		c := b.as(tenant)
		for _, queue := range []string{"user:42:inbox", "eu:user", ":", "acme:eu:x"} {
			b.send(c, queue, tenant+" "+queue)
		}
		for _, queue := range []string{"user:42:inbox", "eu:user", ":", "acme:eu:x"} {
			if got := b.receive(c, queue, 10); len(got) != 1 || string(got[0].Body) != tenant+" "+queue {
				t.Errorf("tenant %q got %d messages from %q", tenant, len(got), queue)
			}
		}
	}
}

func TestTenantsErrorsNameTheirOwnQueues(t *testing.T) {
	b := memory(t, broker.Limits{})
	_, err := b.as("acme").Stats(t.Context(), "nowhere")
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrNotFound || e.Queue != "nowhere" {
		t.Errorf("got %v, want not found, and the tenant's own name", err)
	}
}

func TestTenantCaveatDoesNotOpenItsQueues(t *testing.T) {
	b := memory(t, broker.Limits{})
	b.send(b.as("acme"), "orders", "of acme")
	narrowed, err := mint(t, b.ring, "").Narrow(capability.Tenant("acme"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Caller(narrowed, broker.Origin{}).Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	expectCode(t, err, driver.ErrForbidden, "receive with a token of no tenant that was narrowed to one")
}

func TestOnlyOperatorReadsOtherTenants(t *testing.T) {
	b := memory(t, broker.Limits{})
	operator, acme := b.as(""), b.as("acme")
	b.send(acme, "orders", "of acme")
	b.send(operator, "own", "x")
	into, err := operator.InTenant(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if stats, err := into.Stats(t.Context(), "orders"); err != nil || stats.Ready != 1 {
		t.Errorf("the operator counts %+v, %v", stats, err)
	}
	seen := 0
	for peeked, err := range into.Peek(t.Context(), "orders", driver.Query{}) {
		if seen++; err != nil || string(peeked.Body) != "of acme" || peeked.Queue != "orders" {
			t.Errorf("the operator sees %+v, %v", peeked, err)
		}
	}
	if seen != 1 {
		t.Errorf("the operator sees %d messages, want 1", seen)
	}
	all := make(map[broker.TenantQueue]bool)
	for queue, err := range operator.AllQueues(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all[queue] = true
	}
	if len(all) != 2 || !all[broker.TenantQueue{Tenant: "acme", Queue: "orders"}] || !all[broker.TenantQueue{Queue: "own"}] {
		t.Errorf("all queues are %v", all)
	}
	narrowed := b.as("", capability.Queues(capability.Queue("orders")))
	withoutAdmin := b.as("", capability.Operations(capability.OpStats, capability.OpPeek))
	ofAcme := b.as("", capability.Tenant("acme"))
	for name, c := range map[string]broker.Caller{
		"another tenant": b.as("other"), "the tenant itself": acme, "a token for one queue": narrowed,
		"a token without admin": withoutAdmin, "a token narrowed to the tenant": ofAcme,
	} {
		_, err := c.InTenant(t.Context(), "acme")
		expectCode(t, err, driver.ErrForbidden, name+" looks into a tenant")
		for queue, err := range c.AllQueues(t.Context()) {
			expectCode(t, err, driver.ErrForbidden, name+" lists all queues")
			if queue.Queue != "" {
				t.Errorf("%s sees %v", name, queue)
			}
		}
	}
	for _, bad := range []string{"", "~acme", "a~b", "acme/orders"} {
		_, err := operator.InTenant(t.Context(), bad)
		expectCode(t, err, driver.ErrInvalid, "tenant "+bad)
	}
}
