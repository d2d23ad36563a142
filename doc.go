// Package mailbox sends and receives typed messages through named, durable,
// point-to-point queues with the semantics of SQS: a message is handed to one
// receiver for a while, and comes back unless the receiver says it is done.
//
// A [Mailbox] stands on a backend, which stores bytes: package membox keeps
// them in memory, others on disk, in Redis, in AWS SQS or in a mailboxd. The
// program is the same on all of them.
//
//	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
//	…
//	sent, err := orders.Send(ctx, Order{Item: "tea"})
//
// # Receiving
//
// A receiver leases messages for their visibility, works, and settles each of
// them exactly once:
//
//	messages, err := orders.Receive(ctx, mailbox.WithMax(10), mailbox.WithWait(20*time.Second))
//	for _, message := range messages {
//		if err := brew(ctx, message.Body); err != nil {
//			err = message.Nack(ctx, time.Minute, err) // again in a minute
//			…
//			continue
//		}
//		err = message.Ack(ctx) // done, for ever
//		…
//	}
//
// [Message.Ack] removes it, [Message.Nack] gives it back with a reason and a
// delay, [Message.Release] gives it back as if it had not been taken,
// [Message.DeadLetter] sets it aside for people to look at, and
// [Message.Extend] buys more time. A receiver that dies settles nothing, and
// the message is delivered again when its visibility ends. So a message is
// delivered at least once, and handlers must bear seeing it twice.
// [Mailbox.Messages] does the receiving for a range loop.
//
// # Bodies
//
// A [Codec] turns values into bytes: [JSON] by default, and [Bytes], [String],
// [Text], [Binary] or any two functions ([CodecFunc]) otherwise. A body that
// cannot be encoded is never sent. One that cannot be decoded never reaches
// the receiver and never costs it the rest of its batch: it goes to the dead
// letters, or wherever [Options.Poison] says.
//
// # Replies
//
// A message can say where an answer is expected ([WithReplyTo]): at another
// mailbox, which the receiver finds through [Options.Resolver], or in a reply
// slot, which takes one answer ([Options.Replies]). [Reply] answers either.
// [Registry] finds mailboxes by name, and with [Schemes] by URI; [Prefix] keeps
// tenants apart. Clients, futures and handlers are in package reply.
//
// # Errors
//
// Errors are results, never booleans. Their kinds are constants to test for
// with errors.Is, such as [ErrFull] and [ErrReceiptExpired]; [*Error] carries
// the details, and [*BatchError] keeps the positions of a batch of which some
// failed. Values outside the backend's limits ([Mailbox.Traits]) are refused
// before the backend is asked, with an *Error that names the field and its
// limit. What the backend cannot do is [ErrUnsupported], never ignored. When a
// context ends, its own error is returned, unwrapped.
//
// # Concurrency
//
// A Mailbox may be used by any number of goroutines at once; so may a Message,
// of whose settling calls exactly one wins. Nothing here retries by itself,
// except that [Mailbox.Messages] goes on after an error if its loop does.
package mailbox
