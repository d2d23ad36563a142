package deadletter_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/reply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names for the types of the cases.
type (
	message = mailbox.Message[string]
	letter  = deadletter.Message[string]
	filter  = deadletter.Filter[string]
)

var errMilk = errors.New("no milk")

// A rule is a case of one rule of docs/semantics.md. It runs with dead letters that
// the backend keeps and with dead letters in a mailbox.
type rule struct {
	name string
	run  func(s *env)
}

// runRule runs the cases of a rule on every backend.
func runRule(t *testing.T, id string, rules []rule) {
	var cases []ruletest.Case
	for _, rule := range rules {
		cases = append(cases,
			ruletest.Case{Name: rule.name + "/kept", Run: func(s *ruletest.Env) { rule.run(newEnv(s, true)) }},
			ruletest.Case{Name: rule.name + "/sent", Run: func(s *ruletest.Env) { rule.run(newEnv(s, false)) }})
	}
	ruletest.Run(t, id, cases)
}

// An env is what a case runs in: a mailbox of orders and its dead-letter queue.
type env struct {
	*ruletest.Env
	orders  *mailbox.Mailbox[string]
	letters *mailbox.Mailbox[letter] // nil if the backend keeps them
	dead    *deadletter.Queue[string]
}

func newEnv(on *ruletest.Env, kept bool) *env {
	s := &env{Env: on}
	var err error
	s.orders, err = mailbox.Open(s.Context(), s.Faults, "orders", &mailbox.Options[string]{Replies: reply.NewMemory(nil)})
	s.Must(err)
	if !kept {
		s.Configure("dead", driver.Config{MaxDeliveries: driver.Off})
		s.letters, err = mailbox.Open(s.Context(), s.Faults, "dead", &mailbox.Options[letter]{Codec: deadletter.Codec[string](nil)})
		s.Must(err)
	}
	s.dead = deadletter.NewQueue(s.orders, s.letters)
	return s
}

// deadLetter sends bodies, dead-letters them, and returns their ids.
func (s *env) deadLetter(bodies ...string) []string {
	s.Helper()
	var ids []string
	for _, body := range bodies {
		_, err := s.orders.Send(s.Context(), body, mailbox.WithAttribute("kind", body), mailbox.WithCorrelationID("c-"+body))
		s.Must(err)
		m := s.take()
		_, err = s.dead.DeadLetter(s.Context(), m, mailbox.ReasonFatal, errMilk)
		s.Must(err)
		ids = append(ids, m.ID)
	}
	return ids
}

// take receives one order.
func (s *env) take() *message {
	s.Helper()
	got, err := s.orders.Receive(s.Context())
	s.Must(err)
	if len(got) != 1 {
		s.Fatal("there is no order")
	}
	return got[0]
}

// bodies returns the bodies of the dead letters.
func (s *env) bodies() []string {
	s.Helper()
	var all []string
	for letter, err := range s.dead.List(s.Context()) {
		s.Must(err)
		all = append(all, letter.Body)
	}
	return all
}

// expectDepth checks the number of dead letters.
func (s *env) expectDepth(want int) {
	s.Helper()
	got, err := s.dead.Depth(s.Context())
	s.Must(err)
	ruletest.Equal(s, "depth", got, want)
}

// expectReady checks the number of ready orders.
func (s *env) expectReady(want int) {
	s.Helper()
	stats, err := s.orders.Stats(s.Context())
	s.Must(err)
	ruletest.Equal(s, "orders that are ready", stats.Ready, want)
}

// run runs a consumer until stop is called.
func (s *env) run(c *deadletter.Consumer[string]) (stop func() error) {
	ctx, cancel := context.WithCancel(s.Context())
	var result error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result = c.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return result
	}
	s.Cleanup(func() { _ = stop() }) // cases that care call stop themselves
	return stop
}
