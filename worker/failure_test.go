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
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

func TestFailedMessagesWait(t *testing.T) {
	// times returns when a failing message is delivered.
	times := func(s *env, o options, err error, during time.Duration) []time.Duration {
		s.Configure("orders", driver.Config{MaxDeliveries: driver.Off})
		orders, tried := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "tea")
		s.run(worker.New(orders, fails(err, tried), s.options(o)))
		s.Pass(during)
		return tried.When()
	}
	want := func(s *env, got []time.Duration, want ...time.Duration) {
		s.Helper()
		if !slices.Equal(got, want) {
			s.Errorf("it was tried at %v, want %v", got, want)
		}
	}
	const minute = time.Minute
	runRule(t, "DLQ-6", []rule{
		{"a minute for each delivery", func(s *env) {
			want(s, times(s, options{}, errMilk, 16*minute), 0, minute, 3*minute, 6*minute, 10*minute, 15*minute)
		}},
		{"and a quarter of an hour at most", func(s *env) {
			got := times(s, options{}, errMilk, 24*time.Hour)
			for i := 16; i < len(got); i++ {
				ruletest.Equal(s, "wait", got[i]-got[i-1], 15*minute)
			}
			ruletest.Equal(s, "deliveries in a day", len(got), 15+(24*60-120)/15+1)
		}},
		{"it can be another", func(s *env) {
			want(s, times(s, options{Backoff: worker.LinearBackoff(time.Second, time.Hour)}, errMilk, 7*time.Second), 0, time.Second, 3*time.Second, 6*time.Second)
		}},
		{"a handler can say when", func(s *env) {
			want(s, times(s, options{}, worker.RetryAfter(7*time.Second, errMilk), 20*time.Second), 0, 7*time.Second, 14*time.Second)
		}},
		{"what is longer than the backend allows is cut", func(s *env) {
			want(s, times(s, options{}, worker.RetryAfter(48*time.Hour, errMilk), 13*time.Hour), 0, 12*time.Hour)
		}},
		{"no wait has to be asked for", func(s *env) {
			orders, tried := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			handler := fails(errMilk, tried)
			for i, loop := range []*worker.Loop[string]{
				worker.New(orders, handler, s.options(options{Backoff: worker.NoBackoff})),
				worker.New(orders, handler, s.options(options{Backoff: func(int) time.Duration { return -time.Hour }})),
				worker.New(orders, fails(worker.RetryAfter(0, errMilk), tried), s.options(options{})),
				worker.New(orders, fails(worker.RetryAfter(-time.Hour, nil), tried), s.options(options{})),
			} {
				_, err := loop.RunOnce(s.Context())
				s.Must(err)
				ruletest.Equal(s, "deliveries", tried.Count(), i+1)
				s.expectStats(orders, mailbox.Stats{Ready: 1})
			}
		}},
		{"the cause is kept with the message", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			_, err := worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{Backoff: worker.NoBackoff})).RunOnce(s.Context())
			s.Must(err)
			got, err := orders.Receive(s.Context())
			s.Must(err)
			ruletest.Equal(s, "last error", got[0].LastError, "no milk")
		}},
	})
}

// isFailure checks that the answer to a request is an error.
func isFailure(s *env, err error, text string) {
	s.Helper()
	if failure, ok := errors.AsType[*mailbox.Failure](err); !ok || !strings.Contains(failure.Text, text) {
		s.Errorf("the answer is %v, want %q", err, text)
	}
}

func TestFailedRequestsGetOneAnswer(t *testing.T) {
	runRule(t, "DLQ-7", []rule{
		{"without a policy: the error, and the request is acked", func(s *env) {
			requests, tried := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, fails(errMilk, tried), s.options(options{})))
			_, err := future.Wait(s.Context())
			isFailure(s, err, "no milk")
			s.Pass(time.Hour)
			ruletest.Equal(s, "deliveries", tried.Count(), 1)
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"without a policy, to a mailbox: the same", func(s *env) {
			requests, tried := s.open("requests"), ruletest.NewRecorder()
			_, err := requests.Send(s.Context(), "tea", mailbox.WithReplyTo("answers"))
			s.Must(err)
			s.run(worker.New(requests, fails(errMilk, tried), s.options(options{})))
			s.Pass(time.Hour)
			ruletest.Equal(s, "deliveries", tried.Count(), 1)
			s.expectStats(requests, mailbox.Stats{})
			for peeked, err := range s.open("answers").Peek(s.Context(), mailbox.Query{}) {
				s.Must(err)
				isFailure(s, mailbox.FailureOf(peeked.Attributes), "no milk")
				return
			}
			s.Error("there is no answer")
		}},
		{"without a policy, a failed reply: nack with backoff", func(s *env) {
			requests, tried := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			remove := s.Faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable})
			s.run(worker.New(requests, fails(errMilk, tried), s.options(options{})))
			s.At(90 * time.Second)
			s.expectStats(requests, mailbox.Stats{Delayed: 1})
			s.expectUnanswered(future)
			remove()
			_, err := future.Wait(s.Context())
			isFailure(s, err, "no milk")
			ruletest.Equal(s, "deliveries", tried.Count(), 2)
		}},
		{"without a policy, other messages are retried", func(s *env) {
			orders, tried := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.run(worker.New(orders, fails(errMilk, tried), s.options(options{})))
			s.Pass(2 * time.Minute)
			ruletest.Equal(s, "deliveries", tried.Count(), 2)
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
		}},
		{"with a policy: the error when it is final", func(s *env) {
			requests, tried := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, fails(errMilk, tried), s.options(options{DeadLetters: &policy{MaxDeliveries: 3}})))
			s.At(179 * time.Second) // the third delivery is after one and two minutes
			s.expectUnanswered(future)
			_, err := future.Wait(s.Context())
			isFailure(s, err, "dead-lettered after 3 deliveries: no milk")
			ruletest.Equal(s, "time", time.Since(s.Began), 3*time.Minute)
			s.expectStats(requests, mailbox.Stats{Dead: 1})
		}},
		{"with a policy: the answer of a later success", func(s *env) {
			requests := s.open("requests")
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, worker.Serve(func(_ context.Context, m *message) (string, error) {
				if m.Deliveries < 3 {
					return "", errMilk
				}
				return "with milk", nil
			}, nil), s.options(options{DeadLetters: &policy{}})))
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "with milk")
			s.Pass(0)
			s.expectStats(requests, mailbox.Stats{})
		}},
	})
}

