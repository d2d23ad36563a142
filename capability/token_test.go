package capability

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func TestTokenRoundTripsThroughText(t *testing.T) {
	token := ordersToken(t)
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
	if token.Equal(ordersToken(t)) || token.ID() == ordersToken(t).ID() {
		t.Error("two tokens are the same")
	}
	if token.IsZero() || !(Token{}).IsZero() || (Token{}).Reveal() != "" || !(Token{}).ID().IsZero() {
		t.Error("the zero token is not reported as zero")
	}
}

func TestTokenTextIsReadStrictly(t *testing.T) {
	good := ordersToken(t).Reveal()
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

func TestNarrowingZeroTokenFails(t *testing.T) {
	_, err := Token{}.Narrow(inAnHour())
	wantCode(t, "zero token", err, driver.ErrInvalid)
	_, err = ordersToken(t).Narrow(Caveat{})
	wantCode(t, "zero caveat", err, driver.ErrInvalid)
}

func TestInspectDescribesCaveats(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	body, chain := macaroon.Begin(macaroon.RootKey(bytes.Repeat([]byte{7}, macaroon.KeyBytes), "acme"), macaroon.Identifier{Key: 7, Token: macaroon.NewTokenID(at), Tenant: "acme"})
	token, err := extend(body, 0, &chain, []Caveat{
		Operations(OpSend, OpAck), Queues(Queue("a,b"), QueuesUnder("user:42:")), ExpiresAt(at.Add(2 * time.Hour)),
		ExpiresAt(at.Add(time.Hour)), NotBefore(at), MessagesPerSecond(10), BytesPerSecond(2000), MaxBodyBytes(99),
		Audience("eu1"), Peers("spiffe://example.org/worker"), Tenant("acme"), ForReceipt("r1"), ForSlot("s1"),
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
		"bodies of at most 99 bytes", "at eu1", "as spiffe://example.org/worker", "for tenant acme", "for one delivery only", "for one reply slot only",
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

func TestTokenRoundTripsThroughFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	token := ordersToken(t)
	if err := token.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if again, err := ReadTokenFile(path); err != nil || !again.Equal(token) {
		t.Errorf("%v became %v, %v", token, again, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := ReadTokenFile(path)
	wantCode(t, "readable by others", err, driver.ErrForbidden)
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte(token.Reveal()+"\n\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = ReadTokenFile(path)
	wantCode(t, "something behind", err, driver.ErrIntegrity)
	if err != nil && strings.Contains(err.Error(), token.Reveal()) {
		t.Error("the error shows the token")
	}
	_, err = ReadTokenFile(path + ".missing")
	wantCode(t, "no file", err, driver.ErrNotFound)
	wantCode(t, "no token", Token{}.WriteFile(path), driver.ErrInvalid)
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
