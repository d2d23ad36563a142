package mainloop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/worker"
)

func TestLOOP1RequestsAreAnsweredWithResults(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"a result has the request's id, the output, the session and the time", func(s *env) {
			asked := ruletest.NewRecorder()
			s.start(shout(asked), options{WorkerID: "w-1"})
			s.Pass(time.Minute)
			r := mainloop.NewRequest("tea?")
			got, err := s.call(r)
			s.Must(err)
			if got.RequestID != r.ID || got.Output != "TEA?" || !got.Success() || got.SessionID == "" || !got.CompletedAt.Equal(time.Now()) ||
				got.Usage != (mainloop.Usage{InputTokens: 10, OutputTokens: 5}) {
				s.Errorf("the result is %+v", got)
			}
			if got.Run.RequestID != r.ID || got.Run.Attempt != 1 || got.Run.WorkerID != "w-1" || got.Run.RunID == "" || got.Run.RunID == r.ID {
				s.Errorf("the run is %+v", got.Run)
			}
			s.stats(mailbox.Stats{})
		}},
		{"the reply is sent before the ack", func(s *env) {
			asked := ruletest.NewRecorder()
			future, err := s.client.Send(s.Context(), mainloop.NewRequest("tea?"))
			s.Must(err)
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Delay: time.Minute})
			s.start(shout(asked), options{Worker: worker.Options[request]{Visibility: 10 * time.Minute}})
			_, err = future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "time of the reply", time.Since(s.Began), 0)
			s.stats(mailbox.Stats{InFlight: 1})
			s.Pass(time.Minute)
			s.stats(mailbox.Stats{})
		}},
		{"an unsent reply does not call the model again", func(s *env) {
			asked := ruletest.NewRecorder()
			future, err := s.client.Send(s.Context(), mainloop.NewRequest("tea?"))
			s.Must(err)
			mend := s.Faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable})
			s.start(shout(asked), options{})
			s.At(90 * time.Second)
			s.stats(mailbox.Stats{Delayed: 1})
			if _, ready, err := future.Poll(s.Context()); ready || err != nil {
				s.Errorf("there is an answer: %v", err)
			}
			mend()
			got, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "output", got.Output, "TEA?")
			ruletest.Equal(s, "times the model was asked", asked.Count(), 1)
			s.stats(mailbox.Stats{})
		}},
		{"a request without an id is known by its message", func(s *env) {
			sent, err := s.requests.Send(s.Context(), request{Body: "tea?"}, mailbox.WithReplyTo("answers"))
			s.Must(err)
			s.start(shout(ruletest.NewRecorder()), options{})
			answers, err := mailbox.Open[result](s.Context(), s.Faults, "answers", nil)
			s.Must(err)
			got, err := answers.Receive(s.Context(), mailbox.WithWait(time.Minute))
			s.Must(err)
			ruletest.Equal(s, "request id", got[0].Body.RequestID, sent.ID)
		}},
		{"a request without a reply address is handled", func(s *env) {
			asked := ruletest.NewRecorder()
			r := mainloop.NewRequest("tea?")
			_, err := s.requests.Send(s.Context(), r)
			s.Must(err)
			s.start(shout(asked), options{})
			s.stats(mailbox.Stats{})
			ruletest.Equal(s, "times the model was asked", asked.Count(), 1)
			if log := s.Logs.String(); !strings.Contains(log, `"request_id":"`+r.ID+`"`) {
				s.Errorf("the log does not name the request: %s", log)
			}
		}},
	})
}

