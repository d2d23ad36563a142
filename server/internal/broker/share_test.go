package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// make creates a queue.
func (b *bench) make(c broker.Caller, queue string) {
	b.t.Helper()
	if _, err := c.Send(b.t.Context(), queue, nil); err != nil {
		b.t.Fatal(err)
	}
}

// hoard receives from a queue until that is refused, and returns how many messages
// it got and the refusal.
func (b *bench) hoard(c broker.Caller, queue string, wait time.Duration) (held int, refusal error) {
	b.t.Helper()
	for range 1000 {
		got, err := c.Receive(b.t.Context(), queue, driver.ReceiveRequest{Max: 10, Visibility: 12 * time.Hour, Wait: wait})
		if held += len(got); err != nil {
			return held, err
		}
		if len(got) == 0 {
			b.t.Fatal("there were not enough messages")
		}
	}
	b.t.Fatal("it was never refused")
	return held, nil
}

func TestTenantWithLongLeasesLeavesOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxInFlight: 80})
		hostile, sibling, victim := b.as("hostile"), b.as("hostile"), b.as("victim")
		for i := range 100 {
			b.send(hostile, "jobs", fmt.Sprint(i))
			b.send(victim, "jobs", fmt.Sprint(i))
		}
		held, refusal := b.hoard(hostile, "jobs", 0)
		if held > 70 {
			t.Errorf("one tenant alone took %d of 80", held)
		}
		expectCode(t, refusal, driver.ErrFull, "a tenant that has used up its share")
		if e, ok := errors.AsType[*driver.Error](refusal); !ok || !strings.Contains(e.Detail, "share of") ||
			!strings.Contains(e.Detail, "global_inflight 80") || e.RetryAfter <= 0 {
			t.Errorf("the refusal does not name the share: %v", refusal)
		}
		if got := b.receive(sibling, "jobs", 1); len(got) != 1 {
			t.Error("another token of the same tenant gets nothing")
		}
		for range 300 { // it gets its turn, however long the other holds its leases
			got := b.receive(victim, "jobs", 1)
			if len(got) != 1 {
				t.Fatal("another tenant gets nothing")
			}
			if err := victim.Ack(t.Context(), "jobs", []string{got[0].Receipt}); err != nil {
				t.Fatal(err)
			}
			b.send(victim, "jobs", "x")
		}
	})
}

func TestWaitingReceivesAreDividedAmongTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxWaiting: 16})
		hostile, victim := b.as("hostile"), b.as("victim")
		b.send(hostile, "jobs", "x")
		b.send(victim, "jobs", "x")
		b.receive(hostile, "jobs", 1)
		b.receive(victim, "jobs", 1)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 100 {
			waiting.Go(func() {
				_, _ = hostile.Receive(ctx, "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			})
		}
		synctest.Wait()
		if _, err := victim.Receive(ctx, "jobs", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Second}); err != nil {
			t.Errorf("a receive that waits beside a hundred of another tenant: %v", err)
		}
		cancel()
		waiting.Wait()
		for _, s := range b.Shares() {
			if s.Resource == "waiting receives" && s.Used != 0 {
				t.Errorf("%d receives count as waiting", s.Used)
			}
		}
	})
}

func TestQueuesNeverExceedTheirLimit(t *testing.T) {
	const limit = 40
	b := memory(t, broker.Limits{MaxQueues: limit})
	c := b.as("")
	b.make(c, "kept")
	var group sync.WaitGroup
	var made atomic.Int64
	made.Add(1)
	for worker := range 8 {
		group.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("q%d-%d", worker, i)
				var err error
				if i%2 == 0 {
					_, err = c.Send(t.Context(), name, say("x"))
				} else {
					err = c.Configure(t.Context(), name, driver.Config{})
				}
				switch {
				case err == nil:
					made.Add(1)
				case !errors.Is(err, driver.ErrFull) || !strings.Contains(err.Error(), "max_topics 40"):
					t.Errorf("creating %s: %v", name, err)
				}
			}
		})
	}
	group.Wait()
	exist := 0
	for _, err := range c.Queues(t.Context()) {
		if exist++; err != nil {
			t.Fatal(err)
		}
	}
	if exist > limit || exist != int(made.Load()) || exist < limit/2 {
		t.Errorf("%d queues exist and %d were made, of %d", exist, made.Load(), limit)
	}
	if _, err := c.Send(t.Context(), "kept", say("y")); err != nil {
		t.Errorf("sending to a queue that exists: %v", err)
	}
	if err := c.Delete(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	b.make(c, "another")
}

func TestHostileTenantsQueuesLeaveOthersRoom(t *testing.T) {
	b := memory(t, broker.Limits{MaxQueues: 64})
	hostile, sibling, victim := b.as("hostile"), b.as("hostile"), b.as("victim")
	for i := range 100 {
		_, _ = hostile.Send(t.Context(), fmt.Sprint(i), say("x"))
	}
	b.make(sibling, "of a sibling")
	for i := range 4 {
		b.make(victim, fmt.Sprint(i))
	}
}

