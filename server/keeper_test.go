package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
)

// TestKeysThatCannotBeWrittenAreNotUsed takes the directory of the keys away.
func TestKeysThatCannotBeWrittenAreNotUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys.d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "keys")
	ring, made, err := capability.ReadOrMakeKeyFile(t.Context(), path)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	k := &keeper{ring: ring, keyFile: path, writes: true}
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
		t.Errorf("after reading it anew: %v, %v", ring, err)
	}
}

func TestOperatorTokenWithoutBackupIsRenewedOnDisk(t *testing.T) {
	for backend, renewed := range map[string]bool{"memory:": false, "": true} {
		config := Config{DataDir: t.TempDir(), Backend: backend}.complete()
		ring, _, err := capability.ReadOrMakeKeyFile(t.Context(), config.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		earlier, err := mintOperator(ring, false)
		if err == nil {
			err = earlier.WriteFile(config.TokenFile)
		}
		if err != nil {
			t.Fatal(err)
		}
		open := func() (token capability.Token, mayBackUp bool) {
			t.Helper()
			k, err := openKeeper(t.Context(), &config)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = k.close() }()
			return k.operator, k.mayBackUp(t.Context(), k.operator)
		}
		token, mayBackUp := open()
		if (token.ID() != earlier.ID()) != renewed || mayBackUp != renewed {
			t.Errorf("on %s the token %v became %v, which may take backups: %v", config.Backend, earlier.ID(), token.ID(), mayBackUp)
		}
		if again, _ := open(); again.ID() != token.ID() {
			t.Errorf("on %s the token is renewed with every start", config.Backend)
		}
	}
}
