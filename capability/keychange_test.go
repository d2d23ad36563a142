package capability

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/durable"
)

const (
	rotating  = "MAILBOX_TEST_ROTATE" // tells a process to rotate the keys in its directory
	rotations = 24                    // of each process
)

// TestRotatingProcess is one of the processes of the test below: it reports that it is
// ready, waits until its input ends, and rotates.
func TestRotatingProcess(t *testing.T) {
	if os.Getenv(rotating) == "" {
		t.Skip("a helper process of TestConcurrentRotationsLoseNoKey, which starts it")
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for range rotations {
		if _, err := ChangeKeyFile(t.Context(), "keys", func(r *KeyRing) error { return r.Rotate(NewKey()) }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConcurrentRotationsLoseNoKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	if err := NewKeyRing(fixedKey(t, 1)).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type process struct {
		*exec.Cmd
		start io.Closer
	}
	var processes []process
	for range 2 {
		c := exec.CommandContext(t.Context(), program, "-test.run=^TestRotatingProcess$")
		c.Dir, c.Env = dir, append(os.Environ(), rotating+"=1")
		c.Stderr = os.Stderr
		start, err := c.StdinPipe()
		said, errOut := c.StdoutPipe()
		if err := errors.Join(err, errOut, c.Start()); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
		processes = append(processes, process{c, start})
	}
	for _, p := range processes {
		_ = p.start.Close()
	}
	for _, p := range processes {
		if err := p.Wait(); err != nil {
			t.Errorf("a process failed: %v", err)
		}
	}
	ring, err := ReadKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if keys := len(ring.Keys()); keys != 1+2*rotations {
		t.Errorf("%d keys after 2 times %d rotations of one", keys, rotations)
	}
}

func TestWaitForKeyLockIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys")
		if err := NewKeyRing(fixedKey(t, 1)).WriteFile(path); err != nil {
			t.Fatal(err)
		}
		unlock, err := durable.Lock(path + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		edit := func(r *KeyRing) error { return r.Rotate(NewKey()) }
		_, err = ChangeKeyFile(t.Context(), path, edit)
		wantCode(t, "locked", err, driver.ErrUnavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ChangeKeyFile(ctx, path, edit); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled: %v", err)
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
		ring, err := ChangeKeyFile(t.Context(), path, edit)
		if err != nil || len(ring.Keys()) != 2 {
			t.Errorf("unlocked: %v, %v", ring, err)
		}
	})
}

func TestFailedKeyChangeLeavesFileUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if _, err := ChangeKeyFile(t.Context(), path, func(*KeyRing) error { return nil }); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	first, made, err := ReadOrMakeKeyFile(t.Context(), path)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	refused := errors.New("refused")
	_, err = ChangeKeyFile(t.Context(), path, func(r *KeyRing) error { return errors.Join(r.Rotate(NewKey()), refused) })
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	again, made, err := ReadOrMakeKeyFile(t.Context(), path)
	if err != nil || made || again.String() != first.String() {
		t.Errorf("%v became %v, made %t, %v", first, again, made, err)
	}
}

func TestRingAdoptsKeysOfAnother(t *testing.T) {
	ring, other := NewKeyRing(NewKey()), NewKeyRing(NewKey())
	token := ordersToken(t, ring)
	v := NewVerifier(ring, nil)
	wantAllowed(t, v, token, sendToOrders())
	ring.Adopt(NewKeyRing(Key{}))
	wantAllowed(t, v, token, sendToOrders())
	ring.Adopt(other)
	wantRefused(t, v, token, sendToOrders(), ReasonNotGenuine)
	wantAllowed(t, v, ordersToken(t, other), sendToOrders())
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
