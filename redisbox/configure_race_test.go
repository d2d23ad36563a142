package redisbox

import (
	"sync"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// TestParallelConfiguresKeepEachOthersSettings: each sets one and leaves the other
// unset, which must not bring back what it was before.
func TestParallelConfiguresKeepEachOthersSettings(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	first := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: prefix})
	second := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: prefix})
	for round := 1; round <= 30; round++ {
		var group sync.WaitGroup
		for backend, config := range map[*Backend]driver.Config{first: {MaxDeliveries: round}, second: {MaxMessages: round}} {
			group.Go(func() {
				if err := backend.ConfigureQueue(t.Context(), "orders", config); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		got, err := first.QueueConfig(t.Context(), "orders")
		if err != nil || got.MaxDeliveries != round || got.MaxMessages != round {
			t.Fatalf("round %d: got %+v, error %v", round, got, err)
		}
	}
}
