package worker

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/mailboxmq/mailbox"
)

// A Handler handles one message. Its result decides how the message is settled: see
// the package documentation. Its context ends when it returns, when the lease is
// lost, after Options.Timeout, at the end of the drain time, or within five seconds
// after the client has cancelled the request, if it is one; context.Cause says
// which. A cancelled request is acked, whatever its handler returns, and a request that
// needs no answer any more when its turn comes is acked without a call of the handler.
// It must be safe for concurrent use if Options.Concurrency is above one.
type Handler[T any] func(ctx context.Context, message *mailbox.Message[T]) error

// A Middleware wraps a handler in another one.
type Middleware[T any] func(next Handler[T]) Handler[T]

// chain puts the first middleware outermost.
func chain[T any](handler Handler[T], middleware []Middleware[T]) Handler[T] {
	for i := len(middleware) - 1; i >= 0; i-- {
		if middleware[i] != nil {
			handler = middleware[i](handler)
		}
	}
	return handler
}

// A PanicError is the error of a handler that panicked.
type PanicError struct {
	// Value is the panic value.
	Value any
	// Stack is the stack, as debug.Stack prints it.
	Stack []byte
	// Location is the function, file and line.
	Location string
}

// Error returns the value and the location.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v (in %s)", e.Value, e.Location) }

// Unwrap returns the value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// StackTrace returns the stack, for the dead letter.
func (e *PanicError) StackTrace() string { return string(e.Stack) }

// newPanicError returns the error of a panic. The function that recovered calls it.
func newPanicError(value any) *PanicError {
	return &PanicError{Value: value, Stack: debug.Stack(), Location: panicLocation()}
}

// panicLocation returns the function that panicked: the innermost one below the
// panic that does not belong to the runtime.
func panicLocation() string {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	panicking := false
	for {
		frame, more := frames.Next()
		inRuntime := strings.HasPrefix(frame.Function, "runtime.")
		if panicking && !inRuntime {
			return fmt.Sprintf("%s %s:%d", frame.Function, frame.File, frame.Line)
		}
		panicking = panicking || inRuntime && strings.Contains(frame.Function, "panic")
		if !more {
			return "an unknown function"
		}
	}
}

// call runs a handler and turns a panic into an error.
func call[T any](ctx context.Context, handler Handler[T], message *mailbox.Message[T]) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return handler(ctx, message)
}
