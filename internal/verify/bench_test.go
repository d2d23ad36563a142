package verify

import (
	"net/netip"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// benchToken returns a token with six caveats, as a worker would have.
func benchToken(b testing.TB, ring *keyring.Ring) capability.Token {
	return mustNarrow(b,
		mustMint(b, ring, "acme", capability.Operations(capability.OpSend, capability.OpRecv, capability.OpAck), capability.Queues(capability.QueuesUnder("user:42:"), capability.Queue("orders")), inAnHour()),
		capability.Operations(capability.OpSend), capability.Networks(netip.MustParsePrefix("10.0.0.0/8")), capability.MaxBodyBytes(1<<16))
}

func BenchmarkAuthorizeFromCache(b *testing.B) {
	ring := keyring.New(keyring.NewKey())
	v, token, r := New(ring, nil), benchToken(b, ring), sendToOrders()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Authorize(b.Context(), token, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAuthorizeFromCacheParallel(b *testing.B) {
	ring := keyring.New(keyring.NewKey())
	v, token, r := New(ring, nil), benchToken(b, ring), sendToOrders()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := v.Authorize(b.Context(), token, r); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkAuthorizeWithQuota(b *testing.B) {
	ring := keyring.New(keyring.NewKey())
	v, token, r := New(ring, nil), mustNarrow(b, benchToken(b, ring), capability.MessagesPerSecond(1<<40), capability.BytesPerSecond(1<<50)), sendToOrders()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Authorize(b.Context(), token, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAuthorizeCold(b *testing.B) {
	ring := keyring.New(keyring.NewKey())
	v, token, r := New(ring, nil), benchToken(b, ring), sendToOrders()
	b.ReportAllocs()
	for b.Loop() {
		v.cache.purge()
		if _, err := v.Authorize(b.Context(), token, r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOracleVerify measures how long the other implementation takes to verify the
// same token, without parsing its caveats.
func BenchmarkOracleVerify(b *testing.B) {
	key := keyring.NewKey()
	m := inOracle(b, benchToken(b, keyring.New(key)))
	root := macaroon.RootKey(key.Reveal(), "acme")
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Verify(root, func(string) error { return nil }, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefuse(b *testing.B) {
	v, token, r := New(keyring.New(keyring.NewKey()), nil), benchToken(b, keyring.New(keyring.NewKey())), sendToOrders()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Authorize(b.Context(), token, r); err == nil {
			b.Fatal("accepted")
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := benchToken(b, keyring.New(keyring.NewKey())).Reveal()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := capability.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMint(b *testing.B) {
	ring := keyring.New(keyring.NewKey())
	caveats := []capability.Caveat{capability.Operations(capability.OpSend), capability.Queues(capability.Queue("orders")), inAnHour()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ring.Mint("acme", caveats...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNarrow(b *testing.B) {
	token, caveat := benchToken(b, keyring.New(keyring.NewKey())), capability.Operations(capability.OpSend)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := token.Narrow(caveat); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAuthorizeFromCacheDoesNotAllocate(t *testing.T) {
	volume.Measures(t)
	ring := keyring.New(keyring.NewKey())
	v, token, r := New(ring, nil), benchToken(t, ring), sendToOrders()
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, _ = v.Authorize(ctx, token, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
