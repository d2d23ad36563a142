package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

type policy = deadletter.Policy[string]

// fails returns a handler that always fails with err.
func fails(err error, tried *ruletest.Recorder) worker.Handler[string] {
	return func(_ context.Context, m *message) error {
		tried.Add(m.Body)
		return err
	}
}

// letters returns the dead letters of a queue.
func letters(s *env, queue *deadletter.Queue[string]) []letter {
	s.Helper()
	var all []letter
	for letter, err := range queue.List(s.Context()) {
		s.Must(err)
		all = append(all, letter)
	}
	return all
}

func TestPolicyDecidesWhichFailuresAreFinal(t *testing.T) {
	// deliveries returns how often a message that fails with err is delivered in a
	// day, on a queue without a limit.
	deliveries := func(s *env, p *policy, err error) int {
		s.Configure("orders", driver.Config{MaxDeliveries: driver.Off})
		orders, tried := s.open("orders"), ruletest.NewRecorder()
		s.send(orders, "tea")
		s.run(worker.New(orders, fails(err, tried), s.options(options{DeadLetters: p, Backoff: worker.LinearBackoff(time.Minute, time.Minute)})))
		s.Pass(24 * time.Hour)
		return tried.Count()
	}
	const forever = 24 * 60
	runRule(t, "DLQ-2", []rule{
		{"the fifth delivery is the last", func(s *env) {
			ruletest.Equal(s, "deliveries", deliveries(s, &policy{}, errMilk), 5)
			s.expectStats(s.open("orders"), mailbox.Stats{Dead: 1})
		}},
		{"the limit can be another", func(s *env) {
			ruletest.Equal(s, "deliveries", deliveries(s, &policy{MaxDeliveries: 2}, errMilk), 2)
		}},
		{"always means at once", func(s *env) {
			p := &policy{Always: []deadletter.Matcher{deadletter.Is(errMilk)}}
			ruletest.Equal(s, "deliveries", deliveries(s, p, fmt.Errorf("brewing: %w", errMilk)), 1)
			box := p.Queue(s.open("orders"))
			ruletest.Equal(s, "reason", letters(s, box)[0].Reason, mailbox.ReasonFatal)
		}},
		{"always goes by type too", func(s *env) {
			p := &policy{Always: []deadletter.Matcher{deadletter.As[*worker.PanicError]()}}
			ruletest.Equal(s, "deliveries", deliveries(s, p, fmt.Errorf("brewing: %w", &worker.PanicError{Value: 1})), 1)
		}},
		{"never means never", func(s *env) {
			if n := deliveries(s, &policy{Never: []deadletter.Matcher{deadletter.Is(errMilk)}}, errMilk); n < forever {
				s.Errorf("it was tried %d times in a day, want once a minute", n)
			}
		}},
		{"never beats always", func(s *env) {
			both := []deadletter.Matcher{deadletter.Is(errMilk)}
			if n := deliveries(s, &policy{Never: both, Always: both}, errMilk); n < forever {
				s.Errorf("it was tried %d times in a day, want once a minute", n)
			}
		}},
		{"Decide replaces the lists", func(s *env) {
			p := &policy{Always: []deadletter.Matcher{deadletter.Is(errMilk)}}
			p.Decide = func(_ context.Context, m *message, err error) bool {
				return m.Deliveries == 7 && errors.Is(err, errMilk)
			}
			ruletest.Equal(s, "deliveries", deliveries(s, p, errMilk), 7)
		}},
		{"a permanent failure needs no list", func(s *env) {
			p := &policy{Never: []deadletter.Matcher{deadletter.Is(errMilk)}}
			ruletest.Equal(s, "deliveries", deliveries(s, p, worker.Permanent(errMilk)), 1)
			ruletest.Equal(s, "last error", letters(s, p.Queue(s.open("orders")))[0].LastError, "no milk")
		}},
		{"a retry without an error is not a failure", func(s *env) {
			if n := deliveries(s, &policy{}, worker.RetryAfter(time.Minute, nil)); n < forever {
				s.Errorf("it was tried %d times in a day, want once a minute", n)
			}
		}},
		{"a retry with an error is a failure", func(s *env) {
			ruletest.Equal(s, "deliveries", deliveries(s, &policy{}, worker.RetryAfter(time.Minute, errMilk)), 5)
		}},
		{"a policy without a dead-letter queue is refused", func(s *env) {
			orders := mailbox.New("orders", withoutLetters{s.open("orders").Queue()}, &mailbox.Options[string]{})
			s.Is(worker.New(orders, count(ruletest.NewRecorder()), s.options(options{DeadLetters: &policy{}})).Run(s.Context()), mailbox.ErrUnsupported)
		}},
	})
}

