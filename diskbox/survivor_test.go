package diskbox

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// A message that kills the process at once, before its delivery was written, is counted from
// its second delivery on, and becomes a dead letter.
func TestMessageThatKillsItsProcessIsDeadLettered(t *testing.T) {
	for _, how := range []drivertest.Crash{drivertest.CrashKill, drivertest.CrashPower} {
		t.Run(how.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := start(t, storetest.NewDisk())
				const limit = 3
				if err := m.ConfigureQueue(t.Context(), "orders", driver.Config{MaxDeliveries: limit}); err != nil {
					t.Fatal(err)
				}
				send(t, openQueue(t, m.Backend, "orders"), driver.Outgoing{Body: []byte("poison")})
				killed := 0
				for killed <= limit+1 {
					q := openQueue(t, m.Backend, "orders")
					got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Second, Wait: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					if len(got) == 0 {
						break
					}
					killed++
					m = restart(t, m, how).(*machine)
				}
				stats, err := openQueue(t, m.Backend, "orders").Stats(t.Context())
				if err != nil || stats != (driver.Stats{Dead: 1}) {
					t.Errorf("after it was delivered %d times: %+v, %v; want one dead letter", killed, stats, err)
				}
			})
		})
	}
}

// Messages of a store that was closed in order are delivered without waiting for the disk.
func TestReceiveAfterCleanRestartSkipsDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		send(t, openQueue(t, m.Backend, "orders"), driver.Outgoing{Body: []byte("tea")})
		m = restart(t, m, drivertest.CrashClean).(*machine)
		q := openQueue(t, m.Backend, "orders")
		var syncs atomic.Int32
		m.disk.Before(func(op storetest.Operation) error {
			if op.Kind.Durability() {
				syncs.Add(1)
			}
			return nil
		})
		receive(t, q, 1)
		if n := syncs.Load(); n > 0 {
			t.Errorf("the disk was synced %d times", n)
		}
	})
}
