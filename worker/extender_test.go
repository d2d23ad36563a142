package worker_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

// dueAt returns when the lease of the only message in flight ends.
func dueAt(s *env, m *inbox) time.Time {
	s.Helper()
	for peeked, err := range m.Peek(s.Context(), mailbox.Query{States: []mailbox.State{mailbox.StateInFlight}}) {
		s.Must(err)
		return peeked.DueAt
	}
	s.Fatal("nothing is in flight")
	return time.Time{}
}

func TestLeasesAreExtendedWhileHandlersWork(t *testing.T) {
	runRule(t, "LOOP-5", []rule{
		{"a handler may take longer than the visibility", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.run(worker.New(orders, takes(10*time.Minute, done), s.options(options{})))
			for range 9 {
				s.Pass(time.Minute)
				stolen, err := orders.Receive(s.Context())
				s.Must(err)
				ruletest.Equal(s, "deliveries to others", len(stolen), 0)
			}
			s.At(11 * time.Minute)
			ruletest.Equal(s, "handled", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"messages that wait for a handler are extended too", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "milk", "sugar")
			var deliveries atomic.Int32
			s.run(worker.New(orders, func(ctx context.Context, m *message) error {
				deliveries.Store(max(deliveries.Load(), int32(m.Deliveries)))
				return takes(2*time.Minute, done)(ctx, m)
			}, s.options(options{Prefetch: 2})))
			s.At(7 * time.Minute)
			if got := done.List(); !slices.Equal(got, []string{"tea", "milk", "sugar"}) {
				s.Errorf("handled were %v", got)
			}
			ruletest.Equal(s, "highest delivery count", deliveries.Load(), 1)
		}},
		{"the extender never makes a lease shorter", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			s.run(worker.New(orders, func(ctx context.Context, _ *message) error {
				for _, visibility := range []time.Duration{5 * time.Minute, time.Second, 0} { // the last two are less than there is
					<-time.After(25 * time.Second)
					if err := worker.Extend(ctx, visibility); err != nil {
						return err
					}
				}
				<-time.After(15 * time.Minute)
				return nil
			}, s.options(options{})))
			s.Pass(time.Second)
			latest := dueAt(s, orders)
			for time.Since(s.Began) < 15*time.Minute {
				s.Pass(time.Second)
				due := dueAt(s, orders)
				if due.Before(latest) {
					s.Fatalf("after %v the lease became shorter by %v", time.Since(s.Began), latest.Sub(due))
				}
				latest = due
			}
			s.At(17 * time.Minute)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"NoExtend does not extend", func(s *env) {
			orders, ends := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.run(worker.New(orders, func(ctx context.Context, m *message) error {
				<-ctx.Done()
				ends.Add(context.Cause(ctx).Error())
				s.Is(context.Cause(ctx), mailbox.ErrReceiptExpired)
				return ctx.Err()
			}, s.options(options{NoExtend: true, Visibility: 10 * time.Second})))
			s.Pass(25 * time.Second)
			if got := ends.When(); !slices.Equal(got, []time.Duration{10 * time.Second, 20 * time.Second}) {
				s.Errorf("leases ended at %v", got)
			}
			ruletest.Equal(s, "extensions", s.Faults.Calls("extend"), 0)
		}},
		{"a nacked message is not extended", func(s *env) {
			steps := ruletest.NewRecorder()
			orders := s.openHooked("orders", mailbox.Hooks{
				Extended: func(context.Context, mailbox.ExtendedEvent) { steps.Add("extend") },
				Settled:  func(_ context.Context, event mailbox.SettledEvent) { steps.Add(string(event.Outcome)) },
			})
			s.send(orders, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "extend", Delay: 5 * time.Second})
			s.run(worker.New(orders, func(context.Context, *message) error {
				<-time.After(12 * time.Second) // an extension is under way, since 10 s
				return worker.RetryAfter(time.Hour, errMilk)
			}, s.options(options{})))
			s.At(59 * time.Minute)
			if got := steps.List(); !slices.Equal(got, []string{"extend", "nack"}) {
				s.Errorf("the steps were %v", got)
			}
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
		}},
		{"a message beyond its max hold is lost", func(s *env) {
			s.Configure("orders", driver.Config{MaxHold: 605 * time.Second})
			orders := s.open("orders")
			s.send(orders, "tea")
			causes := make(chan error, 1)
			s.run(worker.New(orders, func(ctx context.Context, m *message) error {
				if m.Deliveries > 1 {
					return nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}, s.options(options{})))
			s.Is(<-causes, mailbox.ErrReceiptExpired)
			if took := time.Since(s.Began); took != 605*time.Second {
				s.Errorf("it was lost after %v, want 605 seconds", took)
			}
			s.Pass(time.Second)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"only handlers can extend, and beat", func(s *env) {
			worker.Beat(s.Context())
			s.Is(worker.Extend(s.Context(), time.Minute), mailbox.ErrInvalid)
		}},
	})
}

