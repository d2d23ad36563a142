package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/computer"
	"github.com/mailboxmq/mailbox/internal/queuecopy"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

const (
	copiedReady, copiedDelayed = 10_000, 50
	copyKills                  = 3 // at most, of copies that have moved something
)

// TestKilledCopyIsResumed kills a copy with kill -9 in the midst of its messages, starts it again,
// and so on. In the end every message is at the destination, once.
func TestKilledCopyIsResumed(t *testing.T) {
	t.Parallel() // mostly waits for the disk
	mailbox, _ := programs(t)
	from, to := t.TempDir(), t.TempDir()
	onQueue(t, from, 0, func(q driver.Queue) {
		for first := 0; first < copiedReady; first += 1000 {
			fill(t, q, first, 1000, 0)
		}
		fill(t, q, copiedReady, copiedDelayed, 24*time.Hour)
	})
	kills := 0
	for before, ended := 0, false; kills < copyKills && !ended; {
		p := proctest.Start(t, exec.Command(mailbox, "copy", "disk://"+from+"?queue=orders", "disk://"+to+"?queue=orders"))
		select {
		case <-p.Ended(): // on a fast disk
			if ended = true; kills == 0 || p.Err() != nil {
				t.Fatalf("after %d kills a copy ended: %v %s%s", kills, p.Err(), p.Stdout.String(), p.Stderr.String())
			}
		case <-time.After(100*time.Millisecond + rand.N(300*time.Millisecond)):
		}
		p.Kill()
		onQueue(t, to, 0, func(q driver.Queue) {
			if stats := statsOf(t, q); stats.Ready > before && !ended {
				kills, before = kills+1, stats.Ready
			}
		})
	}
	onQueue(t, from, 2*time.Minute, func(source driver.Queue) { // the leases of killed copies have ended
		onQueue(t, to, 2*time.Minute, func(target driver.Queue) {
			rest := statsOf(t, source).Ready
			result, err := queuecopy.Run(t.Context(), source, target, queuecopy.Options{})
			if err != nil || result.Left != (driver.Stats{}) {
				t.Errorf("the last copy: %+v, %v", result, err)
			}
			t.Logf("%d kills left %d ready messages at the source", kills, rest)
			expectEachOnce(t, target)
		})
	})
}

// onQueue calls do with a queue of a directory, on this computer after some time.
func onQueue(t *testing.T, dir string, after time.Duration, do func(driver.Queue)) {
	t.Helper()
	ctx := t.Context()
	if after > 0 { // in the same boot, because leases outlast another one
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			t.Fatal(err)
		}
		ctx = computer.With(ctx, computer.Computer{
			FS: vfs.Default, Boot: func() string { return strings.TrimSpace(string(boot)) },
			Uptime: func() time.Duration {
				var now unix.Timespec
				if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
					t.Error(err)
				}
				return time.Duration(now.Nano()) + after
			},
			Wall: func() time.Time { return time.Now().Add(after) },
		})
	}
	backend, err := diskbox.Open(ctx, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := backend.OpenQueue(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	do(queue)
	if err := backend.Close(); err != nil {
		t.Fatal(err)
	}
}

// fill sends n messages whose bodies are numbers.
func fill(t *testing.T, q driver.Queue, first, n int, delay time.Duration) {
	t.Helper()
	messages := make([]driver.Outgoing, n)
	for i := range messages {
		messages[i] = driver.Outgoing{Body: fmt.Append(nil, first+i), Delay: delay}
	}
	if _, err := q.Send(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
}

func statsOf(t *testing.T, q driver.Queue) driver.Stats {
	t.Helper()
	stats, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// expectEachOnce fails the test unless the queue has each message once, delayed ones with their due times.
func expectEachOnce(t *testing.T, q driver.Queue) {
	t.Helper()
	found := make(map[string]int)
	for m, err := range q.Peek(t.Context(), driver.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		found[string(m.Body)]++
	}
	wrong := 0
	for i := range copiedReady + copiedDelayed {
		if n := found[fmt.Sprint(i)]; n != 1 {
			if wrong++; wrong < 10 {
				t.Errorf("message %d is there %d times", i, n)
			}
		}
	}
	if stats := statsOf(t, q); stats.Ready != copiedReady || stats.Delayed != copiedDelayed {
		t.Errorf("the destination has %+v, want %d ready and %d delayed", stats, copiedReady, copiedDelayed)
	}
}