func TestHandlerOutcomesAreAnswered(t *testing.T) {
	runRule(t, "DLQ-7", []rule{
		{"Discard replies and keeps no dead letter", func(s *env) {
			requests := s.open("requests")
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, fails(worker.Discard(errMilk), ruletest.NewRecorder()), s.options(options{DeadLetters: &policy{}})))
			_, err := future.Wait(s.Context())
			isFailure(s, err, "no milk")
			s.Pass(0)
			s.expectStats(requests, mailbox.Stats{})
			s.send(requests, "coffee")
			s.Pass(time.Second)
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"a permanent failure without a policy is an answer, or a dead letter", func(s *env) {
			requests, tried := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			s.send(requests, "milk")
			s.run(worker.New(requests, fails(worker.Permanent(errMilk), tried), s.options(options{})))
			_, err := future.Wait(s.Context())
			isFailure(s, err, "no milk")
			s.Pass(time.Hour)
			s.expectStats(requests, mailbox.Stats{Dead: 1})
			ruletest.Equal(s, "deliveries", tried.Count(), 2)
		}},
		{"without dead letters it is nacked for long", func(s *env) {
			orders := mailbox.New("orders", withoutLetters{s.open("orders").Queue()}, &mailbox.Options[string]{})
			s.send(orders, "tea")
			_, err := worker.New(orders, fails(worker.Permanent(errMilk), ruletest.NewRecorder()), s.options(options{})).RunOnce(s.Context())
			s.Must(err)
			s.Pass(15*time.Minute - time.Second)
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
			s.Pass(time.Second)
			s.expectStats(orders, mailbox.Stats{Ready: 1})
		}},
		{"RetryAfter does not reply", func(s *env) {
			requests := s.open("requests")
			future := s.ask(requests, "tea")
			_, err := worker.New(requests, fails(worker.RetryAfter(time.Hour, errMilk), ruletest.NewRecorder()), s.options(options{})).RunOnce(s.Context())
			s.Must(err)
			s.expectUnanswered(future)
			s.expectStats(requests, mailbox.Stats{Delayed: 1})
		}},
	})
}

// board is a Notifier that records failures.
type board struct{ told *ruletest.Recorder }

func (board) Waits(m *message) bool { return m.Body != "no client" }

func (b board) Fail(_ context.Context, m *message, failure error) error {
	b.told.Add(m.Body + ": " + failure.Error())
	return nil
}

func TestNotifierReplacesErrorReplies(t *testing.T) {
	runRule(t, "DLQ-7", []rule{
		{"without a policy: notified and acked", func(s *env) {
			orders, told := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "no client")
			s.run(worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{Notifier: board{told}})))
			s.Pass(time.Second)
			if got := told.List(); !slices.Equal(got, []string{"tea: no milk"}) {
				s.Errorf("told was %v", got)
			}
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
		}},
		{"with a policy: notified when final", func(s *env) {
			orders, told := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "no client")
			s.run(worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{Notifier: board{told}, DeadLetters: &policy{MaxDeliveries: 2}})))
			s.Pass(time.Hour)
			if got := told.List(); !slices.Equal(got, []string{"tea: dead-lettered after 2 deliveries: no milk"}) {
				s.Errorf("told was %v", got)
			}
			s.expectStats(orders, mailbox.Stats{Dead: 2})
		}},
	})
}

func TestOutcomeErrorsDescribeThemselves(t *testing.T) {
	for text, err := range map[string]error{
		"permanent failure: no milk":    worker.Permanent(errMilk),
		"permanent failure":             worker.Permanent(nil),
		"discarded: no milk":            worker.Discard(errMilk),
		"retry after 1m0s: no milk":     worker.RetryAfter(time.Minute, errMilk),
		"retry after 0s":                worker.RetryAfter(-time.Minute, nil),
		"panic: spilled (in main.pour)": &worker.PanicError{Value: "spilled", Location: "main.pour"},
	} {
		if err.Error() != text {
			t.Errorf("%q, want %q", err, text)
		}
		if strings.Contains(text, "milk") && !errors.Is(err, errMilk) {
			t.Errorf("%q is not its cause", text)
		}
	}
}
