package verify

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	oracle "gopkg.in/macaroon.v2"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// FuzzParseBinary compares the parser with the oracle: a token that is accepted here
// parses the same there and is encoded the same by both, and no token that was not
// minted is ever genuine.
func FuzzParseBinary(f *testing.F) {
	key := fixedKey(f, 1)
	ring := keyring.New(key)
	minted := ordersToken(f, ring)
	verifier := New(ring, nil)
	f.Add(minted.RevealBinary(nil))
	f.Add(mustNarrow(f, minted, capability.Tenant("acme"), capability.MaxBodyBytes(5)).RevealBinary(nil))
	f.Fuzz(func(t *testing.T, binary []byte) {
		token, err := capability.ParseBinary(binary)
		if err != nil {
			if !errors.Is(err, capability.ReasonMalformed) {
				t.Fatal(err)
			}
			return
		}
		m := new(oracle.Macaroon)
		if err := m.UnmarshalBinary(binary); err != nil {
			t.Fatalf("the oracle does not read it: %v", err)
		}
		if again, err := m.MarshalBinary(); err != nil || !bytes.Equal(again, binary) {
			t.Fatalf("the oracle writes it as %x, %v", again, err)
		}
		d := token.Inspect()
		if len(d.Caveats) != len(m.Caveats()) || len(d.Words()) == 0 {
			t.Fatalf("%d caveats, the oracle has %d", len(d.Caveats), len(m.Caveats()))
		}
		for i, c := range m.Caveats() {
			if string(c.Id) != d.Caveats[i].String() {
				t.Fatalf("caveat %d is %q, the oracle has %q", i, d.Caveats[i], c.Id)
			}
		}
		_, genuine := oracleAccepts(m, key, d.Tenant)
		_, err = verifier.Authorize(t.Context(), token, sendToOrders())
		if err == nil && !genuine || errors.Is(err, capability.ReasonNotGenuine) && genuine && d.Key == key.ID() {
			t.Fatalf("verdict %v, and the oracle says %t", err, genuine)
		}
		if narrowed, err := token.Narrow(inAnHour()); err == nil && len(narrowed.Inspect().Caveats) != len(d.Caveats)+1 {
			t.Fatal("narrowing added something else")
		}
		c := macaroon.CredentialsOf(token.RevealBinary(nil))
		_, err = authorizeSigned(verifier, t.Context(), c.AccessKeyID, c.SessionToken, func(s macaroon.Secret) bool { return s.Equal(c.SecretAccessKey) }, sendToOrders())
		if errors.Is(err, capability.ReasonMalformed) || err == nil && !genuine {
			t.Fatalf("signed: %v, and the oracle says %t", err, genuine)
		}
	})
}

func FuzzParseCaveat(f *testing.F) {
	minted := ordersToken(f, keyring.New(fixedKey(f, 1)))
	for _, text := range []string{
		"mbx:op=send,recv", "mbx:topic=orders,user:42:*,a%2C%25", "mbx:exp=2026-01-02T03:04:05Z", "mbx:quota=msgs/s:5", "mbx:max_body=7",
		"mbx:net=10.0.0.0/8,::/0", "mbx:peer=spiffe://a/b", "mbx:aud=eu1", "mbx:tenant=acme", "mbx:receipt=", "mbx:slot=", "mbx:nbf=1970-01-01T00:00:00Z",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := capability.ParseCaveat(text)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if c.String() != text {
			t.Fatalf("%q became %q", text, c)
		}
		if token, err := minted.Narrow(c); err == nil && slices.Contains(token.Inspect().Words(), "") {
			t.Fatalf("%q has no words", text)
		}
		// No caveat widens a token: a request that is refused without it
		// is refused with it.
		var narrow, narrower scope
		for _, s := range []*scope{&narrow, &narrower} {
			for _, c := range []capability.Caveat{capability.Operations(capability.OpRecv), capability.Queues(capability.Queue("a")), capability.ExpiresAt(time.Unix(1000, 0)), capability.Tenant("x")} {
				_ = s.Add(c.String())
			}
		}
		_ = narrower.Add(text)
		for _, r := range []Request{{Operation: capability.OpSend, Queue: "a", Tenant: "x"}, {Operation: capability.OpRecv, Queue: "b", Tenant: "x"}, {Operation: capability.OpRecv, Queue: "a"}} {
			if narrow.check(&r, nil) != "" && narrower.check(&r, nil) == "" {
				t.Fatalf("%q widens to %+v", text, r)
			}
		}
		if narrower.checkTime(1000*int64(time.Second)) == "" {
			t.Fatalf("%q makes an expired token good", text)
		}
	})
}

// FuzzSessionToken presents session tokens without a valid signature.
func FuzzSessionToken(f *testing.F) {
	ring := keyring.New(fixedKey(f, 1))
	verifier := New(ring, nil)
	c := macaroon.CredentialsOf(ordersToken(f, ring).RevealBinary(nil))
	f.Add(c.AccessKeyID, c.SessionToken)
	f.Fuzz(func(t *testing.T, accessKeyID, sessionToken string) {
		if _, err := authorizeSigned(verifier, t.Context(), accessKeyID, sessionToken, func(macaroon.Secret) bool { return false }, sendToOrders()); err == nil {
			t.Fatal("accepted without a signature")
		}
	})
}
