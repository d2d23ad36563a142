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
	"github.com/mailboxmq/mailbox/internal/redistest"
	"github.com/mailboxmq/mailbox/internal/ruletest"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// The short names of what the cases are about.
type (
	box     = mailbox.Mailbox[string]
	message = mailbox.Message[string]
	options = worker.Options[string]
	letter  = deadletter.Message[string]
	policy  = deadletter.Policy[string]
)

var errMilk = errors.New("no milk")

// short is a visibility that ends while a case waits for it.
const short = 300 * time.Millisecond

// A rule is a rule of docs/semantics.md and its cases.
type rule struct {
	id    string
	cases []playable
}

type playable struct {
	name string
	run  func(s *env)
}

// rules are all that are shown here.
func rules() []rule { return slices.Concat(loopRules(), deadLetterRules()) }

func TestWorkerRulesHoldOnRedis(t *testing.T) {
	client, err := rueidis.NewClient(redistest.SharedServer(t).ClientOption())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close) // when the cases have ended, which are parallel
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
	titles := regexp.MustCompile(`(?m)^### ((?:LOOP|DLQ)-\d+) `).FindAllStringSubmatch(string(document), -1)
	if len(titles) < 15 {
		t.Errorf("the document has %d rules of workers and dead letters, fewer than there were", len(titles))
	}
	for _, title := range titles {
		if !slices.ContainsFunc(rules(), func(r rule) bool { return r.id == title[1] && len(r.cases) > 0 }) {
			t.Errorf("%s has no case", title[1])
		}
	}
}

// A stage is what a case is played on.
type env struct {
	*ruletest.Env
	replies  *reply.Memory
	resolver *mailbox.Registry
}

func newEnv(on *ruletest.Env) *env {
	s := &env{Env: on, replies: reply.NewMemory(nil)}
	s.resolver = mailbox.NewRegistry(&mailbox.RegistryOptions{Fallback: s.Faults})
	s.Cleanup(func() { s.resolver.Close() })
	return s
}

// open opens a mailbox that knows where replies go.
func (s *env) open(name string) *box { return open[string](s, name, nil, nil) }

// openTraced opens one that tells what it does.
func (s *env) openTraced(name string, trace *mailbox.Hooks) *box {
	return open[string](s, name, nil, trace)
}

// openLetters opens a mailbox of dead letters.
func (s *env) openLetters(name string) *mailbox.Mailbox[letter] {
	return open(s, name, deadletter.Codec[string](nil), nil)
}

func open[T any](s *env, name string, codec mailbox.Codec[T], trace *mailbox.Hooks) *mailbox.Mailbox[T] {
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

// options adds to o what all loops of a stage have. Failures come back soon unless
// o says otherwise, and crashed workers are noticed soon.
func (s *env) options(o options) *options {
	o.Logger = s.Logs.Logger()
	if o.Backoff == nil {
		o.Backoff = worker.LinearBackoff(10*time.Millisecond, 10*time.Millisecond)
	}
	return &o
}

// run runs a loop, or anything else, until the function that it returns is called,
// which returns what Run did.
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
	s.Cleanup(func() { _ = stop() }) // what it returns is for who calls it
	return stop
}

// countable is a mailbox of any type.
type countable interface {
	Name() string
	Stats(ctx context.Context) (mailbox.Stats, error)
}

// counts waits until a mailbox holds this.
func (s *env) counts(m countable, want mailbox.Stats) {
	s.Helper()
	var last mailbox.Stats
	defer func() {
		if s.Failed() {
			s.Logf("%s holds %+v, want %+v", m.Name(), last, want)
		}
	}()
	s.Eventually(m.Name()+" to hold what it should", func() bool {
		got, err := m.Stats(s.Context())
		s.Must(err)
		last = got
		return got == want
	})
}

// letters returns what is in a box of dead letters.
func (s *env) letters(from *deadletter.Queue[string]) []letter {
	s.Helper()
	var all []letter
	for letter, err := range from.List(s.Context()) {
		s.Must(err)
		all = append(all, letter)
	}
	return all
}

// happened waits until so much was taken down.
func (s *env) happened(what *ruletest.Recorder, times int) {
	s.Helper()
	s.Eventually("enough to happen", func() bool { return what.Count() >= times })
	ruletest.Equal(s, "times it happened", what.Count(), times)
}

// count is work that takes no time.
func count(done *ruletest.Recorder) worker.Handler[string] {
	return func(_ context.Context, m *message) error {
		done.Add(m.Body)
		return nil
	}
}

// fails is work that always fails with err.
func fails(err error, tried *ruletest.Recorder) worker.Handler[string] {
	return func(_ context.Context, m *message) error {
		tried.Add(m.Body)
		return err
	}
}
