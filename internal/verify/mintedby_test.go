package verify

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
)

func TestRevokingMinterRevokesMintedTokens(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	revoked := new(revokedTokens)
	v := New(ring, &Options{Revocations: revoked})
	maker := ordersToken(t, ring)
	made := ordersToken(t, ring, capability.MintedBy(numbered(1)), capability.MintedBy(maker.ID()))
	narrowed := mustNarrow(t, made, capability.MaxBodyBytes(1<<20))
	wantAllowed(t, v, made, sendToOrders())
	if err := revoked.Revoke(t.Context(), revocation{Token: maker.ID(), At: time.Now().Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, v, made, sendToOrders(), capability.ReasonRevoked)
	wantRefused(t, v, narrowed, sendToOrders(), capability.ReasonRevoked)
	wantCode(t, "Valid", v.Valid(t.Context(), narrowed), driver.ErrUnauthenticated)
	if err := v.Timely(t.Context(), narrowed); err != nil {
		t.Errorf("Timely: %v", err)
	}
	wantAllowed(t, v, ordersToken(t, ring), sendToOrders())
	for _, bad := range []string{"mbx:by=", "mbx:by=x", "mbx:by=00000000000000000000000000", "mbx:by=01k9zq4t1v6n8f7m2c3b5d0xaw"} {
		if _, err := capability.ParseCaveat(bad); err == nil {
			t.Errorf("%q is a caveat", bad)
		}
	}
}

func TestEndsIsExpiryOfMintedToken(t *testing.T) {
	token := ordersToken(t, keyring.New(keyring.NewKey()))
	narrowed := mustNarrow(t, token, capability.ExpiresAt(time.Now().Add(time.Minute)))
	if d := narrowed.Inspect(); !d.Ends.Equal(token.Inspect().ExpiresAt) || !d.ExpiresAt.Before(d.Ends) {
		t.Errorf("narrowed to %v, and all ends %v; minted until %v", d.ExpiresAt, d.Ends, token.Inspect().ExpiresAt)
	}
}

// TestRevokedTenantOfMinterRevokesToken revokes a tenant before its token mints,
// as seen by a process that learns of it late.
func TestRevokedTenantOfMinterRevokesToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := keyring.New(keyring.NewKey())
		revoked := new(revokedTokens)
		v := New(ring, &Options{Revocations: revoked})
		request := Request{Operation: capability.OpSend, Queue: "orders", Tenant: "acme", Load: Load{Messages: 1}}
		scoped := []capability.Caveat{capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour))}
		ofTenant, err := ring.Mint("acme", scoped...)
		if err != nil {
			t.Fatal(err)
		}
		operator, err := ring.Mint("", scoped...)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		time.Sleep(time.Second)
		escaped, err := ring.Mint("acme", append(scoped, capability.MintedBy(operator.ID()), capability.Tenant("acme"), capability.MintedBy(ofTenant.ID()))...)
		if err != nil {
			t.Fatal(err)
		}
		renewed, err := ring.Mint("acme", append(scoped, capability.MintedBy(operator.ID()), capability.Tenant("acme"))...)
		if err != nil {
			t.Fatal(err)
		}
		wantAllowed(t, v, escaped, request)
		if err := revoked.Revoke(t.Context(), revocation{Tenant: "acme", At: at}); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, v, ofTenant, request, capability.ReasonRevoked)
		wantRefused(t, v, escaped, request, capability.ReasonRevoked)
		wantAllowed(t, v, renewed, request)
	})
}
