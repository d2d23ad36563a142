package evalloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/evalloop"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names for the types of the cases: agents that answer text with text.
type (
	request = evalloop.Request[string, string]
	sample  = evalloop.Sample[string, string]
	dataset = evalloop.Dataset[string, string]
	trial   = evalloop.Trial[string, string]
	options = evalloop.Options[string, string]
	policy  = deadletter.Policy[request]
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

// An env is what a case runs in: a mailbox of requests and one of results.
type env struct {
	*ruletest.Env
	requests *mailbox.Mailbox[request]
	results  *mailbox.Mailbox[evalloop.Result]
}

func newEnv(on *ruletest.Env) *env {
	s := &env{Env: on}
	resolver := registry.New(&registry.Options{Fallback: s.Faults})
	s.Cleanup(func() { resolver.Close() })
	var err error
	s.requests, err = mailbox.Open(s.Context(), s.Faults, "requests", &mailbox.Options[request]{Resolver: resolver})
	s.Must(err)
	s.results, err = mailbox.Open[evalloop.Result](s.Context(), s.Faults, "results", nil)
	s.Must(err)
	return s
}

// start runs an eval loop until the case ends. The agent is shouter, and takes a
// second for each character.
func (s *env) start(o options) {
	o.Worker.Logger = s.Logs.Logger()
	if o.Results == nil {
		o.Results = s.results
	}
	l := evalloop.New(s.requests, shouter(), evalloop.ExactMatch[string](), &o)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
}

// shouter is an agent that answers in upper case, or in lower case if the experiment
// says so. It fails for "milk", and panics for "bomb".
func shouter() *mainloop.MainLoop[string, string] {
	model := mainloop.AdapterFunc(func(ctx context.Context, prompt *mainloop.Prompt) (mainloop.Response, error) {
		question := prompt.Turns[0].Text
		select {
		case <-time.After(time.Duration(len(question)) * time.Second):
		case <-ctx.Done():
			return mainloop.Response{}, ctx.Err()
		}
		switch question {
		case "milk":
			return mainloop.Response{}, errMilk
		case "bomb":
			panic("boom")
		case "weapons":
			return mainloop.Response{}, &mainloop.AdapterError{Code: mainloop.ErrPolicy}
		}
		if prompt.Model == "quiet" {
			return mainloop.Response{Text: question}, nil
		}
		return mainloop.Response{Text: strings.ToUpper(question), Usage: mainloop.Usage{InputTokens: 3, OutputTokens: 2}}, nil
	})
	return mainloop.New(nil, model, func(_ context.Context, run *mainloop.Run[string]) (*mainloop.Prompt, error) {
		prompt := mainloop.Ask(run.Request.Body)
		prompt.Model, _ = run.Request.Experiment.Flag("model")
		return prompt, nil
	}, (*mainloop.Options[string, string])(nil))
}

// drinks returns a dataset of n words that are expected in upper case.
func drinks(s *env, words ...string) *dataset {
	s.Helper()
	var samples []sample
	for i, word := range words {
		samples = append(samples, sample{ID: fmt.Sprintf("%s-%d", word, i), Input: word, Expected: strings.ToUpper(word)})
	}
	d, err := evalloop.NewDataset(samples...)
	s.Must(err)
	return d
}

// evaluate submits a dataset and collects the report.
func (s *env) evaluate(submission evalloop.Submission[string, string]) *evalloop.Report {
	s.Helper()
	sent, err := evalloop.Submit(s.Context(), s.requests, submission)
	s.Must(err)
	report, err := evalloop.Collect(s.Context(), s.results, sent, &evalloop.CollectOptions{Timeout: -1})
	s.Must(err)
	return report
}

func TestLOOP2DatasetsAreScored(t *testing.T) {
	quiet := mainloop.Experiment{Name: "quiet"}.WithFlag("model", "quiet")
	runRule(t, "LOOP-2", []rule{
		{"every sample in every experiment has one result", func(s *env) {
			s.start(options{Worker: worker.Options[request]{Concurrency: 4}})
			report := s.evaluate(evalloop.Submission[string, string]{
				Dataset: drinks(s, "tea", "cocoa", "TEA"), Experiments: []mainloop.Experiment{mainloop.Baseline(), quiet},
			})
			ruletest.Equal(s, "results", len(report.Results), 6)
			experiments := report.Experiments()
			if len(experiments) != 2 || experiments[0].Experiment != "baseline" || experiments[0].PassRate != 1 || experiments[1].PassRate != 1.0/3 ||
				experiments[0].Usage.TotalTokens() != 15 || experiments[0].MeanLatencyMS < 3666 || experiments[0].MeanLatencyMS > 3667 {
				s.Errorf("the experiments are %+v", experiments)
			}
			compared, ok := report.Compare("baseline", "quiet")
			if !ok || !slices.Equal(compared.Broken, []string{"cocoa-1", "tea-0"}) || compared.Fixed != nil {
				s.Errorf("the comparison is %+v", compared)
			}
			for _, m := range []interface {
				Stats(context.Context) (mailbox.Stats, error)
			}{s.requests, s.results} {
				s.Pass(0)
				stats, err := m.Stats(s.Context())
				s.Must(err)
				ruletest.Equal(s, "left", stats, mailbox.Stats{})
			}
		}},
		{"without a policy a failed sample is an error result", func(s *env) {
			s.start(options{Worker: worker.Options[request]{Concurrency: 4}})
			report := s.evaluate(evalloop.Submission[string, string]{Dataset: drinks(s, "tea", "milk", "bomb")})
			summary := report.Summary()
			if summary.Total != 3 || summary.Successful != 1 || summary.PassRate != 1 {
				s.Errorf("the summary is %+v", summary)
			}
			var told []string
			for _, result := range report.Errors() {
				told = append(told, result.SampleID+" "+result.Experiment+" "+result.Error)
				if result.Score != (evalloop.Score{}) || result.RequestID == "" || result.CompletedAt.IsZero() {
					s.Errorf("the result is %+v", result)
				}
			}
			slices.Sort(told)
			if len(told) != 2 || !strings.HasPrefix(told[0], "bomb-2 baseline panic: boom") || told[1] != "milk-1 baseline no milk" {
				s.Errorf("the errors are %q", told)
			}
		}},
		{"with a policy a failed sample is retried", func(s *env) {
			tried := ruletest.NewRecorder()
			s.start(options{Worker: worker.Options[request]{Concurrency: 4, DeadLetters: &policy{MaxDeliveries: 3}, Hooks: worker.Hooks{
				Settled: func(_ context.Context, event worker.SettledEvent) { tried.Add(string(event.Result)) },
			}}})
			report := s.evaluate(evalloop.Submission[string, string]{Dataset: drinks(s, "milk", "weapons")})
			ruletest.Equal(s, "errors", len(report.Errors()), 2)
			for _, result := range report.Errors() {
				want := "dead-lettered after 3 deliveries: no milk"
				if result.SampleID == "weapons-1" {
					want = "dead-lettered after 1 deliveries: refused by content policy"
				}
				ruletest.Equal(s, "error", result.Error, want)
				if result.SessionID == "" || result.LatencyMS < 4000 {
					s.Errorf("the result is %+v", result)
				}
			}
			s.Pass(0)
			got := tried.List()
			slices.Sort(got)
			if !slices.Equal(got, []string{"dead-lettered", "dead-lettered", "nacked", "nacked"}) {
				s.Errorf("they were %v", got)
			}
		}},
		{"results can go to a mailbox of the client's", func(s *env) {
			other, err := mailbox.Open[evalloop.Result](s.Context(), s.Faults, "mine", nil)
			s.Must(err)
			s.start(options{})
			sent, err := evalloop.Submit(s.Context(), s.requests, evalloop.Submission[string, string]{Dataset: drinks(s, "tea"), ReplyTo: "mine"})
			s.Must(err)
			report, err := evalloop.Collect(s.Context(), other, sent, nil)
			s.Must(err)
			ruletest.Equal(s, "results", len(report.Results), 1)
		}},
	})
}

func TestLOOP2CollectEnds(t *testing.T) {
	runRule(t, "LOOP-2", []rule{
		{"results in time are reported", func(s *env) {
			s.start(options{})
			sent, err := evalloop.Submit(s.Context(), s.requests, evalloop.Submission[string, string]{Dataset: drinks(s, "tea", "cocoa", strings.Repeat("x", 400))})
			s.Must(err)
			var steps []string
			report, err := evalloop.Collect(s.Context(), s.results, sent, &evalloop.CollectOptions{
				Progress: func(done, total int) { steps = append(steps, fmt.Sprintf("%d/%d", done, total)) },
			})
			s.Is(err, mailbox.ErrTimeout)
			ruletest.Equal(s, "time", time.Since(s.Began), evalloop.DefaultTimeout)
			ruletest.Equal(s, "results", len(report.Results), 2)
			if !slices.Equal(steps, []string{"0/3", "1/3", "2/3"}) {
				s.Errorf("progress was %v", steps)
			}
		}},
		{"repeats count once, backend errors are retried", func(s *env) {
			for _, id := range []string{"a", "a", "b"} {
				_, err := s.results.Send(s.Context(), evalloop.Result{RequestID: id, SampleID: id})
				s.Must(err)
			}
			s.Faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable, Times: 5})
			s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Times: 1})
			time.AfterFunc(time.Minute, func() {
				_, err := s.results.Send(s.Context(), evalloop.Result{RequestID: "c", SampleID: "c"})
				s.Must(err)
			})
			report, err := evalloop.Collect(s.Context(), s.results, 3, nil)
			s.Must(err)
			var ids []string
			for _, result := range report.Results {
				ids = append(ids, result.SampleID)
			}
			if !slices.Equal(ids, []string{"a", "b", "c"}) {
				s.Errorf("results are %v", ids)
			}
		}},
		{"a cancelled client gets the results so far", func(s *env) {
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			defer cancel()
			report, err := evalloop.Collect(ctx, s.results, 1, nil)
			s.Is(err, context.DeadlineExceeded)
			ruletest.Equal(s, "results", len(report.Results), 0)
			s.Must(s.results.Close())
			_, err = evalloop.Collect(s.Context(), s.results, 1, nil)
			s.Is(err, mailbox.ErrClosed)
			_, err = evalloop.Collect(s.Context(), nil, 1, nil)
			s.Is(err, mailbox.ErrInvalid)
		}},
		{"Submit waits for room and repeats nothing", func(s *env) {
			s.Configure("requests", driver.Config{MaxMessages: 2})
			s.Faults.Add(mailboxtest.Fault{Op: "send", Queue: "requests", Err: mailbox.ErrUnavailable, Late: true, Times: 1})
			s.start(options{})
			report := s.evaluate(evalloop.Submission[string, string]{Dataset: drinks(s, "a", "b", "c", "d", "e", "f")})
			ruletest.Equal(s, "results", len(report.Results), 6)
			s.Pass(time.Hour)
			stats, err := s.results.Stats(s.Context())
			s.Must(err)
			ruletest.Equal(s, "results without an address", stats, mailbox.Stats{})
		}},
		{"Submit ends with its context", func(s *env) {
			s.Configure("requests", driver.Config{MaxMessages: 2})
			ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
			defer cancel()
			_, err := evalloop.Submit(ctx, s.requests, evalloop.Submission[string, string]{Dataset: drinks(s, "a", "b", "c")})
			s.Is(err, context.DeadlineExceeded)
			_, err = evalloop.Submit(s.Context(), s.requests, evalloop.Submission[string, string]{})
			s.Is(err, mailbox.ErrInvalid)
		}},
		{"wrong options are ErrInvalid", func(s *env) {
			for _, l := range []*evalloop.EvalLoop[string, string, string]{
				evalloop.New(s.requests, (*mainloop.MainLoop[string, string])(nil), evalloop.ExactMatch[string](), nil),
				evalloop.New[string, string, string](s.requests, shouter(), nil, nil),
			} {
				s.Is(l.Run(s.Context()), mailbox.ErrInvalid)
				_, err := l.RunOnce(s.Context())
				s.Is(err, mailbox.ErrInvalid)
				_, err = l.Try(s.Context(), request{})
				s.Is(err, mailbox.ErrInvalid)
			}
		}},
	})
}

