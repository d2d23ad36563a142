package evalloop_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/evalloop"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/membox"
)

// From a dataset to a report.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dataset, err := evalloop.Load[string, string](strings.NewReader(`
{"id": "france", "input": "capital of France", "expected": "Paris"}
{"id": "peru", "input": "capital of Peru", "expected": "Lima"}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	backend := membox.New(nil)
	defer backend.Close()
	requests, err := mailbox.Open[evalloop.Request[string, string]](ctx, backend, "evals", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := mailbox.Open[evalloop.Result](ctx, backend, "results", nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	// The agent under test knows one city.
	model := mainloop.AdapterFunc(func(context.Context, *mainloop.Prompt) (mainloop.Response, error) {
		return mainloop.Response{Text: "It is Paris."}, nil
	})
	agent := mainloop.New(nil, model, func(_ context.Context, run *mainloop.Run[string]) (*mainloop.Prompt, error) {
		return mainloop.Ask(run.Request.Body), nil
	}, (*mainloop.Options[string, string])(nil))
	loop := evalloop.New(requests, agent, evalloop.All(
		evalloop.Contains(),
		evalloop.TokensUnder[string, string](1000),
	), &evalloop.Options[string, string]{Results: results})
	ended := make(chan error)
	go func() { ended <- loop.Run(ctx) }()

	sent, err := evalloop.Submit(ctx, requests, evalloop.Submission[string, string]{Dataset: dataset})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := evalloop.Collect(ctx, results, sent, &evalloop.CollectOptions{Progress: evalloop.Bar(os.Stderr)})
	if err != nil {
		fmt.Println(err)
		return
	}
	summary := report.Summary()
	fmt.Printf("%d of %d passed\n", summary.Passed, summary.Total)
	for _, failed := range report.Failed() {
		fmt.Println(failed.SampleID, failed.Score.Reason)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// 1 of 2 passed
	// peru "Lima" is not in it
	// <nil>
}

// An evaluator is a function.
func ExampleEvaluator() {
	brief := func(_ context.Context, trial evalloop.Trial[string, string]) (evalloop.Score, error) {
		words := len(strings.Fields(trial.Output))
		return evalloop.Score{Value: 1 / float64(max(1, words)), Passed: words <= 3, Reason: fmt.Sprint(words, " words")}, nil
	}
	score, err := evalloop.All(evalloop.Contains(), brief)(context.Background(), evalloop.Trial[string, string]{Output: "It is Paris, of course.", Expected: "Paris"})
	fmt.Printf("%.2f %v %s %v\n", score.Value, score.Passed, score.Reason, err)
	// Output: 0.60 false 5 words <nil>
}
