//go:build !race

// Under the race detector pools lose things on purpose.

package broker_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// receiver is called with what was received.
type receiver func([]broker.Delivery, error)

func (f receiver) Received(_ *completion.Round, got []broker.Delivery, err error) { f(got, err) }

// TestAllocationsOfMessageAreBounded sends, receives and acks messages of 256 bytes over
// memory, as the surface of a connection does.
func TestAllocationsOfMessageAreBounded(t *testing.T) {
	for _, test := range []struct {
		name string
		size int
		most float64 // allocations for a message
	}{
		{"one by one", 1, 6},
		{"batches of 10", 10, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			backend := membox.New(nil)
			defer backend.Close()
			c := newBench(t, backend, broker.Limits{}).as("")
			ctx := t.Context()
			messages := make([]broker.Outgoing, test.size)
			for i := range messages {
				messages[i].Body = make([]byte, 256)
			}
			receipts := make([]string, test.size)
			var round completion.Round
			sent := func(_ *completion.Round, sent []driver.Sent, err error) {
				if err != nil || len(sent) != test.size {
					t.Errorf("%d messages were sent: %v", len(sent), err)
				}
			}
			var received receiver = func(got []broker.Delivery, err error) {
				if err != nil || len(got) != test.size {
					t.Fatalf("received %d messages: %v", len(got), err)
				}
				for i := range got {
					receipts[i] = got[i].Receipt
				}
			}
			acked := func(_ *completion.Round, err error) {
				if err != nil {
					t.Error(err)
				}
			}
			cycle := func() {
				c.StartSend(ctx, &round, "bench", messages, sent)
				c.StartReceive(ctx, &round, "bench", driver.ReceiveRequest{Max: test.size, Visibility: time.Minute}, received)
				c.StartAck(ctx, &round, "bench", receipts, acked)
			}
			if err := c.Configure(ctx, "bench", driver.Config{}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Stats(ctx, "bench"); err != nil { // it opens the queue
				t.Fatal(err)
			}
			if got := testing.AllocsPerRun(1000, cycle) / float64(test.size); got > test.most {
				t.Errorf("%v allocations for a message, want at most %v", got, test.most)
			}
		})
	}
}

// TestWaitingMessageTakesLittleMemory measures the heap. The process takes about a tenth more
// for it.
func TestWaitingMessageTakesLittleMemory(t *testing.T) {
	const batches, size, most = 400, 50, 600
	backend := membox.New(nil)
	defer backend.Close()
	c := newBench(t, backend, broker.Limits{}).as("")
	messages := make([]broker.Outgoing, size)
	for i := range messages {
		messages[i].Body = make([]byte, 256)
	}
	live := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := live()
	for range batches {
		if _, err := c.Send(t.Context(), "bench", messages); err != nil {
			t.Fatal(err)
		}
	}
	if got := (live() - before) / (batches * size); got > most {
		t.Errorf("a waiting message of 256 bytes takes %d, want at most %d", got, most)
	}
	runtime.KeepAlive(backend)
}