// crashes runs a worker that crashes on each message.
func crashes(s *env, m *inbox) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	s.Must(worker.New(m, func(context.Context, *message) error {
		s.Faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable}) // a crashed process has no effect any more
		cancel()
		return nil
	}, s.options(options{})).Run(ctx))
	s.Faults.Clear()
}

func TestBackendLimitsDeliveriesOfWorkers(t *testing.T) {
	runRule(t, "DLQ-1", []rule{
		{"a message that crashes its workers is dead-lettered", func(s *env) {
			s.Configure("orders", driver.Config{MaxDeliveries: 3})
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "bomb")
			for range 3 {
				crashes(s, orders)
				s.expectStats(orders, mailbox.Stats{InFlight: 1})
				s.Pass(worker.DefaultVisibility)
			}
			s.expectStats(orders, mailbox.Stats{Dead: 1})
			s.send(orders, "tea")
			s.run(worker.New(orders, count(done), s.options(options{})))
			s.Pass(time.Hour)
			if got := done.List(); !slices.Equal(got, []string{"tea"}) {
				s.Errorf("handled were %v", got)
			}
			got := letters(s, deadletter.NewQueue(orders, nil))
			if len(got) != 1 || got[0].Reason != mailbox.ReasonMaxDeliveries || got[0].Deliveries != 3 {
				s.Errorf("the dead letters are %+v", got)
			}
		}},
		{"without a policy, a failing message too", func(s *env) {
			s.Configure("orders", driver.Config{MaxDeliveries: 2})
			orders, tried := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.run(worker.New(orders, fails(errMilk, tried), s.options(options{})))
			s.Pass(time.Hour)
			ruletest.Equal(s, "deliveries", tried.Count(), 2)
			got := letters(s, deadletter.NewQueue(orders, nil))
			if len(got) != 1 || got[0].Reason != mailbox.ReasonMaxDeliveries || got[0].LastError != "no milk" {
				s.Errorf("the dead letters are %+v", got)
			}
		}},
	})
}

func TestDeadLettersCanGoToAnotherQueue(t *testing.T) {
	// serve runs a loop that fails twice, and a consumer that redrives, for a minute.
	serve := func(s *env, orders *inbox, p *policy, tried *ruletest.Recorder) {
		s.run(s.group(worker.GroupOptions{},
			worker.New(orders, func(_ context.Context, m *message) error {
				tried.Add(m.Body)
				if tried.Count() > 2 {
					return nil
				}
				return errMilk
			}, s.options(options{DeadLetters: p, Backoff: worker.NoBackoff})),
			deadletter.NewConsumer(deadletter.NewQueue(orders, s.openLetters("dead", mailbox.Hooks{})), func(_ context.Context, l letter) (deadletter.Action, error) {
				if l.Body != "tea" || l.Source != "orders" || l.LastError != "no milk" || l.Deliveries != 2 || l.Attributes["colour"] != "green" {
					s.Errorf("the dead letter is %+v", l)
				}
				return deadletter.Redrive, nil
			}, nil)))
		_, err := orders.Send(s.Context(), "tea", mailbox.WithAttribute("colour", "green"))
		s.Must(err)
		s.Pass(time.Minute)
	}
	runRule(t, "DLQ-8", []rule{
		{"by the backend, in one step", func(s *env) {
			s.Configure("orders", driver.Config{MaxDeliveries: 2, DeadLetterTo: "dead"})
			orders, tried := s.open("orders"), ruletest.NewRecorder()
			serve(s, orders, nil, tried)
			ruletest.Equal(s, "times it was tried", tried.Count(), 3)
			s.expectStats(orders, mailbox.Stats{})
			s.expectStats(s.open("dead"), mailbox.Stats{})
		}},
		{"by the policy, which writes the target first", func(s *env) {
			orders, tried := s.open("orders"), ruletest.NewRecorder()
			serve(s, orders, &policy{MaxDeliveries: 2, Mailbox: s.openLetters("dead", mailbox.Hooks{})}, tried)
			ruletest.Equal(s, "times it was tried", tried.Count(), 3)
			s.expectStats(orders, mailbox.Stats{})
			s.expectStats(s.open("dead"), mailbox.Stats{})
		}},
	})
}

