package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/worker"
)

func TestMiddlewareWrapsFromTheOutside(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, steps := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "tea")
		wrap := func(name string) worker.Middleware[string] {
			return func(next worker.Handler[string]) worker.Handler[string] {
				return func(ctx context.Context, m *message) error {
					steps.Add(name)
					defer steps.Add("/" + name)
					return next(ctx, m)
				}
			}
		}
		_, err := worker.New(orders, count(steps), s.options(options{Middleware: []worker.Middleware[string]{wrap("a"), nil, wrap("b")}})).RunOnce(s.Context())
		s.Must(err)
		if got := steps.List(); !slices.Equal(got, []string{"a", "b", "tea", "/b", "/a"}) {
			s.Errorf("the steps were %v", got)
		}
	})
}

func TestLoggingLogsHandlerResults(t *testing.T) {
	m := &message{ID: "m-1", Deliveries: 3, CorrelationID: "c-1"}
	log := &ruletest.Log{}
	for _, want := range []error{nil, errMilk} {
		handler := worker.Logging[string](log.Logger())(func(context.Context, *message) error { return want })
		if err := handler(t.Context(), m); !errors.Is(err, want) {
			t.Errorf("the error is %v", err)
		}
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"level":"DEBUG"`) || !strings.Contains(lines[1], `"level":"WARN"`) ||
		!strings.Contains(lines[1], "no milk") || !strings.Contains(lines[1], "m-1") || !strings.Contains(lines[1], "c-1") {
		t.Errorf("the log says %v", lines)
	}
	if err := worker.Logging[string](nil)(func(context.Context, *message) error { return errMilk })(t.Context(), m); !errors.Is(err, errMilk) {
		t.Errorf("without a logger the error is %v", err)
	}
}

func TestTracingGetsContextAndError(t *testing.T) {
	type key struct{}
	var ends []error
	tracing := worker.Tracing(func(ctx context.Context, m *message) (context.Context, func(error)) {
		return context.WithValue(ctx, key{}, m.ID), func(err error) { ends = append(ends, err) }
	})
	for _, handler := range []worker.Handler[string]{
		func(ctx context.Context, m *message) error {
			if ctx.Value(key{}) != m.ID {
				t.Error("the handler has another context")
			}
			return nil
		},
		func(context.Context, *message) error { return errMilk },
		spill,
	} {
		_ = tracing(handler)(t.Context(), &message{ID: "m-1"})
	}
	if len(ends) != 3 || ends[0] != nil || !errors.Is(ends[1], errMilk) {
		t.Fatalf("the ends were %v", ends)
	}
	if _, ok := errors.AsType[*worker.PanicError](ends[2]); !ok {
		t.Errorf("a panic ended with %v", ends[2])
	}
	silent := worker.Tracing(func(context.Context, *message) (context.Context, func(error)) { return nil, nil })
	if err := silent(func(ctx context.Context, _ *message) error { return ctx.Err() })(t.Context(), &message{}); err != nil {
		t.Error(err)
	}
}

func TestRecoveryTurnsPanicIntoError(t *testing.T) {
	err := worker.Recovery[string]()(spill)(t.Context(), &message{})
	if panicked, ok := errors.AsType[*worker.PanicError](err); !ok || !errors.Is(err, errMilk) || !strings.Contains(panicked.StackTrace(), "spill") {
		t.Errorf("the error is %v", err)
	}
}

func TestRateLimitSpreadsMessages(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "a", "b", "c", "d", "e", "f")
		limit := worker.RateLimit[string](worker.NewLimiter(2, time.Second, 3))
		s.run(worker.New(orders, count(done), s.options(options{Concurrency: 6, Middleware: []worker.Middleware[string]{limit}})))
		s.Pass(time.Minute)
		half := 500 * time.Millisecond
		if got := done.When(); !slices.Equal(got, []time.Duration{0, 0, 0, half, 2 * half, 3 * half}) {
			s.Errorf("handled at %v", got)
		}
		s.expectStats(orders, mailbox.Stats{})
	})
}

func TestRateLimitNacksWhatCannotWait(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, done := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "a", "b")
		limit := worker.RateLimit[string](worker.NewLimiter(1, time.Hour, 1))
		s.run(worker.New(orders, count(done), s.options(options{
			Timeout: time.Minute, DeadLetters: &policy{}, Middleware: []worker.Middleware[string]{limit},
		})))
		s.Pass(59 * time.Minute)
		ruletest.Equal(s, "handled within the hour", done.Count(), 1)
		s.expectStats(orders, mailbox.Stats{Delayed: 1})
		s.Pass(2 * time.Minute) // a refused message reserves nothing
		ruletest.Equal(s, "handled", done.Count(), 2)
		s.expectStats(orders, mailbox.Stats{})

		nothing := worker.NewLimiter(0, time.Second, 1)
		s.Is(nothing.Wait(s.Context()), mailbox.ErrInvalid)
		handler := worker.RateLimit[string](nothing)(count(done))
		s.Is(handler(s.Context(), &message{}), mailbox.ErrInvalid)
		ended, cancel := context.WithCancel(s.Context())
		cancel()
		s.Is(worker.NewLimiter(1, time.Second, 1).Wait(ended), context.Canceled)
	})
}

// hurried is a limiter that refuses without RetryAfter.
type hurried struct{ limiter worker.Limiter }

func (l hurried) Wait(ctx context.Context) error {
	if l.limiter.Wait(ctx) != nil {
		return errors.New("the deadline would be exceeded")
	}
	return nil
}

func TestRateLimitedMessagesHaveNotFailed(t *testing.T) {
	inMemory(t, func(s *env) {
		// A refused message is nacked, and the queue counts the delivery.
		s.Configure("orders", driver.Config{MaxDeliveries: driver.Off})
		orders, done := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "a", "b")
		limit := worker.RateLimit[string](hurried{worker.NewLimiter(1, time.Hour, 1)})
		s.run(worker.New(orders, count(done), s.options(options{
			Timeout: time.Minute, DeadLetters: &policy{}, Middleware: []worker.Middleware[string]{limit},
		})))
		s.Pass(61 * time.Minute) // many more deliveries than the policy allows failures
		ruletest.Equal(s, "handled", done.Count(), 2)
		s.expectStats(orders, mailbox.Stats{})
	})
}

func TestReturnedReservationIsReused(t *testing.T) {
	inMemory(t, func(s *env) {
		limiter := worker.NewLimiter(1, time.Minute, 1)
		s.Must(limiter.Wait(s.Context()))
		for range 10 {
			leaving, leave := context.WithCancel(s.Context())
			time.AfterFunc(time.Second, leave)
			s.Is(limiter.Wait(leaving), context.Canceled)
		}
		s.Must(limiter.Wait(s.Context()))
		ruletest.Equal(s, "time of the second", time.Since(s.Began), time.Minute)
	})
}

func TestWorkerHooksAreCalled(t *testing.T) {
	runRule(t, "OBS-3", []rule{{"each message has a beginning and an end", func(s *env) {
		orders, told := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "fine", "bad")
		hooks := worker.Hooks{
			Received: func(_ context.Context, loop string, n int) { told.Add(loop + " received") },
			Started:  func(_ context.Context, info worker.Info) { told.Add(info.Queue + " started") },
			Finished: func(_ context.Context, event worker.FinishedEvent) {
				ruletest.Equal(s, "duration", event.Duration, time.Second)
				told.Add("finished")
			},
			Settled:       func(_ context.Context, event worker.SettledEvent) { told.Add(string(event.Result)) },
			BackendFailed: func(_ context.Context, loop, op string, _ error) { told.Add(op + " failed") },
		}
		s.run(worker.New(orders, func(_ context.Context, m *message) error {
			<-time.After(time.Second)
			if m.Body == "bad" {
				return errMilk
			}
			return nil
		}, s.options(options{Name: "barista", Hooks: hooks})))
		s.Pass(10 * time.Second)
		got := told.List()
		slices.Sort(got)
		want := []string{"acked", "barista received", "barista received", "finished", "finished", "nacked", "orders started", "orders started"}
		if !slices.Equal(got, want) {
			s.Errorf("told were %v", got)
		}
	}}})
}