func TestLOOP1TwoMailboxesMakeALoop(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"results go to the mailbox that all clients share, errors too", func(s *env) {
			responses, err := mailbox.Open[result](s.Context(), s.Faults, "responses", nil)
			s.Must(err)
			s.start(mainloop.AdapterFunc(func(_ context.Context, p *mainloop.Prompt) (response, error) {
				if p.Turns[0].Text == "bad" {
					return response{}, errMilk
				}
				return response{Text: "fine"}, nil
			}), options{Responses: responses})
			shared, err := mainloop.Responses[string](s.Context(), s.Faults, "responses", nil)
			s.Must(err)
			good, bad := mainloop.NewRequest("good"), mainloop.NewRequest("bad")
			for _, r := range []request{good, bad} {
				_, err := s.requests.Send(s.Context(), r)
				s.Must(err)
			}
			got, err := mainloop.Await(s.Context(), shared, bad.ID)
			s.failure(err, nil, "no milk")
			ruletest.Equal(s, "request id", got.RequestID, bad.ID)
			got, err = mainloop.Await(s.Context(), shared, good.ID)
			s.Must(err)
			ruletest.Equal(s, "output", got.Output, "fine")
			s.stats(mailbox.Stats{})
		}},
		{"a plain reader gets results as values", func(s *env) {
			responses, err := mailbox.Open[result](s.Context(), s.Faults, "responses", nil)
			s.Must(err)
			s.start(broken(errMilk, ruletest.NewRecorder()), options{Responses: responses})
			r := mainloop.NewRequest("tea?")
			_, err = s.requests.Send(s.Context(), r)
			s.Must(err)
			got, err := responses.Receive(s.Context(), mailbox.WithWait(time.Minute))
			s.Must(err)
			if body := got[0].Body; body.RequestID != r.ID || body.Error != "no milk" || body.Success() || body.SessionID == "" || body.CompletedAt.IsZero() {
				s.Errorf("the result is %+v", body)
			}
		}},
		{"with a policy there is one final result", func(s *env) {
			responses, err := mailbox.Open[result](s.Context(), s.Faults, "responses", nil)
			s.Must(err)
			asked := ruletest.NewRecorder()
			s.start(broken(errMilk, asked), options{Responses: responses, Worker: worker.Options[request]{DeadLetters: &policy{MaxDeliveries: 3}}})
			_, err = s.requests.Send(s.Context(), mainloop.NewRequest("tea?"))
			s.Must(err)
			got, err := responses.Receive(s.Context(), mailbox.WithWait(time.Hour), mailbox.WithMax(10))
			s.Must(err)
			ruletest.Equal(s, "time", time.Since(s.Began), 3*time.Minute)
			ruletest.Equal(s, "error", got[0].Body.Error, "dead-lettered after 3 deliveries: no milk")
			ruletest.Equal(s, "attempt", got[0].Body.Run.Attempt, 3)
			s.Pass(time.Hour)
			ruletest.Equal(s, "times the model was asked", asked.Count(), 3)
			stats, err := responses.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "results", stats.Waiting(), 1)
			s.stats(mailbox.Stats{Dead: 1})
		}},
	})
}

