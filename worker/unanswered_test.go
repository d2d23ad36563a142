package worker_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/worker"
)

// withResolver opens a mailbox whose replies go through resolver, or nowhere.
func (s *env) withResolver(resolver mailbox.Resolver) *inbox {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, "requests", &mailbox.Options[string]{Resolver: resolver})
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// askAt sends a request with this reply address.
func (s *env) askAt(m *inbox, address string) {
	s.Helper()
	_, err := m.Send(s.Context(), "tea", mailbox.WithReplyTo(address))
	s.Must(err)
}

// oneLetter returns the only dead letter of a policy.
func (s *env) oneLetter(p *policy, m *inbox) letter {
	s.Helper()
	got := letters(s, p.Queue(m))
	if len(got) != 1 {
		s.Fatalf("the letters are %+v, want one", got)
	}
	return got[0]
}

func TestUnanswerableRequestIsDeadLetteredWithItsResult(t *testing.T) {
	queues := func(fallback func(*env) registry.Options) func(*env) mailbox.Resolver {
		return func(s *env) mailbox.Resolver {
			options := fallback(s)
			r := registry.New(&options)
			s.Cleanup(func() { r.Close() })
			return r
		}
	}
	schemes := queues(func(s *env) registry.Options {
		return registry.Options{Fallback: registry.Schemes{ByScheme: map[string]registry.Scheme{"memory": membox.URLOpener(membox.New(nil))}}}
	})
	tenant := queues(func(s *env) registry.Options {
		return registry.Options{Fallback: registry.NewPrefix(s.Faults, "acme:")}
	})
	var rules []rule
	for _, c := range []struct {
		name, address string
		resolver      func(*env) mailbox.Resolver
	}{
		{"without a resolver", "answers", func(*env) mailbox.Resolver { return nil }},
		{"with a slot and no reply store", "reply:abc", func(*env) mailbox.Resolver { return nil }},
		{"with an unknown scheme", "smoke://kitchen/answers", schemes},
		{"with a malformed URI", "memory://%zz", schemes},
		{"with an address outside the tenant", "../other:answers", tenant},
	} {
		for kind, p := range map[string]func(*env) *policy{
			"no policy":         func(*env) *policy { return nil },
			"a policy":          func(*env) *policy { return &policy{} },
			"a mailbox of dead": func(s *env) *policy { return &policy{Mailbox: s.openLetters("dead", mailbox.Hooks{})} },
		} {
			rules = append(rules, rule{c.name + ", with " + kind, func(s *env) {
				requests, done, deadLetters := s.withResolver(c.resolver(s)), ruletest.NewRecorder(), p(s)
				s.askAt(requests, c.address)
				s.run(worker.New(requests, shout(done), s.options(options{DeadLetters: deadLetters})))
				s.Pass(24 * time.Hour)
				ruletest.Equal(s, "times the work was done", done.Count(), 1)
				if deadLetters == nil {
					deadLetters = &policy{}
				}
				got := s.oneLetter(deadLetters, requests)
				if got.Reason != mailbox.ReasonFatal || string(got.Result) != `"TEA"` || got.ReplyTo != c.address {
					s.Errorf("the letter is %+v", got)
				}
			}})
		}
	}
	runRule(t, "LOOP-1", rules)
}

