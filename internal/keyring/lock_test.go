package keyring

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
		if _, err := Change(t.Context(), "keys", func(r *Ring) error { return r.Rotate(NewKey()) }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConcurrentRotationsLoseNoKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	if err := New(NewKey()).WriteFile(path); err != nil {
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
	ring, err := ReadFile(path)
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
		if err := New(NewKey()).WriteFile(path); err != nil {
			t.Fatal(err)
		}
		unlock, err := durable.Lock(path + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		edit := func(r *Ring) error { return r.Rotate(NewKey()) }
		_, err = Change(t.Context(), path, edit)
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("locked: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Change(ctx, path, edit); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled: %v", err)
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
		ring, err := Change(t.Context(), path, edit)
		if err != nil || len(ring.Keys()) != 2 {
			t.Errorf("unlocked: %v, %v", ring, err)
		}
	})
}

func TestFailedKeyChangeLeavesFileUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if _, err := Change(t.Context(), path, func(*Ring) error { return nil }); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	first, made, err := ReadOrMake(t.Context(), path)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	refused := errors.New("refused")
	_, err = Change(t.Context(), path, func(r *Ring) error { return errors.Join(r.Rotate(NewKey()), refused) })
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	again, made, err := ReadOrMake(t.Context(), path)
	if err != nil || made || again.String() != first.String() {
		t.Errorf("%v became %v, made %t, %v", first, again, made, err)
	}
}
