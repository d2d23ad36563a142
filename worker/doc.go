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
// Nil acks the message. An error gives it back, to be delivered again after a
// backoff that grows with each delivery. [Permanent], [RetryAfter] and [Discard]
// say more precisely what should happen. A panic is an error. What the handler
// has settled itself is left alone.
//
// A request, that is a message with a reply address, is better served by a
// function that returns the answer: see [Serve]. If it fails for good, the error
// is the answer. What "for good" means is up to a deadletter.Policy; without one
// every failure of a request is answered at once.
//
// # Leases
//
// A message is leased for Options.Visibility, and the loop extends the lease for
// as long as it holds the message: while the handler works, while the message
// waits for a free handler, and while an ack is being repeated. If the lease is
// lost all the same, because the backend was away for too long or somebody
// expired it, the handler's context is cancelled and context.Cause says
// ErrReceiptExpired: another worker may have the message by then.
//
// # What can go wrong
//
// A loop outlives errors of its backend. It tries again, with pauses that grow,
// until it is told to stop. Work that is done is not done again because
// acknowledging it failed: the ack is repeated instead, and if the message comes
// back to this loop in the end, it is acked without asking the handler.
//
// When the context of Run ends, the loop stops receiving, gives back what no
// handler has begun, lets handlers finish within Options.Drain, and then cancels
// the rest and gives their messages back too.
//
// # Groups
//
// A [Group] runs loops, dead-letter consumers and other members together, until
// a signal or the first failure ends them all. It answers health checks, and a
// watchdog notices handlers that are stuck.
package worker
