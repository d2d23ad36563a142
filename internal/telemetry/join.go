package telemetry

import (
	"context"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/worker"
)

// joinMailboxHooks returns hooks that call all of hooks, in order. A hook that none of
// them sets is nil and costs nothing.
func joinMailboxHooks(hooks ...mailbox.Hooks) mailbox.Hooks {
	var joined mailbox.Hooks
	for _, h := range hooks {
		joined.Sending = thenSending(joined.Sending, h.Sending)
		joined.Sent = then(joined.Sent, h.Sent)
		joined.Polled = then(joined.Polled, h.Polled)
		joined.Received = thenReceived(joined.Received, h.Received)
		joined.Poisoned = then(joined.Poisoned, h.Poisoned)
		joined.Settled = then(joined.Settled, h.Settled)
		joined.Extended = then(joined.Extended, h.Extended)
		joined.Replied = then(joined.Replied, h.Replied)
	}
	return joined
}

func joinRegistryHooks(hooks ...registry.Hooks) registry.Hooks {
	var joined registry.Hooks
	for _, h := range hooks {
		joined.Resolved = then(joined.Resolved, h.Resolved)
		joined.Opened = then(joined.Opened, h.Opened)
		joined.Evicted = thenPlain(joined.Evicted, h.Evicted)
	}
	return joined
}

func joinWorkerHooks(hooks ...worker.Hooks) worker.Hooks {
	var joined worker.Hooks
	for _, h := range hooks {
		joined.Received = thenBatch(joined.Received, h.Received)
		joined.Started = then(joined.Started, h.Started)
		joined.Progress = then(joined.Progress, h.Progress)
		joined.Finished = then(joined.Finished, h.Finished)
		joined.Settled = then(joined.Settled, h.Settled)
		joined.BackendFailed = thenFailed(joined.BackendFailed, h.BackendFailed)
	}
	return joined
}

func joinDeadLetterHooks(hooks ...deadletter.Hooks) deadletter.Hooks {
	var joined deadletter.Hooks
	for _, h := range hooks {
		joined.Depth = thenPair(joined.Depth, h.Depth)
		joined.Handled = thenPlain(joined.Handled, h.Handled)
		joined.Duplicate = thenPair(joined.Duplicate, h.Duplicate)
	}
	return joined
}

// then returns a function that calls first and then second, or the other one if either
// is nil. The functions below do the same for hooks with other parameters.
func then[E any](first, second func(context.Context, E)) func(context.Context, E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, event E) {
		first(ctx, event)
		second(ctx, event)
	}
}

func thenPlain[E any](first, second func(E)) func(E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(event E) {
		first(event)
		second(event)
	}
}

func thenPair[A, B any](first, second func(A, B)) func(A, B) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(a A, b B) {
		first(a, b)
		second(a, b)
	}
}

// sendingFunc is the hook before a send; it may return a derived context.
type sendingFunc = func(ctx context.Context, queue string, messages []driver.Outgoing) context.Context

func thenSending(first, second sendingFunc) sendingFunc {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, queue string, messages []driver.Outgoing) context.Context {
		if derived := first(ctx, queue, messages); derived != nil {
			ctx = derived
		}
		return second(ctx, queue, messages)
	}
}

type receivedFunc = func(ctx context.Context, queue string, delivery *driver.Delivery)

func thenReceived(first, second receivedFunc) receivedFunc {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, queue string, delivery *driver.Delivery) {
		first(ctx, queue, delivery)
		second(ctx, queue, delivery)
	}
}

type batchFunc = func(ctx context.Context, loop string, messages int)

func thenBatch(first, second batchFunc) batchFunc {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, loop string, messages int) {
		first(ctx, loop, messages)
		second(ctx, loop, messages)
	}
}

type failedFunc = func(ctx context.Context, loop, op string, err error)

func thenFailed(first, second failedFunc) failedFunc {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, loop, op string, err error) {
		first(ctx, loop, op, err)
		second(ctx, loop, op, err)
	}
}
