package redisrules_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/dispatch"
	"github.com/mailboxmq/mailbox/evalloop"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/mainloop"
	"github.com/mailboxmq/mailbox/worker"
)

func loopRules() []rule {
	return []rule{
		{"LOOP-1", []ruleCase{
			{"the reply comes before the ack", replyBeforeAck},
			{"work that succeeded is not done again", workIsNotDoneAgain},
			{"a main loop answers with results", mainLoopAnswers},
		}},
		{"LOOP-2", []ruleCase{{"every sample in every experiment has one result", everySampleHasAResult}}},
		{"LOOP-3", []ruleCase{
			{"a loop outlives errors of its backend", outlivesErrors},
			{"no message ends a loop", noMessageEndsIt},
			{"shutdown finishes what is held and gives back the rest", endsInOrder},
			{"a shutdown asked for before the run is honoured", stoppedBeforeRun},
			{"losing the lease cancels the handler", lostLeaseCancels},
		}},
		{"LOOP-4", []ruleCase{
			{"members run and stop together, and report their health", groupRuns},
			{"a watchdog reports a stuck handler before it acts", watchdogReportsStuckHandler},
		}},
		{"LOOP-5", []ruleCase{{"deliveries are extended while work goes on", leasesAreExtended}}},
		{"LOOP-6", []ruleCase{
			{"each dead letter is shown, and a handler that fails sees it again later", failingConsumerTriesAgain},
			{"a dead letter is redriven once", consumerRedrivesOnce},
		}},
		{"LOOP-7", []ruleCase{{"hooks report the life of a message", hooksReportEvents}}},
	}
}

func replyBeforeAck(s *env) {
	steps := ruletest.NewRecorder()
	requests := s.openTraced("requests", mailbox.Hooks{
		Replied: func(context.Context, mailbox.RepliedEvent) { steps.Add("reply") },
		Settled: func(_ context.Context, event mailbox.SettledEvent) { steps.Add(string(event.Outcome)) },
	})
	future := s.ask(requests, "tea")
	s.run(worker.New(requests, shout(steps), s.options(options{})))
	answer, err := future.Wait(s.Context())
	s.Must(err)
	ruletest.Equal(s, "answer", answer, "TEA")
	s.expectCount(steps, 3)
	if got := steps.List(); !slices.Equal(got, []string{"tea", "reply", "ack"}) {
		s.Errorf("the steps were %v", got)
	}
	s.expectStats(requests, mailbox.Stats{})
}

// shout succeeds, and records its requests.
func shout(done *ruletest.Recorder) worker.Handler[string] {
	return worker.Serve(func(_ context.Context, request *message) (string, error) {
		done.Add(request.Body)
		return strings.ToUpper(request.Body), nil
	}, nil)
}

func workIsNotDoneAgain(s *env) {
	requests, done := s.open("requests"), ruletest.NewRecorder()
	s.Faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable, Times: 2})
	s.Faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable, Late: true, Times: 1})
	future := s.ask(requests, "tea")
	s.run(worker.New(requests, shout(done), s.options(options{})))
	answer, err := future.Wait(s.Context())
	s.Must(err)
	ruletest.Equal(s, "answer", answer, "TEA")
	s.expectStats(requests, mailbox.Stats{})
	s.expectCount(done, 1)
}

// shouter is an agent that answers in capitals, or unchanged if the experiment says so.
func shouter(requests *mailbox.Mailbox[mainloop.Request[string]]) *mainloop.MainLoop[string, string] {
	model := mainloop.AdapterFunc(func(_ context.Context, prompt *mainloop.Prompt) (mainloop.Response, error) {
		question := prompt.Turns[0].Text
		switch {
		case question == "milk":
			return mainloop.Response{}, &mainloop.AdapterError{Code: mainloop.ErrPolicy}
		case prompt.Model == "quiet":
			return mainloop.Response{Text: question}, nil
		}
		return mainloop.Response{Text: strings.ToUpper(question)}, nil
	})
	return mainloop.New(requests, model, func(_ context.Context, run *mainloop.Run[string]) (*mainloop.Prompt, error) {
		prompt := mainloop.Ask(run.Request.Body)
		prompt.Model, _ = run.Request.Experiment.Flag("model")
		return prompt, nil
	}, (*mainloop.Options[string, string])(nil))
}