func TestQueuesFoundOnBackendCountForTenant(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	for i := range 40 {
		if _, err := backend.OpenQueue(t.Context(), fmt.Sprintf("~acme~q%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t, backend, broker.Limits{MaxQueues: 40})
	acme := b.as("acme")
	_, err := acme.Send(t.Context(), "new", say("x"))
	expectCode(t, err, driver.ErrFull, "a queue more than there may be")
	for i := range 40 {
		b.make(acme, fmt.Sprintf("q%d", i)) // they exist, and can be used
	}
}

func TestReceivingFromAbsentQueueCreatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("acme")
		ctx := t.Context()
		for name, call := range map[string]func() error{
			"receive": func() error {
				_, err := c.Receive(ctx, "typo", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
				return err
			},
			"stats":  func() error { _, err := c.Stats(ctx, "typo"); return err },
			"ack":    func() error { return c.Ack(ctx, "typo", []string{"x"}) },
			"nack":   func() error { return c.Nack(ctx, "typo", []broker.Nack{{Receipt: "x"}}) },
			"extend": func() error { _, err := c.Extend(ctx, "typo", []broker.Extension{{Receipt: "x"}}); return err },
			"purge":  func() error { _, err := c.Purge(ctx, "typo"); return err },
			"peek": func() error {
				for _, err := range c.Peek(ctx, "typo", driver.Query{}) {
					return err
				}
				return nil
			},
			"traits of what exists": func() error { _, err := c.Existing().Traits(ctx, "typo"); return err },
		} {
			expectCode(t, call(), driver.ErrNotFound, name)
		}
		if traits, err := c.Traits(ctx, "typo"); err != nil || traits.MaxBatch == 0 || !traits.DeadLetters {
			t.Errorf("what it would promise: %+v, %v", traits, err)
		}
		for queue := range c.Queues(ctx) {
			t.Errorf("there is a queue %q", queue)
		}
	})
}

func TestDedupKeysOfTenantLeaveOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxDedupKeys: 80})
		hostile, victim := b.as("hostile"), b.as("victim")
		next := 0
		fill := func(c broker.Caller) (sent int, refusal error) {
			for sent = 0; sent <= 80; sent++ {
				next++
				if err := sendKeyed(t, c, fmt.Sprintf("q%d", sent%7), fmt.Sprint(next), "x"); err != nil {
					return sent, err
				}
			}
			return sent, nil
		}
		sent, refusal := fill(hostile)
		if sent > 70 {
			t.Errorf("one tenant alone has %d of 80 keys", sent)
		}
		expectCode(t, refusal, driver.ErrFull, "a tenant that has used up its share")
		if e, ok := errors.AsType[*driver.Error](refusal); !ok || !strings.Contains(e.Detail, "dedup keys share of") ||
			!strings.Contains(e.Detail, "global_dedup 80") || e.RetryAfter <= 0 {
			t.Errorf("the refusal does not name the share: %v", refusal)
		}
		if err := sendKeyed(t, victim, "q", "k", "x"); err != nil {
			t.Errorf("another tenant's send: %v", err)
		}
		for range 300 {
			if err := sendKeyed(t, victim, "q", "k", "x"); err != nil {
				t.Fatalf("a duplicate takes room: %v", err)
			}
			if err := sendKeyed(t, victim, "q", "k", "y"); !errors.Is(err, driver.ErrConflict) {
				t.Fatalf("a conflict takes room: %v", err)
			}
		}
		b.send(hostile, "q0", "a message without a key")
		<-time.After(driver.DefaultDedupWindow + 2*time.Second)
		for _, stats := range b.Shares() {
			if stats.Resource == "dedup keys" && stats.Used != 0 {
				t.Errorf("after the window %d keys count", stats.Used)
			}
		}
		if again, _ := fill(hostile); again < sent/2 {
			t.Errorf("after the window there is room for %d keys", again)
		}
	})
}

func mustName(name string, err error) string {
	if err != nil {
		panic(err)
	}
	return name
}

// stalled is a backend that opens and configures no queue until begin is closed.
type stalled struct {
	*membox.Backend
	begin chan struct{}
}

func (s stalled) ConfigureQueue(ctx context.Context, name string, config driver.Config) error {
	<-s.begin
	return s.Backend.ConfigureQueue(ctx, name, config)
}

func (s stalled) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	<-s.begin
	return s.Backend.OpenQueue(ctx, name)
}

// operations returns how many operations are counted.
func operations(t *testing.T, b *bench) int64 {
	t.Helper()
	for _, s := range b.Shares() {
		if s.Resource == "operations" {
			return s.Used
		}
	}
	t.Fatal("operations are not divided")
	return 0
}

func TestOpeningQueueTakesTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := stalled{membox.New(nil), make(chan struct{})}
		defer backend.Close()
		if err := backend.Backend.ConfigureQueue(t.Context(), "~hostile~q", driver.Config{}); err != nil {
			t.Fatal(err)
		}
		b := newBench(t, backend, broker.Limits{})
		done := make(chan error)
		go func() {
			_, exists, err := b.as("hostile").Identity(t.Context(), "q")
			if !exists {
				err = errors.New("the queue does not exist")
			}
			done <- err
		}()
		synctest.Wait()
		if used := operations(t, b); used != 1 {
			t.Errorf("opening a queue counts as %d operations", used)
		}
		close(backend.begin)
		if err := <-done; err != nil || operations(t, b) != 0 {
			t.Errorf("afterwards %d operations: %v", operations(t, b), err)
		}
	})
}

// TestArrivalWaitsForTurnOfTenant has a tenant use up its operations: another
// connection of it waits, and one of another tenant does not.
func TestArrivalWaitsForTurnOfTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := stalled{membox.New(nil), make(chan struct{})}
		defer backend.Close()
		b := newBench(t, backend, broker.Limits{})
		hostile, victim := b.as("hostile"), b.as("victim")
		victim.Arrive(t.Context()) // a tenant that is not alone has less
		for i := range 20 {
			go func() { _ = hostile.Configure(t.Context(), fmt.Sprintf("q%d", i), driver.Config{}) }()
		}
		synctest.Wait()
		began := time.Now()
		victim.Arrive(t.Context())
		if waited := time.Since(began); waited != 0 {
			t.Errorf("another tenant waited %v", waited)
		}
		hostile.Arrive(t.Context())
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("the tenant that has used up its operations waited %v", waited)
		}
		close(backend.begin)
		synctest.Wait()
	})
}

func TestConfiguringTakesTurnOfLargeSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := stalled{membox.New(nil), make(chan struct{})}
		defer backend.Close()
		b := newBench(t, backend, broker.Limits{})
		done := make(chan error)
		go func() { done <- b.as("hostile").Configure(t.Context(), "q", driver.Config{}) }()
		synctest.Wait()
		if used := operations(t, b); used != 4 {
			t.Errorf("configuring a queue counts as %d operations", used)
		}
		close(backend.begin)
		if err := <-done; err != nil || operations(t, b) != 0 {
			t.Errorf("afterwards %d operations: %v", operations(t, b), err)
		}
	})
}

func TestSendBeyondDedupShareCostsLittle(t *testing.T) {
	b := memory(t, broker.Limits{MaxDedupKeys: 80})
	c := b.as("hostile")
	messages := make([]broker.Outgoing, 256)
	for i := range messages {
		messages[i].Body, messages[i].DedupKey = []byte("x"), fmt.Sprint(i)
	}
	b.send(c, "q", "so that the queue exists")
	allocations := testing.AllocsPerRun(10, func() {
		_, err := c.Send(t.Context(), "q", messages)
		expectCode(t, err, driver.ErrFull, "more keys than the share has")
	})
	if allocations > 100 {
		t.Errorf("a refused send of %d messages allocates %v times", len(messages), allocations)
	}
	messages = messages[:1]
	messages[0].Body = make([]byte, driver.DefaultMaxBodyBytes+1)
	for range 100 {
		if _, err := c.Send(t.Context(), "q", messages); !errors.Is(driver.At(err, 0), driver.ErrTooLarge) {
			t.Fatalf("an invalid message takes room: %v", err)
		}
	}
}

func TestCancelledSendsCountTheirDedupKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		b := newBench(t, cancelling{backend}, broker.Limits{MaxDedupKeys: 80})
		c := b.as("hostile")
		for i := range 100 {
			err := sendKeyed(t, c, "q", fmt.Sprint(i), "x")
			if errors.Is(err, driver.ErrFull) {
				return
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		t.Error("keys of cancelled sends are not counted")
	})
}

func sendKeyed(t *testing.T, c broker.Caller, queue, key, body string) error {
	_, err := c.Send(t.Context(), queue, []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte(body), DedupKey: key}}})
	return err
}

// cancelling is a backend whose sends are cancelled after they are carried out.
type cancelling struct{ driver.Opener }

func (o cancelling) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := o.Opener.OpenQueue(ctx, name)
	return cancellingQueue{q}, err
}

type cancellingQueue struct{ driver.Queue }

func (q cancellingQueue) Send(ctx context.Context, messages []driver.Outgoing) ([]driver.Sent, error) {
	if _, err := q.Queue.Send(ctx, messages); err != nil {
		return nil, err
	}
	return nil, context.Canceled
}