func TestLOOP1FailuresAreResults(t *testing.T) {
	limited := &mainloop.AdapterError{Code: mainloop.ErrRateLimited, Status: 429, RetryAfter: 10 * time.Minute}
	refused := &mainloop.AdapterError{Code: mainloop.ErrPolicy, Status: 400, Detail: "no weapons"}
	final := worker.Options[request]{DeadLetters: &policy{}}
	runRule(t, "LOOP-1", []rule{
		{"without a policy: at once", func(s *env) {
			asked := ruletest.NewRecorder()
			s.start(broken(limited, asked), options{})
			got, err := s.call(mainloop.NewRequest("tea?"))
			s.failure(err, mainloop.ErrRateLimited, "model server limits the rate (429 Too Many Requests)")
			if got.SessionID == "" || got.Run.Attempt != 1 {
				s.Errorf("the result is %+v", got)
			}
			ruletest.Equal(s, "times the model was asked", asked.Count(), 1)
			s.stats(mailbox.Stats{})
		}},
		{"temporary errors are retried after RetryAfter", func(s *env) {
			asked := ruletest.NewRecorder()
			s.start(mainloop.AdapterFunc(func(ctx context.Context, p *mainloop.Prompt) (response, error) {
				if asked.Count() < 2 {
					return broken(limited, asked).Evaluate(ctx, p)
				}
				return shout(asked).Evaluate(ctx, p)
			}), options{Worker: final})
			got, err := s.call(mainloop.NewRequest("tea?"))
			s.Must(err)
			ruletest.Equal(s, "output", got.Output, "TEA?")
			ruletest.Equal(s, "attempt", got.Run.Attempt, 3)
			ruletest.Equal(s, "time", time.Since(s.Began), 20*time.Minute)
		}},
		{"final errors are not retried", func(s *env) {
			asked := ruletest.NewRecorder()
			s.start(broken(fmt.Errorf("asking: %w", refused), asked), options{Worker: final})
			_, err := s.call(mainloop.NewRequest("tea?"))
			s.failure(err, nil, "dead-lettered after 1 deliveries: asking: refused by content policy (400 Bad Request): no weapons")
			ruletest.Equal(s, "times the model was asked", asked.Count(), 1)
			s.stats(mailbox.Stats{Dead: 1})
			for letter, err := range final.DeadLetters.Queue(s.requests).List(s.Context()) {
				s.Must(err)
				if letter.ErrorType != "*github.com/mailboxmq/mailbox/mainloop.AdapterError" || letter.Reason != mailbox.ReasonFatal || letter.RequestID != letter.Body.ID ||
					strings.HasSuffix(letter.LastError, " ") {
					s.Errorf("the letter is %+v", letter)
				}
			}
		}},
		{"a panic fails the request and nothing else", func(s *env) {
			s.start(mainloop.AdapterFunc(func(_ context.Context, p *mainloop.Prompt) (response, error) {
				if p.Turns[0].Text == "bomb" {
					panic("boom")
				}
				return response{Text: "fine"}, nil
			}), options{})
			got, err := s.call(mainloop.NewRequest("bomb"))
			s.failure(err, nil, "panic: boom")
			ruletest.Equal(s, "attempt", got.Run.Attempt, 1)
			_, err = s.call(mainloop.NewRequest("tea?"))
			s.Must(err)
		}},
		{"a cancelled client cancels its request", func(s *env) {
			asked := ruletest.NewRecorder()
			ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
			defer cancel()
			_, err := s.client.Call(ctx, mainloop.NewRequest("tea?"))
			s.Is(err, context.DeadlineExceeded)
			s.start(shout(asked), options{})
			s.stats(mailbox.Stats{})
			ruletest.Equal(s, "times the model was asked", asked.Count(), 0)
		}},
	})
}