// withoutLetters is a queue whose backend keeps no dead letters.
type withoutLetters struct{ driver.Queue }

func (q withoutLetters) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.DeadLetters = false
	return traits
}

// A finalFailure is a request that fails for good, in a loop that sends dead letters
// to a mailbox, and the steps of dead-lettering it.
type finalFailure struct {
	requests *inbox
	loop     *worker.Loop[string]
	steps    *ruletest.Recorder
	dead     *deadletter.Queue[string]
}

// newFinalFailure opens the mailboxes and makes the loop. at, if it is not nil, is
// called after each step.
func newFinalFailure(s *env, at func(step string)) *finalFailure {
	b := &finalFailure{steps: ruletest.NewRecorder()}
	step := func(name string, err error) {
		if err != nil {
			return
		}
		b.steps.Add(name)
		if at != nil {
			at(name)
		}
	}
	b.requests = s.openHooked("requests", mailbox.Hooks{
		Replied: func(_ context.Context, event mailbox.RepliedEvent) { step("reply", event.Err) },
		Settled: func(_ context.Context, event mailbox.SettledEvent) { step(string(event.Outcome), event.Err) },
	})
	p := &policy{MaxDeliveries: 1, Mailbox: s.openLetters("dead", mailbox.Hooks{
		Sent: func(_ context.Context, event mailbox.SentEvent) { step("write", event.Err) },
	})}
	b.dead = p.Queue(b.requests)
	b.loop = worker.New(b.requests, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: p}))
	return b
}

// expectSteps checks the steps.
func (b *finalFailure) expectSteps(s *env, want ...string) {
	s.Helper()
	if got := b.steps.List(); !slices.Equal(got, want) {
		s.Errorf("the steps were %v, want %v", got, want)
	}
}

func TestDeadLetteringKeepsItsOrder(t *testing.T) {
	runRule(t, "DLQ-3", []rule{
		{"write, reply, ack", func(s *env) {
			b := newFinalFailure(s, nil)
			future := s.ask(b.requests, "tea")
			s.run(b.loop)
			_, err := future.Wait(s.Context())
			failure, ok := errors.AsType[*mailbox.Failure](err)
			if !ok || !strings.HasPrefix(failure.Text, "dead-lettered after 1 deliveries: no milk") {
				s.Errorf("the answer is %v", err)
			}
			s.Pass(0)
			b.expectSteps(s, "write", "reply", "ack")
			ruletest.Equal(s, "letters", len(letters(s, b.dead)), 1)
			s.expectStats(b.requests, mailbox.Stats{})
		}},
		{"a failed write: nack with backoff, no reply", func(s *env) {
			b := newFinalFailure(s, nil)
			future := s.ask(b.requests, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "send", Queue: "dead", Err: mailbox.ErrUnavailable, Times: 2})
			s.run(b.loop)
			s.At(59 * time.Second)
			s.expectStats(b.requests, mailbox.Stats{Delayed: 1})
			s.expectUnanswered(future)
			if !b.loop.Activity().DeadLettersFailing {
				s.Error("the loop does not say that dead letters cannot be written")
			}
			s.At(179 * time.Second) // a minute, then two
			s.expectStats(b.requests, mailbox.Stats{Delayed: 1})
			s.expectUnanswered(future)
			s.At(181 * time.Second)
			b.expectSteps(s, "nack", "nack", "write", "reply", "ack")
			if b.loop.Activity().DeadLettersFailing {
				s.Error("the loop says that dead letters cannot be written")
			}
		}},
		{"a failed reply: dead-lettered all the same", func(s *env) {
			b := newFinalFailure(s, nil)
			future := s.ask(b.requests, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable})
			s.run(b.loop)
			s.Pass(time.Minute)
			b.expectSteps(s, "write", "ack")
			s.expectUnanswered(future)
			s.expectStats(b.requests, mailbox.Stats{})
		}},
		{"a failed ack: only the ack is repeated", func(s *env) {
			b := newFinalFailure(s, nil)
			s.ask(b.requests, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Times: 5})
			s.run(b.loop)
			s.Pass(time.Minute)
			b.expectSteps(s, "write", "reply", "ack")
			s.expectStats(b.requests, mailbox.Stats{})
		}},
	})
}

