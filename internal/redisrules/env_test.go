package redisrules_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Short names for the types of the cases.
type (
	box        = mailbox.Mailbox[string]
	message    = mailbox.Message[string]
	options    = worker.Options[string]
	deadLetter = deadletter.Message[string]
	policy     = deadletter.Policy[string]
)

var errMilk = errors.New("no milk")

// short is a visibility that ends while a case waits for it.
const short = 300 * time.Millisecond

// A rule is a rule of docs/semantics.md and its cases.
type rule struct {
	id    string
	cases []ruleCase
}

type ruleCase struct {
	name string
	run  func(s *env)
}

// rules returns all rules with cases here.
func rules() []rule { return slices.Concat(loopRules(), deadLetterRules(), flowRules()) }

func TestWorkerRulesHoldOnRedis(t *testing.T) {
	client, err := rueidis.NewClient(redistest.SharedServer(t).ClientOption())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close) // after the parallel cases
	redis := ruletest.Opener{Name: "redis", Open: func(t *testing.T, _ string) ruletest.Backend {
		backend, err := redisbox.Open(t.Context(), client, &redisbox.Options{Prefix: redistest.Prefix(t)})
		if err != nil {
			t.Fatal(err)
		}
		return backend
	}}
	for _, rule := range rules() {
		var cases []ruletest.Case
		for _, c := range rule.cases {
			cases = append(cases, ruletest.Case{Name: c.name, Run: func(s *ruletest.Env) { c.run(newEnv(s)) }})
		}
		ruletest.RunLive(t, redis, rule.id, cases)
	}
}

func TestEveryWorkerRuleHasRedisCase(t *testing.T) {
	document, err := os.ReadFile("../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	titles := regexp.MustCompile(`(?m)^### ((?:LOOP|DLQ)-\d+|FLOW-7) `).FindAllStringSubmatch(string(document), -1)
	if len(titles) < 15 {
		t.Errorf("the document has %d rules of workers and dead letters, fewer than there were", len(titles))
	}
	for _, title := range titles {
		if !slices.ContainsFunc(rules(), func(r rule) bool { return r.id == title[1] && len(r.cases) > 0 }) {
			t.Errorf("%s has no case", title[1])
		}
	}
}

// An env is the environment of a case: a backend with faults, replies and a resolver.
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

// open opens a queue with a reply store and a resolver.
func (s *env) open(name string) *box { return open[string](s, name, nil, mailbox.Hooks{}) }

// openTraced opens a queue with hooks.
func (s *env) openTraced(name string, trace mailbox.Hooks) *box {
	return open[string](s, name, nil, trace)
}

// openDeadLetters opens a queue of dead letters.
func (s *env) openDeadLetters(name string) *mailbox.Mailbox[deadLetter] {
	return open(s, name, deadletter.Codec[string](nil), mailbox.Hooks{})
}

func open[T any](s *env, name string, codec mailbox.Codec[T], trace mailbox.Hooks) *mailbox.Mailbox[T] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, name, &mailbox.Options[T]{
		Codec: codec, Replies: s.Faults.Replies(s.replies), Resolver: s.resolver, Hooks: trace, Logger: s.Logs.Logger(),
	})
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// send sends bodies and returns the ids.
func (s *env) send(m *box, bodies ...string) []string {
	s.Helper()
	sent, err := m.SendAll(s.Context(), bodies)
	s.Must(err)
	ids := make([]string, len(sent))
	for i := range sent {
		ids[i] = sent[i].ID
	}
	return ids
}

// ask sends a request that wants an answer.
func (s *env) ask(m *box, body string) *reply.Future[string] {
	s.Helper()
	future, err := reply.NewClient[string, string](m, s.replies, nil).Send(s.Context(), body)
	s.Must(err)
	return future
}

// options adds to o the options of all loops in an env. Failures come back soon unless o
// says otherwise, and crashed workers are noticed soon.
func (s *env) options(o options) *options {
	o.Logger = s.Logs.Logger()
	if o.Backoff == nil {
		o.Backoff = worker.LinearBackoff(10*time.Millisecond, 10*time.Millisecond)
	}
	return &o
}

// run calls Run until the returned function is called, which returns the error of Run.
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
	s.Cleanup(func() { _ = stop() }) // callers that want the error call stop
	return stop
}

// countable is a mailbox of any type.
type countable interface {
	Name() string
	Stats(ctx context.Context) (mailbox.Stats, error)
}

// expectStats waits until a queue has these stats.
func (s *env) expectStats(m countable, want mailbox.Stats) {
	s.Helper()
	var last mailbox.Stats
	defer func() {
		if s.Failed() {
			s.Logf("%s holds %+v, want %+v", m.Name(), last, want)
		}
	}()
	s.Eventually(m.Name()+" to have the expected stats", func() bool {
		got, err := m.Stats(s.Context())
		s.Must(err)
		last = got
		return got == want
	})
}

// listDead returns the dead letters of a queue.
func (s *env) listDead(from *deadletter.Queue[string]) []deadLetter {
	s.Helper()
	var all []deadLetter
	for dead, err := range from.List(s.Context()) {
		s.Must(err)
		all = append(all, dead)
	}
	return all
}

// expectCount waits until a recorder has this many records.
func (s *env) expectCount(what *ruletest.Recorder, times int) {
	s.Helper()
	s.Eventually("enough to happen", func() bool { return what.Count() >= times })
	ruletest.Equal(s, "times it happened", what.Count(), times)
}

// count is a handler that takes no time.
func count(done *ruletest.Recorder) worker.Handler[string] {
	return func(_ context.Context, m *message) error {
		done.Add(m.Body)
		return nil
	}
}

// fails is a handler that always fails with err.
func fails(err error, tried *ruletest.Recorder) worker.Handler[string] {
	return func(_ context.Context, m *message) error {
		tried.Add(m.Body)
		return err
	}
}
