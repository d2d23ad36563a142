package diskbox

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// TestDeathDuringOpenIsObserved has a lease end while the machine is down, so that the
// message dies in Open, before there can be an observer.
func TestDeathDuringOpenIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, storetest.NewDisk())
		if err := b.ConfigureQueue(t.Context(), "orders", driver.Config{MaxDeliveries: 1}); err != nil {
			t.Fatal(err)
		}
		q, err := b.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		sent, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("x")}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute}); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		time.Sleep(2 * time.Minute)
		b = restart(t, b, drivertest.CrashKill).(*machine)
		var heard []driver.Ending
		defer b.Observe(func(e driver.Ending) { heard = append(heard, e) })()
		want := driver.Ending{
			Queue: "orders", Kind: driver.EndingDied, Count: 1, ID: sent[0].ID, Reason: driver.ReasonMaxDeliveries, Deliveries: 1,
		}
		if len(heard) != 1 || heard[0] != want {
			t.Errorf("heard %+v, want %+v", heard, want)
		}
		defer b.Observe(func(e driver.Ending) { t.Errorf("a second observer heard %+v", e) })()
	})
}
