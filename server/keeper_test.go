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
	if err := k.reload(); err != nil || len(ring.Keys()) != 2 {
		t.Errorf("after reading it anew: %v, %v", ring, err)
	}
}
