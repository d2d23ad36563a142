package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
	"github.com/mailboxmq/mailbox/membox"
)

// A faultyBackend fails when fail says so, which is asked before each operation on a queue.
// If lost is set, a send that fails was made nevertheless.
type faultyBackend struct {
	*membox.Backend
	fail func() bool
	lost bool
}

type faultyQueue struct {
	driver.Queue
	of *faultyBackend
}

var errDown = &driver.Error{Code: driver.ErrUnavailable, Op: "test"}

func (b *faultyBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return faultyQueue{q, b}, err
}

func (q faultyQueue) Send(ctx context.Context, messages []driver.Outgoing) ([]driver.Sent, error) {
	if !q.of.fail() {
		return q.Queue.Send(ctx, messages)
	}
	if q.of.lost {
		_, _ = q.Queue.Send(ctx, messages)
	}
	return nil, errDown
}

func (q faultyQueue) Stats(ctx context.Context) (driver.Stats, error) {
	if q.of.fail() {
		return driver.Stats{}, errDown
	}
	return q.Queue.Stats(ctx)
}

func (q faultyQueue) Peek(ctx context.Context, query driver.Query) iter.Seq2[driver.Peeked, error] {
	if q.of.fail() {
		return func(yield func(driver.Peeked, error) bool) { yield(driver.Peeked{}, errDown) }
	}
	return q.Queue.Peek(ctx, query)
}

func (q faultyQueue) Edit(ctx context.Context, id string, edit driver.Edit) (driver.State, error) {
	if q.of.fail() {
		return "", errDown
	}
	return q.Queue.Edit(ctx, id, edit)
}

func backendInMemory(t *testing.T) *membox.Backend {
	backend := membox.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	return backend
}

// auditAs returns the audit log of a daemon that has its own in dir, or in memory if dir is empty.
func auditAs(t *testing.T, daemon, dir string, backend driver.Opener) *sharedAudit {
	t.Helper()
	own := audit.InMemory()
	if dir != "" {
		var err error
		if own, err = audit.Open(dir, audit.DefaultLimit); err != nil {
			t.Fatal(err)
		}
	}
	s, err := shareAudit(t.Context(), own, backend, func() string { return daemon }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(s.queue.Close(), own.Close()) })
	return s
}

func (s *sharedAudit) mustSync(t *testing.T) {
	t.Helper()
	if err := s.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// add records changes that have these numbers as their counts.
func (s *sharedAudit) add(t *testing.T, tenant string, counts ...int) {
	t.Helper()
	for _, n := range counts {
		r := audit.Record{At: time.Now().UTC().Truncate(time.Millisecond), Operation: "purge", Queue: "orders", Tenant: tenant, Count: n, Result: "ok"}
		if err := s.Append(r); err != nil {
			t.Fatal(err)
		}
	}
}

// expect checks the counts of all records that the daemon shows, in their order.
func (s *sharedAudit) expect(t *testing.T, what string, want ...int) (records []audit.Record) {
	t.Helper()
	records, damaged, err := s.Records(t.Context())
	if err != nil || damaged != 0 {
		t.Fatalf("%s: %d damaged, %v", what, damaged, err)
	}
	var got []int
	for _, r := range records {
		got = append(got, r.Count)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %s shows %v, want %v", what, s.daemon(), got, want)
	}
	return records
}

func upTo(n int) (counts []int) {
	for i := 1; i <= n; i++ {
		counts = append(counts, i)
	}
	return counts
}

func TestAuditShowsRecordsOfAllDaemonsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := backendInMemory(t)
		first, second := auditAs(t, "first", "", backend), auditAs(t, "second", "", backend)
		first.mustSync(t)
		for n := 1; n <= 6; n += 2 {
			time.Sleep(time.Second)
			first.add(t, "", n)
			time.Sleep(time.Second)
			second.add(t, "", n+1) // it has not synced yet: these are in its own log
		}
		second.mustSync(t)
		for _, s := range []*sharedAudit{first, second} {
			for _, r := range s.expect(t, "both", upTo(6)...) {
				if want := []string{"second", "first"}[r.Count%2]; r.Daemon != want || r.ID == "" {
					t.Errorf("record %d is of daemon %q, want %q", r.Count, r.Daemon, want)
				}
			}
		}
	})
}

