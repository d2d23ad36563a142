package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
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
