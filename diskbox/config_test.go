package diskbox

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// TestQueueOfEarlierVersionKeepsNoLimit: configurations stored before a setting could be unset
// have 0 where it is off, even for a queue that was only opened.
func TestQueueOfEarlierVersionKeepsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		send(t, openQueue(t, m.Backend, "orders"), driver.Outgoing{Body: []byte("tea")})
		m.journal.Lock()
		m.journal.Configured(1, "orders", driver.Config{}, false, nil) // as OpenQueue wrote it
		m.journal.Unlock()
		m = reopen(t, m, 0)
		q := openQueue(t, m.Backend, "orders")
		for range 2 * driver.DefaultMaxDeliveries {
			got := receive(t, q, 1)
			if err := q.Nack(t.Context(), []driver.Nack{{Receipt: got[0].Receipt}}); err != nil {
				t.Fatal(err)
			}
		}
		config, err := m.QueueConfig(t.Context(), "orders")
		want := driver.Config{}.Effective()
		if err != nil || config != want || config.MaxDeliveries != driver.Off || config.DedupWindow != driver.DefaultDedupWindow {
			t.Errorf("got %+v, error %v; want %+v", config, err, want)
		}
		if err := m.ConfigureQueue(t.Context(), "orders", driver.Config{MaxMessages: 9}); err != nil {
			t.Fatal(err)
		}
		if config, err = m.QueueConfig(t.Context(), "orders"); err != nil || config.MaxDeliveries != driver.Off || config.MaxMessages != 9 {
			t.Errorf("after another setting was changed: got %+v, error %v", config, err)
		}
	})
}

// TestStoredConfigHasZeroWhereOff: earlier versions read and wrote that.
func TestStoredConfigHasZeroWhereOff(t *testing.T) {
	stored, err := json.Marshal(driver.Config{MaxDeliveries: driver.Off}.Resolve(nil, driver.Config{}).Stored())
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(stored, &fields); err != nil {
		t.Fatal(err)
	}
	if fields["MaxDeliveries"] != 0.0 || fields["MaxMessages"] != 0.0 || fields["MaxDead"] != 10000.0 {
		t.Errorf("stored %s", stored)
	}
}
