// Package deadletter decides when a message has failed for good, keeps what is
// known about it, and helps people and programs to deal with it later.
//
// # Deciding
//
// A [Policy] says what a failure means: errors on its Never list are always
// tried again, errors on its Always list make a dead letter at once, and any
// other does when the message has been delivered MaxDeliveries times, five by
// default. A worker loop takes the policy as one option:
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
// A [Box] is where the dead letters of a mailbox are. Where the backend keeps
// dead letters itself, that is with the mailbox, and burying a message is one
// atomic step. Elsewhere, or if the policy names one, it is a mailbox of
// [Letter] values. Burying then takes three steps, in this order: write the
// letter, send the error reply, ack the message. A crash in between doubles
// something and loses nothing. Give the queue of such a mailbox no delivery limit
// (MaxDeliveries driver.Off): a letter that a consumer fails on stays there then.
//
// # Looking after them
//
// [Box.Letters] lists without taking, [Box.Redrive] sends letters back to be
// tried again, [Box.Discard] removes them. A [Consumer] hands each letter to a
// function, which alerts somebody, replays it or gives it up. Nothing is
// reprocessed unless somebody says so, and a dead letter does not die again: one
// whose handler fails stays where it is and is tried again in an hour.
package deadletter