func TestUnanswerableRequestCanBeAcked(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"if the options say so", func(s *env) {
			requests, done, results := s.withResolver(nil), ruletest.NewRecorder(), ruletest.NewRecorder()
			s.askAt(requests, "answers")
			s.run(worker.New(requests, shout(done), s.options(options{
				OnUnanswerable: worker.AckUnanswerable,
				Hooks:          worker.Hooks{Settled: func(_ context.Context, event worker.SettledEvent) { results.Add(string(event.Result)) }},
			})))
			s.Pass(time.Hour)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			ruletest.Equal(s, "result", results.List()[0], string(worker.ResultUnanswered))
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"a failure without a reply address is dead-lettered", func(s *env) {
			requests, tried := s.withResolver(nil), ruletest.NewRecorder()
			s.askAt(requests, "answers")
			s.run(worker.New(requests, fails(errMilk, tried), s.options(options{})))
			s.Pass(24 * time.Hour)
			ruletest.Equal(s, "times the work was tried", tried.Count(), 1)
			got := s.oneLetter(&policy{}, requests)
			if got.Reason != mailbox.ReasonFatal || !strings.Contains(got.LastError, "no milk") || got.Result != nil {
				s.Errorf("the letter is %+v", got)
			}
		}},
		{"any other value is refused", func(s *env) {
			err := worker.New(s.withResolver(nil), shout(ruletest.NewRecorder()), s.options(options{OnUnanswerable: "Ack"})).Run(s.Context())
			s.Is(err, mailbox.ErrInvalid)
		}},
	})
}

func TestUnresolvedReplyAddressIsTemporary(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"the reply is sent when it resolves", func(s *env) {
			queues := registry.New(nil)
			requests, answers, done := s.withResolver(queues), s.open("answers"), ruletest.NewRecorder()
			s.askAt(requests, "later")
			s.run(worker.New(requests, shout(done), s.options(options{DeadLetters: &policy{}})))
			s.At(90 * time.Second)
			s.expectStats(requests, mailbox.Stats{Delayed: 1})
			s.Must(queues.Register("later", answers.Queue()))
			got, err := answers.Receive(s.Context(), mailbox.WithWait(time.Hour))
			s.Must(err)
			ruletest.Equal(s, "answer", got[0].Body, "TEA")
			s.Pass(0)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"at the limit it is dead-lettered with the result", func(s *env) {
			requests, done := s.withResolver(registry.New(nil)), ruletest.NewRecorder()
			s.askAt(requests, "never")
			p := &policy{MaxDeliveries: 3}
			s.run(worker.New(requests, shout(done), s.options(options{DeadLetters: p})))
			s.Pass(24 * time.Hour)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			got := s.oneLetter(p, requests)
			if got.Reason != mailbox.ReasonMaxDeliveries || got.Deliveries != 3 || string(got.Result) != `"TEA"` {
				s.Errorf("the letter is %+v", got)
			}
		}},
	})
}

func TestResultWithoutAddressIsLoggedAndCounted(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"with the id of the request", func(s *env) {
			requests, done, events := s.open("requests"), ruletest.NewRecorder(), ruletest.NewRecorder()
			id := s.send(requests, "tea")[0]
			s.run(worker.New(requests, shout(done), s.options(options{Hooks: worker.Hooks{
				Finished: func(_ context.Context, event worker.FinishedEvent) {
					if event.Err != nil {
						s.Errorf("the handler has failed with %v", event.Err)
					}
				},
				Settled: func(_ context.Context, event worker.SettledEvent) { events.Add(string(event.Result)) },
			}})))
			s.Pass(time.Second)
			s.expectStats(requests, mailbox.Stats{})
			ruletest.Equal(s, "result", events.List()[0], string(worker.ResultUnanswered))
			if log := s.Logs.String(); !strings.Contains(log, `"WARN"`) || !strings.Contains(log, `"request_id":"`+id+`"`) {
				s.Errorf("the log says %s", log)
			}
		}},
	})
}

func TestUnencodableAnswerFailsAtOnce(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"the handler does not run again", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			p := &policy{}
			s.run(worker.New(requests, worker.Serve(func(_ context.Context, m *message) (float64, error) {
				done.Add(m.Body)
				return math.Inf(1), nil
			}, nil), s.options(options{DeadLetters: p})))
			_, err := future.Wait(s.Context())
			if _, failed := errors.AsType[*mailbox.Failure](err); !failed {
				s.Errorf("the answer is %v", err)
			}
			s.Pass(24 * time.Hour)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			ruletest.Equal(s, "reason", s.oneLetter(p, requests).Reason, mailbox.ReasonFatal)
		}},
	})
}
