package capability

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var retiredAt = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)

func TestKeyRingRoundTripsThroughFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	ring := NewKeyRing(fixedKey(t, 3), fixedKey(t, 2), fixedKey(t, 1))
	if err := ring.Retire(1, retiredAt); err != nil {
		t.Fatal(err)
	}
	token := ordersToken(t, ring)
	for range 2 { // the second time over the first
		if err := ring.WriteFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	again, err := ReadKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if again.String() != ring.String() || !again.Keys()[2].RetiredAt().Equal(retiredAt) || !again.Keys()[1].RetiredAt().IsZero() {
		t.Errorf("%v became %v", ring, again)
	}
	wantAllowed(t, NewVerifier(again, nil), token, sendToOrders())
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("files left behind: %v, %v", files, err)
	}
	wantCode(t, "an empty ring", NewKeyRing(Key{}).WriteFile(path), driver.ErrNotFound)
	wantCode(t, "no directory", ring.WriteFile(filepath.Join(path, "x")), driver.ErrUnavailable)
}

func TestKeyFileIsReadStrictly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	_, err := ReadKeyFile(path)
	wantCode(t, "no file", err, driver.ErrNotFound)
	good := string(formatKeys([]Key{fixedKey(t, 1), fixedKey(t, 2)}))
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o666, 0o610} {
		write(good, mode)
		_, err := ReadKeyFile(path)
		wantCode(t, mode.String(), err, driver.ErrForbidden)
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		_ = os.Remove(path)
		write(good, mode)
		if _, err := ReadKeyFile(path); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
	}
	_ = os.Remove(path)
	for bit := range 8 * len(good) {
		damaged := []byte(good)
		damaged[bit/8] ^= 1 << (bit % 8)
		if _, ok := parseKeys(string(damaged)); ok {
			t.Errorf("bit %d does not count", bit)
		}
	}
	for _, bad := range []string{"", good + "\n", good[:len(good)-1], strings.Repeat("x", maxKeyFileBytes+1), keyFileHead + "\n", "x\n\n\n\n"} {
		write(bad, 0o600)
		_, err := ReadKeyFile(path)
		wantCode(t, "damaged", err, driver.ErrIntegrity)
		if err != nil && strings.Contains(err.Error(), "0101010101") {
			t.Errorf("the error shows a key: %v", err)
		}
	}
	many := make([]Key, maxKeys+1)
	for i := range many {
		many[i] = fixedKey(t, KeyID(i))
	}
	if list, ok := parseKeys(string(formatKeys(many[:maxKeys]))); !ok || len(list) != maxKeys {
		t.Error("a full ring is not read")
	}
	if _, ok := parseKeys(string(formatKeys(many))); ok {
		t.Error("an overfull ring is read")
	}
	_, err = ReadKeyFile(dir)
	wantCode(t, "a directory", err, driver.ErrForbidden)
}

func TestTokenRoundTripsThroughFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	token := ordersToken(t, NewKeyRing(NewKey()))
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
