package mainloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names for the types of the cases: agents that answer text with text.
type (
	request  = mainloop.Request[string]
	result   = mainloop.Result[string]
	options  = mainloop.Options[string, string]
	policy   = deadletter.Policy[request]
	loop     = mainloop.MainLoop[string, string]
	run      = mainloop.Run[string]
	response = mainloop.Response
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

// An env is what a case runs in: a mailbox of requests, and a client.
type env struct {
	*ruletest.Env
	replies  driver.ReplyStore
	requests *mailbox.Mailbox[request]
	client   *mainloop.Client[string, string]
}

func newEnv(on *ruletest.Env) *env {
	s := &env{Env: on, replies: reply.NewMemory(nil)}
	resolver := registry.New(&registry.Options{Fallback: s.Faults})
	s.Cleanup(func() { resolver.Close() })
	var err error
	s.requests, err = mailbox.Open(s.Context(), s.Faults, "requests", &mailbox.Options[request]{
		Replies: s.Faults.Replies(s.replies), Resolver: resolver,
	})
	s.Must(err)
	s.client = mainloop.NewClient[string, string](s.requests, s.replies, nil)
	return s
}

// start runs a loop until the case ends.
func (s *env) start(model mainloop.Adapter, o options) *loop { return s.startWith(model, ask, o) }

// startWith runs a loop with a Prepare function until the case ends.
func (s *env) startWith(model mainloop.Adapter, prepare mainloop.Prepare[string], o options) *loop {
	o.Worker.Logger = s.Logs.Logger()
	l := mainloop.New(s.requests, model, prepare, &o)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	return l
}

// call sends a request and waits for its result, for up to a day.
func (s *env) call(r request) (result, error) {
	ctx, cancel := context.WithTimeout(s.Context(), 24*time.Hour)
	defer cancel()
	return s.client.Call(ctx, r)
}

func (s *env) stats(want mailbox.Stats) {
	s.Helper()
	s.Pass(0)
	got, err := s.requests.Stats(s.Context())
	s.Must(err)
	ruletest.Equal(s, "requests", got, want)
}

// failure checks the error of a result.
func (s *env) failure(err error, kind error, text string) {
	s.Helper()
	failure, ok := errors.AsType[*mailbox.Failure](err)
	if !ok || !strings.Contains(failure.Text, text) || kind != nil && failure.Kind != mailbox.FailureKind(kind.Error()) {
		s.Errorf("the error is %q, want %q with %q", err, kind, text)
	}
}

// ask makes a prompt from the body.
func ask(_ context.Context, run *run) (*mainloop.Prompt, error) {
	return mainloop.Ask(run.Request.Body), nil
}

// shout is a model that answers in upper case and counts its calls.
func shout(asked *ruletest.Recorder) mainloop.Adapter {
	return mainloop.AdapterFunc(func(_ context.Context, prompt *mainloop.Prompt) (response, error) {
		question := prompt.Turns[len(prompt.Turns)-1].Text
		asked.Add(question)
		return response{Text: strings.ToUpper(question), Usage: mainloop.Usage{InputTokens: 10, OutputTokens: 5}}, nil
	})
}

// broken is a model that always fails.
func broken(err error, asked *ruletest.Recorder) mainloop.Adapter {
	return mainloop.AdapterFunc(func(_ context.Context, prompt *mainloop.Prompt) (response, error) {
		asked.Add(prompt.Turns[0].Text)
		return response{}, err
	})
}

// toolModel calls tools, one after the other, and then answers with the last result.
func toolModel(calls ...mainloop.ToolCall) mainloop.Adapter {
	return mainloop.AdapterFunc(func(_ context.Context, prompt *mainloop.Prompt) (response, error) {
		used := 0
		for _, turn := range prompt.Turns {
			if turn.Role == mainloop.RoleTool {
				used++
			}
		}
		usage := mainloop.Usage{InputTokens: 100, OutputTokens: 20}
		if used < len(calls) {
			return response{ToolCalls: calls[used : used+1], Usage: usage}, nil
		}
		return response{Text: prompt.Turns[len(prompt.Turns)-1].Text, Usage: usage}, nil
	})
}

// weather is a tool.
var weather = mainloop.Tool{
	Name: "weather",
	Call: func(_ context.Context, arguments json.RawMessage) (string, error) {
		if strings.Contains(string(arguments), "atlantis") {
			return "", errors.New("it is under water")
		}
		return "rain in " + string(arguments), nil
	},
}
