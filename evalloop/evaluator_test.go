package evalloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/evalloop"
	"github.com/mailboxmq/mailbox/mainloop"
)

// scores checks the score of an evaluator.
func scores[Out, Expected any](t *testing.T, name string, evaluate evalloop.Evaluator[Out, Expected], trial evalloop.Trial[Out, Expected], value float64, passed bool) evalloop.Score {
	t.Helper()
	score, err := evaluate(t.Context(), trial)
	if err != nil || score.Value != value || score.Passed != passed || !passed && score.Reason == "" {
		t.Errorf("%s: the score is %+v, %v; want %v, %v", name, score, err, value, passed)
	}
	return score
}

// yes checks an evaluator that passes or fails.
func yes[Out, Expected any](t *testing.T, name string, evaluate evalloop.Evaluator[Out, Expected], output Out, expected Expected, want bool) {
	t.Helper()
	value := 0.0
	if want {
		value = 1
	}
	scores(t, name, evaluate, evalloop.Trial[Out, Expected]{Output: output, Expected: expected}, value, want)
}

func TestEvaluatorsOfOutputs(t *testing.T) {
	yes(t, "exact", evalloop.ExactMatch[string](), "tea", "tea", true)
	yes(t, "exact", evalloop.ExactMatch[string](), "Tea", "tea", false)
	yes(t, "exact number", evalloop.ExactMatch[int](), 4, 4, true)
	yes(t, "contains", evalloop.Contains(), "green tea", "tea", true)
	yes(t, "contains, case", evalloop.Contains(), "green Tea", "tea", false)
	yes(t, "contains nothing", evalloop.Contains(), "", "", true)
	yes(t, "within", evalloop.Within[float64](0.5), 1.5, 1, true)
	yes(t, "not within", evalloop.Within[float64](0.5), 1.51, 1, false)
	yes(t, "whole numbers", evalloop.Within[int](1), 3, 4, true)
	yes(t, "not a number", evalloop.Within[float64](1), math.NaN(), math.NaN(), false)
	yes(t, "infinite", evalloop.Within[float64](1), math.Inf(1), math.Inf(1), true)
	yes(t, "infinitely apart", evalloop.Within[float64](1), math.Inf(1), math.Inf(-1), false)
	type order struct {
		Drink string `json:"drink"`
		Sugar int    `json:"sugar"`
	}
	yes(t, "JSON texts", evalloop.JSONEqual[string, string](), `{"a":1,"b":[2.0]}`, `{ "b":[2], "a":1e0 }`, true)
	yes(t, "JSON values", evalloop.JSONEqual[order, json.RawMessage](), order{"tea", 2}, json.RawMessage(`{"sugar":2,"drink":"tea"}`), true)
	yes(t, "JSON differs", evalloop.JSONEqual[order, []byte](), order{"tea", 2}, []byte(`{"sugar":3,"drink":"tea"}`), false)
	yes(t, "not JSON", evalloop.JSONEqual[string, string](), `tea`, `"tea"`, false)
	yes(t, "more than JSON", evalloop.JSONEqual[string, string](), `1 2`, `1`, false)
	for _, expected := range []string{"", "{", "1 2"} {
		if _, err := evalloop.JSONEqual[string, string]()(t.Context(), evalloop.Trial[string, string]{Output: "1", Expected: expected}); !errors.Is(err, mailbox.ErrInvalid) {
			t.Errorf("expecting %q is %v", expected, err)
		}
	}
}

func TestLargeNumbersAreComparedExactly(t *testing.T) {
	const large = 1 << 53 // from here on, not every whole number has a float64
	yes(t, "within", evalloop.Within[int64](0), large+1, large, false)
	yes(t, "within one", evalloop.Within[int64](1), large+1, large, true)
	yes(t, "within, unsigned", evalloop.Within[uint64](0), math.MaxUint64, math.MaxUint64-1, false)
	yes(t, "as far apart as can be", evalloop.Within[int64](1), math.MaxInt64, math.MinInt64, false)
	yes(t, "as far apart as can be, small", evalloop.Within[int8](254), -128, 127, false)
	yes(t, "below zero", evalloop.Within[int8](3), -2, 1, true)
	same := evalloop.JSONEqual[string, string]()
	yes(t, "JSON", same, `{"id":9007199254740993}`, `{"id":9007199254740992}`, false)
	yes(t, "JSON in a list", same, `[1,[9007199254740993]]`, `[1,[9007199254740993]]`, true)
	yes(t, "JSON, written differently", same, `[10,-0,1.50]`, `[1e1,0,1.5]`, true)
	yes(t, "JSON beyond all floats", same, `1e999`, `1e999`, true)
	yes(t, "JSON beyond all floats, differs", same, `1e999`, `1e998`, false)
	yes(t, "JSON, more fields", same, `{"a":1,"b":null}`, `{"a":1,"c":null}`, false)
	yes(t, "JSON, longer", same, `[1,2]`, `[1]`, false)
	yes(t, "JSON, a text", same, `"1"`, `1`, false)
}

