package diskbox

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// failing is a backend that may fail; failures counts how often it said so.
func failing(t *testing.T, disk *storetest.Disk) (b *Backend, failures *atomic.Int64) {
	t.Helper()
	failures = new(atomic.Int64)
	b, err := Open(t.Context(), "queues", &Options{
		fs: disk.FS(), boot: bubbleClock{}, small: true, secret: aSecret,
		OnFail: func(error) { failures.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, failures
}

// spoilBatch makes the store refuse the batch that is being filled, for a reason
// that has nothing to do with the disk.
func spoilBatch(j *journal) {
	j.Lock()
	defer j.Unlock()
	j.batch.Set([]byte{0}, nil) // such keys are the store's own
}

// A stalledDisk counts syncs of the log, and holds them up while it is told to.
type stalledDisk struct {
	*storetest.Disk
	stalled atomic.Pointer[chan struct{}]
	syncs   atomic.Int64
}

func newStalledDisk() *stalledDisk {
	d := &stalledDisk{Disk: storetest.NewDisk()}
	d.Before(func(op storetest.Operation) error {
		if op.Kind != storetest.Sync || !strings.HasSuffix(op.Path, ".log") {
			return nil
		}
		d.syncs.Add(1)
		if wait := d.stalled.Load(); wait != nil {
			<-*wait
		}
		return nil
	})
	return d
}

func (d *stalledDisk) stall() { wait := make(chan struct{}); d.stalled.Store(&wait) }

func (d *stalledDisk) goOn() { close(*d.stalled.Swap(nil)) }

// TestCommitErrorReachesAllWaitingCallers lets a reader, which waits for
// nothing to be durable, be the one whose commit is refused.
func TestCommitErrorReachesAllWaitingCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newStalledDisk()
		b, failures := failing(t, disk.Disk)
		q := openQueue(t, b, "orders")
		send(t, q, driver.Outgoing{Body: []byte("before")})
		disk.stall()
		var sends sync.WaitGroup
		answers := make([]error, 2)
		for n := range answers { // the first leads and waits for the disk, the second waits for the first
			sends.Go(func() { _, answers[n] = q.Send(t.Context(), []driver.Outgoing{{Body: fmt.Append(nil, n)}}) })
			synctest.Wait()
		}
		spoilBatch(b.journal)
		if err := b.journal.writeThrough(); err == nil {
			t.Error("the batch was committed")
		}
		disk.goOn()
		sends.Wait()
		if !errors.Is(answers[1], driver.ErrUnavailable) {
			t.Errorf("a message that was never stored was answered with %v", answers[1])
		}
		synctest.Wait()
		if failures.Load() != 1 {
			t.Errorf("OnFail was called %d times", failures.Load())
		}
		checkAllFail(t, b, q)
		if err := b.Close(); !errors.Is(err, store.ErrFailed) {
			t.Errorf("close: %v", err)
		}
		sound(t, disk.Disk)
		m := start(t, disk.Disk)
		stored := 1
		if answers[0] == nil {
			stored = 2
		}
		if stats, err := openQueue(t, m, "orders").Stats(t.Context()); err != nil || stats.Ready < stored || stats.Ready > 2 {
			t.Errorf("after a restart there are %+v, %v", stats, err)
		}
	})
}

// TestNothingIsStoredAfterRefusedCommit has two batches to commit, of
// which the first is bad: the second builds on it.
func TestNothingIsStoredAfterRefusedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		b, _ := failing(t, disk)
		q := openQueue(t, b, "orders")
		send(t, q, driver.Outgoing{Body: []byte("before")})
		spoilBatch(b.journal)
		b.journal.Lock()
		b.journal.fillLocked()
		b.journal.Unlock()
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("after")}}); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("send: %v", err)
		}
		checkAllFail(t, b, q)
		_ = b.Close()
		sound(t, disk)
		if stats, err := openQueue(t, start(t, disk), "orders").Stats(t.Context()); err != nil || stats.Ready != 1 {
			t.Errorf("after a restart there are %+v, %v", stats, err)
		}
	})
}

// checkAllFail fails the test for a call that succeeds. It stops at the first,
// because others might then not end at all.
func checkAllFail(t *testing.T, b *Backend, q driver.Queue) {
	t.Helper()
	for _, test := range []struct {
		call string
		do   func() error
	}{
		{"ping", func() error { return b.Ping(t.Context()) }},
		{"send", func() error { _, err := q.Send(t.Context(), make([]driver.Outgoing, 1)); return err }},
		{"send with a key", func() error {
			_, err := q.Send(t.Context(), []driver.Outgoing{{DedupKey: "key"}})
			return err
		}},
		{"discard", func() error { _, err := q.Discard(t.Context(), []string{"x"}); return err }},
		{"configure", func() error { return b.ConfigureQueue(t.Context(), "another", driver.Config{}) }},
		{"backup", func() error { return b.Backup(t.Context(), "backup") }},
		{"purge", func() error { _, err := q.Purge(t.Context()); return err }},
		{"purge dead", func() error { _, err := q.PurgeDead(t.Context()); return err }},
		{"delete", func() error { return b.DeleteQueue(t.Context(), "orders") }},
	} {
		if err := test.do(); !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("%s after a commit was refused: %v", test.call, err)
		}
	}
}

func TestBodiesHaveALimit(t *testing.T) {
	_, err := Open(t.Context(), t.TempDir(), &Options{MaxBodyBytes: maxBodyLimit + 1})
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "MaxBodyBytes") || !strings.Contains(err.Error(), fmt.Sprint(maxBodyLimit)) {
		t.Errorf("open: %v; it should name the field and the limit", err)
	}
}

// TestTheLargestBodiesFit has the largest bodies twice in one batch: a message
// that dies of itself and goes to another queue is a dead letter in one and a
// message in the other, in one step.
func TestTheLargestBodiesFit(t *testing.T) {
	volume.Repeats(t)
	if volume.RaceDetector {
		t.Skip("takes too much memory")
	}
	b, err := Open(t.Context(), t.TempDir(), &Options{
		MaxBodyBytes: maxBodyLimit, Sync: SyncNone,
		OnFail: func(err error) { t.Errorf("the store has failed: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.ConfigureQueue(t.Context(), "orders", driver.Config{MaxDeliveries: 1, DeadLetterTo: "dead-letters"}); err != nil {
		t.Fatal(err)
	}
	q, deadLetters := openQueue(t, b, "orders"), openQueue(t, b, "dead-letters")
	send(t, q, driver.Outgoing{Body: make([]byte, maxBodyLimit)})
	if got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Millisecond}); err != nil || len(got) != 1 {
		t.Fatalf("received %d: %v", len(got), err)
	}
	got, err := deadLetters.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Minute})
	if err != nil || len(got) != 1 || len(got[0].Body) != maxBodyLimit {
		t.Fatalf("received %d: %v", len(got), err)
	}
	if err := deadLetters.Ack(t.Context(), []driver.Receipt{got[0].Receipt}); err != nil {
		t.Error(err)
	}
}

// TestOutcomeOfFailedCommitIsUnknown: another commit may have written an operation before the
// store was closed, so the error must not say that nothing was done.
func TestOutcomeOfFailedCommitIsUnknown(t *testing.T) {
	b, _ := failing(t, storetest.NewDisk())
	p := host.NewPending()
	b.journal.committed = []committed{{[]*host.Pending{p}, &driver.Error{Code: driver.ErrClosed}}}
	b.journal.completeAll()
	if err := p.Wait(); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
