package verify

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func TestTokensHaveLimits(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	token := ordersToken(t, ring)
	have := len(token.Inspect().Caveats)
	full := mustNarrow(t, token, slices.Repeat([]capability.Caveat{inAnHour()}, macaroon.MaxCaveats-have)...)
	wantAllowed(t, New(ring, nil), full, sendToOrders())
	_, err := full.Narrow(inAnHour())
	wantCode(t, "one caveat too many", err, driver.ErrTooLarge)

	// As large as can be, to the byte.
	room := macaroon.MaxBytes - len(token.RevealBinary(nil)) - len("mbx:topic=") - len("orders,") - 4
	long := func(n int) capability.Caveat {
		patterns := []capability.Pattern{capability.Queue("orders")}
		for n > 0 {
			size := min(n, driver.MaxNameBytes)
			if rest := n - size; rest == 1 { // no room for a comma and a name
				size--
			}
			patterns = append(patterns, capability.Queue(strings.Repeat("x", size)))
			n -= size + 1
		}
		return capability.Queues(patterns...)
	}
	largest := mustNarrow(t, token, long(room))
	if n := len(largest.RevealBinary(nil)); n != macaroon.MaxBytes {
		t.Fatalf("meant to make %d bytes, made %d", macaroon.MaxBytes, n)
	}
	wantAllowed(t, New(ring, nil), largest, sendToOrders())
	_, err = token.Narrow(long(room + 1))
	wantCode(t, "a byte too many", err, driver.ErrTooLarge)
	if _, err := capability.ParseBinary(make([]byte, macaroon.MaxBytes+1)); !errors.Is(err, capability.ReasonMalformed) {
		t.Errorf("longer binary: %v", err)
	}
}

func TestKeyRingRoundTripsThroughFile(t *testing.T) {
	retiredAt := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	path := filepath.Join(t.TempDir(), "keys")
	ring := keyring.New(fixedKey(t, 3), fixedKey(t, 2), fixedKey(t, 1))
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
	again, err := keyring.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if again.String() != ring.String() || !again.Keys()[2].RetiredAt().Equal(retiredAt) || !again.Keys()[1].RetiredAt().IsZero() {
		t.Errorf("%v became %v", ring, again)
	}
	wantAllowed(t, New(again, nil), token, sendToOrders())
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Errorf("files left behind: %v, %v", files, err)
	}
	wantCode(t, "an empty ring", keyring.New(keyring.Key{}).WriteFile(path), driver.ErrNotFound)
	wantCode(t, "no directory", ring.WriteFile(filepath.Join(path, "x")), driver.ErrUnavailable)
}
