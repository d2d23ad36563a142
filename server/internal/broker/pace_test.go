package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/completion"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// The tests in this file are about callers that have to wait, so that others need not.

// TestRequestsWithoutTokenAreBoundedByAddress sends requests without a token from one
// address as fast as possible: they are slowed down, and another address does not wait.
func TestRequestsWithoutTokenAreBoundedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		forged := mint(t, keyring.New(keyring.NewKey()), "")
		hostile, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		began := time.Now()
		asked := 0
		for ; time.Since(began) < 10*time.Second; asked++ {
			if asked%2 == 0 {
				if err := b.Stranger(t.Context(), hostile); err != nil {
					t.Fatal(err)
				}
			} else if err := b.Caller(forged, broker.Origin{Client: hostile}).Genuine(t.Context()); !errors.Is(err, driver.ErrUnauthenticated) {
				t.Fatalf("a forged token: %v", err)
			}
			if before := time.Now(); asked%100 == 0 {
				if err := b.Stranger(t.Context(), other); err != nil || time.Since(before) > 0 {
					t.Fatalf("another address: %v after %v", err, time.Since(before))
				}
			}
			if asked > 10*1024 {
				t.Fatalf("%d requests without a token were answered in %v", asked, time.Since(began))
			}
		}
		if asked < 1000 {
			t.Errorf("only %d requests without a token were answered in 10 s", asked)
		}
	})
}

// TestRefusalsWaitWhileOthersAreActive repeats a send that has no room as fast as possible:
// it is refused at once while its tenant is alone, and seldom while another one is active.
func TestRefusalsWaitWhileOthersAreActive(t *testing.T) {
	for _, way := range []struct {
		name string
		send func(c *broker.Caller, ctx context.Context, messages []broker.Outgoing) error
	}{
		{"waited for", func(c *broker.Caller, ctx context.Context, messages []broker.Outgoing) error {
			_, err := c.Send(ctx, "q", messages)
			return err
		}},
		{"started", func(c *broker.Caller, ctx context.Context, messages []broker.Outgoing) error {
			ended := make(chan error, 1)
			c.StartSend(ctx, completion.NewRound(), "q", messages, func(_ *completion.Round, _ []driver.Sent, err error) { ended <- err })
			return <-ended
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory(t, broker.Limits{MaxDedupKeys: 16})
				hostile, victim := b.as("hostile"), b.as("victim")
				b.send(hostile, "q", "x")
				next, refused := 0, 0
				attempt := func() {
					next++
					messages := say("x")
					messages[0].DedupKey = fmt.Sprint(next)
					if err := way.send(&hostile, t.Context(), messages); errors.Is(err, driver.ErrFull) {
						refused++
					} else if err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				for refused < 200 {
					attempt()
				}
				if time.Since(began) > 0 {
					t.Errorf("a tenant that is alone waited %v for refusals", time.Since(began))
				}
				refused = 0
				for began = time.Now(); time.Since(began) < 10*time.Second; {
					before := time.Now()
					b.send(victim, "q", "x")
					if time.Since(before) > 0 {
						t.Fatalf("another tenant waited %v", time.Since(before))
					}
					if attempt(); refused > 10*32 {
						t.Fatalf("%d sends were refused in %v", refused, time.Since(began))
					}
				}
				if refused < 100 {
					t.Errorf("only %d sends were refused in 10 s: the others waited too long", refused)
				}
			})
		})
	}
}

// stalledConfig is a backend that configures no queue until begin is closed.
type stalledConfig struct {
	*membox.Backend
	begin chan struct{}
}

func (s stalledConfig) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	<-s.begin
	return s.Backend.ConfigureQueue(ctx, name, config)
}

