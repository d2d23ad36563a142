package capability

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func TestTokenRoundTripsThroughText(t *testing.T) {
	ring := NewKeyRing(NewKey())
	token := ordersToken(t, ring)
	fromText, err := Parse(token.Reveal())
	if err != nil || !fromText.Equal(token) {
		t.Fatalf("from text: %v, %v", fromText, err)
	}
	fromBinary, err := ParseBinary(token.RevealBinary(nil))
	if err != nil || !fromBinary.Equal(token) {
		t.Fatalf("from binary: %v, %v", fromBinary, err)
	}
	var unmarshalled Token
	if err := unmarshalled.UnmarshalText([]byte(token.Reveal())); err != nil || !unmarshalled.Equal(token) {
		t.Fatalf("UnmarshalText: %v, %v", unmarshalled, err)
	}
	if token.Equal(ordersToken(t, ring)) || token.ID() == ordersToken(t, ring).ID() {
		t.Error("two tokens are the same")
	}
	if token.IsZero() || !(Token{}).IsZero() || (Token{}).Reveal() != "" || !(Token{}).ID().IsZero() {
		t.Error("the zero token is not reported as zero")
	}
}

func TestTokenTextIsReadStrictly(t *testing.T) {
	good := ordersToken(t, NewKeyRing(NewKey())).Reveal()
	for name, bad := range map[string]string{
		"nothing":          "",
		"padding":          good + "=",
		"a line break":     good[:10] + "\n" + good[10:],
		"a space":          " " + good,
		"the other base64": strings.NewReplacer("-", "+", "_", "/").Replace("-_" + good),
		"a cut token":      good[:len(good)-4],
		"something behind": good + "AAAA",
		"too long":         strings.Repeat("A", 8192),
		"a redaction":      "[capability 00000000/00000000000000000000000000]",
	} {
		if token, err := Parse(bad); !errors.Is(err, ReasonMalformed) || !errors.Is(err, driver.ErrUnauthenticated) || !token.IsZero() {
			t.Errorf("%s: %v, want ReasonMalformed", name, err)
		}
	}
	var token Token
	if err := token.UnmarshalText([]byte("x")); !errors.Is(err, ReasonMalformed) {
		t.Errorf("UnmarshalText: %v", err)
	}
}

func TestMintRequiresOperationsQueuesAndExpiry(t *testing.T) {
	ring := NewKeyRing(NewKey())
	op, queue, exp := AllOperations(), Queues(AnyQueue()), inAnHour()
	if _, err := ring.Mint("", op, queue, exp); err != nil {
		t.Errorf("all three: %v", err)
	}
	for _, caveats := range [][]Caveat{nil, {op, queue}, {op, exp}, {queue, exp}, {op, queue, NotBefore(time.Now())}} {
		_, err := ring.Mint("", caveats...)
		wantCode(t, "without one of them", err, driver.ErrInvalid)
	}
	_, err := ring.Mint("", op, queue, exp, Operations())
	wantCode(t, "a bad caveat", err, driver.ErrInvalid)
	for _, tenant := range []string{"a b", "a/b", strings.Repeat("a", macaroon.MaxTenantBytes+1), "é"} {
		_, err := ring.Mint(tenant, op, queue, exp)
		wantCode(t, "tenant "+tenant, err, driver.ErrInvalid)
	}
	_, err = NewKeyRing(Key{}).Mint("", op, queue, exp)
	wantCode(t, "no key", err, driver.ErrNotFound)
}

func TestNarrowingZeroTokenFails(t *testing.T) {
	_, err := Token{}.Narrow(inAnHour())
	wantCode(t, "zero token", err, driver.ErrInvalid)
	_, err = ordersToken(t, NewKeyRing(NewKey())).Narrow(Caveat{})
	wantCode(t, "zero caveat", err, driver.ErrInvalid)
}

func TestInspectDescribesCaveats(t *testing.T) {
	key := fixedKey(t, 7)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	body, chain := macaroon.Begin(macaroon.RootKey(key.Reveal(), "acme"), macaroon.Identifier{Key: 7, Token: macaroon.NewTokenID(at), Tenant: "acme"})
	token, err := extend(body, 0, &chain, []Caveat{
		Operations(OpSend, OpAck), Queues(Queue("a,b"), QueuesUnder("user:42:")), ExpiresAt(at.Add(2 * time.Hour)),
		ExpiresAt(at.Add(time.Hour)), NotBefore(at), MessagesPerSecond(10), BytesPerSecond(2000), MaxBodyBytes(99),
		Audience("eu1"), Peers("spiffe://example.org/worker"), Tenant("acme"), ForReceipt("r1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	d := token.Inspect()
	if d.Key != 7 || d.ID != token.ID() || d.Tenant != "acme" || !d.MintedAt.Equal(at) || !d.ExpiresAt.Equal(at.Add(time.Hour)) {
		t.Errorf("described as %+v", d)
	}
	want := []string{
		"minted 2026-01-02T03:04:05Z with key 00000007", "for tenant acme",
		"may send,ack", "on queues a%2Cb,user:42:*", "until 2026-01-02T05:04:05Z", "until 2026-01-02T04:04:05Z",
		"from 2026-01-02T03:04:05Z", "at most 10 messages per second", "at most 2000 bytes per second",
		"bodies of at most 99 bytes", "at eu1", "as spiffe://example.org/worker", "for tenant acme", "for one delivery only",
	}
	if got := d.Words(); !slices.Equal(got, want) {
		t.Errorf("words:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d := (Token{}).Inspect(); !reflect.DeepEqual(d, Description{}) {
		t.Errorf("zero token described as %+v", d)
	}
	if words := (Caveat{text: "mbx:new=\x1b[1m"}).words(); !strings.Contains(words, "unknown") || strings.Contains(words, "\x1b") {
		t.Errorf("unknown caveat described as %q", words)
	}
}

func TestTokenIDsAreULIDs(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	id := TokenID(macaroon.NewTokenID(at))
	if !id.MintedAt().Equal(at) {
		t.Errorf("minted at %v, want %v", id.MintedAt(), at)
	}
	text, _ := id.MarshalText()
	var back TokenID
	if err := back.UnmarshalText(text); err != nil || back != id {
		t.Errorf("%s became %v, %v", text, back, err)
	}
	for _, bad := range []string{"", "x", strings.ToLower(id.String()), id.String()[1:], "8" + id.String()[1:], id.String() + " "} {
		if _, err := ParseTokenID(bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("ParseTokenID(%q): %v", bad, err)
		}
		if err := back.UnmarshalText([]byte(bad)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("UnmarshalText(%q): %v", bad, err)
		}
	}
}
