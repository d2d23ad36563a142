package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

func TestPolicyLimitAppliesBeforeHandlerStarts(t *testing.T) {
	// crash delivers a message n times to workers that crash.
	crash := func(s *env, orders *inbox, n int) {
		for range n {
			crashes(s, orders)
			s.Pass(worker.DefaultVisibility)
		}
	}
	runRule(t, "DLQ-2", []rule{
		{"a message that crashes workers is dead-lettered", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			future := s.ask(orders, "bomb")
			crash(s, orders, 3)
			s.expectStats(orders, mailbox.Stats{Ready: 1})
			s.run(worker.New(orders, count(done), s.options(options{DeadLetters: &policy{MaxDeliveries: 3}})))
			_, err := future.Wait(s.Context())
			isFailure(s, err, "delivered too often")
			ruletest.Equal(s, "times the handler was started", done.Count(), 0)
			got := letters(s, deadletter.NewQueue(orders, nil))
			if len(got) != 1 || got[0].Reason != mailbox.ReasonMaxDeliveries || got[0].Deliveries != 4 {
				s.Errorf("the letters are %+v", got)
			}
		}},
		{"the last allowed delivery starts the handler", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			crash(s, orders, 2)
			s.run(worker.New(orders, count(done), s.options(options{DeadLetters: &policy{MaxDeliveries: 3}})))
			s.Pass(0)
			ruletest.Equal(s, "times the handler was started", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"without a limit the handler always starts", func(s *env) {
			s.Configure("orders", driver.Config{MaxDeliveries: driver.Off})
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			crash(s, orders, 7)
			s.run(worker.New(orders, count(done), s.options(options{DeadLetters: &policy{MaxDeliveries: -1}})))
			s.Pass(0)
			ruletest.Equal(s, "times the handler was started", done.Count(), 1)
		}},
		{"retries of Never errors do not count", func(s *env) {
			s.Configure("orders", driver.Config{MaxDeliveries: driver.Off})
			orders, tried := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			loop := worker.New(orders, fails(errMilk, tried), s.options(options{Backoff: worker.NoBackoff, DeadLetters: &policy{
				MaxDeliveries: 3, Never: []deadletter.Matcher{deadletter.Is(errMilk)},
			}}))
			for range 7 {
				_, err := loop.RunOnce(s.Context())
				s.Must(err)
			}
			ruletest.Equal(s, "times the handler was started", tried.Count(), 7)
			crash(s, orders, 3)
			_, err := loop.RunOnce(s.Context())
			s.Must(err)
			ruletest.Equal(s, "times the handler was started", tried.Count(), 7)
			s.expectStats(orders, mailbox.Stats{Dead: 1})
		}},
		{"Decide is called beyond the limit", func(s *env) {
			s.Configure("orders", driver.Config{MaxDeliveries: driver.Off})
			orders, asked, done := s.open("orders"), ruletest.NewRecorder(), ruletest.NewRecorder()
			s.send(orders, "tea")
			crash(s, orders, 5)
			p := &policy{Decide: func(_ context.Context, m *message, err error) bool {
				asked.Add(fmt.Sprint(m.Deliveries, errors.Is(err, worker.ErrDeliveries)))
				return m.Deliveries > 6
			}}
			loop := worker.New(orders, count(done), s.options(options{DeadLetters: p}))
			crashAgain := s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrNotFound})
			_, err := loop.RunOnce(s.Context())
			s.Must(err)
			crashAgain()
			s.Pass(worker.DefaultVisibility)
			_, err = worker.New(orders, count(done), s.options(options{DeadLetters: p})).RunOnce(s.Context())
			s.Must(err)
			if got := asked.List(); !slices.Equal(got, []string{"6 true", "7 true"}) {
				s.Errorf("the policy was asked about %v", got)
			}
			ruletest.Equal(s, "times the handler was started", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{Dead: 1})
		}},
	})
}
