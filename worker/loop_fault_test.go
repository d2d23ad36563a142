package worker_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

func TestDrainEndsWhileBackendFails(t *testing.T) {
	runRule(t, "LOOP-3", []rule{
		{"a hanging backend delays the drain by seconds", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b", "c")
			stop := s.run(worker.New(orders, takes(3*time.Second, done), s.options(options{Prefetch: 4})))
			s.Pass(time.Second)
			s.Faults.Add(mailboxtest.Fault{Op: "extend", Delay: 24 * time.Hour})
			told := time.Now()
			s.Must(stop())
			ruletest.Equal(s, "handled", done.Count(), 1)
			if took := time.Since(told); took > 10*time.Second {
				s.Errorf("it took %v to end, with one handler that needed two seconds", took)
			}
		}},
		{"the drain time counts from the stop", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b", "c")
			stop := s.run(worker.New(orders, takes(time.Hour, done), s.options(options{Prefetch: 4, Drain: 4 * time.Second})))
			s.Pass(time.Second)
			s.Faults.Add(mailboxtest.Fault{Op: "extend", Delay: 24 * time.Hour})
			told := time.Now()
			s.Must(stop())
			if took := time.Since(told); took > 8*time.Second {
				s.Errorf("it took %v to end, with a drain time of 4s", took)
			}
		}},
		{"a failed release is repeated", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b", "c")
			stop := s.run(worker.New(orders, takes(time.Hour, done), s.options(options{Prefetch: 4, Drain: time.Second})))
			s.Pass(time.Second)
			s.Faults.Add(mailboxtest.Fault{Op: "extend", Err: mailbox.ErrUnavailable, Times: 1})
			s.Faults.Add(mailboxtest.Fault{Op: "nack", Err: mailbox.ErrUnavailable, Times: 1})
			s.Must(stop())
			s.expectStats(orders, mailbox.Stats{Ready: 3})
		}},
	})
}

func TestWatchdogIgnoresBackendDelays(t *testing.T) {
	quiet := func(s *env) {
		s.Helper()
		if log := s.Logs.String(); strings.Contains(log, "stuck") {
			s.Error(log)
		}
	}
	runRule(t, "LOOP-4", []rule{
		{"a handler whose ack is repeated is not stuck", func(s *env) {
			orders := s.open("orders")
			future := s.ask(orders, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable})
			serve := worker.Serve(func(_ context.Context, m *message) (string, error) { return m.Body + "!", nil }, nil)
			stop := s.run(s.group(worker.GroupOptions{}, worker.New(orders, serve, s.options(options{}))))
			s.Pass(3 * worker.DefaultWatchdog)
			s.Faults.Clear()
			s.Pass(time.Minute)
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "tea!")
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
			quiet(s)
		}},
		{"one that waits for its turn is not stuck", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "a", "b")
			limit := worker.RateLimit[string](worker.NewLimiter(1, time.Hour, 1))
			stop := s.run(s.group(worker.GroupOptions{}, worker.New(orders, count(done), s.options(options{
				Middleware: []worker.Middleware[string]{limit},
			}))))
			s.Pass(61 * time.Minute)
			ruletest.Equal(s, "handled", done.Count(), 2)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
			quiet(s)
		}},
		{"but is from when it works", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "a", "b")
			limit := worker.RateLimit[string](worker.NewLimiter(1, time.Hour, 1))
			g := s.group(worker.GroupOptions{CancelStuck: true}, worker.New(orders, func(_ context.Context, m *message) error {
				if m.Body == "b" {
					<-time.After(2 * time.Hour)
				}
				return nil
			}, s.options(options{Middleware: []worker.Middleware[string]{limit}})))
			s.Is(g.Run(s.Context()), worker.ErrStuck)
			if took := time.Since(s.Began); took < time.Hour+worker.DefaultWatchdog || took > time.Hour+2*worker.DefaultWatchdog {
				s.Errorf("the group ended at %v", took)
			}
			s.At(4 * time.Hour) // for the handler to return
		}},
	})
}

func TestHandlerThatCallsGoexitFails(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		s.send(orders, "tea")
		started, finished := ruletest.NewRecorder(), ruletest.NewRecorder()
		o := s.options(options{Hooks: worker.Hooks{
			Started: func(context.Context, worker.Info) { started.Add("started") },
			Finished: func(_ context.Context, e worker.FinishedEvent) {
				if e.Err == nil {
					s.Error("a handler that ended its goroutine has succeeded")
				}
				finished.Add("finished")
			},
		}})
		_, err := worker.New(orders, func(context.Context, *message) error {
			runtime.Goexit()
			return nil
		}, o).RunOnce(s.Context())
		s.Must(err)
		ruletest.Equal(s, "started", started.Count(), 1)
		ruletest.Equal(s, "finished", finished.Count(), 1)
		s.expectStats(orders, mailbox.Stats{Delayed: 1})
	})
}

