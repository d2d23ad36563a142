package mainloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mainloop"
)

// execute runs an agent without a mailbox.
func execute[Out any](t *testing.T, model mainloop.Adapter, prompt *mainloop.Prompt, o *mainloop.Options[string, Out], r request) (mainloop.Result[Out], *mainloop.Session, error) {
	t.Helper()
	l := mainloop.New(nil, model, func(context.Context, *run) (*mainloop.Prompt, error) { return prompt, nil }, o)
	return l.Execute(t.Context(), r)
}

func TestToolsAreCalledUntilTheModelAnswers(t *testing.T) {
	prompt := mainloop.Ask("how is the weather?")
	prompt.Turns = append(make([]mainloop.Turn, 0, 100), prompt.Turns...) // with room for others to write into
	prompt.Tools = []mainloop.Tool{weather, {Name: "broken"}}
	model := toolModel(
		mainloop.ToolCall{ID: "1", Name: "weather", Arguments: json.RawMessage(`"atlantis"`)},
		mainloop.ToolCall{ID: "2", Name: "sundial"},
		mainloop.ToolCall{ID: "3", Name: "broken"},
		mainloop.ToolCall{ID: "4", Name: "weather", Arguments: json.RawMessage(`"york"`)},
	)
	got, session, err := execute(t, model, prompt, (*options)(nil), mainloop.NewRequest("?"))
	if err != nil || got.Output != `rain in "york"` || got.SessionID != session.ID() {
		t.Fatalf("the result is %+v, %v", got, err)
	}
	var told []string
	for _, use := range session.ToolUses() {
		told = append(told, use.Name+": "+use.Result)
		if use.Failed != strings.HasPrefix(use.Result, "error: ") {
			t.Errorf("%+v", use)
		}
	}
	if want := []string{"weather: error: it is under water", "sundial: error: unknown tool", "broken: error: unknown tool", `weather: rain in "york"`}; !slices.Equal(told, want) {
		t.Errorf("the tools said %q", told)
	}
	if usage := (mainloop.Usage{InputTokens: 500, OutputTokens: 100}); got.Usage != usage || session.Usage() != usage || len(mainloop.Recorded[response](session)) != 5 {
		t.Errorf("usage is %+v, and %+v in the session", got.Usage, session.Usage())
	}
	if len(prompt.Turns) != 1 || prompt.Turns[:2][1].Role != "" {
		t.Error("the prompt was changed")
	}
}

func TestTurnsAreLimited(t *testing.T) {
	prompt := mainloop.Ask("?")
	prompt.Tools = []mainloop.Tool{weather}
	for most, want := range map[int]int{0: mainloop.DefaultMaxTurns, 3: 3} {
		asked := 0
		_, session, err := execute(t, mainloop.AdapterFunc(func(context.Context, *mainloop.Prompt) (response, error) {
			asked++
			return response{ToolCalls: []mainloop.ToolCall{{Name: "weather"}}}, nil
		}), prompt, &options{MaxTurns: most}, mainloop.NewRequest("?"))
		if !errors.Is(err, mainloop.ErrTurns) || asked != want || len(session.ToolUses()) != want {
			t.Errorf("asked %d times, and ended with %v", asked, err)
		}
	}
}

