package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// count returns a handler that counts.
func count(done *ruletest.Recorder) worker.Handler[string] {
	return func(_ context.Context, m *message) error {
		done.Add(m.Body)
		return nil
	}
}

// takes returns a handler that takes d, or until its context ends.
func takes(d time.Duration, done *ruletest.Recorder) worker.Handler[string] {
	return func(ctx context.Context, m *message) error {
		select {
		case <-time.After(d):
			done.Add(m.Body)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestLoopSurvivesErrorsAndBadMessages(t *testing.T) {
	runRule(t, "LOOP-3", []rule{
		{"backend errors", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			remove := s.Faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable})
			stop := s.run(worker.New(orders, count(done), s.options(options{})))
			s.send(orders, "tea")
			s.At(10 * time.Minute)
			attempts := s.Faults.Calls("receive")
			if attempts < 100 || attempts > 400 {
				s.Errorf("the backend was asked %d times in ten minutes, want pauses of 2.5 to 5 seconds", attempts)
			}
			remove()
			s.Pass(5 * time.Second)
			ruletest.Equal(s, "handled", done.Count(), 1)
			s.Must(stop())
		}},
		{"no message ends a loop", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "error", "panic", "exit", "fine")
			_, err := orders.Queue().Send(s.Context(), []driver.Outgoing{{Body: []byte("{not json")}})
			s.Must(err)
			s.send(orders, "also fine")
			stop := s.run(worker.New(orders, func(_ context.Context, m *message) error {
				switch m.Body {
				case "error":
					return errMilk
				case "panic":
					panic("spilled")
				case "exit":
					runtime.Goexit()
				}
				done.Add(m.Body)
				return nil
			}, s.options(options{})))
			s.Pass(time.Second)
			if got := done.List(); !slices.Equal(got, []string{"fine", "also fine"}) {
				s.Errorf("handled were %v", got)
			}
			s.expectStats(orders, mailbox.Stats{Delayed: 3, Dead: 1})
			s.Must(stop())
		}},
		{"a panic is a failure, and its stack is kept", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			var failure error
			_, err := worker.New(orders, spill, s.options(options{Hooks: worker.Hooks{
				Finished: func(_ context.Context, event worker.FinishedEvent) { failure = event.Err },
			}})).RunOnce(s.Context())
			s.Must(err)
			panicked, ok := errors.AsType[*worker.PanicError](failure)
			if !ok || !strings.Contains(string(panicked.Stack), "spill") || !strings.Contains(panicked.Location, "spill") {
				s.Errorf("the failure is %v", failure)
			}
			s.Is(failure, errMilk)
			if !strings.Contains(s.Logs.String(), "worker_test.spill") {
				s.Error("the log does not have the stack")
			}
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
		}},
		{"a panic of the policy is a retry", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			_, err := worker.New(orders, func(context.Context, *message) error { return errMilk }, s.options(options{
				Backoff: func(int) time.Duration { panic("no idea") },
			})).RunOnce(s.Context())
			s.Must(err)
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
		}},
		{"panics of hooks", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "milk")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Times: 1})
			stop := s.run(worker.New(orders, count(done), s.options(options{Hooks: worker.Hooks{
				Received:      func(context.Context, string, int) { panic(errMilk) },
				Started:       func(context.Context, worker.Info) { panic(errMilk) },
				Finished:      func(context.Context, worker.FinishedEvent) { panic(errMilk) },
				Settled:       func(context.Context, worker.SettledEvent) { panic(errMilk) },
				BackendFailed: func(context.Context, string, string, error) { panic(errMilk) },
			}})))
			s.Pass(time.Minute)
			ruletest.Equal(s, "handled", done.Count(), 2)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
			if n := strings.Count(s.Logs.String(), "a hook panicked"); n < 8 {
				s.Errorf("the log tells of %d panics", n)
			}
		}},
	})
}