func TestRunOnceCallsReceivedHook(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, received := s.open("orders"), 0
		s.send(orders, "a", "b")
		o := s.options(options{Prefetch: 3, Hooks: worker.Hooks{Received: func(_ context.Context, _ string, n int) { received += n }}})
		_, err := worker.New(orders, count(ruletest.NewRecorder()), o).RunOnce(s.Context())
		s.Must(err)
		ruletest.Equal(s, "received", received, 2)
	})
}

func TestExtensionBeyondAllLimitsIsRefused(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		s.send(orders, "tea")
		var long, longest error
		_, err := worker.New(orders, func(ctx context.Context, _ *message) error {
			<-time.After(time.Second)
			long = worker.Extend(ctx, 1000*time.Hour)
			longest = worker.Extend(ctx, math.MaxInt64)
			return nil
		}, s.options(options{})).RunOnce(s.Context())
		s.Must(err)
		s.Is(long, mailbox.ErrInvalid)
		s.Is(longest, mailbox.ErrInvalid)
	})
}

func TestDoneMembersAreHealthy(t *testing.T) {
	inMemory(t, func(s *env) {
		waits := fakeMember{"waits", func(ctx context.Context) error { <-ctx.Done(); return nil }}
		done := fakeMember{"done", func(context.Context) error { return nil }}
		g := s.group(worker.GroupOptions{}, waits, done)
		stop := s.run(g)
		synctest.Wait()
		if report := g.Report(s.Context()); report.Status != worker.Healthy || !report.Members[1].Done {
			s.Errorf("the report is %+v", report)
		}
		s.Must(stop())
	})
}

func TestMemberMayReturnContextErrorWhenStopped(t *testing.T) {
	inMemory(t, func(s *env) {
		member := func(name string, result func(ctx context.Context) error) worker.Member {
			return fakeMember{name, func(ctx context.Context) error { <-ctx.Done(); return result(ctx) }}
		}
		g := s.group(worker.GroupOptions{}, member("a", context.Context.Err), member("b", context.Cause))
		stop := s.run(g)
		synctest.Wait()
		s.Must(stop())

		own := fakeMember{"own", func(context.Context) error { return context.Canceled }} // of its own accord
		s.Is(s.group(worker.GroupOptions{}, own, member("a", context.Context.Err)).Run(s.Context()), context.Canceled)
	})
}

func TestLimitersTakeAnyBurst(t *testing.T) {
	inMemory(t, func(s *env) {
		limiter := worker.NewLimiter(10, time.Second, math.MaxInt)
		for range 1000 {
			s.Must(limiter.Wait(s.Context()))
		}
		ruletest.Equal(s, "time", time.Since(s.Began), 0)
	})
}

// stingy is a limiter that refuses without waiting, like a rate.Limiter with burst 0.
type stingy struct{ err error }

func (l stingy) Wait(context.Context) error { return l.err }

func TestLimiterRefusalIsFailure(t *testing.T) {
	inMemory(t, func(s *env) {
		orders := s.open("orders")
		s.send(orders, "tea")
		o := s.options(options{Middleware: []worker.Middleware[string]{worker.RateLimit[string](stingy{errMilk})}})
		_, err := worker.New(orders, count(ruletest.NewRecorder()), o).RunOnce(s.Context())
		s.Must(err)
		s.Pass(worker.DefaultBackoff(1))
		got, err := orders.Receive(s.Context())
		s.Must(err)
		ruletest.Equal(s, "last error", got[0].LastError, errMilk.Error())
	})
}

func TestBackoffsDoNotOverflow(t *testing.T) {
	backoff := worker.ExponentialBackoff(time.Second, math.MaxInt64)
	for _, deliveries := range []int{-1, 0, 1, 30, 62, 63, 64, math.MaxInt} {
		if wait := backoff(deliveries); wait < 0 {
			t.Errorf("after %d deliveries the wait is %v", deliveries, wait)
		}
	}
}

func TestHandlerMayChangeMessageFields(t *testing.T) {
	inMemory(t, func(s *env) {
		s.Configure("orders", driver.Config{StrictGroups: true})
		orders, done := s.open("orders"), ruletest.NewRecorder()
		for _, body := range []string{"a", "b", "c"} {
			_, err := orders.Send(s.Context(), body, mailbox.WithGroup("Tea"))
			s.Must(err)
		}
		loop := worker.New(orders, func(_ context.Context, m *message) error {
			done.Add(m.Body)
			m.Group, m.ID, m.Body, m.Deliveries = strings.ToLower(m.Group), "mine", "", 0
			<-time.After(time.Second)
			return nil
		}, s.options(options{Concurrency: 2, Prefetch: 4}))
		stop := s.run(loop)
		s.Pass(500 * time.Millisecond)
		if id := loop.Activity().MessageID; id == "mine" || id == "" {
			s.Errorf("the loop knows the message as %q", id)
		}
		s.Pass(time.Minute)
		if got := done.List(); !slices.Equal(got, []string{"a", "b", "c"}) {
			s.Errorf("handled were %v", got)
		}
		s.expectStats(orders, mailbox.Stats{})
		s.Must(stop())
	})
}