// The tokens of all turns count, and no turn may use more than is left.
func TestBudgetCoversAllTurns(t *testing.T) {
	prompt := mainloop.Ask("?")
	prompt.Tools, prompt.MaxOutputTokens = []mainloop.Tool{weather}, 30
	calls := make([]mainloop.ToolCall, 8)
	for i := range calls {
		calls[i].Name = "weather"
	}
	for name, test := range map[string]struct {
		budget    mainloop.Budget
		turns     int
		dimension string
		allowed   []int
	}{
		"none":       {mainloop.Budget{}, 9, "", []int{30, 30, 30}},
		"input":      {mainloop.Budget{MaxInputTokens: 250}, 3, "input tokens", []int{30, 30, 30}},
		"output":     {mainloop.Budget{MaxOutputTokens: 45}, 3, "output tokens", []int{30, 25, 5}},
		"all of it":  {mainloop.Budget{MaxOutputTokens: 60}, 3, "output tokens", []int{30, 30, 20}},
		"total":      {mainloop.Budget{MaxTotalTokens: 250}, 3, "total tokens", []int{30, 30, 10}},
		"both":       {mainloop.Budget{MaxTotalTokens: 250, MaxOutputTokens: 25}, 2, "output tokens", []int{25, 5}},
		"just right": {mainloop.Budget{MaxTotalTokens: 9 * 120}, 9, "", []int{30, 30, 30}},
	} {
		model, turns := toolModel(calls...), 0
		var allowed []int
		_, session, err := execute(t, mainloop.AdapterFunc(func(ctx context.Context, p *mainloop.Prompt) (response, error) {
			turns++
			allowed = append(allowed, p.MaxOutputTokens)
			return model.Evaluate(ctx, p)
		}), prompt, &options{Budget: test.budget}, mainloop.NewRequest("?"))
		exceeded, _ := errors.AsType[*mainloop.BudgetError](err)
		if test.dimension == "" && err != nil || test.dimension != "" && (exceeded == nil || exceeded.Dimension != test.dimension || exceeded.Consumed != session.Usage()) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if turns != test.turns || !slices.Equal(allowed[:len(test.allowed)], test.allowed) {
			t.Errorf("%s: %d turns, of which the first could have %v", name, turns, allowed)
		}
	}
}

func TestUsageOfFailuresCounts(t *testing.T) {
	_, session, err := execute(t, mainloop.AdapterFunc(func(context.Context, *mainloop.Prompt) (response, error) {
		return response{Usage: mainloop.Usage{InputTokens: 7}}, &mainloop.AdapterError{Code: mainloop.ErrPolicy}
	}), mainloop.Ask("?"), (*options)(nil), mainloop.NewRequest("?"))
	if !errors.Is(err, mainloop.ErrPolicy) || session.Usage().InputTokens != 7 {
		t.Errorf("usage is %+v after %v", session.Usage(), err)
	}
}

func TestOutputsAreDecodedAndFinalized(t *testing.T) {
	type order struct{ Drink string }
	say := func(text string) mainloop.Adapter {
		return mainloop.AdapterFunc(func(context.Context, *mainloop.Prompt) (response, error) { return response{Text: text}, nil })
	}
	type options = mainloop.Options[string, order]
	prompt := mainloop.Ask("?")
	got, _, err := execute[order](t, say(`{"drink":"tea"}`), prompt, nil, mainloop.NewRequest("?"))
	if err != nil || got.Output.Drink != "tea" {
		t.Errorf("the output is %+v, %v", got, err)
	}
	for _, text := range []string{"", "tea", `{"drink":1}`, `{"drink":"tea"} and milk`, `{"drink":"tea"}}`, `{"drink":"tea"}]`} {
		if got, _, err := execute[order](t, say(text), prompt, nil, mainloop.NewRequest("?")); !errors.Is(err, mailbox.ErrEncoding) || got.Success() || got.Output != (order{}) {
			t.Errorf("%q became %+v, %v", text, got, err)
		}
	}
	got, _, err = execute(t, say("tea"), prompt, &options{
		Parse: func(r response) (order, error) { return order{r.Text}, nil },
		Finalize: func(_ context.Context, run *run, o order) (order, error) {
			return order{run.Request.Body + " " + o.Drink}, nil
		},
	}, mainloop.NewRequest("green"))
	if err != nil || got.Output.Drink != "green tea" {
		t.Errorf("the output is %+v, %v", got, err)
	}
	finalized := false
	refuse := &options{Finalize: func(_ context.Context, _ *run, o order) (order, error) { finalized = true; return o, errMilk }}
	if got, _, err := execute(t, say(`{"drink":"tea"}`), prompt, refuse, mainloop.NewRequest("?")); !errors.Is(err, errMilk) || got.Output != (order{}) {
		t.Errorf("the output is %+v, %v", got, err)
	}
	finalized = false
	if _, _, err := execute(t, say("mud"), prompt, refuse, mainloop.NewRequest("?")); err == nil || finalized {
		t.Error("a failure was finalized")
	}
}

