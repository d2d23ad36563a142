package capability

import (
	"bytes"
	"errors"
	"testing"
	"time"

	oracle "gopkg.in/macaroon.v2"

	"github.com/mailboxmq/mailbox/driver"
)

func FuzzParse(f *testing.F) {
	f.Add(ordersToken(f, NewKeyRing(fixedKey(f, 1))).Reveal())
	f.Add("AgIV")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ReasonMalformed) || !token.IsZero() {
				t.Fatalf("%v and %v", err, token)
			}
			return
		}
		if token.Reveal() != text {
			t.Fatalf("%q became %q", text, token.Reveal())
		}
	})
}

// FuzzParseBinary compares the parser with the oracle: a token that is accepted here
// parses the same there and is encoded the same by both, and no token that was not
// minted is ever genuine.
func FuzzParseBinary(f *testing.F) {
	key := fixedKey(f, 1)
	ring := NewKeyRing(key)
	minted := ordersToken(f, ring)
	verifier := NewVerifier(ring, nil)
	f.Add(minted.RevealBinary(nil))
	f.Add(mustNarrow(f, minted, Tenant("acme"), MaxBodyBytes(5)).RevealBinary(nil))
	f.Fuzz(func(t *testing.T, binary []byte) {
		token, err := ParseBinary(binary)
		if err != nil {
			if !errors.Is(err, ReasonMalformed) {
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
		if err == nil && !genuine || errors.Is(err, ReasonNotGenuine) && genuine && d.Key == key.id {
			t.Fatalf("verdict %v, and the oracle says %t", err, genuine)
		}
		if narrowed, err := token.Narrow(inAnHour()); err == nil && len(narrowed.Inspect().Caveats) != len(d.Caveats)+1 {
			t.Fatal("narrowing added something else")
		}
		c := token.Credentials()
		_, err = verifier.AuthorizeSigned(t.Context(), c.AccessKeyID, c.SessionToken, func(s Secret) bool { return s.Equal(c.SecretAccessKey) }, sendToOrders())
		if errors.Is(err, ReasonMalformed) || err == nil && !genuine {
			t.Fatalf("signed: %v, and the oracle says %t", err, genuine)
		}
	})
}

func FuzzParseCaveat(f *testing.F) {
	for _, text := range []string{
		"mbx:op=send,recv", "mbx:topic=orders,user:42:*,a%2C%25", "mbx:exp=2026-01-02T03:04:05Z", "mbx:quota=msgs/s:5", "mbx:max_body=7",
		"mbx:net=10.0.0.0/8,::/0", "mbx:peer=spiffe://a/b", "mbx:aud=eu1", "mbx:tenant=acme", "mbx:receipt=", "mbx:nbf=1970-01-01T00:00:00Z",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCaveat(text)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if c.String() != text || c.words() == "" {
			t.Fatalf("%q became %q", text, c)
		}
		// No caveat widens a token: a request that is refused without it
		// is refused with it.
		var narrow, narrower scope
		for _, s := range []*scope{&narrow, &narrower} {
			for _, c := range []Caveat{Operations(OpRecv), Queues(Queue("a")), ExpiresAt(time.Unix(1000, 0)), Tenant("x")} {
				_ = s.add(c.String())
			}
		}
		_ = narrower.add(text)
		for _, r := range []Request{{Operation: OpSend, Queue: "a", Tenant: "x"}, {Operation: OpRecv, Queue: "b", Tenant: "x"}, {Operation: OpRecv, Queue: "a"}} {
			if narrow.check(&r, nil) != "" && narrower.check(&r, nil) == "" {
				t.Fatalf("%q widens to %+v", text, r)
			}
		}
		if narrower.checkTime(1000*int64(time.Second)) == "" {
			t.Fatalf("%q makes an expired token good", text)
		}
	})
}

func FuzzParsePattern(f *testing.F) {
	for _, text := range []string{"orders", "user:4:*", "*", "a%2Cb", "a/b.c:*", "%25*"} {
		f.Add(text, "user:4:inbox")
	}
	f.Fuzz(func(t *testing.T, text, queue string) {
		p, err := ParsePattern(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Fatalf("%q became %q", text, p)
		}
		if p.kind == patternPrefix && p.matches(queue) {
			last := p.text[len(p.text)-1]
			rest := queue[len(p.text):]
			if queue[len(p.text)-1] != last || !isSeparator(last) || rest == "" || isSeparator(rest[0]) || isSeparator(rest[len(rest)-1]) {
				t.Fatalf("%q matches %q", text, queue)
			}
		}
	})
}

func FuzzKeyFile(f *testing.F) {
	f.Add(string(formatKeys([]Key{fixedKey(f, 1), fixedKey(f, 2)})))
	f.Add("mailbox keys 1\n00000001 00 0\n00000000\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, ok := parseKeys(text)
		if ok && (len(list) == 0 || string(formatKeys(list)) != text) {
			t.Fatalf("%q became %v", text, list)
		}
	})
}

func FuzzParseTokenID(f *testing.F) {
	f.Add(newTokenID(time.Now()).String())
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := ParseTokenID(text); err == nil && id.String() != text {
			t.Fatalf("%q became %s", text, id)
		}
	})
}

// FuzzSessionToken presents session tokens without a valid signature.
func FuzzSessionToken(f *testing.F) {
	ring := NewKeyRing(fixedKey(f, 1))
	verifier := NewVerifier(ring, nil)
	c := ordersToken(f, ring).Credentials()
	f.Add(c.AccessKeyID, c.SessionToken)
	f.Fuzz(func(t *testing.T, accessKeyID, sessionToken string) {
		if _, err := verifier.AuthorizeSigned(t.Context(), accessKeyID, sessionToken, func(Secret) bool { return false }, sendToOrders()); err == nil {
			t.Fatal("accepted without a signature")
		}
	})
}