func TestScoresOutOfRangeAreErrors(t *testing.T) {
	model := mainloop.AdapterFunc(func(context.Context, *mainloop.Prompt) (mainloop.Response, error) { return mainloop.Response{}, nil })
	agent := mainloop.New(nil, model, func(context.Context, *mainloop.Run[string]) (*mainloop.Prompt, error) { return mainloop.Ask("?"), nil }, (*mainloop.Options[string, string])(nil))
	zero := 0.0
	for _, value := range []float64{-0.1, 1.1, zero / zero} {
		l := evalloop.New[string, string, string](nil, agent, func(context.Context, trial) (evalloop.Score, error) { return evalloop.Score{Value: value}, nil }, nil)
		if result, err := l.Try(t.Context(), request{}); !errors.Is(err, mailbox.ErrInvalid) || result.Success() {
			t.Errorf("the score %v is %+v, %v", value, result, err)
		}
	}
}

func TestRequestsAndResultsOnTheWire(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, value := range map[string]any{
		`{"request_id":"r","sample":{"id":"s","input":"i","expected":"e"},"experiment":{"name":"x"},"created_at":"2026-01-02T03:04:05Z"}`:                      request{ID: "r", Sample: sample{"s", "i", "e"}, Experiment: mainloop.Experiment{Name: "x"}, CreatedAt: at},
		`{"request_id":"r","sample_id":"s","experiment_name":"x","score":{"value":0.5,"passed":false},"latency_ms":1.5,"completed_at":"2026-01-02T03:04:05Z"}`: evalloop.Result{RequestID: "r", SampleID: "s", Experiment: "x", Score: evalloop.Score{Value: 0.5}, LatencyMS: 1.5, CompletedAt: at},
	} {
		if got, err := json.Marshal(value); err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
}