func TestJSONWithTrailingDataFails(t *testing.T) {
	for _, output := range []string{`{"a":1}}`, `{"a":1}]`, `{"a":1},`, `{"a":1} {`, `{"a":1}x`} {
		yes(t, output, evalloop.JSONEqual[string, string](), output, `{"a":1}`, false)
	}
}

func TestEvaluatorsOfConduct(t *testing.T) {
	session := mainloop.NewSession()
	for _, use := range []mainloop.ToolUse{
		{ToolCall: mainloop.ToolCall{Name: "search"}},
		{ToolCall: mainloop.ToolCall{Name: "search"}},
		{ToolCall: mainloop.ToolCall{Name: "delete"}, Failed: true, Result: "error: no"},
	} {
		session.Record(use)
	}
	session.Record(mainloop.Response{Usage: mainloop.Usage{InputTokens: 70, OutputTokens: 30}})
	session.Record("a note")
	for name, test := range map[string]struct {
		evaluate evalloop.Evaluator[string, string]
		want     bool
	}{
		"called":            {evalloop.ToolCalled[string, string]("search"), true},
		"not called":        {evalloop.ToolCalled[string, string]("buy"), false},
		"must not, and has": {evalloop.ToolCallCount[string, string]("delete", 0, 0), false},
		"must not":          {evalloop.ToolCallCount[string, string]("buy", 0, 0), true},
		"count":             {evalloop.ToolCallCount[string, string]("search", 2, 2), true},
		"too few":           {evalloop.ToolCallCount[string, string]("search", 3, -1), false},
		"too many":          {evalloop.ToolCallCount[string, string]("search", 0, 1), false},
		"any number":        {evalloop.ToolCallCount[string, string]("search", 1, -1), true},
		"tokens":            {evalloop.TokensUnder[string, string](100), true},
		"too many tokens":   {evalloop.TokensUnder[string, string](99), false},
		"recorded":          {evalloop.Recorded[string, string, string](1, func(s string) bool { return s == "a note" }), true},
		"recorded at all":   {evalloop.Recorded[mainloop.ToolUse, string, string](3, nil), true},
		"recorded too few":  {evalloop.Recorded[string, string, string](2, nil), false},
	} {
		value := 0.0
		if test.want {
			value = 1
		}
		scores(t, name, test.evaluate, trial{Session: session}, value, test.want)
		if _, err := test.evaluate(t.Context(), trial{}); !errors.Is(err, mailbox.ErrInvalid) {
			t.Errorf("%s: without a session the error is %v", name, err)
		}
	}
}

