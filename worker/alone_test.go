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
	"github.com/mailboxmq/mailbox/internal/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

// places notes on which goroutines something happened.
type places struct {
	mu   sync.Mutex // guards seen
	seen []int64
}

func (p *places) note() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, goroutine.ID())
}

func (p *places) list() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// oneByOne sends messages, each when the one before is done.
func oneByOne(s *env, orders *inbox, bodies ...string) {
	s.Helper()
	for _, body := range bodies {
		s.send(orders, body)
		s.Pass(time.Millisecond)
	}
}

func TestAWorkerThatIsAloneReceivesAndAcksByItself(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		var received, handled, settled places
		s.run(worker.New(orders, func(context.Context, *message) error {
			handled.note()
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
		// The first is received by the loop, and acked by it: nobody knows yet how
		// long that takes.
		if got := received.list()[1:]; !slices.Equal(got, at[1:]) {
			t.Errorf("messages were received on %d and handled on %d", got, at[1:])
		}
		if got := settled.list()[1:]; !slices.Equal(got, at[1:]) {
			t.Errorf("messages were settled on %d and handled on %d", got, at[1:])
		}
		s.expectStats(orders, mailbox.Stats{})
	})
}

func TestAnAckThatTakesTimeKeepsNoHandlerWaiting(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		s.run(worker.New(orders, shout(done), s.options(options{})))
		oneByOne(s, orders, "tea", "milk") // by now acks are known to be quick
		s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Delay: 5 * time.Second})
		oneByOne(s, orders, "sugar") // whose ack nobody could know to be slow
		s.send(orders, "lemon", "honey")
		s.Pass(6 * time.Second)
		ruletest.Equal(s, "messages handled while the second slow ack is under way", done.Count(), 5)
		s.Pass(time.Minute)
		s.expectStats(orders, mailbox.Stats{})
	})
}

func TestALoopEndsAtOnceWhileAWorkerReceivesByItself(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		stop := s.run(worker.New(orders, shout(done), s.options(options{})))
		oneByOne(s, orders, "tea", "milk")
		began := time.Now()
		s.Must(stop())
		if took := time.Since(began); took != 0 {
			t.Errorf("to end took %v", took)
		}
		s.send(orders, "sugar")
		s.Pass(time.Minute)
		ruletest.Equal(s, "messages handled", done.Count(), 2)
		s.expectStats(orders, mailbox.Stats{Ready: 1})
	})
}

func TestAReceiveOfAWorkerThatFailsIsRepeated(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done, failed := s.open("orders"), ruletest.NewRecorder(), ruletest.NewRecorder()
		s.run(worker.New(orders, shout(done), s.options(options{Wait: time.Second, Hooks: worker.Hooks{
			BackendFailed: func(_ context.Context, _, op string, _ error) { failed.Add(op) },
		}})))
		oneByOne(s, orders, "tea", "milk")
		s.Faults.Add(mailboxtest.Fault{Op: mailboxtest.OpReceive, Err: mailbox.ErrUnavailable, Times: 3})
		s.Pass(time.Minute)
		ruletest.Equal(s, "failures told", failed.Count(), 3)
		oneByOne(s, orders, "sugar")
		ruletest.Equal(s, "messages handled", done.Count(), 3)
	})
}

func TestALoopEndsWhenAWorkerFindsItsMailboxClosed(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		ended := make(chan error, 1)
		go func() { ended <- worker.New(orders, shout(done), s.options(options{})).Run(s.Context()) }()
		oneByOne(s, orders, "tea", "milk")
		s.Must(orders.Close())
		s.Is(<-ended, mailbox.ErrClosed)
	})
}

func TestAFullCeilingIsWaitedForAndNoFailure(t *testing.T) {
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
			_, err := orders.Receive(ctx, mailbox.WithVisibility(10*time.Second)) // by somebody else, who dies
			return err
		}, s.options(options{Hooks: worker.Hooks{
			BackendFailed: func(_ context.Context, _, op string, _ error) { failed.Add(op) },
		}})))
		oneByOne(s, orders, "tea", "milk", "sugar")
		s.Pass(time.Minute)
		ruletest.Equal(s, "messages handled", done.Count(), 5)
		ruletest.Equal(s, "failures told", failed.Count(), 0)
	})
}
