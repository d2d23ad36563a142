package diskbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// fairDisk returns a disk with a queue with fair groups, whose messages wait at their original
// place, wait at another place, are delayed, are in flight, are dead, or are gone.
func fairDisk(t *testing.T) *storetest.Disk {
	t.Helper()
	disk := storetest.NewDisk()
	m := start(t, disk)
	q := configure(t, m, "fair", driver.Config{FairGroups: true})
	for i := range 12 {
		group := fmt.Sprint("g", i%4)
		if i%4 == 3 {
			group = ""
		}
		send(t, q, driver.Outgoing{Body: fmt.Append(nil, i), Group: group, Delay: time.Duration(i/11) * time.Minute})
	}
	got := receive(t, q, 8)
	for range 2 { // twice to the tail
		if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}, {Receipt: got[1].Receipt, Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		got = append(receive(t, q, 2), got[2:]...)
	}
	if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}}); err != nil {
		t.Fatal(err)
	}
	if err := q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[2].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	if err := q.Ack(t.Context(), []driver.Receipt{got[3].Receipt}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return disk
}

// groupKeys returns the keys of the index by group.
func groupKeys(t *testing.T, disk *storetest.Disk) (keys [][]byte) {
	t.Helper()
	meddle(t, disk, func(s *store.Store) {
		it := s.Iterate([]byte{groupKind}, []byte{groupKind + 1})
		defer it.Close()
		for it.Next() {
			keys = append(keys, append([]byte(nil), it.Key()...))
		}
	})
	return keys
}

func TestFairGroupIndexFindsMessages(t *testing.T) {
	disk := fairDisk(t)
	report, err := Check(t.Context(), "queues", offline(disk))
	if err != nil || len(report.Problems) > 0 {
		t.Fatalf("check finds %+v, %v", report, err)
	}
	keys := groupKeys(t, disk)
	meddle(t, disk, func(s *store.Store) {
		grouped, moved := 0, 0
		sh := &backlog{store: s, shard: host.ShardID{Queue: 1}}
		for e := range sh.Waiting(0) {
			if groupOf(e) == "" {
				continue
			}
			grouped++
			if e.Place != e.Seq {
				moved++
			}
			if found := first(sh, groupOf(e), e.Place); found == nil || found.Seq != e.Seq {
				t.Errorf("message %d at place %d is not found in %s", e.Seq, e.Place, groupOf(e))
			}
		}
		if len(keys) != grouped || moved == 0 {
			t.Errorf("%d records for %d messages in groups, of which %d were moved", len(keys), grouped, moved)
		}
	})
}

func TestGroupIndexListsEveryMessageOnce(t *testing.T) {
	disk := storetest.NewDisk()
	m := start(t, disk)
	q := configure(t, m, "strict", driver.Config{StrictGroups: true})
	for i := range 20 {
		send(t, q, driver.Outgoing{Body: fmt.Append(nil, i), Group: fmt.Sprint("g", i%4)})
	}
	closeIt(t, m)
	meddle(t, disk, func(s *store.Store) {
		sh := &backlog{store: s, shard: host.ShardID{Queue: 1}}
		var order []string // of the groups
		listed := 0
		end := sh.Groups(engine.GroupPoint{}, func(e *engine.Entry, at engine.GroupPoint) (engine.GroupPoint, bool) {
			listed++
			if len(order) == 0 || order[len(order)-1] != groupOf(e) {
				order = append(order, groupOf(e))
			}
			if e.Place != at.Place {
				t.Errorf("message at place %d is listed at %d", e.Place, at.Place)
			}
			return engine.GroupPoint{Group: at.Group, Place: at.Place + 1}, true
		})
		if !end || listed != 20 || len(order) != 4 {
			t.Errorf("listed %d messages in groups %v, want 20 in 4", listed, order)
		}
	})
}

func first(sh *backlog, group string, from uint64) *engine.Entry {
	for e := range sh.Group(group, from) {
		return e
	}
	return nil
}

func TestCheckFindsDamagedFairGroupIndex(t *testing.T) {
	disk := fairDisk(t)
	keys := groupKeys(t, disk)
	stray := appendGroupKey(nil, host.ShardID{Queue: 1}, "g0", 77)
	for i, key := range append(keys, stray) {
		copied := storetest.DiskFrom(disk.Mem().CrashClone(everything()))
		meddle(t, copied, func(s *store.Store) {
			b := s.NewBatch()
			if i < len(keys) {
				b.Delete(key)
			} else {
				b.Set(key, nil)
			}
			if err := s.Commit(b, true); err != nil {
				t.Fatal(err)
			}
		})
		report, err := Check(t.Context(), "queues", offline(copied))
		if err != nil || len(report.Problems) == 0 {
			t.Errorf("record %q: check finds %+v, %v", key, report, err)
		}
	}
}

// A store tracks a limited number of groups; a small store tracks few.
func TestGroupsBeyondLimitAreServed(t *testing.T) {
	volume.InFull(t)
	m := start(t, storetest.NewDisk())
	q := configure(t, m, "fair", driver.Config{FairGroups: true})
	const groups, each = 1200, 2 // a small store tracks 1000
	for i := range each {
		var batch []driver.Outgoing
		for g := range groups {
			batch = append(batch, driver.Outgoing{Body: fmt.Append(nil, g, " ", i), Group: fmt.Sprint("group ", g)})
			if len(batch) == 200 {
				send(t, q, batch...)
				batch = nil
			}
		}
	}
	closeIt(t, m)
	m = start(t, m.disk)
	q = openQueue(t, m, "fair")
	seen := make(map[string]bool)
	for len(seen) < groups*each {
		for _, d := range receive(t, q, 100) {
			if seen[string(d.Body)] {
				t.Fatalf("%s is delivered twice", d.Body)
			}
			seen[string(d.Body)] = true
			if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
	}
	expectStats(t, q, driver.Stats{})
}
