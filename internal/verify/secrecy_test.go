package verify

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// canaries are secrets, and the values that contain them.
type canaries struct {
	token    capability.Token
	key      keyring.Key
	ring     *keyring.Ring
	verifier *Verifier
	secret   macaroon.Secret
	aws      macaroon.Credentials
}

func newCanaries(t testing.TB) *canaries {
	c := &canaries{key: keyring.NewKey()}
	c.ring = keyring.New(c.key, keyring.NewKey())
	c.token = ordersToken(t, c.ring)
	c.verifier = New(c.ring, nil)
	wantAllowed(t, c.verifier, c.token, sendToOrders()) // now it is in the cache
	c.aws = macaroon.CredentialsOf(c.token.RevealBinary(nil))
	c.secret = macaroon.NewSecret("c4n4ry-c4n4ry-c4n4ry")
	return c
}

// forms returns the ways in which secret bytes could be printed. It uses windows of
// them, because half a secret is bad enough.
func (c *canaries) forms() []string {
	token := c.token.RevealBinary(nil)
	var forms []string
	for _, secret := range [][]byte{token[len(token)-macaroon.SignatureBytes:], c.key.Reveal(), macaroon.RootKey(c.key.Reveal(), ""), []byte(c.secret.Reveal())} {
		for at := 0; at+12 <= len(secret); at++ {
			window := secret[at : at+12]
			decimal := strings.Trim(fmt.Sprintf("%d", window), "[]")
			forms = append(forms, string(window), hex.EncodeToString(window), strings.ToUpper(hex.EncodeToString(window)),
				decimal, strings.ReplaceAll(decimal, " ", ", "), strings.ReplaceAll(decimal, " ", ","), fmt.Sprintf("% x", window),
				strings.Trim(fmt.Sprintf("%#v", window), "[]byte{}"), strings.Trim(strconvQuote(window), `"`))
			// Stack traces show arguments as words.
			forms = append(forms, fmt.Sprintf("%#x", binary.LittleEndian.Uint64(window)))
			encoded := base64.RawStdEncoding.EncodeToString(window) // of 12 bytes: without padding, and a part of any longer one
			forms = append(forms, encoded, base64.RawURLEncoding.EncodeToString(window))
		}
	}
	return append(forms, c.token.Reveal(), c.aws.SecretAccessKey.Reveal())
}

func strconvQuote(b []byte) string { return fmt.Sprintf("%+q", b) }

func (c *canaries) check(t *testing.T, what, out string) {
	t.Helper()
	for _, form := range c.forms() {
		if strings.Contains(out, form) {
			t.Fatalf("%s shows a secret as %q:\n%.400s", what, form, out)
		}
	}
}

// hidden holds secrets in fields that package fmt cannot call methods of.
type hidden struct {
	token  capability.Token
	key    keyring.Key
	ring   *keyring.Ring
	secret macaroon.Secret
	inner  struct{ tokens []capability.Token }
	table  map[string]capability.Token
	any    any
}

// values returns all values that contain secrets, in all the ways they get printed.
func (c *canaries) values() map[string]any {
	h := hidden{token: c.token, key: c.key, ring: c.ring, secret: c.secret, table: map[string]capability.Token{"t": c.token}, any: c.token}
	h.inner.tokens = []capability.Token{c.token}
	description, ctx := c.token.Inspect(), context.Background()
	grant, _ := c.verifier.Authorize(ctx, c.token, sendToOrders())
	_, refused := c.verifier.Authorize(ctx, c.token, Request{Operation: capability.OpAdmin})
	return map[string]any{
		"token": c.token, "pointer": &c.token, "slice": []capability.Token{c.token}, "map": map[string]capability.Token{"t": c.token}, "array": [1]capability.Token{c.token},
		"key": c.key, "keys": c.ring.Keys(), "ring": c.ring, "secret": c.secret, "secret pointer": &c.secret, "credentials": c.aws,
		"credentials pointer": &c.aws, "hidden": h, "hidden pointer": &h, "exported": struct {
			Token  capability.Token
			Secret *macaroon.Secret
		}{c.token, &c.secret},
		"verifier": c.verifier, "description": description, "grant": grant, "refusal": refused, "wrapped": fmt.Errorf("with %v: %w", c.token, refused),
	}
}

// TestSecretsAreNotPrinted: no verb, no logger and no encoder shows a secret.
func TestSecretsAreNotPrinted(t *testing.T) {
	c := newCanaries(t)
	for name, value := range c.values() {
		var out strings.Builder
		for _, verb := range "vsqxXdobcOUeEfFgGtpTw" {
			for _, flags := range []string{"", "+", "#", " ", "-", "0", "+#", "# ", "10.3", "-40"} {
				fmt.Fprintf(&out, "%"+flags+string(verb)+"\n", value)
			}
		}
		fmt.Fprintln(&out, value)
		fmt.Fprint(&out, errors.Join(fmt.Errorf("%v", value)))
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			logger := slog.New(handler).With("with", value)
			logger.Info("message", "value", value, "slice", []any{value})
			logger.Info(fmt.Sprint(value), slog.Group("group", slog.Any("value", value)))
		}
		c.check(t, name, out.String())
		if out.Len() < 100 {
			t.Errorf("%s: hardly anything was printed", name)
		}
	}
}

