package mainloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/worker"
)

// A RunContext identifies one attempt at a request.
type RunContext struct {
	// RunID is new for every attempt, and RequestID the same for all of them.
	RunID     string `json:"run_id"`
	RequestID string `json:"request_id"`
	// Attempt counts from 1.
	Attempt  int    `json:"attempt"`
	WorkerID string `json:"worker_id,omitempty"`
	// TraceParent is the W3C trace context that came with the request.
	TraceParent string `json:"traceparent,omitempty"`
}

// A Run is one attempt at a request, as Prepare and Finalize see it.
type Run[Req any] struct {
	Request Request[Req]
	Context RunContext
	// Session records what happens. Prepare may replace it, to continue an earlier
	// conversation.
	Session *Session
	// Resources are those of this run, above those of the loop. Tools find them
	// with ResourcesOf. They are closed after the run, after the cleanups.
	Resources *Resources
	// Tracker sums the usage. Code that calls models other than through the loop's
	// adapter records its usage here.
	Tracker *Tracker

	mu       sync.Mutex // guards cleanups
	cleanups []func()
}

// Cleanup registers f to run after the run, however it ends: the last f first, each
// once. A panic in f is logged and has no other effect.
func (r *Run[Req]) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// cleanUp calls all functions of Cleanup, and panicked for each that panics.
func (r *Run[Req]) cleanUp(panicked func(value any, stack []byte)) {
	r.mu.Lock()
	last := len(r.cleanups) - 1
	if last < 0 {
		r.mu.Unlock()
		return
	}
	f := r.cleanups[last]
	r.cleanups = r.cleanups[:last]
	r.mu.Unlock()
	defer r.cleanUp(panicked) // also if f calls runtime.Goexit
	defer func() {
		if value := recover(); value != nil {
			panicked(value, debug.Stack())
		}
	}()
	f()
}

// execute makes one attempt at a request.
func (l *MainLoop[Req, Out]) execute(ctx context.Context, request Request[Req], attempt RunContext) (Result[Out], *Session, error) {
	budget := request.Budget
	if budget == (Budget{}) {
		budget = l.options.Budget
	}
	run := &Run[Req]{
		Request: request, Context: attempt, Session: NewSession(), Tracker: NewTracker(budget),
		Resources: NewResources(l.options.Resources),
	}
	resources := run.Resources
	run.Cleanup(func() {
		if err := resources.Close(); err != nil {
			l.cleanupFailed(ctx, attempt, err, nil)
		}
	})
	ctx = context.WithValue(ctx, resourcesKey{}, resources)
	defer run.cleanUp(func(value any, stack []byte) { l.cleanupFailed(ctx, attempt, fmt.Errorf("panic: %v", value), stack) })
	output, err := l.attempt(ctx, run)
	result := Result[Out]{
		RequestID: request.ID, Output: output, SessionID: run.Session.ID(), Run: attempt,
		Usage: run.Tracker.Consumed(), CompletedAt: time.Now().UTC(),
	}
	if err != nil {
		result.fail(err)
	}
	return result, run.Session, err
}

// cleanupFailed logs a cleanup that failed or panicked.
func (l *MainLoop[Req, Out]) cleanupFailed(ctx context.Context, attempt RunContext, err error, stack []byte) {
	if logger := l.options.Worker.Logger; logger != nil {
		logger.LogAttrs(ctx, slog.LevelError, "mainloop: a cleanup failed", slog.String("loop", l.Name()),
			slog.String("request_id", attempt.RequestID), slog.String("run_id", attempt.RunID),
			slog.Any("err", err), slog.String("stack", string(stack)))
	}
}