func TestDeadLetteringSurvivesCrashes(t *testing.T) {
	runRule(t, "DLQ-3", []rule{
		{"a crash before the write leaves the message", func(s *env) { crashing(s, "") }},
		{"a crash between write and reply leaves one dead letter", func(s *env) { crashing(s, "write") }},
		{"a crash between reply and ack repeats nothing", func(s *env) { crashing(s, "reply") }},
	})
}

func TestDeadLetteringWithTheBackendIsOneStep(t *testing.T) {
	final := &policy{MaxDeliveries: 1}
	runRule(t, "DLQ-3", []rule{
		{"the reply follows", func(s *env) {
			steps := ruletest.NewRecorder()
			requests := s.openHooked("requests", mailbox.Hooks{
				Replied: func(context.Context, mailbox.RepliedEvent) {
					steps.Add(fmt.Sprintf("reply, when %d are dead", len(letters(s, final.Queue(s.open("requests"))))))
				},
			})
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: final})))
			_, err := future.Wait(s.Context())
			if failure, ok := errors.AsType[*mailbox.Failure](err); !ok || !strings.Contains(failure.Text, "no milk") {
				s.Errorf("the answer is %v", err)
			}
			s.Pass(0)
			if got := steps.List(); !slices.Equal(got, []string{"reply, when 1 are dead"}) {
				s.Errorf("the steps were %v", got)
			}
			s.expectStats(requests, mailbox.Stats{Dead: 1})
		}},
		{"a failed write: nack with backoff, no reply", func(s *env) {
			requests := s.open("requests")
			future := s.ask(requests, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "dead-letter", Err: mailbox.ErrFull, Times: 1})
			s.run(worker.New(requests, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: final})))
			s.At(59 * time.Second)
			s.expectStats(requests, mailbox.Stats{Delayed: 1})
			s.expectUnanswered(future)
			s.At(61 * time.Second)
			s.expectStats(requests, mailbox.Stats{Dead: 1})
		}},
		{"a message whose lease was lost is not dead-lettered", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			_, err := worker.New(orders, func(ctx context.Context, m *message) error {
				s.Must(s.Faults.Expire(ctx, "orders", m.Receipt))
				return errMilk
			}, s.options(options{DeadLetters: final})).RunOnce(s.Context())
			s.Must(err)
			s.expectStats(orders, mailbox.Stats{Ready: 1})
		}},
	})
}