func TestSecretsAreNotEncoded(t *testing.T) {
	c := newCanaries(t)
	for name, value := range c.values() {
		var out bytes.Buffer
		encoded := 0
		if text, err := json.Marshal(value); err == nil {
			out.Write(text)
			encoded++
		}
		if text, err := json.MarshalIndent(map[string]any{"value": value}, "", " "); err == nil {
			out.Write(text)
			encoded++
		}
		if text, err := xml.Marshal(value); err == nil {
			out.Write(text)
			encoded++
		}
		if err := gob.NewEncoder(&out).Encode(value); err == nil {
			encoded++
		}
		c.check(t, name, out.String())
		if encoded == 0 && !strings.Contains("verifier refusal wrapped grant", name) {
			t.Errorf("%s: nothing could encode it", name)
		}
	}
	if text, err := json.Marshal(c.token); err != nil || string(text) != `"`+c.token.String()+`"` {
		t.Errorf("a token as JSON is %s, %v", text, err)
	}
	for _, value := range []fmt.Stringer{c.token, c.key, c.secret, c.ring} {
		if fmt.Sprintf("%#v", value) != value.String() || slog.AnyValue(value).Resolve().String() != value.String() {
			t.Errorf("%T has several names", value)
		}
	}
}

// TestUnprotectedSecretsAreDetected proves that forms finds a secret that is printed.
func TestUnprotectedSecretsAreDetected(t *testing.T) {
	c := newCanaries(t)
	forms := c.forms()
	naive := struct {
		token []byte
		Key   []byte
		text  string
	}{c.token.RevealBinary(nil), c.key.Reveal(), c.secret.Reveal()}
	encoded, err := json.Marshal(naive)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{
		fmt.Sprintf("%v", naive), fmt.Sprintf("%+v", naive), fmt.Sprintf("%#v", naive), fmt.Sprintf("%s", naive), fmt.Sprintf("%q", naive),
		fmt.Sprintf("%x", naive), fmt.Sprintf("%X", naive), fmt.Sprintf("%d", naive.token), string(encoded), c.token.Reveal(), fmt.Sprintf("%v", c.key.Reveal()),
	} {
		if !slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(out, form) }) {
			t.Errorf("the secret was not found in %.200s", out)
		}
	}
}

// TestPanicsShowNoSecret panics with secrets in another process and reads what
// the runtime prints, stack traces with arguments included.
func TestPanicsShowNoSecret(t *testing.T) {
	const separator = "\x00---\x00" // secrets are any bytes
	if name := os.Getenv("MAILBOX_PANIC_WITH"); name != "" {
		c := newCanaries(t)
		if err := os.WriteFile(os.Getenv("MAILBOX_PANIC_FORMS"), hex.AppendEncode(nil, []byte(strings.Join(c.forms(), separator))), 0o600); err != nil {
			os.Exit(3)
		}
		go panicWith(c.values()[name], c.token, c.key, c.secret) // in a goroutine, because the test recovers its own panics
		select {}
	}
	for _, name := range []string{"token", "pointer", "key", "ring", "secret", "credentials", "hidden", "hidden pointer", "wrapped", "slice"} {
		forms := filepath.Join(t.TempDir(), "forms")
		child := exec.Command(os.Args[0], "-test.run=^TestPanicsShowNoSecret$")
		child.Env = append(os.Environ(), "MAILBOX_PANIC_WITH="+name, "MAILBOX_PANIC_FORMS="+forms, "GOTRACEBACK=all")
		out, err := child.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("panic: ")) || !bytes.Contains(out, []byte("panicWith")) {
			t.Fatalf("%s: the child did not panic: %v\n%s", name, err, out)
		}
		encoded, err := os.ReadFile(forms)
		secrets, errHex := hex.DecodeString(string(encoded))
		if err != nil || errHex != nil || len(secrets) < 100 {
			t.Fatal(len(secrets), err, errHex)
		}
		for form := range strings.SplitSeq(string(secrets), separator) {
			if bytes.Contains(out, []byte(form)) {
				t.Errorf("panic with %s shows %q:\n%s", name, form, out)
			}
		}
	}
}

// panicWith takes secrets as arguments, so that the stack trace could show them.
//
//go:noinline
func panicWith(value any, token capability.Token, key keyring.Key, secret macaroon.Secret) {
	panic(value)
}

func TestSecretsCompareAndReveal(t *testing.T) {
	a, b := macaroon.NewSecret("a"), macaroon.NewSecret("b")
	if !a.Equal(macaroon.NewSecret("a")) || a.Equal(b) || a.Equal(macaroon.Secret{}) || a.Reveal() != "a" || (macaroon.Secret{}).Reveal() != "" {
		t.Error("secrets do not compare")
	}
	key := fixedKey(t, 9)
	key.Reveal()[0]++
	if !bytes.Equal(key.Reveal(), bytes.Repeat([]byte{9}, macaroon.KeyBytes)) {
		t.Error("Reveal returns the bytes themselves, not a copy")
	}
	if key.String() != "[key 00000009]" || (capability.Token{}).String() != "[no capability]" || key.IsZero() || !(keyring.Key{}).IsZero() || !key.RetiredAt().IsZero() {
		t.Error("a zero value or a key has the wrong name")
	}
}