func TestLoopEndsOnHopelessErrors(t *testing.T) {
	runRule(t, "LOOP-3", []rule{
		{"a closed mailbox ends the loop", func(s *env) {
			orders := s.open("orders")
			stop := s.run(worker.New(orders, count(ruletest.NewRecorder()), s.options(options{})))
			s.Pass(time.Second)
			s.Must(orders.Close())
			s.Pass(0)
			s.Is(stop(), mailbox.ErrClosed)
		}},
		{"a queue that does not exist is waited for, and logged once", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			create := s.Faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrNotFound})
			stop := s.run(worker.New(orders, count(done), s.options(options{})))
			s.Pass(time.Hour)
			ruletest.Equal(s, "handled", done.Count(), 0)
			create()
			s.Pass(time.Minute)
			ruletest.Equal(s, "handled", done.Count(), 1)
			s.Must(stop())
			ruletest.Equal(s, "lines in the log", strings.Count(s.Logs.String(), "cannot receive"), 1)
			_, err := worker.New(orders, count(done), s.options(options{})).RunOnce(s.Context())
			s.Must(err)
		}},
		{"wrong options are ErrInvalid", func(s *env) {
			orders := s.open("orders")
			handler := count(ruletest.NewRecorder())
			for _, loop := range []*worker.Loop[string]{
				worker.New[string](nil, handler, nil),
				worker.New(orders, nil, nil),
				worker.New(orders, handler, &options{Concurrency: -1}),
				worker.New(orders, handler, &options{Concurrency: math.MaxInt}),
				worker.New(orders, handler, &options{Concurrency: worker.MaxConcurrency + 1}),
				worker.New(orders, handler, &options{Prefetch: math.MaxInt}),
				worker.New(orders, handler, &options{Prefetch: -1}),
				worker.New(orders, handler, &options{Visibility: -1}),
				worker.New(orders, handler, &options{Visibility: 13 * time.Hour}),
				worker.New(orders, handler, &options{Timeout: -1}),
			} {
				s.Is(loop.Run(s.Context()), mailbox.ErrInvalid)
			}
			loop := worker.New(orders, handler, nil)
			s.run(loop)
			s.Pass(0)
			s.Is(loop.Run(s.Context()), mailbox.ErrInvalid)
		}},
	})
}

// spill is a handler that panics.
func spill(context.Context, *message) error { panic(errMilk) }

func TestLoopDrains(t *testing.T) {
	runRule(t, "LOOP-3", []rule{
		{"shutdown finishes what is held", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "milk")
			stop := s.run(worker.New(orders, takes(10*time.Second, done), s.options(options{Concurrency: 2})))
			s.Pass(time.Second)
			s.Must(stop())
			ruletest.Equal(s, "time", time.Since(s.Began), 10*time.Second)
			ruletest.Equal(s, "handled", done.Count(), 2)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"waiting messages are released at once", func(s *env) {
			orders, causes := s.open("orders"), ruletest.NewRecorder()
			for i := range 8 {
				s.send(orders, fmt.Sprint(i))
			}
			loop := worker.New(orders, func(ctx context.Context, _ *message) error {
				<-ctx.Done()
				causes.Add(context.Cause(ctx).Error())
				s.Is(context.Cause(ctx), worker.ErrShutdown)
				return ctx.Err()
			}, s.options(options{Concurrency: 2, Prefetch: 6}))
			stop := s.run(loop)
			s.Pass(time.Second)
			s.expectStats(orders, mailbox.Stats{InFlight: 8})
			loop.Stop()
			s.Pass(0)
			s.expectStats(orders, mailbox.Stats{Ready: 6, InFlight: 2}) // no handler had started those
			s.At(time.Second + worker.DefaultDrain - 1)
			s.expectStats(orders, mailbox.Stats{Ready: 6, InFlight: 2})
			s.At(time.Second + worker.DefaultDrain)
			s.expectStats(orders, mailbox.Stats{Ready: 8})
			s.Must(stop())
			ruletest.Equal(s, "cancelled", causes.Count(), 2)
			ruletest.Equal(s, "time", time.Since(s.Began), time.Second+worker.DefaultDrain)
			// Released messages keep their place, and their deliveries do not count.
			got, err := orders.Receive(s.Context(), mailbox.WithMax(8))
			s.Must(err)
			if len(got) != 8 {
				s.Fatalf("%d messages are ready again, want 8", len(got))
			}
			for i, message := range got {
				ruletest.Equal(s, "body", message.Body, fmt.Sprint(i))
				ruletest.Equal(s, "deliveries", message.Deliveries, 1)
			}
		}},
		{"errors of cancelled handlers are not failures", func(s *env) {
			requests, results := s.open("requests"), ruletest.NewRecorder()
			var futures []*reply.Future[string]
			for range 300 { // so that some handlers return before their message is nacked
				futures = append(futures, s.ask(requests, "tea"))
			}
			for _, o := range []options{{}, {DeadLetters: &policy{MaxDeliveries: 1}}} {
				o.Concurrency, o.Drain = len(futures), -1
				o.Hooks.Settled = func(_ context.Context, event worker.SettledEvent) { results.Add(string(event.Result)) }
				stop := s.run(worker.New(requests, takes(time.Hour, ruletest.NewRecorder()), s.options(o)))
				s.Pass(time.Second)
				s.Must(stop())
				s.expectStats(requests, mailbox.Stats{Ready: len(futures)})
			}
			for _, future := range futures {
				s.expectUnanswered(future)
			}
			ruletest.Equal(s, "messages that were given back", results.Count(), 2*len(futures))
			for _, result := range results.List() {
				ruletest.Equal(s, "result", result, string(worker.ResultReleased))
			}
		}},
		{"a handler that does not return is ErrStuck", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			stop := s.run(worker.New(orders, func(context.Context, *message) error {
				s.Pass(time.Hour)
				return nil
			}, s.options(options{Drain: time.Minute})))
			s.Pass(time.Second)
			s.Is(stop(), worker.ErrStuck)
			ruletest.Equal(s, "time", time.Since(s.Began), 62*time.Second)
			s.expectStats(orders, mailbox.Stats{Ready: 1})
			s.At(2 * time.Hour)
			s.expectStats(orders, mailbox.Stats{Ready: 1}) // its late success changes nothing
		}},
		{"abort does not wait", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			loop := worker.New(orders, takes(time.Hour, ruletest.NewRecorder()), s.options(options{}))
			stop := s.run(loop)
			s.Pass(time.Second)
			loop.Stop()
			s.Pass(time.Second)
			loop.Abort()
			loop.Abort()
			s.Must(stop())
			ruletest.Equal(s, "time", time.Since(s.Began), 2*time.Second)
			s.expectStats(orders, mailbox.Stats{Ready: 1})
			s.Must(loop.Run(s.Context())) // it is over
		}},
	})
}