func TestRecordsOfOutageAreSharedAfterIt(t *testing.T) {
	for _, lost := range []bool{false, true} { // whether the answer is lost, or the request
		synctest.Test(t, func(t *testing.T) {
			down := false
			backend := backendInMemory(t)
			dir := t.TempDir()
			first := auditAs(t, "first", dir, &faultyBackend{backend, func() bool { return down }, lost})
			second := auditAs(t, "second", "", backend)
			first.mustSync(t)
			first.add(t, "", 1)
			down = true
			first.add(t, "", 2, 3)
			if _, _, err := first.Records(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("reading while the backend is down: %v", err)
			}
			if err := first.sync(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("sync while the backend is down: %v", err)
			}
			down = false
			first.expect(t, "after the outage", upTo(3)...)
			first.add(t, "", 4)
			first.mustSync(t)
			first.add(t, "", 5)
			first.expect(t, "after sync", upTo(5)...)
			second.expect(t, "after sync", upTo(5)...)

			down = true
			first.add(t, "", 6)
			down = false
			killed := auditAs(t, "first", dir, backend) // its log is that of a process that was killed
			killed.mustSync(t)
			second.expect(t, "after a kill during an outage", upTo(6)...)
		})
	}
}

// TestRecordMadeDuringSyncIsSharedByNext records a change while sync sends what it has read of the own log.
func TestRecordMadeDuringSyncIsSharedByNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := backendInMemory(t)
		first, second := auditAs(t, "first", "", backend), auditAs(t, "second", "", backend)
		first.add(t, "", 1)
		time.Sleep(time.Second)
		operations := 0
		first.queue = faultyQueue{first.queue, &faultyBackend{Backend: backend, fail: func() bool {
			if operations++; operations == 3 { // after Stats and Peek
				first.add(t, "", 2)
			}
			return false
		}}}
		first.mustSync(t)
		second.expect(t, "after the first sync", 1)
		first.mustSync(t)
		second.expect(t, "after the second sync", 1, 2)
	})
}

func TestRecordsOfEarlierFileAreSharedOnce(t *testing.T) {
	backend, dir := backendInMemory(t), t.TempDir()
	alone, err := audit.Open(dir, audit.DefaultLimit)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 2, 3} { // two of them are equal
		if err := alone.Append(audit.Record{At: time.Unix(int64(n), 0).UTC(), Operation: "purge", Count: n, Result: "ok"}); err != nil {
			t.Fatal(err)
		}
	}
	_ = alone.Close()
	other := auditAs(t, "other", "", backend)
	for range 3 { // starts of the daemon
		s := auditAs(t, "first", dir, backend)
		s.expect(t, "before sync", 1, 2, 2, 3)
		s.mustSync(t)
		s.expect(t, "after sync", 1, 2, 2, 3)
		for _, r := range other.expect(t, "after sync", 1, 2, 2, 3) {
			if r.Daemon != "first" {
				t.Errorf("record %d is of daemon %q", r.Count, r.Daemon)
			}
		}
	}
}

func TestDeletedAuditQueueIsFilledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := backendInMemory(t)
		first, second := auditAs(t, "first", "", backend), auditAs(t, "second", "", backend)
		for n := 1; n <= 4; n += 2 {
			first.mustSync(t)
			first.add(t, "", n)
			time.Sleep(time.Second)
			second.mustSync(t)
			second.add(t, "", n+1)
			time.Sleep(time.Second)
			if err := backend.DeleteQueue(t.Context(), auditQueue); err != nil {
				t.Fatal(err)
			}
		}
		first.add(t, "", 5)
		first.mustSync(t)
		second.mustSync(t)
		first.expect(t, "queue deleted", upTo(5)...)
		second.expect(t, "queue deleted", upTo(5)...)
	})
}

func TestRecordsThatBackendLostAreAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := backendInMemory(t)
		first, second := auditAs(t, "first", "", backend), auditAs(t, "second", "", backend)
		first.mustSync(t)
		first.add(t, "", upTo(3)...)
		if _, err := first.queue.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		first.mustSync(t)
		first.expect(t, "lost", upTo(3)...)
		second.expect(t, "lost")
		time.Sleep(maintainEvery)
		first.mustSync(t)
		second.expect(t, "an hour later", upTo(3)...)
	})
}

