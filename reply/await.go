package reply

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox"
)

// Await and Parts look for replies to one request in a mailbox that others may
// read too. What is not theirs goes back to the tail of the queue at once, for
// its own reader. When they find nothing but that, they pause between
// foreignPauseMin and foreignPauseMax, so that a reader that is alone with
// somebody else's replies does not spin.
const (
	foreignPauseMin = time.Millisecond
	foreignPauseMax = 250 * time.Millisecond
	// receiveWait is how long one receive waits. The send wakes it.
	receiveWait = 20 * time.Second
	// receiveMax is how many messages are looked at together.
	receiveMax = 16
)

// Await returns the reply to the request with this id, which is its correlation
// id or its message id, from a mailbox that replies to other requests may go
// to as well: those are put back. It blocks until the reply is there or ctx
// ends, and then returns the context's error. The reply is acked. An error
// reply is returned as an error, a *mailbox.Failure. Codes beside those: those
// of Mailbox.Receive.
//
// Each look at a message that is for somebody else counts as a delivery of it,
// so a mailbox that is shared must not limit deliveries tightly. A mailbox for
// each client has none of this.
func Await[R any](ctx context.Context, replies *mailbox.Mailbox[Result[R]], requestID string) (R, error) {
	var answer R
	err := browse(ctx, replies, requestID, func(message *mailbox.Message[Result[R]]) (bool, error) {
		answer = message.Body.Value
		if err := message.Ack(ctx); err != nil && !lost(err) {
			return false, err
		}
		return true, message.Body.Err
	})
	return answer, err
}

// Collect returns the replies to n different requests from a mailbox that holds
// nothing else, in the order in which they come; errors are among them. A
// second reply to the same request, from a worker that was given it twice, is
// dropped. It blocks until it has n or ctx ends, and then returns those it has
// and the context's error. Replies are acked as they come. Codes: those of
// Mailbox.Receive.
func Collect[R any](ctx context.Context, replies *mailbox.Mailbox[Result[R]], n int) ([]Result[R], error) {
	results := make([]Result[R], 0, n)
	seen := make(map[string]bool, n)
	for len(results) < n {
		// No more than are missing: what is taken beyond would have to go back.
		messages, err := replies.Receive(ctx, mailbox.WithMax(min(n-len(results), receiveMax)), mailbox.WithWait(receiveWait))
		if err != nil {
			return results, err
		}
		for _, message := range messages {
			if id := message.Body.RequestID; !seen[id] {
				seen[id] = true
				results = append(results, message.Body)
			}
		}
		if err := mailbox.AckAll(ctx, messages...); err != nil && !lost(err) {
			return results, err
		}
	}
	return results, nil
}

// browse shows take the messages that are replies to one request, until it says
// that it is done or fails, and puts the others back.
func browse[R any](ctx context.Context, replies *mailbox.Mailbox[Result[R]], requestID string, take func(*mailbox.Message[Result[R]]) (done bool, err error)) error {
	pause := foreignPauseMin
	for {
		messages, err := replies.Receive(ctx, mailbox.WithMax(receiveMax), mailbox.WithWait(receiveWait))
		if err != nil {
			return err
		}
		mine := false
		for i, message := range messages {
			if message.Body.RequestID != requestID {
				continue
			}
			mine = true
			if done, err := take(message); done || err != nil {
				putBack(ctx, requestID, messages, i+1)
				return err
			}
		}
		putBack(ctx, requestID, messages, len(messages))
		if mine || len(messages) == 0 {
			pause = foreignPauseMin
			continue
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, foreignPauseMax)
	}
}

// putBack nacks what is for others, and releases what is for us and from
// position on, which nobody has looked at. What cannot be put back comes back
// when its visibility ends.
func putBack[R any](ctx context.Context, requestID string, messages []*mailbox.Message[Result[R]], position int) {
	var foreign, unseen []*mailbox.Message[Result[R]]
	for i, message := range messages {
		switch {
		case message.Body.RequestID != requestID:
			foreign = append(foreign, message)
		case i >= position:
			unseen = append(unseen, message)
		}
	}
	if len(foreign)+len(unseen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyWithin)
	defer cancel()
	_ = mailbox.NackAll(ctx, 0, nil, foreign...)
	_ = mailbox.ReleaseAll(ctx, unseen...)
}

// lost reports whether a message could not be settled because its visibility
// was over. It comes again then, and whoever reads it knows it already.
func lost(err error) bool {
	return errors.Is(err, mailbox.ErrReceiptExpired) || errors.Is(err, mailbox.ErrSettled)
}
