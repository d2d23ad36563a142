package oapapi_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// TestWhatASubscriberLeavesIsReadyAgain has more on its way than fits in a batch.
func TestWhatASubscriberLeavesIsReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, membox.New(nil), oapapi.Options{})
		r := newRemote(t, d, d.client())
		defer r.Close()
		q, err := r.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		const all = 3 * driver.DefaultMaxBatch
		for range all / driver.DefaultMaxBatch {
			if _, err := q.Send(t.Context(), make([]driver.Outgoing, driver.DefaultMaxBatch)); err != nil {
				t.Fatal(err)
			}
		}
		for delivery, err := range q.(remotebox.Subscriber).Subscribe(t.Context(), time.Hour, 1024) {
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // all of them are here
			if err := q.Ack(t.Context(), []driver.Receipt{delivery.Receipt}); err != nil {
				t.Error(err)
			}
			break
		}
		synctest.Wait()
		if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{Ready: all - 1}) {
			t.Errorf("%+v, %v; want %d ready", stats, err, all-1)
		}
	})
}
