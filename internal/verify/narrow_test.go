package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// family returns a minted token, two tokens narrowed from it alike, and one
// narrowed further from the first.
func family(t *testing.T, ring *keyring.Ring) (minted, left, right, below capability.Token) {
	t.Helper()
	minted = ordersToken(t, ring)
	left = mustNarrow(t, minted, capability.MaxBodyBytes(1000), capability.Operations(capability.OpSend))
	right = mustNarrow(t, minted, capability.MaxBodyBytes(2000), capability.Operations(capability.OpSend))
	return minted, left, right, mustNarrow(t, left, capability.MaxBodyBytes(500))
}

func revokeNow(t *testing.T, m *revokedTokens, id capability.TokenID) {
	t.Helper()
	if err := m.Revoke(t.Context(), revocation{Token: id, At: time.Now().Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
}

func TestNarrowedTokenIsRevokedWithoutItsParent(t *testing.T) {
	ring, revoked := keyring.New(keyring.NewKey()), new(revokedTokens)
	v := New(ring, &Options{Revocations: revoked})
	minted, left, right, below := family(t, ring)
	for _, token := range []capability.Token{minted, left, right, below} { // all of them are in the cache
		wantAllowed(t, v, token, sendToOrders())
	}
	revokeNow(t, revoked, left.NarrowedID())
	wantRefused(t, v, left, sendToOrders(), capability.ReasonRevoked)
	wantRefused(t, v, below, sendToOrders(), capability.ReasonRevoked)
	wantAllowed(t, v, minted, sendToOrders())
	wantAllowed(t, v, right, sendToOrders())
	if _, err := authorizeSigned(v, t.Context(), macaroon.CredentialsOf(left.RevealBinary(nil)).AccessKeyID, macaroon.CredentialsOf(left.RevealBinary(nil)).SessionToken,
		func(macaroon.Secret) bool { return true }, sendToOrders()); capability.ReasonOf(err) != capability.ReasonRevoked {
		t.Errorf("signed with a revoked narrowed token: %v", err)
	}
	revokeNow(t, revoked, minted.ID())
	wantRefused(t, v, right, sendToOrders(), capability.ReasonRevoked)
	wantRefused(t, v, minted, sendToOrders(), capability.ReasonRevoked)
}

func TestRevokingNarrowedMinterRevokesMintedTokens(t *testing.T) {
	ring, revoked := keyring.New(keyring.NewKey()), new(revokedTokens)
	v := New(ring, &Options{Revocations: revoked})
	minted, left, right, below := family(t, ring)
	// A daemon mints with the caveats of the minter, its tenant if it has one, and its id.
	mintWith := func(maker capability.Token, tenant ...capability.Caveat) capability.Token {
		caveats := append(maker.Inspect().Caveats, tenant...)
		return mustMint(t, ring, "acme", append(caveats, capability.MintedBy(maker.ID()), capability.MaxBodyBytes(400))...)
	}
	byLeft, byBelow, byRight, byMinted := mintWith(left, capability.Tenant("acme")), mintWith(below), mintWith(right), mintWith(minted)
	grandchild := mustNarrow(t, mintWith(byBelow), capability.MaxBodyBytes(300))
	revokeNow(t, revoked, left.NarrowedID())
	for name, token := range map[string]capability.Token{"minted with it": byLeft, "minted with one narrowed from it": byBelow, "minted with what that minted": grandchild} {
		if _, err := v.Authorize(t.Context(), token, sendToOrders()); capability.ReasonOf(err) != capability.ReasonRevoked {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantAllowed(t, v, byRight, sendToOrders())
	wantAllowed(t, v, byMinted, sendToOrders())
}

func TestNarrowedIDsDifferByOrderAndBoundaries(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	minted := ordersToken(t, ring)
	a, b := capability.MaxBodyBytes(1000), capability.Operations(capability.OpSend)
	seen := make(map[capability.TokenID]string)
	for name, token := range map[string]capability.Token{
		"minted": minted, "another": ordersToken(t, ring), "a": mustNarrow(t, minted, a), "b": mustNarrow(t, minted, b),
		"a b": mustNarrow(t, minted, a, b), "b a": mustNarrow(t, minted, b, a), "a a": mustNarrow(t, minted, a, a),
		"1": mustNarrow(t, minted, capability.MaxBodyBytes(1)), "11": mustNarrow(t, minted, capability.MaxBodyBytes(11)),
	} {
		id := token.NarrowedID()
		if other, taken := seen[id]; taken {
			t.Errorf("%s and %s have the same id", name, other)
		}
		seen[id] = name
		if !id.IsNarrowed() || token.ID().IsNarrowed() || !strings.HasPrefix(id.String(), "7Z") {
			t.Errorf("%s has narrowed id %s and minted id %s", name, id, token.ID())
		}
		if parsed, err := capability.ParseTokenID(id.String()); err != nil || parsed != id {
			t.Errorf("%s reads as %s, %v", id, parsed, err)
		}
	}
	again := mustNarrow(t, mustNarrow(t, minted, a), b)
	if seen[again.NarrowedID()] != "a b" {
		t.Error("narrowing in two steps gives another id than in one")
	}
	if !(capability.Token{}).NarrowedID().IsZero() {
		t.Error("the zero token has an id")
	}
}

func TestForgedTokenIsNotGenuineBeforeItIsRevoked(t *testing.T) {
	ring, revoked := keyring.New(keyring.NewKey()), new(revokedTokens)
	v := New(ring, &Options{Revocations: revoked})
	_, left, _, _ := family(t, ring)
	revokeNow(t, revoked, left.NarrowedID())
	forged := left.RevealBinary(nil)
	forged[len(forged)-1] ^= 1
	token, err := capability.ParseBinary(forged)
	if err != nil {
		t.Fatal(err)
	}
	if token.NarrowedID() != left.NarrowedID() {
		t.Error("the signature changes the id")
	}
	wantRefused(t, v, token, sendToOrders(), capability.ReasonNotGenuine)
}

// unsure are revocations without RevokesNarrowed.
type unsure struct{ Revocations }

func TestNarrowedIDsAreCheckedWithForeignRevocations(t *testing.T) {
	ring, revoked := keyring.New(keyring.NewKey()), new(revokedTokens)
	v := New(ring, &Options{Revocations: unsure{revoked}})
	minted, left, _, _ := family(t, ring)
	revokeNow(t, revoked, left.NarrowedID())
	wantRefused(t, v, left, sendToOrders(), capability.ReasonRevoked)
	wantAllowed(t, v, minted, sendToOrders())
}
