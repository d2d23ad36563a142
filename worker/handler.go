package worker

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/mailboxmq/mailbox"
)

// A Handler deals with one message. What it returns decides what becomes of the
// message: see the package documentation. Its context ends when it returns, when
// the lease is lost, when Options.Timeout is over, or when the loop has no more
// time; context.Cause says which. It must be safe for concurrent use if the loop
// has more than one of them.
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

// A PanicError is a handler that panicked.
type PanicError struct {
	// Value is what it panicked with.
	Value any
	// Stack is where, as debug.Stack prints it.
	Stack []byte
	// Place is the function, file and line.
	Place string
}

// Error returns the value and the place.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v (in %s)", e.Value, e.Place) }

// Unwrap returns the value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// StackTrace returns the stack, for the dead letter.
func (e *PanicError) StackTrace() string { return string(e.Stack) }

// newPanicError is called by the function that recovered.
func newPanicError(value any) *PanicError {
	return &PanicError{Value: value, Stack: debug.Stack(), Place: panicPlace()}
}

// panicPlace finds the innermost function above the panic that is not the
// runtime's.
func panicPlace() string {
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
			return "an unknown place"
		}
	}
}

// call runs a handler and makes an error of a panic.
func call[T any](ctx context.Context, handler Handler[T], message *mailbox.Message[T]) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return handler(ctx, message)
}
