package dynamoreply_test

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// DynamoDB returns a scan in pages of one megabyte.
func TestExpiredSlotsAreFoundOnEveryPage(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		const slots = 6
		large := driver.Answer{Body: bytes.Repeat([]byte{7}, dynamoreply.MaxAnswerBytes)}
		for i := range slots {
			wantError(t, d.store.Create(t.Context(), fmt.Sprint(i), time.Minute), nil)
			wantError(t, d.store.Resolve(t.Context(), fmt.Sprint(i), large), nil)
		}
		time.Sleep(time.Minute)
		before := d.count("Scan")
		ids, err := d.store.Expired(t.Context(), 100)
		wantError(t, err, nil)
		wantEqual(t, "expired slots", len(ids), slots)
		wantBetween(t, "pages", d.count("Scan")-before, 2, slots)
		removed, err := d.store.Sweep(t.Context(), 100)
		wantError(t, err, nil)
		wantEqual(t, "removed", removed, slots)
	})
}

func TestConcurrentSweepsRemoveEachSlotOnce(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		const slots = 30
		for i := range slots {
			wantError(t, d.store.Create(t.Context(), fmt.Sprint(i), time.Minute), nil)
		}
		time.Sleep(time.Minute)
		var total atomic.Int64
		var group sync.WaitGroup
		for _, store := range []*dynamoreply.Store{d.store, d.another(t).store, d.another(t).store} {
			group.Go(func() {
				removed, err := store.Sweep(t.Context(), 2*slots)
				wantError(t, err, nil)
				total.Add(int64(removed))
			})
		}
		group.Wait()
		wantEqual(t, "removed by all together", total.Load(), slots)
	})
}

func TestSlotRecreatedDuringSweepStays(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		other := d.another(t)
		wantError(t, d.store.Create(t.Context(), "a", time.Minute), nil)
		time.Sleep(time.Minute)
		d.after = func(action string) {
			if action == "Scan" {
				wantError(t, other.store.Delete(t.Context(), "a"), nil)
				create(t, other.store, "a")
			}
		}
		removed, err := d.store.Sweep(t.Context(), 10)
		wantError(t, err, nil)
		wantEqual(t, "removed", removed, 0)
		slot, err := other.store.Get(t.Context(), "a")
		wantError(t, err, nil)
		wantEqual(t, "state", slot.State, driver.SlotPending)
	})
}

func TestFailedSweepReportsWhatItRemoved(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		const slots = 20
		for i := range slots {
			wantError(t, d.store.Create(t.Context(), fmt.Sprint(i), time.Minute), nil)
		}
		time.Sleep(time.Minute)
		d.add(fault{action: "DeleteItem", code: "AccessDeniedException", every: 10})
		removed, err := d.store.Sweep(t.Context(), slots)
		wantError(t, err, driver.ErrForbidden)
		d.clear()
		rest, err := d.store.Sweep(t.Context(), slots)
		wantError(t, err, nil)
		wantEqual(t, "removed by both", removed+rest, slots)
	})
}
