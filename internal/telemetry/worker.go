package telemetry

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/worker"
)

// resultWords are the label values for the results of a loop.
var resultWords = map[worker.Result]string{
	worker.ResultAcked:      "acked",
	worker.ResultAnswered:   "answered",
	worker.ResultUnanswered: "unanswered",
	worker.ResultDiscarded:  "discarded",
	worker.ResultNacked:     "nacked",
	worker.ResultDead:       "dead",
	worker.ResultReleased:   "released",
	worker.ResultLost:       "lost",
	worker.ResultHandler:    "handler",
	worker.ResultUnsettled:  "unsettled",
}

// WorkerHooks returns hooks for loops, which then call next.
func (r *Recorder) WorkerHooks(next ...worker.Hooks) worker.Hooks {
	return joinWorkerHooks(append([]worker.Hooks{{
		Started: r.started, Progress: r.progressed, Finished: r.finished, Settled: r.workerSettled, BackendFailed: r.backendFailed,
	}}, next...)...)
}

func (r *Recorder) started(ctx context.Context, info worker.Info) {
	r.sink.Add(ctx, HandlersRunning, 1, r.members.bound(info.Loop))
}

func (r *Recorder) finished(ctx context.Context, event worker.FinishedEvent) {
	loop := r.members.bound(event.Loop)
	r.reports.ended(&event.Info)
	r.sink.Add(ctx, HandlersRunning, -1, loop)
	result := "ok"
	if event.Err != nil {
		result = "error"
		if _, panicked := errors.AsType[*worker.PanicError](event.Err); panicked {
			result = "panic"
		}
	}
	r.seconds(ctx, HandlerTime, event.Duration, loop, result)
}

func (r *Recorder) workerSettled(ctx context.Context, event worker.SettledEvent) {
	word, known := resultWords[event.Result]
	if !known {
		word = Other
	}
	r.count(ctx, WorkerSettled, 1, r.members.bound(event.Loop), word)
	// A dead letter that the backend keeps is an outcome that the mailbox's own hooks
	// count. One in another mailbox is an ack for them, so it is counted here.
	if event.Result == worker.ResultDead && event.DeadLetterQueue != event.Queue {
		r.count(ctx, DeadLettered, 1, r.Queue(event.Queue), string(event.Reason))
	}
}

func (r *Recorder) backendFailed(ctx context.Context, loop, op string, _ error) {
	r.count(ctx, BackendFailed, 1, r.members.bound(loop), op)
}

// Stuck counts a stuck handler. It is for worker.GroupOptions.Stuck.
func (r *Recorder) Stuck(event worker.StuckEvent) {
	r.count(r.base, Stuck, 1, r.members.bound(event.Member))
}

// DeadLetterHooks returns hooks for consumers of dead letters, which then call next.
func (r *Recorder) DeadLetterHooks(next ...deadletter.Hooks) deadletter.Hooks {
	return joinDeadLetterHooks(append([]deadletter.Hooks{{
		Depth: r.depth, Handled: r.handled, Duplicate: r.duplicate,
	}}, next...)...)
}

func (r *Recorder) depth(consumer string, depth int) {
	r.sink.Record(r.base, ConsumerDepth, float64(depth), r.members.bound(consumer))
}

func (r *Recorder) handled(event deadletter.HandledEvent) {
	consumer := r.members.bound(event.Consumer)
	if event.Age > 0 {
		r.seconds(r.base, DeadLetterAge, event.Age, consumer)
	}
	r.seconds(r.base, DeadLetterTime, event.Duration, consumer)
	result := string(event.Action)
	switch {
	case event.Err != nil:
		result = "failed"
	case event.Action == deadletter.Done:
		result = "done"
	case event.Action == deadletter.Redrive:
		r.count(r.base, Redriven, 1, r.Queue(event.Source))
	}
	r.count(r.base, DeadLettersHandled, 1, consumer, result)
}

func (r *Recorder) duplicate(consumer, _ string) {
	r.count(r.base, DeadLetterDuplicates, 1, r.members.bound(consumer))
}
