package telemetry

import (
	"context"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/worker"
)

// JoinTraces returns hooks that call those of all traces, in order. A hook that no trace
// has is nil, and so costs nothing. Nil traces are left out.
func JoinTraces(traces ...*mailbox.Trace) *mailbox.Trace {
	joined := &mailbox.Trace{}
	for _, t := range traces {
		if t == nil {
			continue
		}
		joined.Sending = thenSending(joined.Sending, t.Sending)
		joined.Sent = then(joined.Sent, t.Sent)
		joined.Polled = then(joined.Polled, t.Polled)
		joined.Received = thenReceived(joined.Received, t.Received)
		joined.Poisoned = then(joined.Poisoned, t.Poisoned)
		joined.Settled = then(joined.Settled, t.Settled)
		joined.Extended = then(joined.Extended, t.Extended)
		joined.Replied = then(joined.Replied, t.Replied)
	}
	return joined
}

func joinRegistryTraces(traces ...*mailbox.RegistryTrace) *mailbox.RegistryTrace {
	joined := &mailbox.RegistryTrace{}
	for _, t := range traces {
		if t == nil {
			continue
		}
		joined.Resolved = then(joined.Resolved, t.Resolved)
		joined.Opened = then(joined.Opened, t.Opened)
		joined.Evicted = thenPlain(joined.Evicted, t.Evicted)
	}
	return joined
}

func joinHooks(hooks ...worker.Hooks) worker.Hooks {
	var joined worker.Hooks
	for _, h := range hooks {
		joined.Received = thenBatch(joined.Received, h.Received)
		joined.Started = then(joined.Started, h.Started)
		joined.Finished = then(joined.Finished, h.Finished)
		joined.Settled = then(joined.Settled, h.Settled)
		joined.BackendFailed = thenFailed(joined.BackendFailed, h.BackendFailed)
	}
	return joined
}

func joinConsumerHooks(hooks ...deadletter.ConsumerHooks) deadletter.ConsumerHooks {
	var joined deadletter.ConsumerHooks
	for _, h := range hooks {
		joined.Depth = thenPair(joined.Depth, h.Depth)
		joined.Handled = thenPlain(joined.Handled, h.Handled)
		joined.Duplicate = thenPair(joined.Duplicate, h.Duplicate)
	}
	return joined
}

// then, and those below for hooks of other forms, return a function that calls first and
// then second. If one of them is nil it is the other.
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

// sendingFunc is the hook before a send, which may return another context.
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
