package diskbox

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/host"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// pendingLeases returns how many leases are not in a batch yet.
func pendingLeases(m *machine) int {
	m.journal.mu.Lock()
	defer m.journal.mu.Unlock()
	return len(m.journal.leases)
}

// TestLeaseSettledInTimeIsNeverWritten settles messages, in every way, before a call waits for
// the disk, and checks the log.
func TestLeaseSettledInTimeIsNeverWritten(t *testing.T) {
	for name, settle := range map[string]func(driver.Queue, driver.Receipt) error{
		"ack":  func(q driver.Queue, r driver.Receipt) error { return q.Ack(t.Context(), []driver.Receipt{r}) },
		"nack": func(q driver.Queue, r driver.Receipt) error { return q.Nack(t.Context(), []driver.Nack{{Receipt: r}}) },
		"dead-letter": func(q driver.Queue, r driver.Receipt) error {
			return q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: r, Reason: driver.ReasonFatal}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := start(t, storetest.NewDisk())
				q := openQueue(t, m.Backend, "orders")
				send(t, q, driver.Outgoing{Body: []byte("tea")})
				got := receive(t, q, 1)
				if n := pendingLeases(m); n != 1 {
					t.Fatalf("%d leases are pending", n)
				}
				if err := settle(q, got[0].Receipt); err != nil {
					t.Fatal(err)
				}
				key := string(appendNumberKey(nil, leaseKind, host.ShardID{Queue: 1}, 1))
				if n := pendingLeases(m); n != 0 || logHolds(t, m.disk, key) > 0 {
					t.Errorf("%d leases are pending, and the log has the key %d times", n, logHolds(t, m.disk, key))
				}
			})
		})
	}
}

// logHolds counts the occurrences of a text in the logs of a disk.
func logHolds(t *testing.T, disk *storetest.Disk, text string) (times int) {
	t.Helper()
	for _, name := range storetest.Files(disk.Mem()) {
		if strings.HasSuffix(name, ".log") {
			content, err := disk.Mem().UnsafeGetFileDataBuffer(name)
			if err != nil {
				t.Fatal(err)
			}
			times += bytes.Count(content, []byte(text))
		}
	}
	return times
}

// TestLeaseIsWrittenSoon waits for the longest time that a lease stays unwritten, and cuts the
// power.
func TestLeaseIsWrittenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m.Backend, "orders")
		send(t, q, driver.Outgoing{Body: []byte("tea")})
		receive(t, q, 1)
		elapse(2 * time.Second) // then it is also synced
		if n := pendingLeases(m); n != 0 {
			t.Errorf("%d leases are pending", n)
		}
		again := restart(t, m, drivertest.CrashPower)
		if stats, err := openQueue(t, again, "orders").Stats(t.Context()); err != nil || stats != (driver.Stats{InFlight: 1}) {
			t.Errorf("there are %+v, %v", stats, err)
		}
	})
}

// TestRemovingMessagesForgetsTheirLeases: a lease without its message is damage.
func TestRemovingMessagesForgetsTheirLeases(t *testing.T) {
	for name, remove := range map[string]func(*machine, driver.Queue) error{
		"purge":  func(_ *machine, q driver.Queue) error { _, err := q.Purge(t.Context()); return err },
		"delete": func(m *machine, _ driver.Queue) error { return m.DeleteQueue(t.Context(), "orders") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := start(t, storetest.NewDisk())
				others := openQueue(t, m.Backend, "others")
				q := openQueue(t, m.Backend, "orders")
				send(t, q, make([]driver.Outgoing, 3)...)
				send(t, others, driver.Outgoing{})
				receive(t, q, 2)
				receive(t, others, 1)
				if n := pendingLeases(m); n != 3 {
					t.Fatalf("%d leases are pending", n)
				}
				if err := remove(m, q); err != nil {
					t.Fatal(err)
				}
				again := restart(t, m, drivertest.CrashClean)
				if stats, err := openQueue(t, again, "others").Stats(t.Context()); err != nil || stats != (driver.Stats{InFlight: 1}) {
					t.Errorf("of the others there are %+v, %v", stats, err)
				}
				if stats, err := openQueue(t, again, "orders").Stats(t.Context()); err != nil || stats != (driver.Stats{}) {
					t.Errorf("there are %+v, %v", stats, err)
				}
			})
		})
	}
}
