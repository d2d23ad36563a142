// Package evalloop measures agents: it gives them the samples of a dataset, scores
// what they answer, and reports.
//
// # Samples and scores
//
// A [Dataset] has samples, an input and what is expected of it each; [Load] reads
// one from JSON lines. An [Evaluator] looks at one [Trial], what an agent has
// answered and what it did on the way, and gives a [Score]. There are evaluators
// for text, numbers and JSON, for the tools that were called and the tokens that
// were used, and one that asks a model; [All], [Any] and [Adapt] combine them, and
// a function of your own is one too.
//
// # A loop
//
// An [EvalLoop] is a worker.Loop that serves a mailbox of requests: each is a
// sample and an experiment. It runs the agent, a mainloop.MainLoop, evaluates, and
// sends a [Result] to a mailbox. Any number of processes can share the work.
//
//	sent, err := evalloop.Submit(ctx, requests, evalloop.Submission[string, string]{
//		Dataset: dataset, Experiments: []mainloop.Experiment{baseline, candidate},
//	})
//	report, err := evalloop.Collect(ctx, results, sent, nil)
//	err = report.WriteText(os.Stdout)
//
// # Reports
//
// A [Report] has pass rates, mean scores and latencies, for all and for each
// experiment, and compares experiments. It can be written as text, as JSON, and as
// an HTML page with charts that needs nothing else.
package evalloop
