package broker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestTenantRevokesOnlyItsOwnTokens(t *testing.T) {
	b := memory(t, broker.Limits{})
	acme := b.as("acme")
	operator, other, own := mint(t, b.ring, ""), mint(t, b.ring, "other"), mint(t, b.ring, "acme")
	foreign := mint(t, keyring.New(keyring.NewKey()), "acme")
	for what, token := range map[string]capability.Token{"the operator's": operator, "another tenant's": other} {
		expectCode(t, acme.RevokeToken(t.Context(), token), driver.ErrForbidden, what+" token")
		expectCode(t, acme.Revoke(t.Context(), revocation.Revocation{Token: token.ID()}), driver.ErrForbidden, what+" token by its id")
		if _, err := b.Caller(token, broker.Origin{}).Send(t.Context(), "orders", say("x")); err != nil {
			t.Errorf("%s token after that: %v", what, err)
		}
	}
	expectCode(t, acme.RevokeToken(t.Context(), foreign), driver.ErrInvalid, "a token that was made elsewhere")
	expectCode(t, acme.Revoke(t.Context(), revocation.Revocation{Token: own.ID()}), driver.ErrForbidden, "its own token by its id, which proves nothing")
	narrowed, err := own.Narrow(capability.ExpiresAt(time.Now().Add(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	if err := acme.RevokeToken(t.Context(), narrowed); err != nil {
		t.Errorf("its own token: %v", err)
	}
	if _, err := b.Caller(own, broker.Origin{}).Send(t.Context(), "orders", say("x")); !errors.Is(err, capability.ReasonRevoked) {
		t.Errorf("its own token after that: %v", err)
	}
	for r := range b.revoked.All() {
		if ends := own.Inspect().ExpiresAt; r.Until.Before(ends) {
			t.Errorf("forgotten at %v, when the token that was narrowed is good until %v", r.Until, ends)
		}
	}
	expectCode(t, acme.Revoke(t.Context(), revocation.Revocation{Tenant: "other"}), driver.ErrForbidden, "all tokens of another tenant")
	if err := b.as("").Revoke(t.Context(), revocation.Revocation{Token: other.ID()}); err != nil {
		t.Errorf("the operator, by an id: %v", err)
	}
	if err := acme.Revoke(t.Context(), revocation.Revocation{Tenant: "acme"}); err != nil {
		t.Errorf("all tokens of its own: %v", err)
	}
}

func TestRevokingTokenRevokesTokensItMinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		operator := b.as("")
		mintWith := func(c broker.Caller) broker.Caller {
			t.Helper()
			token, err := c.Mint(t.Context(), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			return b.Caller(token, broker.Origin{})
		}
		child := mintWith(operator)
		grandchild, sibling := mintWith(child), mintWith(operator)
		b.send(grandchild, "orders", "x")
		got := b.receive(grandchild, "orders", 1)
		time.Sleep(2 * time.Millisecond) // revocations count in milliseconds
		if err := operator.Revoke(t.Context(), revocation.Revocation{Token: child.TokenID()}); err != nil {
			t.Fatal(err)
		}
		if _, err := grandchild.Send(t.Context(), "orders", say("x")); !errors.Is(err, capability.ReasonRevoked) {
			t.Errorf("what the revoked token had minted: %v", err)
		}
		if _, err := grandchild.Mint(t.Context(), "", nil); !errors.Is(err, capability.ReasonRevoked) {
			t.Errorf("and it mints: %v", err)
		}
		if err := grandchild.Ack(t.Context(), "orders", []string{got[0].Receipt}); err != nil {
			t.Errorf("the ack of what it had taken before: %v", err)
		}
		b.send(sibling, "orders", "x")
	})
}

func TestTenantCannotFillTheRevocations(t *testing.T) {
	b := memory(t, broker.Limits{})
	acme := b.as("acme")
	for range revocation.MaxPerShare {
		if err := acme.RevokeToken(t.Context(), mint(t, b.ring, "acme")); err != nil {
			t.Fatal(err)
		}
	}
	expectCode(t, acme.RevokeToken(t.Context(), mint(t, b.ring, "acme")), driver.ErrFull, "one more than a tenant's share")
	if err := b.as("other").RevokeToken(t.Context(), mint(t, b.ring, "other")); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := acme.Revoke(t.Context(), revocation.Revocation{Tenant: "acme"}); err != nil {
		t.Errorf("all of its tokens at once: %v", err)
	}
}

// TestTokenMintedAfterTenantRevocationIsRevoked lets a daemon learn late of a revocation
// that was made through another one.
func TestTokenMintedAfterTenantRevocationIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		thief := b.as("acme")
		time.Sleep(time.Second)
		told := time.Now()
		time.Sleep(time.Second)
		token, err := thief.Mint(t.Context(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.Caller(token, broker.Origin{}).Mint(t.Context(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		renewed, err := b.as("").Mint(t.Context(), "acme", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.revoked.Revoke(t.Context(), revocation.Revocation{Tenant: "acme", At: told}); err != nil {
			t.Fatal(err)
		}
		for name, made := range map[string]capability.Token{"what it has minted": token, "what that has minted": again} {
			if err := b.Caller(made, broker.Origin{}).Ping(t.Context()); !errors.Is(err, driver.ErrUnauthenticated) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := b.Caller(renewed, broker.Origin{}).Ping(t.Context()); err != nil {
			t.Errorf("what the operator mints afterwards: %v", err)
		}
	})
}

func TestTenantRevokesNarrowedTokenAndKeepsItsParent(t *testing.T) {
	b := memory(t, broker.Limits{})
	narrow := func(token capability.Token) capability.Token {
		t.Helper()
		narrowed, err := token.Narrow(capability.ExpiresAt(time.Now().Add(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		return narrowed
	}
	own, other := mint(t, b.ring, "acme"), mint(t, b.ring, "other")
	narrowed := narrow(own)
	expectCode(t, b.as("acme").RevokeNarrowed(t.Context(), narrow(other)), driver.ErrForbidden, "another tenant's narrowed token")
	expectCode(t, b.as("acme").Revoke(t.Context(), revocation.Revocation{Token: narrowed.NarrowedID()}), driver.ErrForbidden, "a narrowed id, which proves nothing")
	made, err := b.Caller(narrowed, broker.Origin{}).Mint(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.as("acme").RevokeNarrowed(t.Context(), narrowed); err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]capability.Token{"the narrowed token": narrowed, "what it has minted": made} {
		if _, err := b.Caller(token, broker.Origin{}).Send(t.Context(), "orders", say("x")); !errors.Is(err, capability.ReasonRevoked) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, token := range map[string]capability.Token{"its parent": own, "another tenant's": narrow(other)} {
		if _, err := b.Caller(token, broker.Origin{}).Send(t.Context(), "orders", say("x")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for r := range b.revoked.All() {
		if !r.Until.Equal(narrowed.Inspect().ExpiresAt) {
			t.Errorf("forgotten at %v, when the narrowed token ends at %v", r.Until, narrowed.Inspect().ExpiresAt)
		}
	}
}
