// Package mailbox sends and receives typed messages through named, durable,
// point-to-point queues with the semantics of SQS: a message is leased to one
// receiver at a time, and is delivered again unless the receiver acks it.
//
// A [Mailbox] uses a backend, which stores bytes: package membox in memory, others
// on disk, in Redis, in AWS SQS or in a mailboxd. A program is the same on all of
// them.
//
//	orders, err := mailbox.OpenURL[Order](ctx, "disk:///var/lib/shop?queue=orders", nil)
//	…
//	sent, err := orders.Send(ctx, Order{Item: "tea"})
//
// [OpenURL] opens the backend too; import its package for the scheme. [Open] takes a
// backend that the program has opened, with options of its own.
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
//		err = message.Ack(ctx) // done
//		…
//	}
//
// [Message.Ack] removes it, [Message.Nack] returns it to the queue with a cause and
// a delay, [Message.Release] returns it to its place at once, [Message.DeadLetter]
// dead-letters it, and [Message.Extend] extends the lease. If a receiver crashes,
// the message is delivered again when its visibility ends. So a message is
// delivered at least once, and handlers must tolerate duplicates.
// [Mailbox.Messages] receives in a range loop.
//
// # Bodies
//
// A [Codec] turns values into bytes: [JSON] by default, and [Bytes], [String],
// [Text], [Binary] or any two functions ([CodecFunc]) otherwise. A body that
// cannot be encoded is never sent. A message whose body cannot be decoded is
// dead-lettered, or handled as [Options.Poison] says; the receiver gets the rest of
// the batch.
//
// # Replies
//
// A message can have a reply address ([WithReplyTo]): another mailbox, which the
// receiver finds through [Options.Resolver], or a reply slot, which takes one answer
// ([Options.Replies]). [Reply] answers either. Package registry finds mailboxes by
// name or URI, and separates tenants. Clients, futures and handlers are in package reply.
//
// # Errors
//
// The kinds of errors are constants to test for with errors.Is, such as [ErrFull]
// and [ErrReceiptExpired]; [*Error] has the details, and [*BatchError] the errors of
// a batch by position. Values outside the backend's limits ([Mailbox.Traits]) are
// refused before the backend is called, with an *Error that names the field and the
// limit. Operations that the backend does not support return [ErrUnsupported]. When
// a context ends, its error is returned unwrapped.
//
// # Concurrency
//
// A Mailbox and a Message are safe for concurrent use; of concurrent calls that
// settle a message exactly one succeeds. The package does not retry, except that
// [Mailbox.Messages] continues after an error if its loop does.
package mailbox