func TestLoopStops(t *testing.T) {
	runRule(t, "LOOP-3", []rule{
		{"Stop before Run prevents it", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			loop := worker.New(orders, count(done), s.options(options{}))
			loop.Stop()
			s.Must(loop.Run(s.Context()))
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			s.Must(worker.New(orders, count(done), s.options(options{})).Run(ctx))
			ruletest.Equal(s, "handled", done.Count(), 0)
			ruletest.Equal(s, "receives", s.Faults.Calls("receive"), 0)
			s.expectStats(orders, mailbox.Stats{Ready: 1})
		}},
		{"a loop whose context has ended runs again", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			loop := worker.New(orders, count(done), s.options(options{}))
			for range 2 {
				stop := s.run(loop)
				s.send(orders, "tea")
				s.Pass(time.Second)
				s.Must(stop())
			}
			ruletest.Equal(s, "handled", done.Count(), 2)
		}},
		{"a loop that waits for messages stops at once", func(s *env) {
			orders := s.open("orders")
			stop := s.run(worker.New(orders, count(ruletest.NewRecorder()), s.options(options{})))
			s.Pass(time.Second)
			s.Must(stop())
			ruletest.Equal(s, "time", time.Since(s.Began), time.Second)
		}},
		{"the drain waits for acks a bounded time", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable})
			stop := s.run(worker.New(orders, count(done), s.options(options{})))
			s.Pass(time.Second)
			s.Must(stop())
			if took := time.Since(s.Began); took > 7*time.Second {
				s.Errorf("it took %v", took)
			}
			ruletest.Equal(s, "handled", done.Count(), 1)
		}},
		{"RunTimes waits for messages and stops", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			loop := worker.New(orders, count(done), s.options(options{}))
			time.AfterFunc(time.Second, func() { s.send(orders, "tea") })
			time.AfterFunc(2*time.Second, func() { s.send(orders, "milk") })
			handled, err := loop.RunTimes(s.Context(), 3)
			s.Must(err)
			ruletest.Equal(s, "handled", handled, 2)
			ruletest.Equal(s, "time", time.Since(s.Began), 2*time.Second+worker.DefaultWait)
			time.AfterFunc(time.Second, loop.Stop)
			_, err = loop.RunTimes(s.Context(), 3)
			s.Must(err)
			ruletest.Equal(s, "time", time.Since(s.Began), 3*time.Second+worker.DefaultWait)
		}},
		{"RunOnce does not wait", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "milk", "sugar")
			loop := worker.New(orders, takes(time.Second, done), s.options(options{Concurrency: 2}))
			for _, want := range []int{2, 1, 0} {
				handled, err := loop.RunOnce(s.Context())
				s.Must(err)
				ruletest.Equal(s, "handled", handled, want)
			}
			ruletest.Equal(s, "time", time.Since(s.Began), 2*time.Second)
			s.expectStats(orders, mailbox.Stats{})
			s.Faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable})
			_, err := loop.RunOnce(s.Context())
			s.Is(err, mailbox.ErrUnavailable)
		}},
	})
}

