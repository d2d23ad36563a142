package membox_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestExactlyOneOfAckAndExpiryWins lets acks race the end of their leases on
// the real clock, 100,000 times in full (VIS-6): a message is either acked or delivered
// again, never both and never neither.
func TestExactlyOneOfAckAndExpiryWins(t *testing.T) {
	volume.Repeats(t)
	const round = 200
	races := volume.Of(100_000)
	backend := membox.New(nil)
	defer backend.Close()
	q, err := backend.OpenQueue(t.Context(), "races")
	if err != nil {
		t.Fatal(err)
	}
	acked, expired := 0, 0
	for acked+expired < races {
		won, back := raceOnce(t, q, round)
		for id := range won {
			if back[id] {
				t.Fatalf("%s was acked and delivered again", id)
			}
		}
		if len(won)+len(back) != round {
			t.Fatalf("%d acked and %d delivered again, of %d", len(won), len(back), round)
		}
		acked += len(won)
		expired += len(back)
	}
	t.Logf("%d races: the ack won %d, the deadline %d", acked+expired, acked, expired)
	if acked == 0 || expired == 0 {
		t.Error("one side never won: this was no race")
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats != (driver.Stats{}) {
		t.Errorf("left over: %+v, %v", stats, err)
	}
}

// raceOnce leases n messages for a moment, acks them around its end, and takes
// what comes back. It returns the ids that were acked in time and those that
// came back; these it acks as well.
func raceOnce(t *testing.T, q driver.Queue, n int) (won, back map[string]bool) {
	// The acks start up to this long before the deadline: now and then all of
	// them are in time, and now and then none.
	const visibility, lead = 3 * time.Millisecond, time.Millisecond
	ctx := t.Context()
	if _, err := q.Send(ctx, make([]driver.Outgoing, n)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	held, err := q.Receive(ctx, driver.ReceiveRequest{Max: n, Visibility: visibility})
	if err != nil || len(held) != n {
		t.Fatal(len(held), err)
	}
	leased := time.Now()
	won, back = make(map[string]bool), make(map[string]bool)
	acking := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(acking)
		for from := visibility - rand.N(lead); time.Since(start) < from; {
			runtime.Gosched()
		}
		for _, d := range held {
			if q.Ack(ctx, []driver.Receipt{d.Receipt}) == nil {
				won[d.ID] = true
			}
		}
	})
	wg.Go(func() {
		for last := false; ; {
			got, err := q.Receive(ctx, driver.ReceiveRequest{Max: n, Visibility: time.Hour})
			if err != nil {
				t.Error(err)
				return
			}
			for _, d := range got {
				back[d.ID] = true
				if err := q.Ack(ctx, []driver.Receipt{d.Receipt}); err != nil {
					t.Error(err)
				}
			}
			if last {
				return
			}
			select {
			case <-acking: // and every lease is over
				last = time.Since(leased) > visibility+lead
			default:
			}
		}
	})
	wg.Wait()
	return won, back
}
