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
	var all mailbox.Hooks
	for _, h := range hooks {
		all.Sending = thenSending(all.Sending, h.Sending)
		all.Sent = then2(all.Sent, h.Sent)
		all.Polled = then2(all.Polled, h.Polled)
		all.Received = then3(all.Received, h.Received)
		all.Poisoned = then2(all.Poisoned, h.Poisoned)
		all.Settled = then2(all.Settled, h.Settled)
		all.Extended = then2(all.Extended, h.Extended)
		all.Replied = then2(all.Replied, h.Replied)
	}
	return all
}

func joinRegistryHooks(hooks ...registry.Hooks) registry.Hooks {
	var all registry.Hooks
	for _, h := range hooks {
		all.Resolved = then2(all.Resolved, h.Resolved)
		all.Opened = then2(all.Opened, h.Opened)
		all.Evicted = then1(all.Evicted, h.Evicted)
	}
	return all
}

func joinWorkerHooks(hooks ...worker.Hooks) worker.Hooks {
	var all worker.Hooks
	for _, h := range hooks {
		all.Received = then3(all.Received, h.Received)
		all.Started = then2(all.Started, h.Started)
		all.Progress = then2(all.Progress, h.Progress)
		all.Finished = then2(all.Finished, h.Finished)
		all.Settled = then2(all.Settled, h.Settled)
		all.BackendFailed = then4(all.BackendFailed, h.BackendFailed)
	}
	return all
}

func joinDeadLetterHooks(hooks ...deadletter.Hooks) deadletter.Hooks {
	var all deadletter.Hooks
	for _, h := range hooks {
		all.Depth = then2(all.Depth, h.Depth)
		all.Handled = then1(all.Handled, h.Handled)
		all.Duplicate = then2(all.Duplicate, h.Duplicate)
	}
	return all
}

// joined returns both, or first or second if the other one is nil.
func joined[F any](first, second F, noFirst, noSecond bool, both F) F {
	switch {
	case noFirst:
		return second
	case noSecond:
		return first
	}
	return both
}

// The functions below return one that calls first and then second, or the other one if either
// is nil, for hooks with one to four parameters.

func then1[A any](first, second func(A)) func(A) {
	return joined(first, second, first == nil, second == nil, func(a A) { first(a); second(a) })
}

func then2[A, B any](first, second func(A, B)) func(A, B) {
	return joined(first, second, first == nil, second == nil, func(a A, b B) { first(a, b); second(a, b) })
}

func then3[A, B, C any](first, second func(A, B, C)) func(A, B, C) {
	return joined(first, second, first == nil, second == nil, func(a A, b B, c C) { first(a, b, c); second(a, b, c) })
}

func then4[A, B, C, D any](first, second func(A, B, C, D)) func(A, B, C, D) {
	return joined(first, second, first == nil, second == nil, func(a A, b B, c C, d D) { first(a, b, c, d); second(a, b, c, d) })
}

// sendingFunc is the hook before a send; it may return a derived context.
type sendingFunc = func(ctx context.Context, queue string, messages []driver.Outgoing) context.Context

func thenSending(first, second sendingFunc) sendingFunc {
	return joined(first, second, first == nil, second == nil, func(ctx context.Context, queue string, messages []driver.Outgoing) context.Context {
		if derived := first(ctx, queue, messages); derived != nil {
			ctx = derived
		}
		return second(ctx, queue, messages)
	})
}