func TestLostLeaseCancelsHandler(t *testing.T) {
	// until returns a handler that waits for the end of its context and records the
	// cause.
	until := func(causes chan error) worker.Handler[string] {
		return func(ctx context.Context, m *message) error {
			if m.Deliveries > 1 {
				return nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}
	}
	runRule(t, "LOOP-3", []rule{
		{"when the backend says that it is lost", func(s *env) {
			orders, causes, results := s.open("orders"), make(chan error, 1), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.run(worker.New(orders, func(ctx context.Context, m *message) error {
				if m.Deliveries == 1 {
					time.AfterFunc(time.Second, func() { s.Must(s.Faults.Expire(ctx, "orders", m.Receipt)) })
				}
				return until(causes)(ctx, m)
			}, s.options(options{Hooks: worker.Hooks{
				Settled: func(_ context.Context, event worker.SettledEvent) { results.Add(string(event.Result)) },
			}})))
			s.Is(<-causes, mailbox.ErrReceiptExpired)
			ruletest.Equal(s, "time", time.Since(s.Began), worker.DefaultVisibility/3)
			s.Pass(time.Second)
			got := results.List() // in whatever order they were told
			slices.Sort(got)
			if !slices.Equal(got, []string{string(worker.ResultAcked), string(worker.ResultLost)}) {
				s.Errorf("the results were %v", got)
			}
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"when the backend was unavailable for the whole lease", func(s *env) {
			orders, causes := s.open("orders"), make(chan error, 1)
			s.send(orders, "tea")
			remove := s.Faults.Add(mailboxtest.Fault{Op: "extend", Err: mailbox.ErrUnavailable})
			s.run(worker.New(orders, until(causes), s.options(options{})))
			s.Is(<-causes, mailbox.ErrReceiptExpired)
			ruletest.Equal(s, "time", time.Since(s.Began), worker.DefaultVisibility)
			remove()
			s.Pass(time.Second)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"not when the backend was unavailable for less", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "extend", Err: mailbox.ErrUnavailable, Times: 5})
			s.run(worker.New(orders, takes(5*time.Minute, done), s.options(options{})))
			s.At(6 * time.Minute)
			ruletest.Equal(s, "handled", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"a waiting message is not started", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			ids := s.send(orders, "tea", "milk")
			var waiting mailbox.Receipt
			spy := s.openHooked("orders", mailbox.Hooks{Received: func(_ context.Context, _ string, d *driver.Delivery) {
				if d.ID == ids[1] && d.Deliveries == 1 {
					waiting = d.Receipt
				}
			}})
			s.run(worker.New(spy, takes(time.Minute, done), s.options(options{Prefetch: 1})))
			s.Pass(time.Second)
			s.Must(s.Faults.Expire(s.Context(), "orders", waiting))
			taken, err := orders.Receive(s.Context())
			s.Must(err)
			ruletest.Equal(s, "taken by another", taken[0].Body, "milk")
			s.Must(taken[0].Ack(s.Context()))
			s.At(5 * time.Minute)
			if got := done.List(); !slices.Equal(got, []string{"tea"}) {
				s.Errorf("handled were %v", got)
			}
		}},
		{"a deadline cancels with its own cause", func(s *env) {
			orders, causes := s.open("orders"), make(chan error, 1)
			s.send(orders, "tea")
			s.run(worker.New(orders, until(causes), s.options(options{Timeout: 7 * time.Second})))
			s.Is(<-causes, mailbox.ErrTimeout)
			ruletest.Equal(s, "time", time.Since(s.Began), 7*time.Second)
			s.Pass(time.Second)
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
			for peeked, err := range orders.Peek(s.Context(), mailbox.Query{}) { // the handler said only that its context ended
				s.Must(err)
				if !strings.Contains(peeked.LastError, string(mailbox.ErrTimeout)) || !strings.Contains(peeked.LastError, "7s") {
					s.Errorf("the last error is %q", peeked.LastError)
				}
			}
			s.Pass(time.Minute)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"returning ends the context", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			var kept context.Context
			_, err := worker.New(orders, func(ctx context.Context, _ *message) error {
				kept = ctx
				return nil
			}, s.options(options{})).RunOnce(s.Context())
			s.Must(err)
			s.Is(kept.Err(), context.Canceled)
		}},
	})
}
