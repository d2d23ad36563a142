package worker_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/worker"
)

// TestRollingRestartCostsNoAttempt restarts one worker of a fleet every 2 seconds under load,
// some of whose handlers the drain time cuts.
func TestRollingRestartCostsNoAttempt(t *testing.T) {
	const (
		fleetSize = 5
		every     = 2 * time.Second
		pace      = 100 * time.Millisecond // between two messages
	)
	length := volume.Duration(t, 2*time.Minute, time.Hour)
	runRule(t, "FLOW-4", []rule{{"a message is delivered once, unless its handler fails", func(s *env) {
		orders := s.open("orders")
		books := restartBooks{failures: make(map[string]int), handled: make(map[string]bool)}
		start := func() (stop func() error) {
			return s.run(worker.New(orders, books.handler(s), s.options(options{
				Concurrency: 4, Prefetch: 8, Drain: time.Second, Backoff: worker.NoBackoff,
			})))
		}
		var fleet [fleetSize]func() error
		for i := range fleet {
			fleet[i] = start()
		}
		total := int(length / pace)
		sent := make(chan error, 1)
		go func() {
			for n := range total {
				if _, err := orders.Send(s.Context(), strconv.Itoa(n)); err != nil {
					sent <- err
					return
				}
				<-time.After(pace)
			}
			sent <- nil
		}()
		for n := range int(length / every) {
			s.Pass(every)
			s.Must(fleet[n%fleetSize]())
			fleet[n%fleetSize] = start()
		}
		s.Must(<-sent)
		s.Pass(time.Minute)
		for _, stop := range fleet {
			s.Must(stop())
		}
		s.expectStats(orders, mailbox.Stats{})
		ruletest.Equal(s, "handled", len(books.handled), total)
		if books.cut == 0 || len(books.failures) == 0 {
			s.Errorf("%d handlers were cut and %d failed, want some of each", books.cut, len(books.failures))
		}
	}}})
}

// restartBooks count what happened to messages, by id.
type restartBooks struct {
	mu       sync.Mutex // guards the fields below
	failures map[string]int
	handled  map[string]bool
	cut      int // handlers that were cancelled
}

// handler returns a handler that takes up to 3 seconds, and fails once for one message in ten.
func (b *restartBooks) handler(s *env) worker.Handler[string] {
	return func(ctx context.Context, m *message) error {
		n, _ := strconv.Atoi(m.Body) // always a number
		b.mu.Lock()
		if most := 1 + b.failures[m.ID]; m.Deliveries > most {
			s.Errorf("message %d, which failed %d times: delivery %d", n, most-1, m.Deliveries)
		}
		b.mu.Unlock()
		select {
		case <-time.After(time.Duration(n%2*(n%7)) * 500 * time.Millisecond):
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			b.cut++
			return ctx.Err()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if n%10 == 0 && b.failures[m.ID] == 0 {
			b.failures[m.ID]++
			return errMilk
		}
		b.handled[m.ID] = true
		return nil
	}
}

func TestFailuresThatDoNotCount(t *testing.T) {
	limited := func(s *env) *inbox {
		s.Configure("orders", driver.Config{MaxDeliveries: 2})
		orders := s.open("orders")
		s.send(orders, "tea")
		return orders
	}
	for name, o := range map[string]struct {
		err     error
		options options
	}{
		"an error on the list Never": {errMilk, options{
			DeadLetters: &policy{Never: []deadletter.Matcher{deadletter.Is(errMilk)}}, Backoff: worker.NoBackoff,
		}},
		"a retry without an error": {worker.RetryAfter(0, nil), options{}},
	} {
		runRule(t, "DLQ-2", []rule{{name, func(s *env) {
			orders, tried := limited(s), ruletest.NewRecorder()
			loop := worker.New(orders, fails(o.err, tried), s.options(o.options))
			for tried.Count() < 2*(driver.MaxReleases+1) {
				s.expectStats(orders, mailbox.Stats{Ready: 1})
				_, err := loop.RunOnce(s.Context())
				s.Must(err)
			}
			s.expectStats(orders, mailbox.Stats{Dead: 1}) // of the limit of the queue
		}}})
	}
}
