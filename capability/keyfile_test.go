package capability

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

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

func TestAcceptsSinceIsOldestAcceptedKey(t *testing.T) {
	now := time.Now()
	key := func(id KeyID, made, retired time.Time) Key {
		k := fixedKey(t, id)
		k.madeAt, k.retiredAt = made, retired
		return k
	}
	day := func(n int) time.Time { return now.AddDate(0, 0, n).UTC().Truncate(time.Millisecond) }
	for name, test := range map[string]struct {
		keys []Key
		want time.Time
	}{
		"one key":                {[]Key{key(1, day(-9), time.Time{})}, day(-9)},
		"the oldest":             {[]Key{key(2, day(-1), time.Time{}), key(1, day(-9), time.Time{})}, day(-9)},
		"a retired one":          {[]Key{key(2, day(-5), time.Time{}), key(1, day(-9), day(-2))}, day(-5)},
		"one retired just now":   {[]Key{key(2, day(-5), time.Time{}), key(1, day(-9), now)}, day(-9)},
		"one to be retired":      {[]Key{key(2, day(-5), time.Time{}), key(1, day(-9), day(1))}, day(-9)},
		"unknown":                {[]Key{key(2, day(-5), time.Time{}), key(1, time.Time{}, time.Time{})}, time.Time{}},
		"unknown, but retired":   {[]Key{key(2, day(-5), time.Time{}), key(1, time.Time{}, day(-2))}, day(-5)},
		"the current is unknown": {[]Key{key(2, time.Time{}, time.Time{}), key(1, day(-9), time.Time{})}, time.Time{}},
	} {
		ring := NewKeyRing(test.keys[0], test.keys[1:]...)
		if got := ring.AcceptsSince(now); !got.Equal(test.want) {
			t.Errorf("%s: since %v, want %v", name, got, test.want)
		}
		list, ok := parseKeys(string(formatKeys(ring.Keys())))
		if !ok || !slices.EqualFunc(list, ring.Keys(), func(a, b Key) bool { return a.madeAt.Equal(b.madeAt) && a.id == b.id }) {
			t.Errorf("%s: the file does not say when keys were made", name)
		}
	}
	if made := NewKey().MadeAt(); made.Before(now.Add(-time.Minute)) {
		t.Errorf("a new key was made at %v", made)
	}
}
