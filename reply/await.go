package reply

import (
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// Await and Parts look for replies to one request in a mailbox that others may read
// too. They put replies to other requests back at once, to the tail of the queue, for
// their own readers. If a receive returns only such replies, they pause between
// foreignPauseMin and foreignPauseMax, so that a lone reader does not spin.
const (
	foreignPauseMin = time.Millisecond
	foreignPauseMax = 250 * time.Millisecond
	// receiveWait is how long one receive waits. The send wakes it.
	receiveWait = 20 * time.Second
	// receiveMax bounds the messages of one receive.
	receiveMax = 16
)

// Await returns the reply to the request with this id, which is its correlation id
// or its message id. Replies to other requests in the same mailbox are put back. It
// blocks until the reply arrives or ctx ends, and then returns the context's error.
// The reply is acked. An error reply is returned as an error, a *mailbox.Failure.
// Other codes: those of Mailbox.Receive.
//
// A queue that clients share needs Config.MaxDeliveries driver.Off. A reply is put back
// driver.MaxReleases times between two deliveries that count, so with the default limit
// of 5 it becomes a dead letter when other readers have received it 85 times, which a
// single one does in 20 seconds. A mailbox for each client needs no such setting.
func Await[R any](ctx context.Context, replies *mailbox.Mailbox[Result[R]], requestID string) (R, error) {
	var answer R
	err := browse(ctx, replies, requestID, func(message *mailbox.Message[Result[R]]) (verdict, error) {
		answer = message.Body.Value
		if err := message.Ack(ctx); err != nil && !lost(err) {
			return taken, err
		}
		return sated, message.Body.Err
	})
	return answer, err
}

// Collect returns the replies to n different requests, errors included, from a
// mailbox that holds nothing else, in the order in which they arrive. It drops a
// second reply to the same request, from a request that was delivered twice. It
// blocks until it has n or ctx ends, and then returns those it has and the context's
// error. Replies are acked as they arrive. Codes: those of Mailbox.Receive.
func Collect[R any](ctx context.Context, replies *mailbox.Mailbox[Result[R]], n int) ([]Result[R], error) {
	results := make([]Result[R], 0, n)
	seen := make(map[string]bool, n)
	for len(results) < n {
		// No more than are missing, so that none has to go back.
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

// A verdict is what browse does next about a reply.
type verdict int

const (
	taken  verdict = iota // it is settled, or held
	unripe                // it is for later and goes back
	sated                 // it is settled and was the last
)

// browse calls take on the replies to one request, until take returns sated or an
// error, and puts the others back.
func browse[R any](ctx context.Context, replies *mailbox.Mailbox[Result[R]], requestID string, take func(*mailbox.Message[Result[R]]) (verdict, error)) error {
	pause := foreignPauseMin
	for {
		messages, err := replies.Receive(ctx, mailbox.WithMax(receiveMax), mailbox.WithWait(receiveWait))
		if err != nil {
			return err
		}
		var others []*mailbox.Message[Result[R]]
		progress := false
		for i, message := range messages {
			if message.Body.RequestID != requestID {
				others = append(others, message)
				continue
			}
			judged, err := take(message)
			if judged == sated || err != nil {
				unseen := messages[i+1:]
				putBack(ctx, append(others, strangers(unseen, requestID, true)...), strangers(unseen, requestID, false))
				return err
			}
			if judged == unripe {
				others = append(others, message)
			} else {
				progress = true
			}
		}
		putBack(ctx, others, nil)
		if progress || len(messages) == 0 {
			pause = foreignPauseMin
			continue
		}
		if err := backoff.Pause(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, foreignPauseMax)
	}
}

// strangers returns the replies to other requests or, if foreign is false, those to
// this one.
func strangers[R any](messages []*mailbox.Message[Result[R]], requestID string, foreign bool) []*mailbox.Message[Result[R]] {
	var found []*mailbox.Message[Result[R]]
	for _, message := range messages {
		if (message.Body.RequestID != requestID) == foreign {
			found = append(found, message)
		}
	}
	return found
}

// putBack puts back replies for others, or for later, and releases those that were not
// looked at, also when ctx has ended. If that fails, they come back when their
// visibility ends.
func putBack[R any](ctx context.Context, others, unseen []*mailbox.Message[Result[R]]) {
	if len(others)+len(unseen) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = mailbox.PutBackAll(ctx, 0, nil, others...)
	_ = mailbox.ReleaseAll(ctx, unseen...)
}

// lost reports whether a message could not be settled because its lease was lost.
// It comes back, and its reader recognises it.
func lost(err error) bool {
	return errors.Is(err, mailbox.ErrReceiptExpired) || errors.Is(err, mailbox.ErrSettled)
}
