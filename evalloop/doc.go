// Package evalloop evaluates agents: it runs them on the samples of a dataset, scores
// their answers, and reports.
//
// # Samples and scores
//
// A [Dataset] has samples, each an input and the expected output; [Load] reads one
// from JSON lines. An [Evaluator] scores one [Trial], the answer of an agent and what
// it did to get there. There are evaluators for text, numbers and JSON, for the tools
// that were called and the tokens that were used, and one that asks a model; [All],
// [Any] and [Adapt] combine them, and any function of the right type is one too.
//
// # A loop
//
// An [EvalLoop] is a worker.Loop that serves a mailbox of requests: each is a
// sample and an experiment. It runs the agent, a mainloop.MainLoop, scores the answer,
// and sends a [Result] to a mailbox. Any number of processes can share the work.
//
//	sent, err := evalloop.Submit(ctx, requests, evalloop.Submission[string, string]{
//		Dataset: dataset, Experiments: []mainloop.Experiment{baseline, candidate},
//	})
//	report, err := evalloop.Collect(ctx, results, sent, nil)
//	err = report.WriteText(os.Stdout)
//
// # Reports
//
// A [Report] has pass rates, mean scores and latencies, for all results and for each
// experiment, and compares experiments. It can be written as text, as JSON, and as a
// self-contained HTML page with charts.
package evalloop
