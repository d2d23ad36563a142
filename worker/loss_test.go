package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// A lossTest is a queue, and loops on it that start and stop while faults occur.
type lossTest struct {
	*env
	random *rand.Rand // for the goroutine of the case only

	mu        sync.Mutex // guards the fields below
	chances   *rand.Rand
	succeeded map[string]int // by body: how often the handler returned nil
	acked     map[string]int // by id: how often the hook reported it
	dead      map[string]int
}

func (w *lossTest) chance(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.chances.IntN(n)
}

// handle is a handler that behaves randomly.
func (w *lossTest) handle(ctx context.Context, m *message) error {
	select {
	case <-time.After(time.Duration(w.chance(5000)) * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	switch w.chance(14) {
	case 0:
		return errMilk
	case 1:
		panic(errMilk)
	case 2:
		runtime.Goexit()
	case 3:
		return worker.RetryAfter(time.Duration(w.chance(1000))*time.Millisecond, nil)
	case 4:
		return fmt.Errorf("elsewhere: %w", context.Canceled)
	case 5:
		return m.Nack(ctx, time.Second, errMilk) // settles the message itself
	case 6:
		if err := worker.Extend(ctx, time.Minute); err != nil {
			return err
		}
	case 7:
		<-time.After(40 * time.Second) // ignores its context, for longer than the visibility
	case 8:
		go func() { _ = m.Ack(context.WithoutCancel(ctx)) }() // races with the loop
		w.success(m.Body)
		return nil
	}
	w.success(m.Body)
	return nil
}

func (w *lossTest) success(body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.succeeded[body]++
}

// addFault makes the backend fail for a while.
func (w *lossTest) addFault() {
	ops := []string{"receive", "ack", "nack", "extend", "dead-letter"}
	fault := mailboxtest.Fault{Op: ops[w.random.IntN(len(ops))], Err: mailbox.ErrUnavailable, Every: w.random.IntN(4)}
	switch w.random.IntN(3) {
	case 0:
		fault.Late = fault.Op != "receive"
	case 1:
		fault.Delay = time.Duration(w.random.IntN(60)) * time.Second
	}
	remove := w.Faults.Add(fault)
	time.AfterFunc(time.Duration(1+w.random.IntN(90))*time.Second, remove)
}

func (w *lossTest) loop(orders *inbox, concurrency, prefetch int) *worker.Loop[string] {
	return worker.New(orders, w.handle, &options{
		Concurrency: concurrency, Prefetch: prefetch, Drain: 3 * time.Second, Backoff: worker.LinearBackoff(time.Second, 5*time.Second),
		DeadLetters: &policy{MaxDeliveries: 25},
		Hooks: worker.Hooks{Settled: func(_ context.Context, e worker.SettledEvent) {
			w.mu.Lock()
			defer w.mu.Unlock()
			switch e.Result {
			case worker.ResultAcked:
				w.acked[e.MessageID]++
			case worker.ResultDead:
				w.dead[e.MessageID]++
			}
		}},
	})
}

func TestLoopLosesNothingUnderFaults(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &lossTest{
					env:    newEnv(ruletest.NewEnv(t, membox.New(nil))),
					random: rand.New(rand.NewPCG(seed, 1)), chances: rand.New(rand.NewPCG(seed, 2)),
					succeeded: make(map[string]int), acked: make(map[string]int), dead: make(map[string]int),
				}
				w.runAll(seed%2 == 1)
			})
		})
	}
}

// runAll runs the loops with faults, and then checks what is left.
func (w *lossTest) runAll(strict bool) {
	const messages = 60
	w.Configure("orders", driver.Config{StrictGroups: strict, MaxDeliveries: driver.Off})
	orders := w.open("orders")
	for i := range messages {
		var group []mailbox.SendOption
		if strict {
			group = append(group, mailbox.WithGroup(fmt.Sprint(i%7)))
		}
		_, err := orders.Send(w.Context(), fmt.Sprint(i), group...)
		w.Must(err)
	}
	first, second := w.loop(orders, 4, 8), w.loop(orders, 1, 0)
	for range 12 {
		stopFirst, stopSecond := w.run(first), w.run(second)
		for range 3 {
			w.addFault()
			w.Pass(time.Duration(5+w.random.IntN(60)) * time.Second)
		}
		_, _ = stopFirst(), stopSecond() // ErrStuck if a handler ignored its context
		w.Pass(10 * time.Second)
	}
	w.Pass(3 * time.Minute) // all faults and all leases have ended
	w.Faults.Clear()
	stats, err := orders.Stats(w.Context())
	w.Must(err)
	if stats.InFlight > 0 {
		w.Errorf("%d messages are stuck past their visibility", stats.InFlight)
	}
	stop := w.run(w.loop(orders, 8, 0))
	w.Pass(30 * time.Minute)
	w.Must(stop())
	w.check(orders)
}

// check compares what handlers did with what is left.
func (w *lossTest) check(orders *inbox) {
	stats, err := orders.Stats(w.Context())
	w.Must(err)
	if stats.Waiting() > 0 {
		w.Errorf("%+v are left", stats)
	}
	dead := make(map[string]bool)
	for l, err := range deadletter.NewQueue(orders, nil).List(w.Context()) {
		w.Must(err)
		dead[l.Body] = true
		if l.Reason != mailbox.ReasonMaxDeliveries || l.Deliveries < 25 {
			w.Errorf("%s died of %s after %d deliveries", l.Body, l.Reason, l.Deliveries)
		}
	}
	for i := range 60 {
		body := fmt.Sprint(i)
		if w.succeeded[body] == 0 && !dead[body] {
			w.Errorf("%s is gone, and no handler has succeeded with it", body)
		}
	}
	for id, n := range w.dead {
		if n > 1 {
			w.Errorf("%s was told to be dead %d times", id, n)
		}
	}
}
