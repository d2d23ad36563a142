package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// watch begins a watch, which ends with the test.
func (b *bench) watch(c broker.Caller, queues ...string) *broker.Watch {
	b.t.Helper()
	w, err := c.Watch(b.t.Context(), broker.WatchRequest{Queues: queues})
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// expectNext returns the next event of a watch.
func (b *bench) expectNext(w *broker.Watch) broker.WatchEvent {
	b.t.Helper()
	e, err := w.Next(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return e
}

// summary tells the queues of an event and their ready messages.
func summary(e broker.WatchEvent) string {
	var words []string
	for _, q := range e.Queues {
		if q.Err != nil {
			words = append(words, q.Name+" "+strings.Fields(q.Err.Error())[0])
		} else {
			words = append(words, fmt.Sprint(q.Name, " ", q.Ready))
		}
	}
	return strings.Join(words, ", ")
}

func TestWatchTellsAllThenChangesThenHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(&membox.Options{Defaults: driver.Config{RetainReady: driver.Retention{Age: 24 * time.Hour}}}) // ages are tracked
		defer backend.Close()
		b := newBench(t, backend, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "a")
		b.send(c, "invoices", "a")
		w := b.watch(c, "orders", "invoices")
		defer w.Close()
		began := time.Now()
		if e := b.expectNext(w); summary(e) != "invoices 1, orders 1" || time.Since(began) > 0 {
			t.Errorf("first %q after %v", summary(e), time.Since(began))
		}
		time.Sleep(time.Minute) // a reader that was away is told once, as it is now
		for range 5 {
			b.send(c, "orders", "b")
		}
		synctest.Wait()
		e := b.expectNext(w)
		for len(e.Queues) == 0 {
			e = b.expectNext(w)
		}
		if q := e.Queues[0]; summary(e) != "orders 6" || q.PerSecond.Sent == 0 || q.OldestReady < time.Minute {
			t.Errorf("after sends: %+v", e)
		}
		for e.Queues != nil { // rates fall to 0
			if q := e.Queues[0]; q.Ready != 6 || len(e.Queues) > 1 {
				t.Errorf("without further sends: %+v", e)
			}
			e = b.expectNext(w)
		}
		before := time.Now()
		if e = b.expectNext(w); e.Queues != nil || time.Since(before) != broker.WatchHeartbeat {
			t.Errorf("quiet: %+v after %v", e, time.Since(before))
		}
	})
}

func TestWatchTellsChangesAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for ctx.Err() == nil {
				_, _ = c.Send(ctx, "orders", say("x"))
				time.Sleep(10 * time.Millisecond)
			}
		}()
		for every, want := range map[time.Duration]int{0: 10, 500 * time.Millisecond: 20, 5 * time.Second: 2} {
			w, err := c.Watch(ctx, broker.WatchRequest{Queues: []string{"orders"}, Every: every})
			if err != nil {
				t.Fatal(err)
			}
			b.expectNext(w)
			events, until := 0, time.Now().Add(10*time.Second+every/2)
			for {
				e := b.expectNext(w)
				if time.Now().After(until) {
					break
				}
				if events++; e.Queues[0].Ready == 0 {
					t.Errorf("every %v: %+v", every, e)
				}
			}
			if events < want-1 || events > want {
				t.Errorf("every %v: %d events in ten seconds, want about %d", every, events, want)
			}
			w.Close()
		}
		cancel()
		<-sent
	})
}

func TestWatchRatesAreOfLastTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "a")
		w := b.watch(c, "orders")
		defer w.Close()
		b.expectNext(w)
		time.Sleep(5 * time.Second)
		for range 39 {
			b.send(c, "orders", "x")
		}
		got := b.receive(c, "orders", 20)
		for i, d := range got {
			var err error
			if i < 15 {
				err = c.Ack(t.Context(), "orders", []string{d.Receipt})
			} else {
				err = c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: d.Receipt, Delay: time.Hour}})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5*time.Second + time.Millisecond)
		e := b.expectNext(w)
		if q := e.Queues[0]; q.PerSecond.Sent < 3.8 || q.PerSecond.Sent > 3.9 || q.PerSecond.Delivered != 2 || q.PerSecond.Acked != 1.5 || q.PerSecond.Failed != 0.5 {
			t.Errorf("39 sent, 20 received, 15 acked and 5 failed in ten seconds: %+v", q.PerSecond)
		}
	})
}

// TestWatchBeginsWithRatesOfHistory: a watch that begins has no past of its own.
func TestWatchBeginsWithRatesOfHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "a")
		b.Sample(t.Context(), time.Now())
		for range 20 {
			b.send(c, "orders", "x")
		}
		time.Sleep(broker.HistoryEvery)
		b.Sample(t.Context(), time.Now())
		w := b.watch(c, "orders")
		defer w.Close()
		if e := b.expectNext(w); e.Queues[0].PerSecond.Sent != 2 {
			t.Errorf("got %+v", e.Queues[0].PerSecond)
		}
	})
}

func TestWatchFollowsQueuesUnderPrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("acme")
		b.send(c, "shop:orders", "a")
		b.send(c, "shop:mails", "a")
		b.send(c, "other", "a")
		b.send(b.as(""), "shop:foreign", "a")
		narrow := b.Caller(mint(t, b.ring, "acme", capability.Operations(capability.OpStats), capability.Queues(capability.QueuesUnder("shop:"))), broker.Origin{})
		for _, pattern := range []string{"shop:*", "shop:orders:*"} {
			w, err := narrow.Watch(t.Context(), broker.WatchRequest{Queues: []string{pattern}})
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
		w := b.watch(narrow, "shop:*")
		defer w.Close()
		if e := b.expectNext(w); summary(e) != "shop:mails 1, shop:orders 1" {
			t.Errorf("first %q", summary(e))
		}
		b.send(c, "shop:new", "a")
		if err := c.Delete(t.Context(), "shop:mails"); err != nil {
			t.Fatal(err)
		}
		told := make(map[string]bool)
		for until := time.Now().Add(time.Minute); time.Now().Before(until); {
			for _, q := range b.expectNext(w).Queues {
				told[fmt.Sprint(q.Name, " ", q.Ready, " ", errors.Is(q.Err, driver.ErrNotFound))] = true
			}
		}
		if !told["shop:new 1 false"] || !told["shop:mails 0 true"] {
			t.Errorf("told %v", told)
		}
	})
}

func TestWatchOfTooManyQueuesSaysHowMany(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	for n := range broker.MaxWatchedQueues + 7 {
		b.send(c, fmt.Sprintf("q-%03d", n), "a")
	}
	w := b.watch(c, "*")
	defer w.Close()
	if e := b.expectNext(w); len(e.Queues) != broker.MaxWatchedQueues || e.LeftOut != 7 || e.Queues[0].Name != "q-000" {
		t.Errorf("%d queues from %v on, %d left out", len(e.Queues), e.Queues[0].Name, e.LeftOut)
	}
}

func TestWatchIsRefused(t *testing.T) {
	b := memory(t, broker.Limits{})
	b.send(b.as(""), "orders", "a")
	b.send(b.as("acme"), "secret", "a")
	only := func(tenant string, operation capability.Operation, pattern capability.Pattern) broker.Caller {
		return b.Caller(mint(t, b.ring, tenant, capability.Operations(operation), capability.Queues(pattern)), broker.Origin{})
	}
	many := make([]string, broker.MaxWatchedQueues+1)
	for i := range many {
		many[i] = fmt.Sprint("q", i)
	}
	for name, test := range map[string]struct {
		caller broker.Caller
		every  time.Duration
		queues []string
		want   driver.Code
	}{
		"another operation":        {only("", capability.OpRecv, capability.AnyQueue()), 0, []string{"orders"}, driver.ErrForbidden},
		"another queue":            {only("", capability.OpStats, capability.Queue("orders")), 0, []string{"orders", "invoices"}, driver.ErrForbidden},
		"a wider prefix":           {only("", capability.OpStats, capability.QueuesUnder("shop:a:")), 0, []string{"shop:*"}, driver.ErrForbidden},
		"all with a prefix":        {only("", capability.OpStats, capability.QueuesUnder("shop:")), 0, []string{"*"}, driver.ErrForbidden},
		"a prefix with one name":   {only("", capability.OpStats, capability.Queue("shop:x")), 0, []string{"shop:*"}, driver.ErrForbidden},
		"a queue of a tenant":      {b.as(""), 0, []string{"secret"}, driver.ErrNotFound},
		"a queue of no tenant":     {b.as("acme"), 0, []string{"orders"}, driver.ErrNotFound},
		"no token":                 {b.Caller(capability.Token{}, broker.Origin{}), 0, []string{"orders"}, driver.ErrUnauthenticated},
		"no queue":                 {b.as(""), 0, nil, driver.ErrInvalid},
		"too many queues":          {b.as(""), 0, many, driver.ErrInvalid},
		"a prefix inside a name":   {b.as(""), 0, []string{"ord*"}, driver.ErrInvalid},
		"an interval of 99 ms":     {b.as(""), 99 * time.Millisecond, []string{"orders"}, driver.ErrInvalid},
		"an interval of an hour":   {b.as(""), time.Hour, []string{"orders"}, driver.ErrInvalid},
		"an interval below 0":      {b.as(""), -1, []string{"orders"}, driver.ErrInvalid},
		"a queue that is not made": {b.as(""), 0, []string{"orders", "invoices"}, driver.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.caller.Watch(t.Context(), broker.WatchRequest{Queues: test.queues, Every: test.every})
			expectCode(t, err, test.want, name)
		})
	}
	for _, s := range b.Shares() {
		if s.Resource == "watched queues" && s.Used != 0 {
			t.Errorf("refused watches hold %d units", s.Used)
		}
	}
}

