package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/ruletest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// The short names of what the cases are about.
type (
	box     = mailbox.Mailbox[string]
	message = mailbox.Message[string]
	options = worker.Options[string]
	letter  = deadletter.Letter[string]
)

var errMilk = errors.New("no milk")

// A rule is a case of one rule of docs/semantics.md.
type rule struct {
	name string
	play func(s *stage)
}

// play plays the cases of a rule on every backend.
func play(t *testing.T, id string, rules []rule) {
	cases := make([]ruletest.Case, len(rules))
	for i, rule := range rules {
		cases[i] = ruletest.Case{Name: rule.name, Play: func(s *ruletest.Stage) { rule.play(newStage(s)) }}
	}
	ruletest.Play(t, id, cases)
}

// A stage is what a case is played on.
type stage struct {
	*ruletest.Stage
	replies  *reply.Memory
	resolver *mailbox.Registry
}

func newStage(on *ruletest.Stage) *stage {
	s := &stage{Stage: on, replies: reply.NewMemory(nil)}
	s.resolver = mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: s.Faults})
	s.Cleanup(func() { s.resolver.Close() })
	return s
}

// inMemory is for cases that are about no rule.
func inMemory(t *testing.T, play func(s *stage)) {
	synctest.Test(t, func(t *testing.T) { play(newStage(ruletest.NewStage(t, membox.New(nil)))) })
}

// open opens a mailbox that knows where replies go.
func (s *stage) open(name string) *box { return s.openTraced(name, nil) }

func (s *stage) openTraced(name string, trace *mailbox.Hooks) *box {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, name, &mailbox.Options[string]{
		Replies: s.Faults.Replies(s.replies), Resolver: s.resolver, Hooks: trace, Logger: s.Journal.Logger(),
	})
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// openLetters opens a mailbox of dead letters.
func (s *stage) openLetters(name string, trace *mailbox.Hooks) *mailbox.Mailbox[letter] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, name, &mailbox.Options[letter]{Codec: deadletter.Codec[string](nil), Hooks: trace})
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// send sends bodies and returns the ids.
func (s *stage) send(m *box, bodies ...string) []string {
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
func (s *stage) ask(m *box, body string) *reply.Future[string] {
	s.Helper()
	client := reply.NewClient[string, string](m, s.replies, &reply.Options[string]{TTL: 24 * time.Hour})
	future, err := client.Send(s.Context(), body)
	s.Must(err)
	return future
}

// unanswered checks that nobody has answered a request.
func (s *stage) unanswered(future *reply.Future[string]) {
	s.Helper()
	if answer, ready, err := future.Poll(s.Context()); ready || err != nil {
		s.Errorf("the request is answered with %q, %v", answer, err)
	}
}

// options adds to o what all loops of a stage have.
func (s *stage) options(o options) *options {
	o.Logger = s.Journal.Logger()
	return &o
}

// run runs a loop, or anything else, until the function that it returns is
// called, which returns what Run did.
func (s *stage) run(member interface{ Run(context.Context) error }) (stop func() error) {
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
	s.Cleanup(func() { _ = stop() }) // what it returns is for who calls it
	return stop
}

func (s *stage) stats(m *box, want mailbox.Stats) {
	s.Helper()
	got, err := m.Stats(s.Context())
	s.Must(err)
	if got != want {
		s.Errorf("after %v there are %+v, want %+v", time.Since(s.Began), got, want)
	}
}
