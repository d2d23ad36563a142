package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// untilEnded records why the context of a handler ended.
func untilEnded(done *ruletest.Recorder) func(context.Context, *message) (string, error) {
	return func(ctx context.Context, m *message) (string, error) {
		done.Add("began")
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), mailbox.ErrReplyCancelled) {
			done.Add("cancelled")
		}
		return "", ctx.Err()
	}
}

func TestRPL6CancelEndsTheContextOfAWorker(t *testing.T) {
	cancelAfter := 10 * time.Second
	expectCancelled := func(s *env, requests *inbox, done *ruletest.Recorder) {
		s.Helper()
		s.At(cancelAfter + 5*time.Second)
		ruletest.Equal(s, "events", done.Count(), 2)
		ruletest.Equal(s, "cause", done.List()[1], "cancelled")
		s.expectStats(requests, mailbox.Stats{})
	}
	runRule(t, "RPL-6", []rule{
		{"of Serve, and the request is acked", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			s.run(worker.New(requests, worker.Serve(untilEnded(done), nil), s.options(options{})))
			s.At(cancelAfter)
			s.Must(future.Cancel(s.Context()))
			expectCancelled(s, requests, done)
		}},
		{"of any handler, also with a policy and a timeout", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			future := s.ask(requests, "tea")
			serve := untilEnded(done)
			s.run(worker.New(requests, func(ctx context.Context, m *message) error {
				_, err := serve(ctx, m)
				return err
			}, s.options(options{Timeout: time.Hour, DeadLetters: &deadletter.Policy[string]{}})))
			s.At(cancelAfter)
			s.Must(future.Cancel(s.Context()))
			expectCancelled(s, requests, done)
		}},
		{"of a batch, when all its requests are cancelled", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			first, second := s.ask(requests, "tea"), s.ask(requests, "milk")
			serve := untilEnded(done)
			s.run(worker.NewBatch(requests, func(ctx context.Context, batch []*message) error {
				_, err := serve(ctx, batch[0])
				return err
			}, s.batchOptions(batchOptions{Size: 2})))
			s.At(5 * time.Second)
			s.Must(first.Cancel(s.Context()))
			s.At(cancelAfter)
			ruletest.Equal(s, "events", done.Count(), 1)
			s.Must(second.Cancel(s.Context()))
			expectCancelled(s, requests, done)
		}},
		{"and a request that was cancelled before is not served", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			s.Must(s.ask(requests, "tea").Cancel(s.Context()))
			s.run(worker.New(requests, shout(done), s.options(options{})))
			s.Pass(time.Minute)
			ruletest.Equal(s, "times the work was done", done.Count(), 0)
			s.expectStats(requests, mailbox.Stats{})
		}},
		{"and not for other messages", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			other := s.ask(requests, "milk")
			slow := worker.Serve(func(ctx context.Context, m *message) (string, error) {
				if m.Body == "milk" {
					<-ctx.Done()
					return "", ctx.Err()
				}
				time.Sleep(time.Minute)
				done.Add(m.Body)
				return m.Body, ctx.Err()
			}, nil)
			s.send(requests, "tea")
			answer := s.ask(requests, "sugar")
			s.run(worker.New(requests, slow, s.options(options{Concurrency: 3})))
			s.At(cancelAfter)
			s.Must(other.Cancel(s.Context()))
			s.At(2 * time.Minute)
			ruletest.Equal(s, "finished", done.Count(), 2)
			got, ready, err := answer.Poll(s.Context())
			s.Must(err)
			ruletest.Equal(s, "ready", ready, true)
			ruletest.Equal(s, "answer", got, "sugar")
			s.expectStats(requests, mailbox.Stats{})
		}},
	})
}

// answer returns a handler that answers a request through its mailbox and counts.
func answer(done *ruletest.Recorder) worker.Handler[string] {
	return func(ctx context.Context, m *message) error {
		done.Add(m.Body)
		if !m.ExpectsReply() {
			return nil
		}
		return mailbox.Reply(ctx, m, "done")
	}
}