// crashing runs a worker that crashes after a step, and then another one. At the end
// there is one dead letter, one answer and no request.
func crashing(s *env, after string) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	// A crashed process has no effect any more.
	die := func() {
		s.Faults.Add(mailboxtest.Fault{Err: mailbox.ErrUnavailable})
		cancel()
	}
	dead := false
	b := newFinalFailure(s, func(step string) {
		if step == after && !dead {
			dead = true
			die()
		}
	})
	future := s.ask(b.requests, "tea")
	if after == "" {
		b.loop = worker.New(b.requests, func(context.Context, *message) error {
			die()
			return errMilk
		}, s.options(options{DeadLetters: &policy{MaxDeliveries: 1, Mailbox: s.openLetters("dead", mailbox.Hooks{})}}))
	}
	s.Must(b.loop.Run(ctx))
	s.Faults.Clear()
	if after == "reply" {
		b.expectSteps(s, "write", "reply")
	} else {
		s.expectUnanswered(future)
	}
	s.expectStats(b.requests, mailbox.Stats{InFlight: 1})

	s.run(worker.New(b.requests, fails(errMilk, ruletest.NewRecorder()), s.options(options{
		DeadLetters: &policy{MaxDeliveries: 1, Mailbox: s.openLetters("dead", mailbox.Hooks{})},
	})))
	_, err := future.Wait(s.Context())
	if after == "reply" {
		isFailure(s, err, "no milk")
	} else {
		isFailure(s, err, "delivered too often") // the second delivery is one too many
	}
	s.Pass(time.Minute)
	ruletest.Equal(s, "letters", len(letters(s, b.dead)), 1)
	s.expectStats(b.requests, mailbox.Stats{})
}

func TestDeadLetterDescribesFailure(t *testing.T) {
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	check := func(s *env, p *policy) {
		p.RequestID = func(body string) string { return "request of " + body }
		s.Pass(time.Hour)
		orders := s.open("orders")
		sent, err := orders.Send(s.Context(), "tea", mailbox.WithReplyTo("answers"), mailbox.WithCorrelationID("c-7"), mailbox.WithGroup("g"),
			mailbox.WithAttribute("traceparent", traceparent), mailbox.WithAttribute("colour", "green"))
		s.Must(err)
		enqueued := time.Now().UTC()
		s.Pass(time.Minute)
		first := time.Now().UTC()
		s.run(worker.New(orders, fails(fmt.Errorf("brewing: %w", io.ErrUnexpectedEOF), ruletest.NewRecorder()), s.options(options{DeadLetters: p})))
		s.Pass(time.Hour)
		dead := first.Add((1 + 2) * time.Minute) // of backoff
		got := letters(s, p.Queue(orders))
		ruletest.Equal(s, "letters", len(got), 1)
		want := letter{
			MessageID: sent.ID, Body: "tea", Source: "orders", Reason: mailbox.ReasonMaxDeliveries, Deliveries: 3,
			LastError: "brewing: unexpected EOF", ErrorType: "*errors.errorString",
			EnqueuedAt: enqueued, FirstReceivedAt: first, DeadAt: dead,
			RequestID: "request of tea", ReplyTo: "answers", CorrelationID: "c-7",
			TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", Group: "g",
			Attributes: map[string]string{"traceparent": traceparent, "colour": "green"},
		}
		if fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", want) {
			s.Errorf("the letter is\n%+v, want\n%+v", got[0], want)
		}
		for _, field := range []string{
			`"message_id":"` + sent.ID + `"`, `"request_id":"request of tea"`, `"source_mailbox":"orders"`, `"delivery_count":3`,
			`"error_type":"*errors.errorString"`, `"error_message":"brewing: unexpected EOF"`,
		} {
			if log := s.Logs.String(); !strings.Contains(log, field) {
				s.Errorf("the log has no %s: %s", field, log)
			}
		}
	}
	runRule(t, "DLQ-4", []rule{
		{"that the backend keeps", func(s *env) { check(s, &policy{MaxDeliveries: 3}) }},
		{"that is in a mailbox", func(s *env) {
			check(s, &policy{MaxDeliveries: 3, Mailbox: s.openLetters("dead", mailbox.Hooks{})})
		}},
		{"and where it panicked", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			p := &policy{MaxDeliveries: 1, Mailbox: s.openLetters("dead", mailbox.Hooks{})}
			_, err := worker.New(orders, spill, s.options(options{DeadLetters: p})).RunOnce(s.Context())
			s.Must(err)
			got := letters(s, p.Queue(orders))[0]
			if !strings.Contains(got.Stack, "worker_test.spill") || !strings.HasPrefix(got.LastError, "panic: no milk (in ") || got.ErrorType != "*github.com/mailboxmq/mailbox/worker.PanicError" {
				s.Errorf("the letter says %s, %s, %s", got.LastError, got.ErrorType, got.Stack)
			}
		}},
	})
}
