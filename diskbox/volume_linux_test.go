package diskbox

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// TestSmallVolumeFillsAndDrains fills a real file system of 256 MiB with the default
// options until sends are refused, settles all of it, and does that again.
func TestSmallVolumeFillsAndDrains(t *testing.T) {
	volume.InFull(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("needs a file system of 256 MiB, and mounting one is refused: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	b, err := Open(t.Context(), dir, &Options{OnFail: func(err error) { t.Errorf("the store has failed: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	q, err := b.OpenQueue(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		sent := fill(t, q)
		t.Logf("round %d: %d messages of 64 KiB; %+v", round, sent, b.Space())
		if sent < 1000 {
			t.Errorf("only %d messages of 64 KiB fit on 256 MiB", sent)
		}
		if acked := drainQueue(t, q); acked != sent {
			t.Errorf("%d messages were sent and %d came", sent, acked)
		}
	}
}

// fill sends until the backend has been full for a while, because space of settled messages may
// still be reclaimed, and returns how many messages it took.
func fill(t *testing.T, q driver.Queue) (sent int) {
	t.Helper()
	noise := rand.NewChaCha8([32]byte{}) // what can be compressed does not fill a volume
	accepted := time.Now()
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); {
		var batch []driver.Outgoing
		for range 32 {
			body := make([]byte, 64<<10)
			_, _ = noise.Read(body) // never fails
			batch = append(batch, driver.Outgoing{Body: body})
		}
		results, err := q.Send(t.Context(), batch)
		if errors.Is(err, driver.ErrFull) {
			if sent > 0 && time.Since(accepted) > time.Second {
				return sent
			}
			<-time.After(10 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatalf("after %d messages: %v", sent, err)
		}
		sent += len(results)
		accepted = time.Now()
	}
	t.Fatalf("%d messages of 64 KiB fit on 256 MiB", sent)
	return 0
}

// drainQueue receives and acks until nothing is left.
func drainQueue(t *testing.T, q driver.Queue) (acked int) {
	t.Helper()
	for {
		deliveries, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 64, Visibility: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(deliveries) == 0 {
			return acked
		}
		var receipts []driver.Receipt
		for _, d := range deliveries {
			receipts = append(receipts, d.Receipt)
		}
		if err := q.Ack(t.Context(), receipts); err != nil {
			t.Fatal(err)
		}
		acked += len(receipts)
	}
}
