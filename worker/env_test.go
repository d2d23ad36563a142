package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// Short names for the types of the cases.
type (
	inbox   = mailbox.Mailbox[string]
	message = mailbox.Message[string]
	options = worker.Options[string]
	letter  = deadletter.Message[string]
)

var errMilk = errors.New("no milk")

// A rule is a case of one rule of docs/semantics.md.
type rule struct {
	name string
	run  func(s *env)
}

// runRule runs the cases of a rule on every backend.
func runRule(t *testing.T, id string, rules []rule) {
	cases := make([]ruletest.Case, len(rules))
	for i, rule := range rules {
		cases[i] = ruletest.Case{Name: rule.name, Run: func(s *ruletest.Env) { rule.run(newEnv(s)) }}
	}
	ruletest.Run(t, id, cases)
}

// An env is what a case runs in.
type env struct {
	*ruletest.Env
	replies  driver.ReplyStore
	resolver *registry.Registry
}

func newEnv(on *ruletest.Env) *env {
	s := &env{Env: on, replies: reply.NewMemory(nil)}
	s.resolver = registry.New(&registry.Options{Fallback: s.Faults})
	s.Cleanup(func() { s.resolver.Close() })
	return s
}

// inMemory runs a case that belongs to no rule, in memory.
func inMemory(t *testing.T, run func(s *env)) {
	synctest.Test(t, func(t *testing.T) { run(newEnv(ruletest.NewEnv(t, membox.New(nil)))) })
}

// open opens a mailbox with a reply store and a resolver.
func (s *env) open(name string) *inbox { return s.openHooked(name, mailbox.Hooks{}) }

func (s *env) openHooked(name string, hooks mailbox.Hooks) *inbox {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, name, &mailbox.Options[string]{
		Replies: s.Faults.Replies(s.replies), Resolver: s.resolver, Hooks: hooks, Logger: s.Logs.Logger(),
	})
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// openLetters opens a mailbox of dead letters.
func (s *env) openLetters(name string, hooks mailbox.Hooks) *mailbox.Mailbox[letter] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, name, &mailbox.Options[letter]{Codec: deadletter.Codec[string](nil), Hooks: hooks})
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// send sends bodies and returns the ids.
func (s *env) send(m *inbox, bodies ...string) []string {
	s.Helper()
	sent, err := m.SendAll(s.Context(), bodies)
	s.Must(err)
	ids := make([]string, len(sent))
	for i := range sent {
		ids[i] = sent[i].ID
	}
	return ids
}

// ask sends a request with a reply slot that lives for a day.
func (s *env) ask(m *inbox, body string) *reply.Future[string] {
	s.Helper()
	client := reply.NewClient[string, string](m, s.replies, &reply.Options[string]{TTL: 24 * time.Hour})
	future, err := client.Send(s.Context(), body)
	s.Must(err)
	return future
}

// expectUnanswered checks that a request has no answer.
func (s *env) expectUnanswered(future *reply.Future[string]) {
	s.Helper()
	if answer, ready, err := future.Poll(s.Context()); ready || err != nil {
		s.Errorf("the request is answered with %q, %v", answer, err)
	}
}

// options adds the logger to o.
func (s *env) options(o options) *options {
	o.Logger = s.Logs.Logger()
	return &o
}

// run runs a member until stop is called, which returns the result of Run.
func (s *env) run(member interface{ Run(context.Context) error }) (stop func() error) {
	ctx, cancel := context.WithCancel(s.Context())
	var result error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result = member.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return result
	}
	s.Cleanup(func() { _ = stop() }) // cases that care call stop themselves
	return stop
}

// expectStats checks the counts of a mailbox.
func (s *env) expectStats(m *inbox, want mailbox.Stats) {
	s.Helper()
	got, err := m.Stats(s.Context())
	s.Must(err)
	if got != want {
		s.Errorf("after %v there are %+v, want %+v", time.Since(s.Began), got, want)
	}
}
