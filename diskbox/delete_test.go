package diskbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// recordsOf counts the records of each queue in a store, and returns their content.
func recordsOf(t *testing.T, s *store.Store) (count map[uint32]int, whole map[string]string) {
	t.Helper()
	count, whole = make(map[uint32]int), make(map[string]string)
	it := s.Iterate(nil, nil)
	for it.Next() {
		if key := it.Key(); len(key) >= queueKeyLen {
			count[binary.BigEndian.Uint32(key[1:])]++
			whole[string(key)] = string(it.Value())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return count, whole
}

// TestNothingIsRecordedAboutADeletedQueue tells the journal of every possible event of a queue
// after its end, as calls in flight and timers would.
func TestNothingIsRecordedAboutADeletedQueue(t *testing.T) {
	m := start(t, storetest.NewDisk())
	openQueue(t, m.Backend, "orders")
	if err := m.DeleteQueue(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	j, shard := m.journal, host.ShardID{Queue: 1}
	e := &engine.Entry{Seq: 1, Place: 2, Left: 1, Deliveries: 2, Due: 10, Marks: engine.Timed, Content: engine.Content{ID: "id", Extra: &engine.Extra{}}}
	j.Lock()
	j.Sent(shard, e)
	j.Leased(shard, e)
	j.Waits(shard, e, 5)
	j.Removed(shard, e)
	j.Died(shard, e)
	j.Discarded(shard, e)
	j.Purged(shard)
	j.DeadPurged(shard)
	j.Remembered(shard.Queue, engine.Digest{}, engine.Digest{}, [16]byte{}, 10)
	accounts, notes, recorded := len(j.ledger.shards), len(j.queues), j.batch.Len()
	j.Unlock()
	for e := range j.Reader(shard).Group("group", 0) {
		t.Errorf("found %+v", e)
	}
	if recorded > 0 || accounts > 0 || notes > 0 || len(j.ledger.shards) > 0 {
		t.Errorf("the journal has %d records, %d accounts and %d notes of a queue that is gone", recorded, accounts, notes)
	}
}

// TestDeletingQueuesInUseLeavesNothingBehind deletes queues while other goroutines use them,
// and checks that no record is left.
func TestDeletingQueuesInUseLeavesNothingBehind(t *testing.T) {
	disk := storetest.NewDisk()
	m := start(t, disk)
	made := func() uint32 {
		m.journal.mu.Lock()
		defer m.journal.mu.Unlock()
		return m.journal.lastID
	}
	begin := time.Now()
	names := []string{"a", "b", "c", "d"}
	var users sync.WaitGroup
	for n := range 8 {
		u := queueUser{backend: m.Backend, names: names, rng: rand.New(rand.NewPCG(uint64(n), 9))}
		users.Go(func() {
			for made() < 25 && time.Since(begin) < 10*time.Second {
				u.step(t.Context())
			}
		})
	}
	users.Wait()
	for _, name := range names {
		if err := m.DeleteQueue(t.Context(), name); err != nil && !errors.Is(err, driver.ErrNotFound) {
			t.Error(err)
		}
	}
	if err := m.journal.flush(); err != nil {
		t.Fatal(err)
	}
	m.journal.mu.Lock()
	accounts, notes := len(m.journal.ledger.shards), len(m.journal.queues)
	m.journal.mu.Unlock()
	count, _ := recordsOf(t, m.store)
	if accounts > 0 || notes > 0 || len(count) > 0 {
		t.Errorf("%d queues were made and deleted; there are %d accounts, %d notes, and records %v", made(), accounts, notes, count)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	sound(t, disk)
}

// A queueUser calls every operation of queues, whether or not they exist.
type queueUser struct {
	backend *Backend
	names   []string
	rng     *rand.Rand
}

func (u *queueUser) step(ctx context.Context) {
	name := u.names[u.rng.IntN(len(u.names))]
	switch u.rng.IntN(30) {
	case 0:
		_ = u.backend.DeleteQueue(ctx, name)
		return
	case 1:
		config := driver.Config{MaxDeliveries: 1 + u.rng.IntN(2), RetainReady: driver.Retention{Count: u.rng.IntN(30)}}
		if u.rng.IntN(2) == 0 {
			config.DeadLetterTo = u.names[u.rng.IntN(len(u.names))]
		}
		_ = u.backend.ConfigureQueue(ctx, name, config)
		return
	}
	q, err := u.backend.OpenQueue(ctx, name)
	if err != nil {
		return
	}
	_, _ = q.Send(ctx, make([]driver.Outgoing, 1+u.rng.IntN(3)))
	got, _ := q.Receive(ctx, driver.ReceiveRequest{Max: 5, Visibility: time.Duration(u.rng.IntN(5)) * time.Millisecond})
	for _, d := range got {
		switch u.rng.IntN(5) {
		case 0:
			_ = q.Nack(ctx, []driver.Nack{{Receipt: d.Receipt, Delay: time.Duration(u.rng.IntN(10)) * time.Millisecond}})
		case 1:
			_ = q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
		case 2:
		default:
			_ = q.Ack(ctx, []driver.Receipt{d.Receipt})
		}
	}
}

// litter adds a record of every kind of a queue to a store.
func litter(t *testing.T, s *store.Store, queue uint32) (records int) {
	t.Helper()
	batch := s.NewBatch()
	shard := host.ShardID{Queue: queue, Shard: 1}
	for _, kind := range ownedKinds {
		batch.Set(appendNumberKey(nil, kind, shard, 7), []byte("left behind"))
	}
	records = batch.Len()
	if err := s.Commit(batch, true); err != nil {
		t.Fatal(err)
	}
	return records
}

// TestRecordsOfMissingQueuesAreLeftAlone finds them between those of existing queues. Perhaps
// only the record of the queue was lost, and then they are all that remains of it.
func TestRecordsOfMissingQueuesAreLeftAlone(t *testing.T) {
	disk := furnish(t) // queues 1 and 2
	m := start(t, disk)
	for _, name := range []string{"third", "fourth", "fifth"} { // 3, 4, 5
		send(t, openQueue(t, m.Backend, name), driver.Outgoing{Body: []byte("tea"), DedupKey: "key"})
	}
	for _, name := range []string{"plain", "third", "fifth"} {
		if err := m.DeleteQueue(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	records := 0
	var before map[string]string
	meddle(t, disk, func(s *store.Store) {
		for _, gone := range []uint32{1, 3, 5} {
			records += litter(t, s, gone)
		}
		_, before = recordsOf(t, s)
	})
	report, err := Check(t.Context(), "queues", offline(disk))
	if err != nil || report.Orphans != records || len(report.Problems) > 0 {
		t.Errorf("check finds %+v, %v; there are %d records of deleted queues", report, err, records)
	}
	log := &warnings{Handler: slog.DiscardHandler}
	options := offline(disk)
	options.Logger = slog.New(log)
	b, err := Open(t.Context(), "queues", options)
	if err != nil {
		t.Fatal(err)
	}
	if !log.mentions("do not exist", fmt.Sprint("records=", records), "queues=3") {
		t.Errorf("the log says %q", log.texts)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	meddle(t, disk, func(s *store.Store) {
		_, after := recordsOf(t, s)
		for key, value := range before {
			if after[key] != value {
				t.Errorf("record %x was %q and is %q", key, value, after[key])
			}
		}
	})
}

// TestOpenRefusesRecordsOfUnknownQueue: no deletion explains them.
func TestOpenRefusesRecordsOfUnknownQueue(t *testing.T) {
	disk := furnish(t)
	meddle(t, disk, func(s *store.Store) { litter(t, s, 3) })
	_, err := Open(t.Context(), "queues", offline(disk))
	if !errors.Is(err, driver.ErrIntegrity) || !strings.Contains(err.Error(), "queue 3") {
		t.Errorf("open: %v", err)
	}
	meddle(t, disk, func(s *store.Store) {
		if count, _ := recordsOf(t, s); count[3] == 0 {
			t.Error("they were dropped")
		}
	})
}

// TestOpenRefusesMissingLastQueueNumber: it would give numbers
// again.
func TestOpenRefusesMissingLastQueueNumber(t *testing.T) {
	disk := furnish(t)
	meddle(t, disk, func(s *store.Store) {
		batch := s.NewBatch()
		batch.Delete(metaKey)
		if err := s.Commit(batch, true); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := Open(t.Context(), "queues", offline(disk)); !errors.Is(err, driver.ErrIntegrity) {
		t.Errorf("open: %v", err)
	}
}
