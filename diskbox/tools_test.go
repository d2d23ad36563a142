package diskbox

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

var offline = func(disk *storetest.Disk) *Options {
	return &Options{fs: disk.FS(), boot: bubbleClock{}, small: true}
}

// furnish returns a closed disk with records of all kinds.
func furnish(t *testing.T) *storetest.Disk {
	t.Helper()
	disk := storetest.NewDisk()
	m := start(t, disk)
	for _, name := range []string{"plain", "strict"} {
		config := driver.Config{StrictGroups: name == "strict"}
		if err := m.ConfigureQueue(t.Context(), name, config); err != nil {
			t.Fatal(err)
		}
		q := openQueue(t, m.Backend, name)
		for i := range 20 {
			send(t, q, driver.Outgoing{
				Body: fmt.Appendf(nil, "%s %d", name, i), Group: fmt.Sprint("g", i%3), DedupKey: fmt.Sprint(i),
				Delay: time.Duration(i%5/4) * time.Minute,
			})
		}
		got := receive(t, q, 6)
		if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}, {Receipt: got[1].Receipt, Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		letterer := q
		if err := letterer.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[2].Receipt, Reason: driver.ReasonFatal, Error: "boom"}}); err != nil {
			t.Fatal(err)
		}
		if err := q.Ack(t.Context(), []driver.Receipt{got[3].Receipt}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return disk
}

func openQueue(t *testing.T, b driver.Opener, name string) driver.Queue {
	t.Helper()
	q, err := b.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func send(t *testing.T, q driver.Queue, msgs ...driver.Outgoing) {
	t.Helper()
	if _, err := q.Send(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, q driver.Queue, n int) []driver.Delivery {
	t.Helper()
	var got []driver.Delivery
	for len(got) < n {
		more, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: n - len(got), Visibility: time.Hour})
		if err != nil || len(more) == 0 {
			t.Fatalf("received %d of %d: %v", len(got), n, err)
		}
		got = append(got, more...)
	}
	return got
}