// TestWatchEndsWithItsToken is CAP-3.
func TestWatchEndsWithItsToken(t *testing.T) {
	for name, test := range map[string]struct {
		end    func(b *bench, token capability.Token)
		reason capability.Reason
	}{
		"revoked": {func(b *bench, token capability.Token) {
			if err := b.as("").RevokeToken(b.t.Context(), token); err != nil {
				b.t.Fatal(err)
			}
		}, capability.ReasonRevoked},
		"expired": {func(*bench, capability.Token) {}, capability.ReasonExpired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory(t, broker.Limits{})
				b.send(b.as(""), "orders", "a")
				token, err := b.ring.Mint("", capability.Operations(capability.OpStats), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(20*time.Second)))
				if err != nil {
					t.Fatal(err)
				}
				w := b.watch(b.Caller(token, broker.Origin{}), "orders")
				defer w.Close()
				b.expectNext(w)
				ends := time.Now().Add(20 * time.Second)
				if name == "revoked" {
					ends = time.Now()
				}
				test.end(b, token)
				for err == nil {
					_, err = w.Next(t.Context())
				}
				if late := time.Since(ends); capability.ReasonOf(err) != test.reason || late < 0 || late > verify.MinCacheTTL {
					t.Errorf("%v, %v after its end", err, late)
				}
			})
		})
	}
}

// TestWatchEndsWithDrain is SVC-9.
func TestWatchEndsWithDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "a")
		w := b.watch(c, "orders")
		defer w.Close()
		b.expectNext(w)
		time.AfterFunc(time.Second, func() { b.SetState(broker.StateSettling) })
		began := time.Now()
		_, err := w.Next(t.Context())
		if !errors.Is(err, driver.ErrUnavailable) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		_, err = c.Watch(t.Context(), broker.WatchRequest{Queues: []string{"orders"}})
		expectCode(t, err, driver.ErrUnavailable, "a watch that begins during a drain")
	})
}

// TestWatchesAreShared is OPS-4.
func TestWatchesAreShared(t *testing.T) {
	b := memory(t, broker.Limits{})
	greedy, quiet := b.as("greedy"), b.as("quiet")
	b.send(greedy, "orders", "a")
	b.send(quiet, "orders", "a")
	var all []*broker.Watch
	var err error
	for err == nil {
		var w *broker.Watch
		if w, err = greedy.Watch(t.Context(), broker.WatchRequest{Queues: []string{"*"}}); err == nil {
			all = append(all, w)
		}
	}
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrFull || !strings.Contains(e.Detail, "watched queues share") || e.RetryAfter == 0 {
		t.Errorf("after %d watches: %v", len(all), err)
	}
	all = append(all, b.watch(quiet, "orders"))
	for _, w := range all {
		w.Close()
	}
	b.watch(greedy, "*").Close()
}

// gauge returns a metric.
func (b *bench) gauge(name string) float64 {
	b.t.Helper()
	families, err := b.Metrics().Registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	b.t.Fatalf("no metric %s", name)
	return 0
}

// A countingBackend counts how often its queues are measured.
type countingBackend struct {
	*membox.Backend
	measured atomic.Int64
}

type countingQueue struct {
	driver.Queue
	backend *countingBackend
}

func (b *countingBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return &countingQueue{q, b}, err
}

func (q *countingQueue) Usage(ctx context.Context) (driver.Usage, error) {
	q.backend.measured.Add(1)
	return q.Queue.Usage(ctx)
}

// TestThousandWatchesOfQueueCostOneCollector: the backend is asked once a second, however many watch, and not at
// all when the last has gone.
func TestThousandWatchesOfQueueCostOneCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &countingBackend{Backend: membox.New(nil)}
		defer backend.Close()
		b := newBench(t, backend, broker.Limits{})
		defer b.Close()
		c := b.as("")
		b.send(c, "orders", "a")
		var told atomic.Int64
		var all []*broker.Watch
		ended := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		for range 1000 {
			w := b.watch(c, "orders")
			all = append(all, w)
			go func() {
				defer func() { ended <- struct{}{} }()
				for {
					e, err := w.Next(ctx)
					if err != nil {
						return
					}
					told.Add(int64(len(e.Queues)))
				}
			}()
		}
		synctest.Wait()
		if n := b.gauge("mailbox_watches"); n != 1000 {
			t.Errorf("the metric counts %v watches", n)
		}
		if n := backend.measured.Load(); n != 1 || told.Load() != 1000 {
			t.Errorf("%d measurements and %d first events for 1000 watches", n, told.Load())
		}
		b.send(c, "orders", "b")
		if _, err := c.Figures(ctx, "orders", 2*time.Second); err != nil { // another look uses what the watches have
			t.Fatal(err)
		}
		time.Sleep(time.Second + 10*time.Millisecond)
		if n := told.Load(); n != 2000 {
			t.Errorf("%d events after a change, want 2000", n)
		}
		time.Sleep(time.Minute)
		if n := backend.measured.Load(); n < 60 || n > 63 {
			t.Errorf("%d measurements in a minute", n)
		}
		cancel()
		for range all {
			<-ended
		}
		for _, w := range all {
			w.Close()
		}
		if n := b.gauge("mailbox_watches"); n != 0 {
			t.Errorf("the metric counts %v watches at the end", n)
		}
		before := backend.measured.Load()
		time.Sleep(time.Hour)
		if n := backend.measured.Load(); n != before {
			t.Errorf("%d measurements while nothing is watched", n-before)
		}
	})
}