func mainLoopAnswers(s *env) {
	requests := open[mainloop.Request[string]](s, "requests", nil, mailbox.Hooks{})
	s.run(shouter(requests))
	client := mainloop.NewClient[string, string](requests, s.replies, nil)
	result, err := client.Call(s.Context(), mainloop.NewRequest("tea"))
	s.Must(err)
	ruletest.Equal(s, "output", result.Output, "TEA")
	_, err = client.Call(s.Context(), mainloop.NewRequest("milk"))
	if err == nil || !strings.Contains(err.Error(), string(mainloop.ErrPolicy)) {
		s.Errorf("a failure is told as %v", err)
	}
	late := mainloop.NewRequest("tea")
	late.Deadline = mainloop.Deadline{ExpiresAt: time.Now().Add(-time.Second)}
	_, err = client.Call(s.Context(), late)
	if err == nil {
		s.Error("a deadline that has passed is not final")
	}
	s.expectStats(requests, mailbox.Stats{})
}

func everySampleHasAResult(s *env) {
	type request = evalloop.Request[string, string]
	requests := open[request](s, "requests", nil, mailbox.Hooks{})
	results := open[evalloop.Result](s, "results", nil, mailbox.Hooks{})
	s.run(evalloop.New(requests, shouter(nil), evalloop.ExactMatch[string](), &evalloop.Options[string, string]{
		Results: results, Worker: worker.Options[request]{Concurrency: 4},
	}))
	dataset, err := evalloop.NewDataset(
		evalloop.Sample[string, string]{ID: "a", Input: "tea", Expected: "TEA"},
		evalloop.Sample[string, string]{ID: "b", Input: "milk", Expected: "MILK"},
		evalloop.Sample[string, string]{ID: "c", Input: "COCOA", Expected: "COCOA"},
	)
	s.Must(err)
	sent, err := evalloop.Submit(s.Context(), requests, evalloop.Submission[string, string]{
		Dataset: dataset, Experiments: []mainloop.Experiment{mainloop.Baseline(), mainloop.Experiment{Name: "quiet"}.WithFlag("model", "quiet")},
	})
	s.Must(err)
	report, err := evalloop.Collect(s.Context(), results, sent, nil)
	s.Must(err)
	ruletest.Equal(s, "results", len(report.Results), 6)
	ruletest.Equal(s, "errors", len(report.Errors()), 2)
	compared, ok := report.Compare("baseline", "quiet")
	if !ok || !slices.Equal(compared.Broken, []string{"a"}) {
		s.Errorf("the comparison is %+v", compared)
	}
	s.expectStats(requests, mailbox.Stats{})
	s.expectStats(results, mailbox.Stats{})
}

func outlivesErrors(s *env) {
	orders, done := s.open("orders"), ruletest.NewRecorder()
	remove := s.Faults.Add(mailboxtest.Fault{Op: "receive", Err: mailbox.ErrUnavailable})
	stop := s.run(worker.New(orders, count(done), s.options(options{})))
	s.send(orders, "tea")
	s.Eventually("receives to fail", func() bool { return s.Faults.Calls("receive") > 2 })
	ruletest.Equal(s, "handled", done.Count(), 0)
	remove()
	s.expectCount(done, 1)
	s.Must(stop())
}

func noMessageEndsIt(s *env) {
	orders, done := s.open("orders"), ruletest.NewRecorder()
	s.send(orders, "error", "panic", "fine")
	stop := s.run(worker.New(orders, func(_ context.Context, m *message) error {
		switch m.Body {
		case "error":
			return errMilk
		case "panic":
			panic("spilled")
		}
		done.Add(m.Body)
		return nil
	}, s.options(options{Backoff: worker.DefaultBackoff})))
	s.expectCount(done, 1)
	s.expectStats(orders, mailbox.Stats{Delayed: 2})
	s.Must(stop())
}

