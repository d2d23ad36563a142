package server

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
)

// TestUnwrittenKeysAreNotUsed removes the directory of the keys.
func TestUnwrittenKeysAreNotUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys.d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "keys")
	ring, made, err := keyring.ReadOrMake(t.Context(), path)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	k := &keyStore{ring: ring, keyFile: path, writes: true}
	before := ring.String()
	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := k.RotateKeys(t.Context()); err == nil || ring.String() != before {
		t.Errorf("%v; %s became %v", err, before, ring)
	}
	if err := os.Rename(dir+".gone", dir); err != nil {
		t.Fatal(err)
	}
	if err := k.RotateKeys(t.Context()); err != nil || len(ring.Keys()) != 2 {
		t.Errorf("%v, %v", ring, err)
	}
	if err := k.reload(func() error { return nil }); err != nil || len(ring.Keys()) != 2 {
		t.Errorf("after reading it again: %v, %v", ring, err)
	}
}

func TestOperatorTokenOfEarlierVersionIsRenewed(t *testing.T) {
	config := Config{DataDir: t.TempDir(), Backend: "memory:"}.complete()
	ring, _, err := keyring.ReadOrMake(t.Context(), config.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(operatorLife)))
	if err == nil {
		err = earlier.WriteFile(config.TokenFile)
	}
	if err != nil {
		t.Fatal(err)
	}
	open := func() capability.Token {
		t.Helper()
		k, err := openKeyStore(t.Context(), &config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = k.close() }()
		if err := k.renewOperator(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		return k.operatorToken()
	}
	token := open()
	if operations := token.Inspect().Operations; token.ID() == earlier.ID() || operations[len(operations)-1] != capability.OpThrottle {
		t.Errorf("the token %v became %v, which allows %v", earlier.ID(), token.ID(), operations)
	}
	if again := open(); again.ID() != token.ID() {
		t.Error("the token is renewed at every start")
	}
}

// TestRefusedOperatorTokenIsReplaced: a restart must not leave an operator without a token.
func TestRefusedOperatorTokenIsReplaced(t *testing.T) {
	mint := func(k *keyStore, life time.Duration) capability.Token {
		token, err := k.ring.Mint("", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(life)))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	for name, test := range map[string]struct {
		stays bool
		make  func(k *keyStore) (capability.Token, error)
	}{
		"good":    {true, func(k *keyStore) (capability.Token, error) { return mint(k, operatorLife), nil }},
		"ending":  {false, func(k *keyStore) (capability.Token, error) { return mint(k, operatorLife/2-time.Hour), nil }},
		"expired": {false, func(k *keyStore) (capability.Token, error) { return mint(k, -time.Hour), nil }},
		"revoked": {false, func(k *keyStore) (capability.Token, error) {
			token := mint(k, operatorLife)
			return token, k.revocations.Revoke(t.Context(), revocation.Revocation{Token: token.ID(), At: time.Now().Add(-time.Second)})
		}},
		"retired key": {false, func(k *keyStore) (capability.Token, error) {
			token := mint(k, operatorLife)
			return token, errors.Join(k.RotateKeys(t.Context()), k.RetireKey(t.Context(), token.Inspect().Key, time.Now().Add(-time.Second)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{DataDir: t.TempDir(), Backend: "memory:"}.complete()
			k, err := openKeyStore(t.Context(), &config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = k.close() })
			token, err := test.make(k)
			if err == nil {
				err = token.WriteFile(config.TokenFile)
			}
			if err == nil {
				err = k.renewOperator(t.Context(), slog.New(slog.DiscardHandler))
			}
			if err != nil {
				t.Fatal(err)
			}
			got := k.operatorToken()
			written, err := capability.ReadTokenFile(config.TokenFile)
			if got.Equal(token) != test.stays || err != nil || !written.Equal(got) || !k.isOperator(t.Context(), got) {
				t.Errorf("%v became %v; the file has %v, %v", token.ID(), got.ID(), written.ID(), err)
			}
		})
	}
}