// TestFloodOfTenantLeavesRecordsOfOthersInFleet lets a tenant write more than the log holds, through two daemons.
func TestFloodOfTenantLeavesRecordsOfOthersInFleet(t *testing.T) {
	backend := backendInMemory(t)
	first, second := auditAs(t, "first", "", backend), auditAs(t, "second", "", backend)
	const limit = 64 << 10
	first.limit, second.limit = limit, limit
	first.mustSync(t)
	second.mustSync(t)
	first.add(t, "", upTo(20)...)
	second.add(t, "acme", upTo(20)...)
	longest := int64(0)
	for range 3000 {
		first.add(t, "evil", 1)
		second.add(t, "evil", 1)
		longest = max(longest, first.Stats().Used, second.Stats().Used)
	}
	late := auditAs(t, "late", "", backend)
	late.limit = limit
	late.mustSync(t) // it cuts what was added since the last cut
	records, damaged, err := late.Records(t.Context())
	if err != nil || damaged != 0 {
		t.Fatal(damaged, err)
	}
	kept := make(map[string]int)
	for _, r := range records {
		kept[r.Tenant]++
	}
	if kept[""] != 20 || kept["acme"] != 20 || kept["evil"] < 50 {
		t.Errorf("kept %v, want all 20 of others", kept)
	}
	// Each daemon reads the queue every maxLooseRecords records.
	if most := int64(limit + 2*(maxLooseRecords+1)*256); longest > most || late.Stats().Used > most {
		t.Errorf("%d bytes in the queue, limit %d", longest, limit)
	}
	// A restart brings nothing back that was cut off.
	operations := 0
	again := auditAs(t, "first", "", &faultyBackend{Backend: backend, fail: func() bool { operations++; return false }})
	again.own, again.limit = first.own, limit
	again.mustSync(t)
	if operations != 2 { // Stats and Peek
		t.Errorf("a restart made %d operations, want 2", operations)
	}
}

// TestRewriteThatFailsAnywhereKeepsRecordsOnce fails each operation of daemons that gather the
// messages of the queue, one after the other.
func TestRewriteThatFailsAnywhereKeepsRecordsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := backendInMemory(t)
		writer, reader := auditAs(t, "writer", "", backend), auditAs(t, "reader", "", backend)
		writer.mustSync(t)
		var counts []int
		fill := func() {
			t.Helper()
			all, err := writer.read(t.Context(), writer.queue)
			if err != nil {
				t.Fatal(err)
			}
			loose := slices.DeleteFunc(all.messages, func(m auditMessage) bool { return !m.isLoose() })
			for range maxLooseRecords + 1 - len(loose) {
				counts = append(counts, len(counts)+1)
				time.Sleep(time.Millisecond)
				writer.loose = 0 // it does not gather itself
				writer.add(t, "", len(counts))
			}
		}
		steps, at := 0, 0
		for failed := true; failed; at += 1 + at/2 {
			fill()
			steps, failed = 0, false
			faulty := &faultyBackend{backend, func() bool {
				steps++
				failed = failed || steps == at+1
				return steps > at
			}, at%2 == 0}
			s := auditAs(t, "faulty", "", faulty)
			_ = s.sync(t.Context())
			reader.expect(t, fmt.Sprintf("failure at step %d", at), counts...)
		}
		if at < maxLooseRecords {
			t.Errorf("only %d steps", at)
		}
	})
}

// TestReaderMissesNothingWhileQueueIsRewritten reads while two daemons record changes and rewrite the queue.
func TestReaderMissesNothingWhileQueueIsRewritten(t *testing.T) {
	backend := backendInMemory(t)
	reader := auditAs(t, "reader", "", backend)
	var confirmed [2]atomic.Int64
	var writing sync.WaitGroup
	for i := range confirmed {
		s := auditAs(t, fmt.Sprint(i), "", backend)
		s.mustSync(t)
		writing.Go(func() {
			for n := 1; n <= 3*maxLooseRecords; n++ {
				s.add(t, "", n)
				confirmed[i].Store(int64(n))
			}
		})
	}
	over := make(chan struct{})
	go func() { writing.Wait(); close(over) }()
	for reading := true; reading; {
		select {
		case <-over:
			reading = false
		default:
		}
		want := [2]int{int(confirmed[0].Load()), int(confirmed[1].Load())}
		records, _, err := reader.Records(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[string]int)
		for _, r := range records {
			seen[r.Daemon]++
		}
		for i := range want {
			if got := seen[fmt.Sprint(i)]; got < want[i] {
				t.Fatalf("read %d records of daemon %d, %d were confirmed", got, i, want[i])
			}
		}
	}
}