func endsInOrder(s *env) {
	orders, began, done := s.open("orders"), ruletest.NewRecorder(), ruletest.NewRecorder()
	s.send(orders, "a", "b", "c", "d", "e", "f")
	finish := make(chan struct{})
	stop := s.run(worker.New(orders, func(_ context.Context, m *message) error {
		began.Add(m.Body)
		<-finish
		done.Add(m.Body)
		return nil
	}, s.options(options{Concurrency: 2, Prefetch: 4})))
	s.expectCount(began, 2)
	s.expectStats(orders, mailbox.Stats{InFlight: 6})
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	s.expectStats(orders, mailbox.Stats{Ready: 4, InFlight: 2}) // at once, while handlers go on
	close(finish)
	s.Must(<-ended)
	ruletest.Equal(s, "handled", done.Count(), 2)
	s.expectStats(orders, mailbox.Stats{Ready: 4})
}

func stoppedBeforeRun(s *env) {
	orders, done := s.open("orders"), ruletest.NewRecorder()
	s.send(orders, "tea")
	loop := worker.New(orders, count(done), s.options(options{}))
	loop.Stop()
	s.Must(loop.Run(s.Context()))
	ruletest.Equal(s, "handled", done.Count(), 0)
	ruletest.Equal(s, "receives", s.Faults.Calls("receive"), 0)
	s.expectStats(orders, mailbox.Stats{Ready: 1})
}

func lostLeaseCancels(s *env) {
	orders, causes := s.open("orders"), make(chan error, 1)
	s.send(orders, "tea")
	s.run(worker.New(orders, func(ctx context.Context, m *message) error {
		if m.Deliveries > 1 {
			return nil
		}
		s.Must(s.Faults.Expire(ctx, "orders", m.Receipt))
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, s.options(options{Visibility: 20 * short})))
	s.Is(<-causes, mailbox.ErrReceiptExpired)
	s.expectStats(orders, mailbox.Stats{})
}

func groupRuns(s *env) {
	orders, seen := s.open("orders"), ruletest.NewRecorder()
	p := &policy{MaxDeliveries: 1}
	g := worker.NewGroup(&worker.GroupOptions{NoSignals: true, HealthAddr: "127.0.0.1:0", DeadLetterThreshold: 1, Logger: s.Logs.Logger()},
		worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: p})),
		deadletter.NewConsumer(p.Queue(orders), func(_ context.Context, l deadLetter) (deadletter.Action, error) {
			seen.Add(l.Body)
			return deadletter.Keep, nil
		}, &deadletter.ConsumerOptions{Poll: 20 * time.Millisecond}))
	stop := s.run(g)
	s.send(orders, "tea", "milk")
	s.expectCount(seen, 2)
	s.expectStats(orders, mailbox.Stats{Dead: 2})
	if report := g.Report(s.Context()); report.Status == worker.Healthy || len(report.Members) != 2 || report.DeadLetters[0].Depth != 2 {
		s.Errorf("the report is %+v", report)
	}
	answer, err := http.Get("http://" + g.HealthAddr().String() + "/healthz")
	s.Must(err)
	s.Must(answer.Body.Close())
	ruletest.Equal(s, "liveness", answer.StatusCode, http.StatusOK)
	s.Must(stop())
}

func watchdogReportsStuckHandler(s *env) {
	orders, causes := s.open("orders"), make(chan error, 1)
	id := s.send(orders, "tea")[0]
	var once sync.Once
	g := worker.NewGroup(&worker.GroupOptions{NoSignals: true, Watchdog: short, CancelStuck: true, Logger: s.Logs.Logger()},
		worker.New(orders, func(ctx context.Context, m *message) error {
			once.Do(func() {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			})
			return nil
		}, s.options(options{})))
	s.run(g)
	s.Is(<-causes, worker.ErrStuck)
	for line := range strings.Lines(s.Logs.String()) {
		var said struct{ Msg, Loop, ID, Stack string }
		s.Must(json.Unmarshal([]byte(line), &said))
		if strings.Contains(said.Msg, "handler is stuck") {
			if said.Loop != "orders" || said.ID != id || !strings.Contains(said.Stack, "watchdogReportsStuckHandler") {
				s.Errorf("the log says %+v", said)
			}
			return
		}
	}
	s.Error("the log does not say that the handler is stuck")
}

