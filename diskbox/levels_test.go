package diskbox

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// prioritized returns n messages with the priorities 0…9 in turn, and their bodies in the order of
// delivery.
func prioritized(n int) (msgs []driver.Outgoing, bodies []string) {
	for i := range n {
		msgs = append(msgs, driver.Outgoing{Body: fmt.Appendf(nil, "%05d", i), Priority: i * 7 % 10})
	}
	for priority := driver.MaxPriority; priority >= 0; priority-- {
		for i := range msgs {
			if msgs[i].Priority == priority {
				bodies = append(bodies, string(msgs[i].Body))
			}
		}
	}
	return msgs, bodies
}

func sendAll(t *testing.T, q driver.Queue, msgs []driver.Outgoing) {
	t.Helper()
	for batch := range slices.Chunk(msgs, 100) {
		send(t, q, batch...)
	}
}

// drainBodies receives and acks all messages and returns their bodies.
func drainBodies(t *testing.T, q driver.Queue) (bodies []string) {
	t.Helper()
	for {
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 7, Visibility: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return bodies
		}
		for _, d := range got {
			bodies = append(bodies, string(d.Body))
			if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Far more messages than a window holds are delivered by priority, also after a restart, and leave
// no record behind.
func TestBacklogIsDeliveredByPriority(t *testing.T) {
	volume.InFull(t)
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newTestMachine(t)
			b := m.restart(nil, false)
			q := configure(t, b, "a", driver.Config{PriorityAging: driver.Off})
			sendAll(t, q, make([]driver.Outgoing, 3000)) // before the first with a priority
			msgs, want := prioritized(5000)
			sendAll(t, q, msgs)
			want = slices.Insert(want, 4500, make([]string, 3000)...)
			if restarted {
				b = m.restart(b, false)
				q = openQueue(t, b, "a")
			}
			if got := drainBodies(t, q); !slices.Equal(got, want) {
				t.Errorf("the order is wrong after %d of %d messages", firstDifference(got, want), len(got))
			}
			expectNoRecords(t, m.restart(b, false), messageKind, stateKind, placeKind, levelKind)
		})
	}
}

func firstDifference(a, b []string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// Nacked, edited, purged and dead messages leave no record of their priority behind.
func TestPrioritiesLeaveNoRecordBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := openQueue(t, b, "a")
		openQueue(t, b, "b")
		msgs, _ := prioritized(40)
		sent, err := q.Send(t.Context(), msgs)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range lease(t, q, 9, time.Hour) {
			switch i % 3 {
			case 0:
				err = q.Nack(t.Context(), []driver.Nack{{Receipt: d.Receipt}})
			case 1:
				err = q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: d.Receipt, Reason: driver.ReasonFatal}})
			default:
				err = q.Ack(t.Context(), []driver.Receipt{d.Receipt})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range sent {
			_, err := q.Edit(t.Context(), s.ID, driver.Edit{Prioritize: true, Priority: i % 4})
			if err != nil && !errors.Is(err, driver.ErrNotFound) && !errors.Is(err, driver.ErrConflict) {
				t.Fatal(err)
			}
		}
		if n, err := q.Redrive(t.Context(), nil, 1); n != 1 || err != nil {
			t.Fatalf("redrove %d, %v", n, err)
		}
		if n, err := q.Move(t.Context(), "b", 10); n != 10 || err != nil {
			t.Fatalf("moved %d, %v", n, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if report, err := Check(t.Context(), "queues", offline(m.disk)); err != nil || len(report.Problems) > 0 {
			t.Fatalf("check: %+v, %v", report, err)
		}
		b = m.restart(nil, false)
		q = openQueue(t, b, "a")
		if _, err := q.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(drainBodies(t, openQueue(t, b, "b"))); got != 10 {
			t.Errorf("drained %d messages of b, want 10", got)
		}
		expectNoRecords(t, m.restart(b, false), messageKind, stateKind, placeKind, levelKind)
	})
}

// A version that knows no priorities sends, nacks and removes messages, and does not write where the
// index begins.
func TestIndexIsRebuiltAfterEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := configure(t, b, "a", driver.Config{PriorityAging: driver.Off})
		send(t, q, driver.Outgoing{Body: []byte("low")}, driver.Outgoing{Body: []byte("high"), Priority: 9}, driver.Outgoing{Body: []byte("middle"), Priority: 5})
		b.journal.mu.Lock()
		shard := host.ShardID{Queue: 1}
		b.journal.ledger.change(shard).Indexed = 0
		b.journal.batch.Delete(appendLevelKey(nil, shard, 9, 2)) // as if it had got another place
		b.journal.batch.Set(appendLevelKey(nil, shard, 9, 77), nil)
		b.journal.mu.Unlock()
		send(t, q, driver.Outgoing{Body: []byte("later")})
		b = m.restart(b, false)
		q = openQueue(t, b, "a")
		send(t, q, driver.Outgoing{Body: []byte("last")})
		if got, want := drainBodies(t, q), []string{"high", "middle", "low", "later", "last"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		expectNoRecords(t, m.restart(b, false), messageKind, levelKind)
	})
}

// Repair rebuilds the index by priority.
func TestRepairRebuildsPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestMachine(t)
		b := m.restart(nil, false)
		q := configure(t, b, "a", driver.Config{PriorityAging: driver.Off})
		msgs, want := prioritized(60)
		sendAll(t, q, msgs)
		b.journal.mu.Lock()
		shard := host.ShardID{Queue: 1}
		for place := range uint64(30) {
			b.journal.batch.Delete(appendLevelKey(nil, shard, uint8(place*7%10), place+1))
		}
		b.journal.batch.Set(appendLevelKey(nil, shard, 3, 99), nil)
		b.journal.mu.Unlock()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if report, err := Check(t.Context(), "queues", offline(m.disk)); err != nil || len(report.Problems) != 30 {
			t.Errorf("check: %+v, %v; want 30 problems", report, err)
		}
		repaired, err := Repair(t.Context(), "queues", offline(m.disk))
		if err != nil {
			t.Fatal(err)
		}
		if repaired.Rebuilt != 29 || repaired.Removed != 1 {
			t.Errorf("rebuilt %d records and removed %d, want 29 and 1", repaired.Rebuilt, repaired.Removed)
		}
		q = openQueue(t, m.restart(nil, false), "a")
		if got := drainBodies(t, q); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
