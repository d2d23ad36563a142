package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/goroutine"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

// goroutines records on which goroutines something happened.
type goroutines struct {
	mu   sync.Mutex // guards seen
	seen []int64
}

func (g *goroutines) note() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, goroutine.ID())
}

func (g *goroutines) list() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seen)
}

// oneByOne sends messages, each after the one before has been handled.
func oneByOne(s *env, orders *inbox, bodies ...string) {
	s.Helper()
	for _, body := range bodies {
		s.send(orders, body)
		s.Pass(time.Millisecond)
	}
}

func TestLoneWorkerReceivesAndAcksItself(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		var received, handled, settled goroutines
		s.run(worker.New(orders, func(context.Context, *message) error {
			handled.note()
			<-time.After(time.Microsecond) // the fetcher waits for room before the handler ends
			return nil
		}, s.options(options{Hooks: worker.Hooks{
			Received: func(context.Context, string, int) { received.note() },
			Settled:  func(context.Context, worker.SettledEvent) { settled.note() },
		}})))
		oneByOne(s, orders, "tea", "milk", "sugar", "lemon")
		at := handled.list()
		if len(at) != 4 {
			t.Fatalf("%d messages were handled", len(at))
		}
		// The fetcher receives the first and the settler acks it, because the time of
		// an ack is not known before.
		if got := received.list()[1:]; !slices.Equal(got, at[1:]) {
			t.Errorf("messages were received on %d and handled on %d", got, at[1:])
		}
		if got := settled.list()[1:]; !slices.Equal(got, at[1:]) {
			t.Errorf("messages were settled on %d and handled on %d", got, at[1:])
		}
		s.expectStats(orders, mailbox.Stats{})
	})
}

func TestSlowAckDoesNotDelayHandlers(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		s.run(worker.New(orders, shout(done), s.options(options{})))
		oneByOne(s, orders, "tea", "milk") // from now on acks are known to be quick
		s.Faults.Add(mailboxtest.Fault{Op: "ack", Delay: 5 * time.Second})
		oneByOne(s, orders, "sugar") // the first slow ack
		s.send(orders, "lemon", "honey")
		s.Pass(6 * time.Second)
		ruletest.Equal(s, "messages handled while the second slow ack is under way", done.Count(), 5)
		s.Pass(time.Minute)
		s.expectStats(orders, mailbox.Stats{})
	})
}

func TestLoopEndsWhileLoneWorkerReceives(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		stop := s.run(worker.New(orders, shout(done), s.options(options{})))
		oneByOne(s, orders, "tea", "milk")
		began := time.Now()
		s.Must(stop())
		if took := time.Since(began); took != 0 {
			t.Errorf("ending took %v", took)
		}
		s.send(orders, "sugar")
		s.Pass(time.Minute)
		ruletest.Equal(s, "messages handled", done.Count(), 2)
		s.expectStats(orders, mailbox.Stats{Ready: 1})
	})
}

func TestFailedReceiveOfWorkerIsRepeated(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done, failed := s.open("orders"), ruletest.NewRecorder(), ruletest.NewRecorder()
		s.run(worker.New(orders, shout(done), s.options(options{Wait: time.Second, Hooks: worker.Hooks{
			BackendFailed: func(_ context.Context, _, op string, _ error) { failed.Add(op) },
		}})))
		oneByOne(s, orders, "tea", "milk")
		s.Faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable, Times: 3})
		s.Pass(time.Minute)
		ruletest.Equal(s, "calls of BackendFailed", failed.Count(), 3)
		oneByOne(s, orders, "sugar")
		ruletest.Equal(s, "messages handled", done.Count(), 3)
	})
}

func TestLoopEndsWhenMailboxIsClosed(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		ended := make(chan error, 1)
		go func() { ended <- worker.New(orders, shout(done), s.options(options{})).Run(s.Context()) }()
		oneByOne(s, orders, "tea", "milk")
		s.Must(orders.Close())
		s.Is(<-ended, mailbox.ErrClosed)
	})
}

func TestInFlightLimitIsWaitedFor(t *testing.T) {
	inMemory(t, func(s *env) {
		s.Configure("orders", driver.Config{MaxInFlight: 1})
		orders, done, failed := s.open("orders"), ruletest.NewRecorder(), ruletest.NewRecorder()
		s.run(worker.New(orders, func(ctx context.Context, m *message) error {
			done.Add(m.Body)
			if m.Body != "sugar" {
				return nil
			}
			s.Must(m.Ack(ctx))
			s.send(orders, "lemon", "honey")
			_, err := orders.Receive(ctx, mailbox.WithVisibility(10*time.Second)) // by another receiver, which crashes
			return err
		}, s.options(options{Hooks: worker.Hooks{
			BackendFailed: func(_ context.Context, _, op string, _ error) { failed.Add(op) },
		}})))
		oneByOne(s, orders, "tea", "milk", "sugar")
		s.Pass(time.Minute)
		ruletest.Equal(s, "messages handled", done.Count(), 5)
		ruletest.Equal(s, "calls of BackendFailed", failed.Count(), 0)
	})
}