func TestLOOP1DeadlinesAndBudgetsAreFinal(t *testing.T) {
	final := worker.Options[request]{DeadLetters: &policy{}}
	slow := mainloop.AdapterFunc(func(ctx context.Context, _ *mainloop.Prompt) (response, error) {
		select {
		case <-time.After(time.Hour):
			return response{Text: "at last"}, nil
		case <-ctx.Done():
			return response{}, ctx.Err()
		}
	})
	within := func(s *env, d time.Duration) mainloop.Deadline {
		deadline, err := mainloop.DeadlineIn(d)
		s.Must(err)
		return deadline
	}
	runRule(t, "LOOP-1", []rule{
		{"a deadline ends the work", func(s *env) {
			s.start(slow, options{Worker: final})
			r := mainloop.NewRequest("tea?")
			r.Deadline = within(s, 10*time.Minute)
			_, err := s.call(r)
			s.failure(err, mainloop.ErrDeadline, "deadline passed")
			ruletest.Equal(s, "time", time.Since(s.Began), 10*time.Minute)
			s.stats(mailbox.Stats{Dead: 1})
		}},
		{"the deadline of the budget too", func(s *env) {
			s.start(slow, options{Worker: final})
			r := mainloop.NewRequest("tea?")
			r.Deadline, r.Budget.Deadline = within(s, 10*time.Minute), within(s, 5*time.Minute)
			_, err := s.call(r)
			s.failure(err, mainloop.ErrDeadline, "deadline passed")
			ruletest.Equal(s, "time", time.Since(s.Began), 5*time.Minute)
		}},
		{"no work starts after it", func(s *env) {
			asked := ruletest.NewRecorder()
			r := mainloop.NewRequest("tea?")
			r.Deadline = within(s, time.Minute)
			future, err := s.client.Send(s.Context(), r)
			s.Must(err)
			s.Pass(time.Minute)
			s.start(shout(asked), options{})
			got, err := future.Wait(s.Context())
			s.Must(err)
			s.failure(got.Err(), mainloop.ErrDeadline, "deadline passed")
			ruletest.Equal(s, "times the model was asked", asked.Count(), 0)
		}},
		{"a timeout of the worker is not final", func(s *env) {
			attempts := 0
			s.start(mainloop.AdapterFunc(func(ctx context.Context, p *mainloop.Prompt) (response, error) {
				if attempts++; attempts == 1 {
					return slow(ctx, p)
				}
				return response{Text: "fine"}, nil
			}), options{Worker: worker.Options[request]{DeadLetters: &policy{}, Timeout: time.Minute}})
			_, err := s.call(mainloop.NewRequest("tea?"))
			s.Must(err)
			ruletest.Equal(s, "time", time.Since(s.Began), 2*time.Minute)
		}},
		{"a used budget ends it, the request's first", func(s *env) {
			asked := ruletest.NewRecorder()
			s.start(shout(asked), options{Worker: final, Budget: mainloop.Budget{MaxInputTokens: 5}})
			_, err := s.call(mainloop.NewRequest("tea?"))
			s.failure(err, mainloop.ErrBudget, "budget exceeded: input tokens: 10 of 5")
			s.stats(mailbox.Stats{Dead: 1})
			r := mainloop.NewRequest("milk?")
			r.Budget = mainloop.Budget{MaxTotalTokens: 15}
			got, err := s.call(r)
			s.Must(err)
			ruletest.Equal(s, "output", got.Output, "MILK?")
			ruletest.Equal(s, "times the model was asked", asked.Count(), 2)
		}},
		{"an invalid budget is refused", func(s *env) {
			r := mainloop.NewRequest("tea?")
			r.Budget.MaxTotalTokens = -1
			s.start(shout(ruletest.NewRecorder()), options{})
			_, err := s.call(r)
			s.failure(err, mailbox.ErrInvalid, "MaxTotalTokens: -1 is negative")
		}},
	})
}

func TestInvalidOptionsAreNamed(t *testing.T) {
	runRule(t, "LOOP-1", []rule{{"an option that is wrong is named", func(s *env) {
		model := shout(ruletest.NewRecorder())
		for field, l := range map[string]*loop{
			"adapter":        mainloop.New[string, string](s.requests, nil, ask, nil),
			"prepare":        mainloop.New[string, string](s.requests, model, nil, nil),
			"MaxTurns":       mainloop.New(s.requests, model, ask, &options{MaxTurns: -1}),
			"MaxInputTokens": mainloop.New(s.requests, model, ask, &options{Budget: mainloop.Budget{MaxInputTokens: -1}}),
			"mailbox":        mainloop.New[string, string](nil, model, ask, nil),
		} {
			err := l.Run(s.Context())
			if e, ok := errors.AsType[*mailbox.Error](err); !ok || e.Code != mailbox.ErrInvalid || e.Field != field {
				s.Errorf("%s: %v", field, err)
			}
			if _, err := l.RunOnce(s.Context()); !errors.Is(err, mailbox.ErrInvalid) {
				s.Errorf("%s: %v", field, err)
			}
		}
	}}})
}