// loops returns a loop of each kind, whose handler answers and counts.
func (s *env) loops(requests *inbox, done *ruletest.Recorder) map[string]*worker.Loop[string] {
	each := answer(done)
	return map[string]*worker.Loop[string]{
		"plain": worker.New(requests, each, s.options(options{})),
		"Serve": worker.New(requests, shout(done), s.options(options{})),
		"batch": worker.NewBatch(requests, func(ctx context.Context, batch []*message) error {
			errs := make([]error, len(batch))
			for i, m := range batch {
				errs[i] = each(ctx, m)
			}
			return &mailbox.BatchError{Errs: errs}
		}, s.batchOptions(batchOptions{})),
	}
}

func TestRPL6CancelledRequestStartsNoHandler(t *testing.T) {
	var rules []rule
	for _, kind := range []string{"plain", "Serve", "batch"} {
		rules = append(rules, rule{kind + ": cancelled, expired and answered requests are acked, others served", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			s.Must(s.ask(requests, "cancelled").Cancel(s.Context()))
			short := reply.NewClient[string, string](requests, s.replies, &reply.Options[string]{TTL: time.Second})
			_, err := short.Send(s.Context(), "expired")
			s.Must(err)
			s.ask(requests, "answered")
			taken, err := requests.Receive(s.Context(), mailbox.WithMax(3), mailbox.WithVisibility(time.Second))
			s.Must(err)
			s.Must(mailbox.NewReplyChannel[string](taken[2], nil).Send(s.Context(), "by another")) // which then crashes
			s.Pass(2 * time.Second)
			open := s.ask(requests, "open")
			s.send(requests, "message")
			s.run(s.loops(requests, done)[kind])
			s.Pass(time.Minute)
			ruletest.Equal(s, "started", strings.Join(slices.Sorted(slices.Values(done.List())), " "), "message open")
			if _, ready, err := open.Poll(s.Context()); !ready || err != nil {
				s.Errorf("the open request is not answered: %v", err)
			}
			s.expectStats(requests, mailbox.Stats{})
		}})
	}
	runRule(t, "RPL-6", rules)
}

func TestRPL6UnreadableSlotStartsNoHandler(t *testing.T) {
	var rules []rule
	for _, kind := range []string{"plain", "Serve", "batch"} {
		rules = append(rules, rule{kind + ": while the slot cannot be read, the request comes back", func(s *env) {
			requests, done := s.open("requests"), ruletest.NewRecorder()
			cancelled, open := s.ask(requests, "cancelled"), s.ask(requests, "open")
			s.Must(cancelled.Cancel(s.Context()))
			up := s.Faults.Add(mailboxtest.Fault{Op: "get", Err: mailbox.ErrUnavailable})
			s.run(s.loops(requests, done)[kind])
			s.Pass(time.Second)
			ruletest.Equal(s, "started while the store fails", done.Count(), 0)
			s.expectStats(requests, mailbox.Stats{Delayed: 2})
			up()
			s.Pass(10 * time.Minute)
			ruletest.Equal(s, "started", strings.Join(done.List(), " "), "open")
			if _, ready, err := open.Poll(s.Context()); !ready || err != nil {
				s.Errorf("the open request is not answered: %v", err)
			}
			s.expectStats(requests, mailbox.Stats{})
		}})
	}
	runRule(t, "RPL-6", rules)
}

func TestLookAtSlotCostsOneCallOfRequests(t *testing.T) {
	for _, kind := range []string{"plain", "Serve", "batch"} {
		t.Run(kind, func(t *testing.T) {
			inMemory(t, func(s *env) {
				requests, done := s.open("requests"), ruletest.NewRecorder()
				s.send(requests, "tea", "milk")
				_, err := requests.Send(s.Context(), "sugar", mailbox.WithReplyTo("answers"))
				s.Must(err)
				s.run(s.loops(requests, done)[kind])
				s.Pass(time.Minute)
				ruletest.Equal(s, "handled", done.Count(), 3)
				ruletest.Equal(s, "calls of the store for messages without a slot", s.Faults.Calls("get"), 0)
				s.ask(requests, "lemon")
				s.Pass(time.Minute)
				ruletest.Equal(s, "handled", done.Count(), 4)
				ruletest.Equal(s, "calls of the store for a request", s.Faults.Calls("get"), 1)
			})
		})
	}
}
