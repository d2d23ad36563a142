package verify

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	oracle "gopkg.in/macaroon.v2"
	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// fataler is what *testing.T and *rapid.T have in common here.
type fataler interface{ Fatalf(string, ...any) }

// inOracle parses a token with another implementation of macaroons.
func inOracle(t fataler, token capability.Token) *oracle.Macaroon {
	m := new(oracle.Macaroon)
	if err := m.UnmarshalBinary(token.RevealBinary(nil)); err != nil {
		t.Fatalf("the oracle cannot read a token: %v", err)
	}
	return m
}

// fromOracle parses a token of the other implementation.
func fromOracle(t fataler, m *oracle.Macaroon) capability.Token {
	binary, err := m.MarshalBinary()
	if err != nil {
		t.Fatalf("the oracle cannot write: %v", err)
	}
	token, err := capability.ParseBinary(binary)
	if err != nil {
		t.Fatalf("what the oracle wrote cannot be read: %v", err)
	}
	return token
}

// oracleMints mints a token with the other implementation, with arbitrary
// caveats.
func oracleMints(t fataler, key keyring.Key, tenant string, caveats ...string) *oracle.Macaroon {
	id := macaroon.Identifier{Key: uint32(key.ID()), Token: macaroon.NewTokenID(time.Now()), Tenant: tenant}
	m, err := oracle.New(macaroon.RootKey(key.Reveal(), tenant), id.Append(nil), "", oracle.V2)
	if err != nil {
		t.Fatalf("the oracle cannot mint: %v", err)
	}
	for _, caveat := range caveats {
		if err := m.AddFirstPartyCaveat([]byte(caveat)); err != nil {
			t.Fatalf("the oracle cannot add %q: %v", caveat, err)
		}
	}
	return m
}

// oracleAccepts reports whether the other implementation accepts a token as
// genuine, and which caveats it saw.
func oracleAccepts(m *oracle.Macaroon, key keyring.Key, tenant string) (caveats []string, genuine bool) {
	err := m.Verify(macaroon.RootKey(key.Reveal(), tenant), func(caveat string) error {
		caveats = append(caveats, caveat)
		return nil
	}, nil)
	return caveats, err == nil
}

// someCaveats draws valid caveats.
func someCaveats() *rapid.Generator[[]capability.Caveat] {
	name := rapid.StringMatching(`[a-zA-Z%,*:/é ]{1,40}`)
	one := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) capability.Caveat {
			return capability.Operations(capability.Operation(rapid.IntRange(1, 10).Draw(t, "op")))
		}),
		rapid.Custom(func(t *rapid.T) capability.Caveat {
			return capability.Queues(capability.Queue(name.Draw(t, "queue")), capability.AnyQueue())
		}),
		rapid.Custom(func(t *rapid.T) capability.Caveat {
			return capability.ExpiresAt(time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "exp"), 0))
		}),
		rapid.Custom(func(t *rapid.T) capability.Caveat {
			return capability.BytesPerSecond(rapid.Int64Range(1, 1<<62).Draw(t, "rate"))
		}),
		rapid.Custom(func(t *rapid.T) capability.Caveat {
			return capability.ForReceipt(rapid.StringN(1, 9, -1).Draw(t, "receipt"))
		}),
		rapid.Custom(func(t *rapid.T) capability.Caveat {
			return capability.ForSlot(rapid.StringN(1, 9, -1).Draw(t, "slot"))
		}),
	)
	return rapid.SliceOfN(one, 0, 20)
}

func TestOracleAcceptsOurTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, tenant := keyring.NewKey(), rapid.SampledFrom([]string{"", "acme"}).Draw(t, "tenant")
		caveats := append(someCaveats().Draw(t, "minted"), capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour())
		token, err := keyring.New(key).Mint(tenant, caveats...)
		if err != nil {
			t.Fatal(err)
		}
		more := someCaveats().Draw(t, "added")
		token, err = token.Narrow(more...)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, c := range append(caveats, more...) {
			want = append(want, c.String())
		}
		m := inOracle(t, token)
		if got, genuine := oracleAccepts(m, key, tenant); !genuine || !slices.Equal(got, want) {
			t.Fatalf("the oracle says %t and saw %q, want %q", genuine, got, want)
		}
		if binary, err := m.MarshalBinary(); err != nil || !bytes.Equal(binary, token.RevealBinary(nil)) {
			t.Fatalf("the oracle writes it as %x, %v", binary, err)
		}
		if _, genuine := oracleAccepts(m, keyring.NewKey(), tenant); genuine {
			t.Fatalf("the oracle accepts any key")
		}
	})
}

func TestOracleTokensAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, tenant := keyring.NewKey(), rapid.SampledFrom([]string{"", "acme"}).Draw(t, "tenant")
		texts := []string{"mbx:op=*", "mbx:topic=*", inAnHour().String()}
		m := oracleMints(t, key, tenant, texts...)
		ring := keyring.New(key)
		v := New(ring, nil)
		r := sendToOrders()
		if _, err := v.Authorize(t.Context(), fromOracle(t, m), r); err != nil {
			t.Fatalf("refused: %v", err)
		}
		// Both add the same caveats and get the same token.
		ours := fromOracle(t, m)
		for _, c := range someCaveats().Draw(t, "added") {
			if err := m.AddFirstPartyCaveat([]byte(c.String())); err != nil {
				t.Fatal(err)
			}
			narrowed, err := ours.Narrow(c)
			if err != nil {
				t.Fatal(err)
			}
			ours = narrowed
			if !ours.Equal(fromOracle(t, m)) {
				t.Fatalf("the two disagree after %s", c)
			}
		}
		_, err := v.Authorize(t.Context(), ours, r)
		if capability.ReasonOf(err).Code() == capability.ReasonNotGenuine.Code() && errors.Is(err, capability.ReasonNotGenuine) {
			t.Fatalf("not genuine: %v", err)
		}
	})
}

// TestUnknownCaveatsAreRefused verifies genuine tokens with caveats that this package
// does not define.
func TestUnknownCaveatsAreRefused(t *testing.T) {
	key := keyring.NewKey()
	ring := keyring.New(key)
	v := New(ring, nil)
	good := []string{"mbx:op=*", "mbx:topic=*", inAnHour().String()}
	for caveat, reason := range map[string]capability.Reason{
		"account = 3735928559": ReasonUnknownCaveat, "": ReasonUnknownCaveat, "mbx:": ReasonUnknownCaveat, "mbx:colour=red": ReasonUnknownCaveat,
		"mbx:op": ReasonUnknownCaveat, "MBX:op=*": ReasonUnknownCaveat, "mbx:op=*\x00": ReasonMalformedCaveat, "mbx:exp=soon": ReasonMalformedCaveat,
		"mbx:op=": ReasonMalformedCaveat, "mbx:quota=inflight:5": ReasonMalformedCaveat, "mbx:op=*=*": ReasonMalformedCaveat,
	} {
		for at := range len(good) + 1 {
			m := oracleMints(t, key, "", slices.Insert(slices.Clone(good), at, caveat)...)
			if _, genuine := oracleAccepts(m, key, ""); !genuine {
				t.Fatalf("%q is not genuine", caveat)
			}
			wantRefused(t, v, fromOracle(t, m), sendToOrders(), reason)
		}
	}
	// A third-party caveat, and a location, which the signature does not cover.
	m := oracleMints(t, key, "", good...)
	if err := m.AddThirdPartyCaveat([]byte("another key"), []byte("ask them"), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	m2 := oracleMints(t, key, "", good...)
	m2.SetLocation("here")
	for _, each := range []*oracle.Macaroon{m, m2} {
		binary, err := each.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := capability.ParseBinary(binary); !errors.Is(err, capability.ReasonMalformed) {
			t.Errorf("%v, want ReasonMalformed", err)
		}
	}
}

// TestEmptyLocationIsIgnored: other libraries write an empty location. Such a
// token equals the one without it, and no other encoding is accepted.
func TestEmptyLocationIsIgnored(t *testing.T) {
	token, err := keyring.New(keyring.NewKey()).Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	binary := token.RevealBinary(nil)
	empty := slices.Insert(slices.Clone(binary), 1, macaroon.FieldLocation, 0)
	got, err := capability.ParseBinary(empty)
	if err != nil || got.Reveal() != token.Reveal() {
		t.Errorf("got %v, another token: %t", err, got.Reveal() != token.Reveal())
	}
	for name, bad := range map[string][]byte{
		"two":             slices.Insert(slices.Clone(empty), 1, macaroon.FieldLocation, 0),
		"a long one":      slices.Insert(slices.Clone(binary), 1, macaroon.FieldLocation, 0x80, 0),
		"one with a name": slices.Insert(slices.Clone(binary), 1, macaroon.FieldLocation, 1, 'x'),
	} {
		if _, err := capability.ParseBinary(bad); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
