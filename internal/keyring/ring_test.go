package keyring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// fixedKey returns a key that is the same in every run.
func fixedKey(t testing.TB, id capability.KeyID) Key {
	t.Helper()
	key, err := KeyFrom(id, bytes.Repeat([]byte{byte(id)}, macaroon.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func wantCode(t testing.TB, what string, err error, code driver.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: %v, want %v", what, err, code)
	}
}

func TestKeyFileIsReadStrictly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	_, err := ReadFile(path)
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
		_, err := ReadFile(path)
		wantCode(t, mode.String(), err, driver.ErrForbidden)
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		_ = os.Remove(path)
		write(good, mode)
		if _, err := ReadFile(path); err != nil {
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
		_, err := ReadFile(path)
		wantCode(t, "damaged", err, driver.ErrIntegrity)
		if err != nil && strings.Contains(err.Error(), "0101010101") {
			t.Errorf("the error shows a key: %v", err)
		}
	}
	many := make([]Key, maxKeys+1)
	for i := range many {
		many[i] = fixedKey(t, capability.KeyID(i))
	}
	if list, ok := parseKeys(string(formatKeys(many[:maxKeys]))); !ok || len(list) != maxKeys {
		t.Error("a full ring is not read")
	}
	if _, ok := parseKeys(string(formatKeys(many))); ok {
		t.Error("an overfull ring is read")
	}
	_, err = ReadFile(dir)
	wantCode(t, "a directory", err, driver.ErrForbidden)
}

func TestAcceptsSinceIsOldestAcceptedKey(t *testing.T) {
	now := time.Now()
	key := func(id capability.KeyID, made, retired time.Time) Key {
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
		ring := New(test.keys[0], test.keys[1:]...)
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

func TestMintRequiresOperationsQueuesAndExpiry(t *testing.T) {
	ring := New(NewKey())
	op, queue, exp := capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour))
	if _, err := ring.Mint("", op, queue, exp); err != nil {
		t.Errorf("all three: %v", err)
	}
	for _, caveats := range [][]capability.Caveat{nil, {op, queue}, {op, exp}, {queue, exp}, {op, queue, capability.NotBefore(time.Now())}} {
		_, err := ring.Mint("", caveats...)
		wantCode(t, "without one of them", err, driver.ErrInvalid)
	}
	_, err := ring.Mint("", op, queue, exp, capability.Operations())
	wantCode(t, "a bad caveat", err, driver.ErrInvalid)
	for _, tenant := range []string{"a b", "a/b", strings.Repeat("a", macaroon.MaxTenantBytes+1), "é"} {
		_, err := ring.Mint(tenant, op, queue, exp)
		wantCode(t, "tenant "+tenant, err, driver.ErrInvalid)
	}
	_, err = New(Key{}).Mint("", op, queue, exp)
	wantCode(t, "no key", err, driver.ErrNotFound)
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