// TestPeekLetsOthersHaveTurns peeks at a long queue while one turn is left: another operation
// of the token gets it before the peek has read everything.
func TestPeekLetsOthersHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := stalledConfig{membox.New(nil), make(chan struct{})}
		defer backend.Close()
		b := newBench(t, backend, broker.Limits{})
		c := b.as("")
		for range 300 {
			b.send(c, "q", "x")
		}
		var configuring sync.WaitGroup
		for i := range 12 { // of four units each: all but one of the 49 that a token may have
			configuring.Go(func() {
				if err := c.Configure(t.Context(), fmt.Sprintf("q%d", i), driver.Config{}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		counted := make(chan error, 1)
		seen := 0
		for _, err := range c.Peek(t.Context(), "q", driver.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; seen == 1 {
				go func() {
					_, err := c.Stats(t.Context(), "q")
					counted <- err
				}()
				synctest.Wait()
			}
			if seen == 100 {
				synctest.Wait()
				if len(counted) == 0 {
					t.Error("after 100 messages the peek has its first turn still")
				}
			}
		}
		if err := <-counted; err != nil || seen != 300 {
			t.Errorf("saw %d of 300 messages; stats: %v", seen, err)
		}
		close(backend.begin)
		configuring.Wait()
	})
}

// TestPeeksAreBoundedByRequestMemory begins many peeks whose clients do not read: only some
// of them hold messages in memory.
func TestPeeksAreBoundedByRequestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "q", "x")
		read := make(chan struct{})
		var reading atomic.Int32
		var peeks sync.WaitGroup
		for range 40 {
			peeks.Go(func() {
				for _, err := range c.Peek(t.Context(), "q", driver.Query{}) {
					if err != nil {
						t.Error(err)
					}
					reading.Add(1)
					<-read
				}
			})
		}
		synctest.Wait()
		if n := reading.Load(); n < 8 || n > 24 {
			t.Errorf("%d peeks hold messages at once", n)
		}
		close(read)
		peeks.Wait()
		if n := reading.Load(); n != 40 {
			t.Errorf("%d of 40 peeks got their turn", n)
		}
	})
}

// TestCreationsWaitWhileOthersAreActive creates queues as fast as possible: at once while
// their tenant is alone, and at a bounded rate while another one is active.
func TestCreationsWaitWhileOthersAreActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		hostile, victim := b.as("hostile"), b.as("victim")
		made := 0
		create := func() {
			name := fmt.Sprintf("q%d", made)
			made++
			if made%2 == 0 {
				b.send(hostile, name, "x")
			} else if err := hostile.Configure(t.Context(), name, driver.Config{}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for made < 300 {
			create()
		}
		if time.Since(began) > 0 {
			t.Errorf("a tenant that is alone waited %v to create queues", time.Since(began))
		}
		b.send(victim, "q", "x")
		made = 1000
		for began = time.Now(); time.Since(began) < 10*time.Second; {
			before := time.Now()
			b.send(victim, "q", "x")
			b.send(hostile, "q1", "x") // it exists
			if time.Since(before) > 0 {
				t.Fatalf("sends to queues that exist waited %v", time.Since(before))
			}
			if create(); made > 1000+10*16 {
				t.Fatalf("%d queues were created in %v", made-1000, time.Since(began))
			}
		}
		if made < 1000+50 {
			t.Errorf("only %d queues were created in 10 s", made-1000)
		}
	})
}

// TestPeeksWaitWhileOthersAreActive peeks at large messages as fast as possible: at once while
// its tenant is alone, and at a bounded rate while another one is active.
func TestPeeksWaitWhileOthersAreActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		hostile, victim := b.as("hostile"), b.as("victim")
		const messages, size = 64, 128 << 10
		for range messages {
			b.send(hostile, "q", strings.Repeat("x", size))
		}
		peek := func() {
			for _, err := range hostile.Peek(t.Context(), "q", driver.Query{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		began := time.Now()
		for range 10 {
			peek()
		}
		if time.Since(began) > 0 {
			t.Errorf("a tenant that is alone waited %v for peeks", time.Since(began))
		}
		peeks := 0
		for began = time.Now(); time.Since(began) < 10*time.Second; peeks++ {
			before := time.Now()
			b.send(victim, "q", "x")
			if time.Since(before) > 0 {
				t.Fatalf("another tenant waited %v", time.Since(before))
			}
			peek()
		}
		if bytes := peeks * messages * size; bytes < 20<<20 || bytes > 11*(16<<20)*7/8 {
			t.Errorf("%d MiB were peeked at in 10 s", bytes>>20)
		}
	})
}

// TestOpeningsWaitWhileOthersAreActive opens a queue as fast as possible: at once while its tenant is
// alone, and at a bounded rate while another one is active.
func TestOpeningsWaitWhileOthersAreActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		hostile, victim := b.as("hostile"), b.as("victim")
		b.send(hostile, "q", "x")
		open := func() {
			if _, exists, err := hostile.Identity(t.Context(), "q"); err != nil || !exists {
				t.Fatalf("exists %t, %v", exists, err)
			}
		}
		began := time.Now()
		for range 2000 {
			open()
		}
		if time.Since(began) > 0 {
			t.Errorf("a tenant that is alone waited %v to open queues", time.Since(began))
		}
		opened := 0
		for began = time.Now(); time.Since(began) < 10*time.Second; opened++ {
			before := time.Now()
			b.send(victim, "q", "x")
			if time.Since(before) > 0 {
				t.Fatalf("another tenant waited %v", time.Since(before))
			}
			open()
		}
		if opened < 1000 || opened > 11*512 {
			t.Errorf("%d queues were opened in 10 s", opened)
		}
	})
}
