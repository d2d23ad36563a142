// Eval evaluates an agent: it runs the samples of a dataset in two experiments against
// a model server, and reports.
//
//	go run ./examples/eval -html report.html
//
// Without -server it starts a stand-in for a model server, which can add numbers and
// knows some capitals.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/evalloop"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/mainloop/openai"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

//go:embed samples.jsonl
var samples []byte

type (
	request = evalloop.Request[string, string]
	options = evalloop.Options[string, string]
)

func main() {
	server := flag.String("server", "", "base URL of a model server; empty for a stand-in")
	model := flag.String("model", "small", "which model to ask")
	page := flag.String("html", "", "where to write the report as a page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := evaluate(ctx, *server, *model, os.Stderr)
	if err == nil {
		err = write(report, os.Stdout, *page)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "eval:", err)
		os.Exit(1)
	}
}

// write writes the report as text, and as a page with -html.
func write(report *evalloop.Report, text io.Writer, page string) error {
	if err := report.WriteText(text); err != nil || page == "" {
		return err
	}
	var html bytes.Buffer
	if err := report.WriteHTML(&html); err != nil {
		return err
	}
	return os.WriteFile(page, html.Bytes(), 0o600)
}

// evaluate runs everything in one process. In production the loops and the program that
// submits are separate, and the mailboxes are on disk or on a server.
func evaluate(ctx context.Context, server, model string, progress io.Writer) (report *evalloop.Report, err error) {
	if server == "" {
		standIn, err := startStandIn(ctx)
		if err != nil {
			return nil, err
		}
		defer standIn.stop()
		server = standIn.url
	}
	dataset, err := evalloop.Load[string, string](bytes.NewReader(samples))
	if err != nil {
		return nil, err
	}
	backend := membox.New(nil)
	defer backend.Close()
	requests, err := mailbox.Open[request](ctx, backend, "evals", nil)
	if err != nil {
		return nil, err
	}
	results, err := mailbox.Open[evalloop.Result](ctx, backend, "results", nil)
	if err != nil {
		return nil, err
	}
	loop := evalloop.New(requests, newAgent(openai.New(server, &openai.Options{Model: model})), evaluator(), &options{
		Worker:  worker.Options[request]{Concurrency: 4},
		Results: results,
	})
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(working) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	sent, err := evalloop.Submit(ctx, requests, evalloop.Submission[string, string]{
		Dataset: dataset,
		Experiments: []mainloop.Experiment{
			mainloop.Baseline(),
			mainloop.Experiment{Name: "brief", Description: "ask for one word"}.WithFlag("style", "brief"),
		},
	})
	if err != nil {
		return nil, err
	}
	return evalloop.Collect(ctx, results, sent, &evalloop.CollectOptions{Timeout: time.Minute, Progress: evalloop.Bar(progress)})
}

// newAgent returns the agent under test.
func newAgent(model mainloop.Adapter) *mainloop.MainLoop[string, string] {
	return mainloop.New(nil, model, func(_ context.Context, run *mainloop.Run[string]) (*mainloop.Prompt, error) {
		manners := "Answer in a polite sentence."
		if style, _ := run.Request.Experiment.Flag("style"); style == "brief" {
			manners = "Answer with one word."
		}
		return &mainloop.Prompt{Turns: []mainloop.Turn{
			{Role: mainloop.RoleSystem, Text: manners},
			{Role: mainloop.RoleUser, Text: run.Request.Body},
		}}, nil
	}, (*mainloop.Options[string, string])(nil))
}

// evaluator expects the right answer with few tokens.
func evaluator() evalloop.Evaluator[string, string] {
	return evalloop.All(evalloop.Contains(), evalloop.TokensUnder[string, string](40))
}