func TestRunsAreCleanedUpOnce(t *testing.T) {
	for name, model := range map[string]mainloop.AdapterFunc{
		"well":         func(context.Context, *mainloop.Prompt) (response, error) { return response{}, nil },
		"badly":        func(context.Context, *mainloop.Prompt) (response, error) { return response{}, errMilk },
		"in no prompt": nil,
		"in a panic":   func(context.Context, *mainloop.Prompt) (response, error) { panic("boom") },
	} {
		var cleaned []string
		old := mainloop.ResumeSession("s-1", "hello")
		l := mainloop.New(nil, model, func(_ context.Context, run *run) (*mainloop.Prompt, error) {
			run.Session = old
			run.Cleanup(func() { cleaned = append(cleaned, "first") })
			run.Cleanup(func() { cleaned = append(cleaned, "second") })
			if model == nil {
				return nil, nil
			}
			return mainloop.Ask("?"), nil
		}, (*options)(nil))
		func() {
			defer func() { _ = recover() }()
			got, session, _ := l.Execute(t.Context(), request{Body: "?"})
			if got.SessionID != "s-1" || session != old || got.RequestID == "" || mainloop.Recorded[string](session)[0] != "hello" {
				t.Errorf("%s: the session is %+v, the result %+v", name, session, got)
			}
		}()
		if !slices.Equal(cleaned, []string{"second", "first"}) {
			t.Errorf("%s: cleaned up were %v", name, cleaned)
		}
	}
}

func TestCleanupPanicKeepsAnswerAndRunsOthers(t *testing.T) {
	runRule(t, "LOOP-1", []rule{
		{"the client gets the answer, and the model is asked once", func(s *env) {
			asked, cleaned := ruletest.NewRecorder(), ruletest.NewRecorder()
			s.startWith(shout(asked), func(_ context.Context, run *run) (*mainloop.Prompt, error) {
				run.Cleanup(func() { cleaned.Add("first") })
				run.Cleanup(func() { panic("spilled") })
				run.Cleanup(func() { cleaned.Add("third") })
				return mainloop.Ask(run.Request.Body), nil
			}, options{})
			got, err := s.call(mainloop.NewRequest("tea?"))
			s.Must(err)
			ruletest.Equal(s, "output", got.Output, "TEA?")
			ruletest.Equal(s, "times the model was asked", asked.Count(), 1)
			if order := cleaned.List(); !slices.Equal(order, []string{"third", "first"}) {
				s.Errorf("cleaned up were %v", order)
			}
			if log := s.Logs.String(); !strings.Contains(log, "spilled") || !strings.Contains(log, got.RequestID) {
				s.Errorf("the log says %s", log)
			}
		}},
	})
}

func TestDeadlinesAreAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{-time.Hour, 0, mainloop.MinDeadline - 1} {
			if _, err := mainloop.DeadlineIn(d); !errors.Is(err, mailbox.ErrInvalid) {
				t.Errorf("%v ahead is %v", d, err)
			}
		}
		d, err := mainloop.DeadlineIn(time.Minute)
		if err != nil || d.Remaining() != time.Minute || d.Expired() || d.IsZero() {
			t.Fatalf("%+v, %v", d, err)
		}
		<-time.After(time.Minute)
		if d.Remaining() != 0 || !d.Expired() {
			t.Errorf("a minute later: %v remain", d.Remaining())
		}
		<-time.After(time.Second)
		if d.Remaining() != -time.Second {
			t.Errorf("%v remain", d.Remaining())
		}
		if (mainloop.Deadline{}).Expired() {
			t.Error("no deadline is over")
		}
	})
}

