package verify_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
)

// TestAuthorizeUseAcceptsAnyOperation checks that any operation suffices, that the
// queue and all other caveats must match, and that no quota is charged.
func TestAuthorizeUseAcceptsAnyOperation(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := verify.New(ring, nil)
	mint := func(tenant string, caveats ...capability.Caveat) capability.Token {
		t.Helper()
		token, err := ring.Mint(tenant, append(caveats, capability.Queues(capability.Queue("orders")), capability.ExpiresAt(time.Now().Add(time.Hour)))...)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for o := capability.OpSend; o <= capability.OpAdmin; o++ {
		token := mint("", capability.Operations(o), capability.MessagesPerSecond(1), capability.MaxBodyBytes(1))
		for range 5 { // a quota that was charged would be used up
			if _, err := v.AuthorizeUse(t.Context(), token, verify.Request{Queue: "orders"}); err != nil {
				t.Errorf("a token for %v: %v", o, err)
			}
		}
		_, err := v.AuthorizeUse(t.Context(), token, verify.Request{Queue: "invoices"})
		if capability.ReasonOf(err) != capability.ReasonQueue {
			t.Errorf("a token for %v on another queue: %v", o, err)
		}
	}
	nothing, err := mint("", capability.Operations(capability.OpSend)).Narrow(capability.Operations(capability.OpRecv))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.AuthorizeUse(t.Context(), nothing, verify.Request{Queue: "orders"}); capability.ReasonOf(err) != capability.ReasonOperation {
		t.Errorf("a token for nothing: %v", err)
	}
	acme := mint("acme", capability.AllOperations())
	if acme.Tenant() != "acme" || nothing.Tenant() != "" {
		t.Errorf("tenants: %q, %q", acme.Tenant(), nothing.Tenant())
	}
	if _, err := v.AuthorizeUse(t.Context(), acme, verify.Request{Queue: "orders"}); capability.ReasonOf(err) != capability.ReasonTenant {
		t.Errorf("a token of a tenant for a request without one: %v", err)
	}
}

func TestGenuineChecksOnlySignature(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := verify.New(ring, nil)
	expired, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(-time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Genuine(t.Context(), expired); err != nil {
		t.Errorf("an expired token: %v", err)
	}
	foreign, err := keyring.New(keyring.NewKey()).Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []capability.Token{foreign, {}} {
		if err := v.Genuine(t.Context(), token); !errors.Is(err, driver.ErrUnauthenticated) {
			t.Errorf("%v: %v", token, err)
		}
	}
}