func TestEvaluatorsAreCombined(t *testing.T) {
	fixed := func(value float64, passed bool, reason string) evalloop.Evaluator[string, string] {
		return func(context.Context, trial) (evalloop.Score, error) {
			return evalloop.Score{Value: value, Passed: passed, Reason: reason}, nil
		}
	}
	good, bad := fixed(1, true, ""), fixed(0.5, false, "bad")
	worse := fixed(0, false, "worse")
	if score := scores(t, "all", evalloop.All(good, bad, worse), trial{}, 0.5, false); score.Reason != "bad; worse" {
		t.Errorf("the reason is %q", score.Reason)
	}
	scores(t, "all good", evalloop.All(good, good), trial{}, 1, true)
	scores(t, "any", evalloop.Any(worse, bad, good), trial{}, 1, true)
	scores(t, "none", evalloop.Any(worse, bad), trial{}, 0.5, false)
	broken := func(context.Context, trial) (evalloop.Score, error) { return evalloop.Score{}, errMilk }
	for name, evaluate := range map[string]evalloop.Evaluator[string, string]{"all": evalloop.All(good, broken), "any": evalloop.Any(good, broken)} {
		if _, err := evaluate(t.Context(), trial{}); !errors.Is(err, errMilk) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if _, err := evalloop.All[string, string]()(t.Context(), trial{}); !errors.Is(err, mailbox.ErrInvalid) {
		t.Errorf("all of nothing is %v", err)
	}
	session := mainloop.NewSession()
	length := evalloop.Adapt[string, string](func(_ context.Context, trial evalloop.Trial[int, int]) (evalloop.Score, error) {
		if trial.Session != session {
			t.Error("the session is lost")
		}
		return evalloop.ExactMatch[int]()(t.Context(), trial)
	}, func(s string) int { return len(s) }, func(s string) int { return len(s) })
	scores(t, "adapted", length, trial{Output: "tea", Expected: "ale", Session: session}, 1, true)
}

func TestJudgesRate(t *testing.T) {
	for said, want := range map[string]evalloop.Score{
		`{"rating":"excellent","reason":"right"}`: {Value: 1, Passed: true, Reason: "right"},
		`{"rating":" Good ","reason":"nearly"}`:   {Value: 0.75, Passed: true, Reason: "nearly"},
		`{"rating":"fair"}`:                       {Value: 0.5},
		`{"rating":"poor"}`:                       {Value: 0.25},
		`{"rating":"wrong"}`:                      {},
		`{"rating":"superb"}`:                     {Reason: `the judge gave the rating "superb"`},
		`I like it`:                               {Reason: "the judge gave no rating"},
	} {
		var asked *mainloop.Prompt
		judge := evalloop.Judge[string, map[string]int](mainloop.AdapterFunc(func(_ context.Context, p *mainloop.Prompt) (mainloop.Response, error) {
			asked = p
			return mainloop.Response{Text: said}, nil
		}), "is polite")
		score, err := judge(t.Context(), evalloop.Trial[string, map[string]int]{Output: "say \"excellent\"\nplease", Expected: map[string]int{"a": 1}})
		if err != nil || score != want {
			t.Errorf("%s is %+v, %v", said, score, err)
		}
		question := asked.Turns[1].Text
		if !json.Valid(asked.Schema) || !strings.Contains(question, "Criterion: is polite") ||
			!strings.Contains(question, `Answer: "say \"excellent\"\nplease"`) || !strings.Contains(question, `Expected answer: "{\"a\":1}"`) {
			t.Errorf("the judge was asked %s", question)
		}
	}
	deaf := evalloop.Judge[string, string](mainloop.AdapterFunc(func(context.Context, *mainloop.Prompt) (mainloop.Response, error) {
		return mainloop.Response{}, errMilk
	}), "")
	if _, err := deaf(t.Context(), trial{}); !errors.Is(err, errMilk) {
		t.Errorf("a judge that cannot be asked is %v", err)
	}
}

func TestDatasetsAreRead(t *testing.T) {
	const text = `{"id":"a","input":{"n":2},"expected":4}

{"id":"b","input":{"n":3},"expected":9}
`
	type number struct{ N int }
	d, err := evalloop.Load[number, int](strings.NewReader(text))
	if err != nil || d.Len() != 2 || d.At(1).ID != "b" || d.At(1).Input.N != 3 || d.At(1).Expected != 9 {
		t.Fatalf("the dataset is %+v, %v", d, err)
	}
	for i, sample := range d.All() {
		if sample != d.At(i) {
			t.Errorf("sample %d is %+v", i, sample)
		}
	}
	for line, code := range map[string]mailbox.Code{
		`{"id":"a","input":{"n":2},"expected":4,"weight":1}`: mailbox.ErrEncoding,
		`{"id":"a","input":{"n":"2"},"expected":4}`:          mailbox.ErrEncoding,
		`{"id":"a","input":{"n":2},"expected":"4"}`:          mailbox.ErrEncoding,
		`{"id":7,"input":{"n":2},"expected":4}`:              mailbox.ErrEncoding,
		`{"id":"a","input":{"n":2}}`:                         mailbox.ErrEncoding,
		`{"id":"a","expected":4}`:                            mailbox.ErrEncoding,
		`{"input":{"n":2},"expected":4}`:                     mailbox.ErrEncoding,
		`{"id":"a"`:                                          mailbox.ErrEncoding,
		`[]`:                                                 mailbox.ErrEncoding,
		`{"id":"","input":{"n":2},"expected":4}`:             mailbox.ErrInvalid,
		`{"id":"b","input":{"n":2},"expected":4}`:            mailbox.ErrInvalid,
		strings.Repeat(" ", 17<<20):                          mailbox.ErrTooLarge,
	} {
		if _, err := evalloop.Load[number, int](strings.NewReader(`{"id":"b","input":{"n":1},"expected":1}` + "\n" + line)); !errors.Is(err, code) || !strings.Contains(err.Error(), "2") {
			t.Errorf("%.60s is %v, want %v", line, err, code)
		}
	}
}

func TestDatasetsWithByteOrderMarkAreRead(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	const first = `{"id":"a","input":1,"expected":2}`
	for name, text := range map[string]string{
		"a byte order mark": bom + first, "lines that end as on Windows": first + "\r\n\r\n", "both": bom + first + "\r\n", "no end of line": first,
	} {
		if d, err := evalloop.Load[int, int](strings.NewReader(text)); err != nil || d.Len() != 1 || d.At(0).ID != "a" {
			t.Errorf("with %s the dataset is %+v, %v", name, d, err)
		}
	}
	for _, text := range []string{"", bom, "\n\n", bom + "\r\n"} {
		if d, err := evalloop.Load[int, int](strings.NewReader(text)); err != nil || d.Len() != 0 {
			t.Errorf("of %q the dataset is %+v, %v", text, d, err)
		}
	}
}

func TestDatasetErrorsNameTheLine(t *testing.T) {
	const first = `{"id":"a","input":1,"expected":2}`
	for line, text := range map[string]string{
		"line 4": first + "\n\n\n{", "line 3": first + "\n\n" + `{"id":"","input":1,"expected":2}`,
		"line 5": first + "\n\n" + `{"id":"b","input":1,"expected":2}` + "\n\n" + first,
		"line 2": first + "\n\xef\xbb\xbf" + first, // a mark belongs to the beginning
	} {
		if _, err := evalloop.Load[int, int](strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("the error is %v, and does not name %s", err, line)
		}
	}
}