func TestTrackerReplacesUsageOfEvaluation(t *testing.T) {
	tracker := mainloop.NewTracker(mainloop.Budget{MaxInputTokens: 10, MaxOutputTokens: 10, MaxTotalTokens: 15})
	use := func(evaluation string, input, output int, want string) {
		t.Helper()
		tracker.Record(evaluation, mainloop.Usage{InputTokens: input, OutputTokens: output, CachedTokens: 1})
		err := tracker.Check()
		exceeded, _ := errors.AsType[*mainloop.BudgetError](err)
		if want == "" && err != nil || want != "" && (exceeded == nil || exceeded.Dimension != want || !errors.Is(err, mainloop.ErrBudget)) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	use("a", 10, 5, "")
	use("a", 5, 10, "")
	use("b", 0, 1, "output tokens")
	use("b", 6, 1, "input tokens") // which is looked at first
	use("a", 5, 5, "input tokens")
	use("b", 5, 1, "total tokens")
	if got := tracker.Consumed(); got != (mainloop.Usage{InputTokens: 10, OutputTokens: 6, CachedTokens: 2}) {
		t.Errorf("consumed is %+v", got)
	}
	late := mainloop.NewTracker(mainloop.Budget{Deadline: mainloop.Deadline{ExpiresAt: time.Unix(0, 0)}, MaxInputTokens: 1})
	late.Record("a", mainloop.Usage{InputTokens: 2})
	if err := late.Check(); !errors.Is(err, mainloop.ErrDeadline) || !errors.Is(err, mainloop.ErrBudget) || !strings.Contains(err.Error(), "1970") {
		t.Errorf("the error is %v", err)
	}
}

func TestExperimentsAreValues(t *testing.T) {
	base := mainloop.Baseline()
	loud := base.WithFlag("volume", "11")
	if value, ok := loud.Flag("volume"); !ok || value != "11" {
		t.Errorf("the experiment is %+v", loud)
	}
	if _, ok := base.Flag("volume"); ok || base.Tag != mainloop.DefaultTag {
		t.Error("the baseline was changed")
	}
	if louder := loud.WithFlag("volume", "12"); louder.Flags["volume"] != "12" || loud.Flags["volume"] != "11" {
		t.Error("an experiment was changed")
	}
	var none *mainloop.Experiment
	if _, ok := none.Flag("volume"); ok {
		t.Error("no experiment has a flag")
	}
}

func TestRequestsAndResultsOnTheWire(t *testing.T) {
	experiment := mainloop.Baseline()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := request{
		ID: "r-1", Body: "tea?", CreatedAt: at, Experiment: &experiment,
		Budget: mainloop.Budget{MaxTotalTokens: 7}, Deadline: mainloop.Deadline{StartedAt: at, ExpiresAt: at.Add(time.Hour)},
	}
	for want, value := range map[string]any{
		`{"request_id":"r-1","request":"tea?","budget":{"max_total_tokens":7},"deadline":{"started_at":"2026-01-02T03:04:05Z","expires_at":"2026-01-02T04:04:05Z"},"created_at":"2026-01-02T03:04:05Z","experiment":{"name":"baseline","overrides_tag":"latest"}}`: r,
		`{"request_id":"r-1","request":"tea?","created_at":"2026-01-02T03:04:05Z"}`: request{ID: "r-1", Body: "tea?", CreatedAt: at},
		`{"request_id":"r-1","output":"TEA","completed_at":"2026-01-02T03:04:05Z"}`: result{RequestID: "r-1", Output: "TEA", CompletedAt: at},
	} {
		if got, err := json.Marshal(value); err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
	var back request
	if text, err := json.Marshal(r); err != nil || json.Unmarshal(text, &back) != nil || back.Deadline != r.Deadline || back.Budget != r.Budget {
		t.Errorf("%+v became %+v", r, back)
	}
	if a, b := mainloop.NewRequest("?"), mainloop.NewRequest("?"); a.ID == b.ID || len(a.ID) != 36 || a.RequestID() != a.ID {
		t.Errorf("ids are %s and %s", a.ID, b.ID)
	}
}
