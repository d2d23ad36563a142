// Package sqsbox is the backend on Amazon SQS: queues that somebody else operates,
// shared with any program that speaks its protocol, Mailbox or not.
//
//	settings, err := config.LoadDefaultConfig(ctx) // of aws-sdk-go-v2
//	backend, err := sqsbox.New(sqs.NewFromConfig(settings), nil)
//	orders, err := mailbox.Open[Order](ctx, backend, "orders", nil)
//
// The client is the caller's: region, credentials, endpoint, time-outs and retries are
// configured there. A throttled call that the SDK has given up on is ErrFull, and says
// when to try again. Calls are made with the option OwnBodies, which keeps the SDK from
// breaking answers.
//
// # Two kinds of queues
//
// A standard queue has no order and no dedup keys; Traits say so, and messages with a
// key are refused. A group is taken: SQS serves the groups of a standard queue fairly.
//
// A FIFO queue, whose name ends in .fifo, has strict groups and remembers dedup keys for
// five minutes. Config.StrictGroups makes one; it can be opened with and without the
// ending. SQS takes no delay for single messages there: Traits.MaxDelay is 0.
//
// # Messages
//
// A body that is text goes as it is, and so do up to ten attributes whose names and
// values SQS allows: any client can read them. All else goes into one attribute called
// mailbox, a small JSON document: reply address, correlation id, other attributes,
// groups that SQS would not take, and that the body is base64, or empty. A message that
// needs no such attribute has none. Of what other clients send, numbers are received as
// their digits, and binary attributes as base64.
//
// SQS counts bodies and attributes together, after encoding. Traits.MaxBodyBytes is what
// fits in any case; text may be as long as the queue allows. What does not fit is
// ErrTooLarge before anything is sent.
//
// Ids are the 128 bits of the UUIDs of SQS, written like ULIDs. They do not tell the time.
//
// # Few requests
//
// Sends, acks, nacks and extensions of all goroutines share requests of up to ten. Nobody
// waits for company: a call that finds no request under way leaves at once; what comes
// while one is leaves together when it is answered, when ten are there, or after 20 ms.
//
// A receive waits at SQS, for 20 seconds a request, and is woken by the message. One that
// is cancelled returns at once, but its request stays: to abort it could leave a message
// hidden that nobody has. The next receiver takes the request over, and what it brings
// when there is none is made visible again.
//
// # What SQS cannot keep
//
// A backend may promise less than others if it says so. Beyond what Traits tell:
//
//   - Times are whole seconds at SQS, rounded up. A receipt is good for the time that was
//     asked, and the message comes back at the end of the second. A delivery cannot be
//     held for more than twelve hours in all; longer extensions are cut.
//   - A standard queue honours receipts that are over, or were used. The process that
//     received a message keeps the time itself, and refuses them. A receipt from another
//     process is for SQS to judge. An ack that SQS confirms only after the time was over is
//     ErrUnavailable: it may not have been done.
//   - The cause of a nack is not stored. The process that gave it remembers it, for the
//     latest 10,000 messages, and hands it out as LastError.
//   - Every delivery counts, also one that nobody got because the receiver had left, or had
//     no room for it (ReceiveRequest.MaxBytes). The process that gave the message back
//     subtracts it from Deliveries; others, and maxReceiveCount, do not.
//   - A key that was used for another body is not a conflict to SQS: it drops the message and
//     names the first one. The process that sent that one answers ErrConflict, and says
//     Duplicate; any other gets the first one's id, and neither.
//   - Stats are estimates; purge returns one. A purge takes SQS up to a minute, and there is
//     one a minute.
//   - A nack puts a message nowhere in particular, and in a FIFO queue at its own place.
//   - A queue with a DelaySeconds of its own delays messages that ask for no delay.
//   - Nothing can be looked at without being received, so Traits.Peek is not set.
//   - A yes to a late ack does not mean that the message is gone, so
//     Traits.LateAck is not set.
//
// # Dead letters
//
// They live in another queue: Config.MaxDeliveries together with Config.DeadLetterTo is the
// RedrivePolicy. SQS moves a message when next it would be delivered, not when it is given
// back; a nack of the last delivery is not delayed, so that this is soon. What arrives has
// its source and the reason max_attempts as attributes, and no cause. Traits.DeadLetters is
// not set; package deadletter keeps the letters of a loop in a queue of their
// own. Move brings them back: all of them by a message move task, which gives them new ids,
// a limited number by receiving, sending and deleting, which keeps the ids.
//
// # Managing queues
//
// OpenQueue makes queues only with Options.Create. ConfigureQueue makes and changes them, and
// refuses, naming the field, what SQS has no attribute for. Names that SQS does not allow are
// written with escapes, and long ones with a hash; such a queue has its name in tags. With
// Options.Prefix several programs share an account. A queue that was deleted cannot be made
// again for a minute, which is ErrUnavailable.
//
// # Permissions
//
// To use a queue: GetQueueUrl, GetQueueAttributes, SendMessage, ReceiveMessage, DeleteMessage,
// ChangeMessageVisibility. To manage queues: CreateQueue, SetQueueAttributes, DeleteQueue,
// ListQueues, and TagQueue and ListQueueTags for long names. To purge and move: PurgeQueue,
// StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask. Ping lists queues.
package sqsbox