// leasesAreExtended works longer than a lease. A machine that stops for longer than a lease ends
// it; then the work is done again with a longer one.
func leasesAreExtended(s *env) {
	var times, extended int
	for _, lease := range []time.Duration{short, 5 * short, 20 * short} {
		before, done := s.Faults.Calls("extend"), ruletest.NewRecorder()
		orders := s.open("orders-" + lease.String())
		s.send(orders, "tea")
		s.run(worker.New(orders, func(context.Context, *message) error {
			s.Settle(4 * lease)
			done.Add("done")
			return nil
		}, s.options(options{Visibility: lease, Concurrency: 2})))
		s.Eventually("the work to be done", func() bool { return done.Count() > 0 })
		s.expectStats(orders, mailbox.Stats{})
		if times, extended = done.Count(), s.Faults.Calls("extend")-before; times == 1 && extended >= 3 {
			return
		}
	}
	s.Errorf("the work was done %d times, and its lease extended %d times", times, extended)
}

func failingConsumerTriesAgain(s *env) {
	orders, seen := s.open("orders"), ruletest.NewRecorder()
	dead := deadletter.NewQueue(orders, s.openDeadLetters("dead"))
	s.deadLetterAll(orders, dead, "tea", "milk")
	s.run(deadletter.NewConsumer(dead, func(_ context.Context, l deadLetter) (deadletter.Action, error) {
		seen.Add(l.Body)
		if seen.Count() == 1 {
			return deadletter.Done, errMilk
		}
		return deadletter.Done, nil
	}, &deadletter.ConsumerOptions{Poll: 20 * time.Millisecond, RetryAfter: short}))
	s.expectCount(seen, 3)
	if got := seen.List(); !slices.Equal(got, []string{"tea", "milk", "tea"}) {
		s.Errorf("shown were %v", got)
	}
	if again := seen.When()[2] - seen.When()[0]; again < short {
		s.Errorf("it was shown again after %v", again)
	}
	s.Eventually("the dead letters to be gone", func() bool { return len(s.listDead(dead)) == 0 })
}

func consumerRedrivesOnce(s *env) {
	orders, dedup, repeats := s.open("orders"), deadletter.NewMemoryDedup(100), ruletest.NewRecorder()
	dead := deadletter.NewQueue(orders, nil)
	s.deadLetterAll(orders, dead, "tea")
	redrive := func() (stop func() error) {
		return s.run(deadletter.NewConsumer(dead, func(context.Context, deadLetter) (deadletter.Action, error) {
			return deadletter.Redrive, nil
		}, &deadletter.ConsumerOptions{Poll: 20 * time.Millisecond, Dedup: dedup, Hooks: deadletter.Hooks{
			Duplicate: func(_, id string) { repeats.Add(id) },
		}}))
	}
	stop := redrive()
	s.expectStats(orders, mailbox.Stats{Ready: 1})
	s.Must(stop())
	s.deadLetterNext(orders, dead)
	redrive()
	s.expectCount(repeats, 1)
	s.Eventually("the repeat not to be sent", func() bool {
		stats, err := orders.Stats(s.Context())
		s.Must(err)
		return stats.Ready == 0
	})
}

func hooksReportEvents(s *env) {
	told, d := ruletest.NewRecorder(), dispatch.New(nil)
	dispatch.Subscribe(d, func(_ context.Context, event dispatch.Sent) error { told.Add("sent " + event.Queue); return nil })
	dispatch.Subscribe(d, func(context.Context, dispatch.Received) error { told.Add("received"); return nil })
	dispatch.Subscribe(d, func(_ context.Context, event dispatch.DeadLettered) error {
		told.Add("dead " + string(event.Reason))
		return nil
	})
	dispatch.Subscribe(d, func(_ context.Context, event dispatch.Settled) error {
		told.Add("settled " + string(event.Outcome))
		return nil
	})
	orders := s.openTraced("orders", dispatch.Hooks(d))
	s.send(orders, "tea")
	_, err := worker.New(orders, count(ruletest.NewRecorder()), s.options(options{})).RunOnce(s.Context())
	s.Must(err)
	s.send(orders, "milk")
	_, err = worker.New(orders, fails(worker.Permanent(errMilk), ruletest.NewRecorder()), s.options(options{DeadLetters: &policy{}})).RunOnce(s.Context())
	s.Must(err)
	want := []string{"sent orders", "received", "settled ack", "sent orders", "received", "dead fatal"}
	if got := told.List(); !slices.Equal(got[:len(want)-1], want[:len(want)-1]) || !slices.Contains(got, want[len(want)-1]) {
		s.Errorf("told was %v, want %v", got, want)
	}
}