func TestCheckFindsNothingInASoundDirectory(t *testing.T) {
	report, err := Check(t.Context(), "queues", offline(furnish(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) > 0 {
		t.Error(report.Problems)
	}
	if report.Queues != 2 || report.Messages != 36 || report.Dead != 2 || report.Keys != 40 {
		t.Errorf("found %+v", report)
	}
}

// TestCheckFindsEveryMissingRecord removes and damages the records of messages, one after the
// other.
func TestCheckFindsEveryMissingRecord(t *testing.T) {
	volume.InFull(t)
	disk := furnish(t)
	var keys [][]byte
	meddle(t, disk, func(s *store.Store) {
		it := s.Iterate(nil, nil)
		defer it.Close()
		for it.Next() {
			if strings.IndexByte("cmslwgdi", it.Key()[0]) >= 0 {
				keys = append(keys, append([]byte(nil), it.Key()...))
			}
		}
	})
	if len(keys) < 60 {
		t.Fatalf("there are only %d records", len(keys))
	}
	for _, key := range keys {
		for _, how := range []string{"removed", "damaged"} {
			if how == "damaged" && key[0] == groupKind {
				continue // has no content to damage
			}
			if how == "removed" && (key[0] == stateKind || key[0] == leaseKind) {
				continue // not detectable: a message that was never delivered has none
			}
			copied := storetest.DiskFrom(disk.Mem().CrashClone(everything()))
			meddle(t, copied, func(s *store.Store) { spoil(t, s, key, how) })
			report, err := Check(t.Context(), "queues", offline(copied))
			if err == nil && len(report.Problems) == 0 {
				t.Errorf("record %q was %s, and Check did not notice", key, how)
			}
		}
	}
}

// spoil removes or damages a record.
func spoil(t *testing.T, s *store.Store, key []byte, how string) {
	t.Helper()
	b := s.NewBatch()
	if how == "removed" {
		b.Delete(key)
	} else {
		value, err := s.Get(key, nil)
		if err != nil {
			t.Fatal(err)
		}
		value[len(value)/2] ^= 0x10
		b.Set(key, value)
	}
	if err := s.Commit(b, true); err != nil {
		t.Fatal(err)
	}
}

// meddle opens the store of a disk without the backend.
func meddle(t *testing.T, disk *storetest.Disk, do func(*store.Store)) {
	t.Helper()
	o := offline(disk)
	s, err := store.Open(t.Context(), "queues", o.storeOptions(store.SyncEach()))
	if err != nil {
		t.Fatal(err)
	}
	do(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedMessageIsNeverDelivered damages the records of two waiting messages: each becomes
// a dead letter at its turn, and the others are delivered.
func TestDamagedMessageIsNeverDelivered(t *testing.T) {
	for _, config := range []driver.Config{{}, {StrictGroups: true}, {FairGroups: true}, {RetainReady: driver.Retention{Age: time.Hour}}} {
		disk := storetest.NewDisk()
		m := start(t, disk)
		if err := m.ConfigureQueue(t.Context(), "orders", config); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			send(t, openQueue(t, m.Backend, "orders"), driver.Outgoing{Body: fmt.Append(nil, i), Group: fmt.Sprint("g", i%2)})
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		meddle(t, disk, func(s *store.Store) {
			for _, seq := range []uint64{3, 8} {
				spoil(t, s, appendNumberKey(nil, messageKind, host.ShardID{Queue: 1}, seq), "damaged")
			}
		})
		again := start(t, disk)
		q := openQueue(t, again.Backend, "orders")
		seen := 0
		for {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 4, Visibility: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				break
			}
			for _, d := range got {
				if body := string(d.Body); body == "2" || body == "7" {
					t.Errorf("%+v: delivered %q", config, body)
				}
				if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
					t.Fatal(err)
				}
				seen++
			}
		}
		stats, err := q.Stats(t.Context())
		if err != nil || seen != 8 || stats != (driver.Stats{Dead: 2}) {
			t.Errorf("%+v: delivered %d, left %+v, %v", config, seen, stats, err)
		}
		for letter, err := range q.DeadLetters(t.Context()) {
			if err != nil || letter.Reason != driver.ReasonIntegrity {
				t.Errorf("%+v: %+v, %v", config, letter, err)
			}
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListShowsEverything(t *testing.T) {
	seen := make(map[string]int)
	err := List(t.Context(), "queues", offline(furnish(t)), func(l *Listed) error {
		seen[l.Queue]++
		seen[l.State]++
		if l.State == stateDead && l.Reason == driver.ReasonFatal {
			seen[l.LastError]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, times := range map[string]int{"plain": 19, "strict": 19, stateInFlight: 4, stateDelayed: 10, stateReady: 22, stateDead: 2, "boom": 2} {
		if seen[what] != times {
			t.Errorf("%q is there %d times, want %d", what, seen[what], times)
		}
	}
}

// TestBackupUnderLoadIsComplete backs up a backend that is in use, and finds every message in
// the copy that was answered before.
func TestBackupUnderLoadIsComplete(t *testing.T) {
	disk := storetest.NewDisk()
	m := start(t, disk)
	q := openQueue(t, m.Backend, "orders")
	var mu sync.Mutex
	answered := make(map[string]bool)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: fmt.Appendf(nil, "%d/%d", i, n)}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				answered[sent[0].ID] = true
				mu.Unlock()
			}
		})
	}
	for n := range 5 {
		mu.Lock()
		before := make(map[string]bool, len(answered))
		for id := range answered {
			before[id] = true
		}
		mu.Unlock()
		backup, restored := fmt.Sprint("backup", n), fmt.Sprint("restored", n)
		if err := m.Backup(t.Context(), backup); err != nil {
			t.Fatal(err)
		}
		if err := Restore(t.Context(), backup, restored, offline(disk)); err != nil {
			t.Fatal(err)
		}
		b, err := Open(t.Context(), restored, offline(disk))
		if err != nil {
			t.Fatal(err)
		}
		for found, err := range openQueue(t, b, "orders").Peek(t.Context(), driver.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			delete(before, found.ID)
		}
		if len(before) > 0 {
			t.Errorf("%d of the messages that were answered are not in the copy", len(before))
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	senders.Wait()
}

func TestDamagedBackupIsNotRestored(t *testing.T) {
	disk := furnish(t)
	meddle(t, disk, func(s *store.Store) {
		spoil(t, s, appendNumberKey(nil, messageKind, host.ShardID{Queue: 1}, 9), "damaged")
	})
	err := Restore(t.Context(), "queues", "elsewhere", offline(disk))
	if !errors.Is(err, driver.ErrIntegrity) {
		t.Errorf("restore says %v", err)
	}
	if _, err := disk.FS().Stat("elsewhere"); err == nil {
		t.Error("something was written")
	}
}

// TestHeadOfALongQueueIsTrimmed removes more messages than are trimmed at once, and more keys
// and due times than are kept, and checks the rest.
func TestHeadOfALongQueueIsTrimmed(t *testing.T) {
	volume.InFull(t)
	disk := storetest.NewDisk()
	m := start(t, disk)
	q := openQueue(t, m.Backend, "orders")
	const rounds = 2 * trimEvery / 250
	for range rounds {
		send(t, q, make([]driver.Outgoing, 250)...)
		for got := range 5 {
			_ = got
			var receipts []driver.Receipt
			for _, d := range receive(t, q, 50) {
				receipts = append(receipts, d.Receipt)
			}
			if err := q.Ack(t.Context(), receipts); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.journal.mu.Lock()
	trimmed := m.journal.ledger.at(host.ShardID{Queue: 1}).trimmed
	m.journal.mu.Unlock()
	if trimmed < trimEvery {
		t.Errorf("only what is below %d was trimmed", trimmed)
	}
	send(t, q, driver.Outgoing{Body: []byte("last")})
	if got := receive(t, q, 1); string(got[0].Body) != "last" {
		t.Errorf("received %q", got[0].Body)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	sound(t, disk)
}
