// Package deadletter decides when a message has failed for good, keeps it with
// what is known about the failure, and helps people and programs deal with it.
//
// # Deciding
//
// A [Policy] says what a failure means: errors on its Never list are always
// retried, errors on its Always list dead-letter the message at once, and any
// other error does so when the message has been delivered MaxDeliveries times,
// five by default. A worker loop takes the policy as one option:
//
//	loop := worker.New(orders, handle, &worker.Options[Order]{
//		DeadLetters: &deadletter.Policy[Order]{
//			Never:  []deadletter.Matcher{deadletter.Is(mailbox.ErrUnavailable)},
//			Always: []deadletter.Matcher{deadletter.As[*json.SyntaxError]()},
//		},
//	})
//
// # Keeping
//
// A [Queue] is the dead-letter queue of a mailbox. Where the backend keeps dead
// letters itself, they stay with the mailbox, and dead-lettering is one atomic
// step. Elsewhere, or if the policy names one, the queue is a mailbox of
// [Message] values. Dead-lettering then takes three steps, in this order: write
// the dead letter, send the error reply, ack the message. A crash in between
// repeats a step and loses nothing. Give such a queue no delivery limit
// (MaxDeliveries driver.Off), so that a dead letter stays in it when a consumer
// fails.
//
// # Looking after them
//
// [Queue.List] lists dead letters without taking them, [Queue.Redrive] sends
// them back to be tried again, [Queue.Discard] removes them. A [Consumer] hands
// each dead letter to a function, which raises an alert, redrives it or gives it
// up. Nothing is redriven unless a caller asks for it. A dead letter is never
// dead-lettered again: if its handler fails, it stays and is shown again in an
// hour.
package deadletter
