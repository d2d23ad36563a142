package verify

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixedKey returns a key that is the same in every run.
func fixedKey(t testing.TB, id capability.KeyID) keyring.Key {
	t.Helper()
	key, err := keyring.KeyFrom(id, bytes.Repeat([]byte{byte(id)}, macaroon.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustMint(t testing.TB, ring *keyring.Ring, tenant string, caveats ...capability.Caveat) capability.Token {
	t.Helper()
	token, err := ring.Mint(tenant, caveats...)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func mustNarrow(t testing.TB, token capability.Token, caveats ...capability.Caveat) capability.Token {
	t.Helper()
	narrowed, err := token.Narrow(caveats...)
	if err != nil {
		t.Fatal(err)
	}
	return narrowed
}

// inAnHour is the expiry of tokens in most tests.
func inAnHour() capability.Caveat { return capability.ExpiresAt(time.Now().Add(time.Hour)) }

// ordersToken allows sending to and receiving from orders for an hour, as far as the
// further caveats allow it.
func ordersToken(t testing.TB, ring *keyring.Ring, caveats ...capability.Caveat) capability.Token {
	t.Helper()
	return mustMint(t, ring, "", append([]capability.Caveat{
		capability.Operations(capability.OpSend, capability.OpRecv, capability.OpAck, capability.OpNack, capability.OpExtend, capability.OpAsk, capability.OpAnswer), capability.Queues(capability.Queue("orders")), inAnHour(),
	}, caveats...)...)
}

// sendToOrders is a request with all fields set.
func sendToOrders() Request {
	return Request{
		Operation: capability.OpSend, Queue: "orders", Tenant: "acme", Load: Load{Messages: 1, Bytes: 100, LargestBody: 100},
		Client: netip.MustParseAddr("10.1.2.3"), Peer: "spiffe://example.org/worker", Receipt: "r1",
	}
}

func wantAllowed(t testing.TB, v *Verifier, token capability.Token, r Request) *Grant {
	t.Helper()
	grant, err := v.Authorize(t.Context(), token, r)
	if err != nil {
		t.Errorf("refused: %v", err)
		return nil
	}
	return grant
}

func wantRefused(t testing.TB, v *Verifier, token capability.Token, r Request, reason capability.Reason) {
	t.Helper()
	grant, err := v.Authorize(t.Context(), token, r)
	checkRefusal(t, grant, err, reason)
}

// checkRefusal checks that err is a refusal for this reason, with its code.
func checkRefusal(t testing.TB, grant *Grant, err error, reason capability.Reason) {
	t.Helper()
	if grant != nil || !errors.Is(err, reason) || !errors.Is(err, reason.Code()) || capability.ReasonOf(err) != reason {
		t.Errorf("got %v and %v, want a refusal because of %s", grant, err, reason)
	}
	if (driver.RetryAfter(err) > 0) != (reason == capability.ReasonQuota) {
		t.Errorf("%s: retry after %v", reason, driver.RetryAfter(err))
	}
}

func wantCode(t testing.TB, what string, err error, code driver.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: %v, want %v", what, err, code)
	}
}

// numbered returns a token id that is the same in every run.
func numbered(n int) capability.TokenID {
	id := capability.TokenID(macaroon.NewTokenID(time.Unix(1_700_000_000, 0)))
	copy(id[6:], []byte{0, 0, 0, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)})
	return id
}

// A revocation revokes a token, or the tokens of a tenant that were minted up to At.
type revocation struct {
	Token  capability.TokenID
	Tenant string
	At     time.Time
}

// revokedTokens are revocations in memory.
type revokedTokens struct {
	mu   sync.Mutex // guards list
	list []revocation
}

func (m *revokedTokens) Revoke(_ context.Context, r revocation) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, r)
	return nil
}

func (m *revokedTokens) Revoked(_ context.Context, token capability.TokenID, tenant string) (since time.Time, revoked bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.list {
		concerned := r.Token == token && r.Tenant == "" || r.Tenant != "" && r.Tenant == tenant && !token.MintedAt().After(r.At)
		if concerned && (!revoked || r.At.Before(since)) {
			since, revoked = r.At, true
		}
	}
	return since, revoked, nil
}

func (m *revokedTokens) Generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(len(m.list))
}

func (m *revokedTokens) RevokesNarrowed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.list, func(r revocation) bool { return r.Token.IsNarrowed() })
}

// mint makes a token with the given identifier and any caveats.
func mint(key keyring.Key, id macaroon.Identifier, caveats []capability.Caveat) (capability.Token, error) {
	texts := make([]string, len(caveats))
	for i, c := range caveats {
		texts[i] = c.String()
	}
	body, chain := macaroon.Begin(macaroon.RootKey(key.Reveal(), id.Tenant), id)
	return capability.ParseBinary(macaroon.Extend(body, &chain, texts))
}