// attempt prepares, calls the model and finalizes, within the deadline.
func (l *MainLoop[Req, Out]) attempt(ctx context.Context, run *Run[Req]) (output Out, err error) {
	if err := run.Tracker.budget.check(); err != nil {
		return output, err
	}
	deadline := run.Request.Deadline.earlier(run.Tracker.budget.Deadline)
	if !deadline.IsZero() {
		passed := &mailbox.Error{
			Code: ErrDeadline, Op: "run", Queue: l.Name(),
			Detail: deadline.ExpiresAt.Format(time.RFC3339Nano),
		}
		if deadline.Expired() {
			return output, passed
		}
		limited, cancel := context.WithDeadlineCause(ctx, deadline.ExpiresAt, passed)
		defer cancel()
		defer func() { err = explain(limited, err) }()
		ctx = limited
	}
	prompt, err := l.prepare(ctx, run)
	if err != nil {
		return output, err
	}
	response, err := l.converse(ctx, run, prompt)
	if err != nil {
		return output, err
	}
	output, err = l.options.Parse(response)
	if err != nil || l.options.Finalize == nil {
		return output, err
	}
	return l.options.Finalize(ctx, run, output)
}

// explain adds the cause of the context's end to an error that lacks it.
func explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// converse calls the model, runs the tools that it calls, and repeats that until it
// answers.
func (l *MainLoop[Req, Out]) converse(ctx context.Context, run *Run[Req], prompt *Prompt) (Response, error) {
	if prompt == nil {
		return Response{}, &mailbox.Error{Code: mailbox.ErrInvalid, Op: "run", Queue: l.Name(), Field: "prompt", Detail: "is nil"}
	}
	asked := *prompt
	asked.Turns = slices.Clone(prompt.Turns)
	for turn := range l.options.MaxTurns {
		response, err := l.ask(ctx, run, turn, asked, prompt.MaxOutputTokens)
		if err != nil || len(response.ToolCalls) == 0 {
			return response, err
		}
		asked.Turns = append(asked.Turns, Turn{Role: RoleAssistant, Text: response.Text, ToolCalls: response.ToolCalls})
		for _, call := range response.ToolCalls {
			use := useTool(ctx, prompt.Tools, call)
			worker.Beat(ctx)
			run.Session.Record(use)
			if err := ctx.Err(); err != nil {
				return response, err
			}
			asked.Turns = append(asked.Turns, Turn{Role: RoleTool, Text: use.Result, ToolCallID: call.ID})
		}
	}
	return Response{}, &mailbox.Error{
		Code: ErrTurns, Op: "run", Queue: l.Name(),
		Detail: fmt.Sprintf("the model did not answer within %d turns", l.options.MaxTurns),
	}
}

// ask calls the model once and records the usage.
func (l *MainLoop[Req, Out]) ask(ctx context.Context, run *Run[Req], turn int, prompt Prompt, wanted int) (Response, error) {
	if err := run.Tracker.Check(); err != nil {
		return Response{}, err
	}
	var err error
	if prompt.MaxOutputTokens, err = run.Tracker.allow(wanted); err != nil {
		return Response{}, err
	}
	response, err := l.adapter.Evaluate(ctx, &prompt)
	worker.Beat(ctx)
	if err == nil || response.Usage != (Usage{}) {
		run.Tracker.Record(fmt.Sprintf("%s/%d", run.Context.RunID, turn), response.Usage)
		run.Session.Record(response)
	}
	if err != nil {
		return response, err
	}
	return response, run.Tracker.Check()
}

// useTool runs a tool. The model gets its error.
func useTool(ctx context.Context, tools []Tool, call ToolCall) ToolUse {
	use := ToolUse{ToolCall: call}
	began := time.Now()
	i := slices.IndexFunc(tools, func(tool Tool) bool { return tool.Name == call.Name })
	err := errors.New("unknown tool")
	if i >= 0 && tools[i].Call != nil {
		use.Result, err = tools[i].Call(ctx, call.Arguments)
	}
	use.Duration = time.Since(began)
	if err != nil {
		use.Failed, use.Result = true, "error: "+err.Error()
	}
	return use
}

// parse is the default of Options.Parse.
func parse[Out any](response Response) (Out, error) {
	var output Out
	if text, ok := any(&output).(*string); ok {
		*text = response.Text
		return output, nil
	}
	decoder := json.NewDecoder(strings.NewReader(response.Text))
	if err := decoder.Decode(&output); err != nil {
		return output, &mailbox.Error{Code: mailbox.ErrEncoding, Op: "run", Detail: "the model's answer", Err: err}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return output, &mailbox.Error{Code: mailbox.ErrEncoding, Op: "run", Detail: "the model's answer has text after its JSON"}
	}
	return output, nil
}
