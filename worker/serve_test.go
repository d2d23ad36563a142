package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

// shout returns a handler that answers in upper case and counts.
func shout(done *ruletest.Recorder) worker.Handler[string] {
	return worker.Serve(func(_ context.Context, request *message) (string, error) {
		done.Add(request.Body)
		return strings.ToUpper(request.Body), nil
	}, nil)
}

func TestRepliesComeBeforeAcks(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"the reply is sent before the ack", func(s *env) {
			steps := ruletest.NewRecorder()
			requests := s.openHooked("requests", mailbox.Hooks{
				Replied: func(_ context.Context, event mailbox.RepliedEvent) { steps.Add("reply") },
				Settled: func(_ context.Context, event mailbox.SettledEvent) { steps.Add(string(event.Outcome)) },
			})
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, shout(steps), s.options(options{})))
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "TEA")
			s.Pass(0)
			if got := steps.List(); !slices.Equal(got, []string{"tea", "reply", "ack"}) {
				s.Errorf("the steps were %v", got)
			}
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"a mailbox gets the reply before the ack too", func(s *env) {
			steps := ruletest.NewRecorder()
			requests := s.openHooked("requests", mailbox.Hooks{
				Replied: func(_ context.Context, event mailbox.RepliedEvent) { steps.Add("reply") },
				Settled: func(_ context.Context, event mailbox.SettledEvent) { steps.Add(string(event.Outcome)) },
			})
			_, err := requests.Send(s.Context(), "tea", mailbox.WithReplyTo("answers"))
			s.Must(err)
			s.run(worker.New(requests, shout(steps), s.options(options{})))
			answers := s.open("answers")
			got, err := answers.Receive(s.Context(), mailbox.WithWait(time.Minute))
			s.Must(err)
			ruletest.Equal(s, "answer", got[0].Body, "TEA")
			s.Pass(0)
			if got := steps.List(); !slices.Equal(got, []string{"tea", "reply", "ack"}) {
				s.Errorf("the steps were %v", got)
			}
		}},
		{"answers without an address go to To", func(s *env) {
			requests, all, done := s.open("requests"), s.open("answers"), ruletest.NewRecorder()
			first := s.send(requests, "tea")[0]
			_, err := requests.Send(s.Context(), "milk", mailbox.WithCorrelationID("c-7"))
			s.Must(err)
			future := s.ask(requests, "sugar") // has a reply address
			s.Faults.Add(mailboxtest.Fault{Op: "send", Queue: "answers", Err: mailbox.ErrUnavailable, Late: true, Times: 3})
			serve := worker.Serve(func(_ context.Context, m *message) (string, error) {
				done.Add(m.Body)
				return strings.ToUpper(m.Body), nil
			}, &worker.ServeOptions[string]{To: all})
			s.run(worker.New(requests, serve, s.options(options{})))
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "SUGAR")
			s.Pass(0)
			s.expectStats(requests, mailbox.Stats{})
			got, err := all.Receive(s.Context(), mailbox.WithMax(10))
			s.Must(err)
			if len(got) != 2 || got[0].Body != "TEA" || got[0].CorrelationID != first || got[1].Body != "MILK" || got[1].CorrelationID != "c-7" {
				s.Errorf("the answers are %v", got)
			}
			ruletest.Equal(s, "times work was done", done.Count(), 3)
		}},
		{"a failed reply is repeated, not the work", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable, Times: 4})
			s.run(worker.New(requests, shout(done), s.options(options{})))
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "TEA")
			s.Pass(0)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			ruletest.Equal(s, "attempts at the reply", s.Faults.Calls("resolve"), 5)
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"an unsent reply is kept for the next delivery", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			remove := s.Faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable})
			s.run(worker.New(requests, shout(done), s.options(options{})))
			s.At(90 * time.Second) // a minute of trying, then a minute of backoff
			s.expectStats(requests, mailbox.Stats{Delayed: 1})
			s.expectUnanswered(future)
			remove()
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "TEA")
			s.Pass(0)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			s.expectStats(requests, mailbox.Stats{})
		}},
	})
}

func TestSuccessfulWorkIsNotRepeated(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"a failed ack is repeated, not the work", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "milk")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Times: 6})
			s.run(worker.New(orders, shout(done), s.options(options{})))
			s.Pass(time.Minute)
			ruletest.Equal(s, "times work was done", done.Count(), 2)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"an ack whose answer is lost is an ack", func(s *env) {
			orders, done, results := s.open("orders"), ruletest.NewRecorder(), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Late: true, Times: 1})
			s.run(worker.New(orders, count(done), s.options(options{Hooks: worker.Hooks{
				Settled: func(_ context.Context, event worker.SettledEvent) { results.Add(string(event.Result)) },
			}})))
			s.Pass(time.Hour)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			if got := results.List(); !slices.Equal(got, []string{string(worker.ResultAcked)}) {
				s.Errorf("the results were %v", got)
			}
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"handled before an outage, acked after it", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			down := s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable})
			deaf := s.Faults.Add(mailboxtest.Fault{Op: "extend", Err: mailbox.ErrUnavailable})
			s.run(worker.New(orders, shout(done), s.options(options{})))
			s.At(5 * time.Minute) // ten times the visibility
			down()
			deaf()
			s.Pass(time.Minute)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"handled when its receipt had expired, acked when redelivered", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrReceiptExpired, Times: 1})
			s.run(worker.New(orders, shout(done), s.options(options{})))
			s.Pass(5 * time.Minute)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"handled after the lease was lost, acked when redelivered", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.run(worker.New(orders, func(ctx context.Context, m *message) error {
				done.Add(m.Body)
				s.Must(s.Faults.Expire(ctx, "orders", m.Receipt))
				<-ctx.Done()
				return nil
			}, s.options(options{})))
			s.Pass(time.Minute)
			ruletest.Equal(s, "times the work was done", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
	})
}

func TestUnsentAnswerIsNotReplacedByError(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"a request that was answered before is acked and not served", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			taken, err := requests.Receive(s.Context(), mailbox.WithVisibility(time.Minute))
			s.Must(err)
			s.Must(mailbox.NewReplyChannel[string](taken[0], nil).Send(s.Context(), "COFFEE")) // then crashes
			s.run(worker.New(requests, shout(done), s.options(options{})))
			s.Pass(2 * time.Minute)
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "COFFEE")
			ruletest.Equal(s, "times the work was done", done.Count(), 0)
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"a handler without an answer is retried", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, func(_ context.Context, m *message) error {
				done.Add(m.Body)
				if m.Deliveries == 1 {
					return nil
				}
				return mailbox.NewReplyChannel[string](m, nil).Send(s.Context(), "at last")
			}, s.options(options{})))
			s.At(30 * time.Second)
			s.expectStats(requests, mailbox.Stats{Delayed: 1})
			s.expectUnanswered(future)
			answer, err := future.Wait(s.Context())
			s.Must(err)
			ruletest.Equal(s, "answer", answer, "at last")
			s.Pass(0)
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"a message settled by its handler", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			s.run(worker.New(orders, func(ctx context.Context, m *message) error {
				done.Add(m.Body)
				if m.Deliveries == 1 {
					return m.Nack(ctx, time.Hour, errMilk)
				}
				return nil
			}, s.options(options{})))
			s.At(59 * time.Minute)
			s.expectStats(orders, mailbox.Stats{Delayed: 1})
			s.At(61 * time.Minute)
			ruletest.Equal(s, "times the work was done", done.Count(), 2)
			s.expectStats(orders, mailbox.Stats{})
		}},
	})
}
