// Package sqsbox is the backend on Amazon SQS: managed queues, shared with any
// program that speaks the SQS protocol, Mailbox or not.
//
//	settings, err := config.LoadDefaultConfig(ctx) // of aws-sdk-go-v2
//	backend, err := sqsbox.Open(ctx, sqs.NewFromConfig(settings), nil)
//	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
//
// The caller configures the client: region, credentials, endpoint, timeouts and retries.
// A throttled call that the SDK has given up on is ErrFull, and says when to try again.
// Calls are made with the option OwnBodies, which keeps the SDK from losing responses.
//
// # Two kinds of queues
//
// A standard queue has no order and no dedup keys; Traits say so, and messages with a
// key are refused. Groups are accepted: SQS serves the groups of a standard queue fairly.
//
// A FIFO queue, whose name ends in .fifo, has strict groups and a dedup window of five
// minutes. Config.StrictGroups makes one; it can be opened with and without the suffix.
// SQS does not delay single messages there: Traits.MaxDelay is 0, and due times are refused.
//
// # Messages
//
// A text body is sent unchanged, and so are up to ten attributes whose names and values
// SQS allows: any client can read them. Everything else goes into one attribute called
// mailbox, a small JSON document: reply address, correlation id, other attributes,
// groups that SQS would refuse, and whether the body is base64 or empty. A message that
// does not need the attribute does not have it. Attributes of other clients are received
// as text: numbers as their digits, binary values as base64.
//
// SQS counts bodies and attributes together, after encoding. A body of up to
// Traits.MaxBodyBytes always fits; text may be as long as the queue allows. A message
// that does not fit is ErrTooLarge before anything is sent.
//
// Ids are the 128 bits of the UUIDs of SQS, written like ULIDs. They carry no time.
//
// # Few requests
//
// Sends, acks, nacks and extensions of all goroutines share requests of up to ten. A call
// that finds no request under way is sent at once. Calls that arrive during a request are
// sent together when its response arrives, when there are ten, or after 20 ms.
//
// A receive long-polls SQS, for 20 seconds a request. A cancelled receive returns at once,
// but its request goes on: aborting it could leave a message hidden that no receiver has.
// The next receiver takes the request over. If there is none, its messages are made
// visible again.
//
// # Differences from other backends
//
// Some promises of other backends cannot be kept on SQS. Besides those in Traits:
//
//   - SQS counts in whole seconds, rounded up. A receipt is valid for the time that was
//     requested, and the message comes back at the end of the second. A delivery cannot be
//     held for more than twelve hours in all; longer extensions are cut.
//   - A standard queue accepts receipts that have expired or were used. The process that
//     received a message tracks the deadline itself, and refuses them. For a receipt of
//     another process, SQS decides. An ack that SQS confirms only after the deadline is
//     ErrUnavailable: the message may still be there.
//   - The cause of a nack is not stored. The process that nacked remembers it, for the
//     latest 10,000 messages, and returns it as LastError.
//   - Every delivery counts, also one that no receiver got because the receive was cancelled
//     or had no room for it (ReceiveRequest.MaxBytes). The process that gave the message back
//     subtracts it from Deliveries; other processes, and maxReceiveCount, do not.
//   - A dedup key that was used for another body is not a conflict to SQS: it drops the
//     message and returns the id of the first one. The process that sent the first one
//     returns ErrConflict, or Duplicate for the same body; any other process gets the first
//     one's id, and neither.
//   - Stats are estimates, and so is the result of a purge. A purge takes SQS up to a
//     minute, and only one is allowed a minute.
//   - A nacked message has no defined position in a standard queue, and keeps its position
//     in a FIFO queue.
//   - A queue with a DelaySeconds of its own delays messages that ask for no delay.
//   - Messages cannot be read without being received, so Traits.Peek is not set.
//   - SQS confirms a late ack even if the message stays, so Traits.LateAck is not set.
//
// # Dead letters
//
// They live in another queue: Config.MaxDeliveries together with Config.DeadLetterTo is the
// RedrivePolicy. SQS moves a message when it would next be delivered, not when it is nacked;
// a nack of the last delivery is not delayed, so that this is soon. A dead letter has its
// source and the reason max_attempts as attributes, and no cause. Traits.DeadLetters is not
// set; package deadletter keeps the dead letters of a worker in a queue of their own. Move
// brings them back: all of them by a message move task, which gives them new ids, or a
// limited number by receiving, sending and deleting, which keeps the ids.
//
// # Managing queues
//
// OpenQueue creates queues only with Options.Create. ConfigureQueue creates and changes them;
// a setting for which SQS has no attribute is refused with an error that names the field.
// Names that SQS does not allow are written with escapes, and long ones with a hash; the
// tags of such a queue hold its name. With Options.Prefix several programs share an account.
// A deleted queue cannot be created again for a minute, which is ErrUnavailable.
//
// # Permissions
//
// To use a queue: GetQueueUrl, GetQueueAttributes, SendMessage, ReceiveMessage, DeleteMessage,
// ChangeMessageVisibility. To manage queues: CreateQueue, SetQueueAttributes, DeleteQueue,
// ListQueues, and TagQueue and ListQueueTags for long names. To purge and move: PurgeQueue,
// StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask. Ping lists queues.
package sqsbox
