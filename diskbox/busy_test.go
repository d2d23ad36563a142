package diskbox

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// Purging needs a moment without staged operations. It must come, however busy the queue is.
func TestPurgeOfBusyQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		// Not a small store: it would begin new logs, and sync the old ones while it holds
		// locks. Waiting for a mutex stops virtual time.
		b, err := Open(t.Context(), "queues", &Options{
			fs: disk.FS(), boot: bubbleClock{}, secret: aSecret,
			OnFail: func(err error) { t.Errorf("the store has failed: %v", err) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		m := &machine{Backend: b, disk: disk}
		q := configure(t, m, "orders", driver.Config{Shards: 3})
		disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync && strings.HasSuffix(op.Path, ".log") {
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		defer disk.Before(func(storetest.Operation) error { return nil }) // Close holds locks, too
		begin := time.Now()
		var wg sync.WaitGroup
		var sent, done atomic.Int64
		for n := range 16 {
			wg.Go(func() {
				time.Sleep(time.Duration(n) * time.Millisecond)
				for done.Load() < 3 && time.Since(begin) < 20*time.Second {
					if _, err := q.Send(t.Context(), make([]driver.Outgoing, 1)); err != nil {
						t.Error(err)
						return
					}
					sent.Add(1)
				}
			})
		}
		purged := 0
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			n, err := q.Purge(t.Context())
			if err != nil || n == 0 {
				t.Errorf("purged %d, %v", n, err)
			}
			purged += n
			done.Add(1)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		wg.Wait()
		expectStats(t, q, driver.Stats{Ready: int(sent.Load()) - purged})
	})
}

func TestReceiveFindsMessagesBehindBlockedGroup(t *testing.T) {
	m := start(t, storetest.NewDisk())
	q := configure(t, m, "orders", driver.Config{StrictGroups: true})
	for range 8 {
		batch := make([]driver.Outgoing, 250)
		for i := range batch {
			batch[i].Group = "held"
		}
		send(t, q, batch...)
	}
	lease(t, q, 1, time.Hour)
	send(t, q, driver.Outgoing{Group: "free", Body: []byte("free")})
	m = reopen(t, m, 0)
	q = openQueue(t, m, "orders")
	expectBodies(t, q, "free")
	expectBodies(t, q)
}

// Redriving many dead letters stops when its context ends.
func TestRedriveEndsWithItsContext(t *testing.T) {
	m := start(t, storetest.NewDisk())
	q := configure(t, m, "orders", driver.Config{RetainReady: driver.Retention{Count: 1}})
	for range 6 {
		send(t, q, make([]driver.Outgoing, 250)...)
	}
	if err := m.ConfigureQueue(t.Context(), "orders", driver.Config{}.Effective()); err != nil {
		t.Fatal(err)
	}
	expectStats(t, q, driver.Stats{Ready: 1, Dead: 1499})
	ctx := &countedContext{Context: t.Context()}
	n, err := q.Redrive(ctx, nil, 0)
	if !errors.Is(err, context.Canceled) || n == 0 || n == 1499 {
		t.Errorf("redrove %d, %v", n, err)
	}
	expectStats(t, q, driver.Stats{Ready: 1 + n, Dead: 1499 - n})
}

// countedContext is cancelled at its third check.
type countedContext struct {
	context.Context
	asked int
}

func (c *countedContext) Err() error {
	if c.asked++; c.asked > 3 {
		return context.Canceled
	}
	return nil
}

// A shard that has more messages in flight than the lowered limit must not keep a receiver
// asleep that waits for messages of other shards.
func TestLoweredCeilingMissesNoWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		q := configure(t, m, "orders", driver.Config{Shards: 2})
		send(t, q, make([]driver.Outgoing, 40)...)
		for _, d := range lease(t, q, 40, time.Hour) {
			if d.Receipt.Place>>48 == 1 {
				if err := q.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
					t.Fatal(err)
				}
			}
		}
		configure(t, m, "orders", driver.Config{Shards: 2, MaxInFlight: 10})
		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			send(t, q, make([]driver.Outgoing, 2)...) // one for each shard
		}()
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: 20 * time.Second})
		if waited := time.Since(begin); len(got) != 1 || err != nil || waited > 2*time.Second {
			t.Errorf("received %d, %v after %v", len(got), err, waited)
		}
	})
}
