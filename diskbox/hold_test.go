package diskbox

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// VIS-5: a directory of an earlier version has multiples of the visibility.
func TestStoredMultipleHoldsForTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		openQueue(t, m, "orders")
		closeIt(t, m)
		meddle(t, m.disk, func(s *store.Store) {
			var w writer
			key := appendQueueKey(nil, queueKind, 1)
			w.begin(key)
			w.buf = append(w.buf, `{"Name":"orders","Config":{"Shards":1,"MaxDeliveries":5,"MaxHold":10}}`...)
			b := s.NewBatch()
			b.Set(key, w.end())
			if err := s.Commit(b, true); err != nil {
				t.Fatal(err)
			}
		})
		m = start(t, m.disk)
		if config, err := m.QueueConfig(t.Context(), "orders"); err != nil || config.MaxHold != 12*time.Hour || config.MaxDeliveries != 5 {
			t.Errorf("got %+v, error %v; want a MaxHold of 12 hours", config, err)
		}
		q := openQueue(t, m, "orders")
		send(t, q, driver.Outgoing{Body: []byte("a")})
		d := lease(t, q, 1, 30*time.Second)[0]
		granted, err := q.Extend(t.Context(), []driver.Extension{{Receipt: d.Receipt, Visibility: time.Hour}})
		if err != nil || granted[0] != time.Hour {
			t.Errorf("extend by an hour: granted %v, error %v", granted, err)
		}
	})
}