func TestLoopKeepsOrder(t *testing.T) {
	runRule(t, "ORD", []rule{
		{"one handler keeps the order of the queue", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			want := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
			s.send(orders, want...)
			s.run(worker.New(orders, count(done), s.options(options{Prefetch: 3})))
			s.Pass(time.Second)
			if got := done.List(); !slices.Equal(got, want) {
				s.Errorf("the order was %v", got)
			}
		}},
		{"strict groups in order, groups in parallel", func(s *env) {
			s.Configure("orders", driver.Config{StrictGroups: true})
			orders, done := s.open("orders"), ruletest.NewRecorder()
			for _, body := range []string{"a1", "a2", "b1", "b2", "a3"} {
				_, err := orders.Send(s.Context(), body, mailbox.WithGroup(body[:1]))
				s.Must(err)
			}
			s.run(worker.New(orders, takes(time.Minute, done), s.options(options{Concurrency: 4, Prefetch: 4})))
			s.At(4 * time.Minute)
			got := done.List()
			slices.Sort(got[:2]) // two groups at a time, in whatever order
			slices.Sort(got[2:4])
			if !slices.Equal(got, []string{"a1", "b1", "a2", "b2", "a3"}) {
				s.Errorf("the order was %v", got)
			}
			ruletest.Equal(s, "time of the last", done.When()[4], 3*time.Minute)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"messages behind a failure in a strict group are released", func(s *env) {
			s.Configure("orders", driver.Config{StrictGroups: true})
			orders, done := s.open("orders"), ruletest.NewRecorder()
			for _, body := range []string{"a1", "a2", "a3", "b1"} {
				_, err := orders.Send(s.Context(), body, mailbox.WithGroup(body[:1]))
				s.Must(err)
			}
			s.run(worker.New(orders, func(_ context.Context, m *message) error {
				if m.Body == "a1" && m.Deliveries == 1 {
					return errMilk
				}
				done.Add(m.Body)
				return nil
			}, s.options(options{Concurrency: 2, Prefetch: 4})))
			s.At(30 * time.Second)
			if got := done.List(); !slices.Equal(got, []string{"b1"}) {
				s.Errorf("handled were %v", got)
			}
			s.At(2 * time.Minute)
			if got := done.List(); !slices.Equal(got, []string{"b1", "a1", "a2", "a3"}) {
				s.Errorf("the order was %v", got)
			}
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"held messages are bounded", func(s *env) {
			orders := s.open("orders")
			for range 100 {
				s.send(orders, "tea")
			}
			var running, most atomic.Int32
			s.run(worker.New(orders, func(context.Context, *message) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				stats, err := orders.Stats(s.Context())
				s.Must(err)
				if stats.InFlight > 14 { // twice what is held, for what is being acked
					s.Errorf("%d are in flight", stats.InFlight)
				}
				<-time.After(time.Second)
				return nil
			}, s.options(options{Concurrency: 5, Prefetch: 2})))
			s.Pass(time.Minute)
			ruletest.Equal(s, "handlers at once", most.Load(), 5)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"held messages are bounded when acks are slow", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			for range 100 {
				s.send(orders, "tea")
			}
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Delay: 10 * time.Second})
			s.run(worker.New(orders, count(done), s.options(options{Concurrency: 5, Prefetch: 2})))
			s.Pass(5 * time.Second)
			ruletest.Equal(s, "handled before the first ack", done.Count(), 14) // twice what is held
			s.expectStats(orders, mailbox.Stats{Ready: 86, InFlight: 14})
			s.Pass(time.Hour)
			s.expectStats(orders, mailbox.Stats{})
		}},
	})
}
