// Package worker runs handlers on the messages of mailboxes.
//
// # Loops
//
// A [Loop] receives messages, hands each to a [Handler], and settles it
// according to what the handler returns:
//
//	loop := worker.New(orders, func(ctx context.Context, order *mailbox.Message[Order]) error {
//		return brew(ctx, order.Body)
//	}, &worker.Options[Order]{Concurrency: 8})
//	err := loop.Run(ctx)
//
// Nil acks the message. An error nacks it, and it is delivered again after a
// backoff that grows with each delivery. [Permanent], [RetryAfter] and [Discard]
// say more precisely what should happen. A panic is an error. The loop does not
// touch a message that the handler has settled.
//
// For requests, that is messages with a reply address, write a function that
// returns the answer: see [Serve]. If a request fails for good, the client gets
// the error. A deadletter.Policy decides what "for good" means; without one, the
// client gets the first failure.
//
// # Kinds and batches
//
// A [Mux] is for a queue with several kinds of messages: it has a handler and a codec
// for each kind. [NewBatch] makes a loop whose handler gets several messages at once
// and settles each according to its own result. A handler that works for long tells
// with [SetProgress] how far it has come.
//
// # Leases
//
// A message is leased for Options.Visibility, and the loop extends the lease for
// as long as it holds the message: while the handler works, while the message
// waits for a free handler, and while an ack is being repeated. If the lease is
// lost all the same, because the backend was unavailable for too long or an
// operator expired it, the handler's context is cancelled and context.Cause says
// ErrReceiptExpired: another worker may have the message by then.
//
// # What can go wrong
//
// A loop survives backend errors. It retries with growing pauses until it is told
// to stop. If an ack fails, the handler does not run again: the loop repeats the
// ack, and if the message comes back to this loop, it acks it without calling the
// handler.
//
// When the context of Run ends, the loop drains: it stops receiving, releases the
// messages that no handler has started, lets handlers finish within Options.Drain,
// and then cancels the rest and nacks their messages.
//
// # Groups
//
// A [Group] runs loops, dead-letter consumers and other members together, until
// a signal or the first failure ends them all. It answers health checks, and its
// watchdog reports stuck handlers.
package worker
