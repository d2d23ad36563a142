package deadletter

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// A claim is a dead letter that a consumer handles.
type claim[T any] struct {
	id     string // of the dead letter in its queue
	letter Message[T]
	// remove removes the dead letter.
	remove func(context.Context) error
	// putOff leaves it in the queue and hides it for the delay.
	putOff func(ctx context.Context, delay time.Duration, cause error) error
	// release leaves it in the queue as if it had not been claimed.
	release func(ctx context.Context) error
	// redrive sends the message back, calls mark, and removes the dead letter. It
	// may be repeated and continues where it failed.
	redrive func(ctx context.Context, mark func() error) error
	// extend extends the lease. Nil if there is none.
	extend func(context.Context) error
}

// claims is where a consumer gets dead letters from.
type claims[T any] interface {
	// claim returns the next dead letter, and nil if there is none. If wait is set,
	// it waits for one, for some time or until ctx ends.
	claim(ctx context.Context, wait bool) (*claim[T], error)
}

// newClaims returns the source that fits where the dead letters are kept.
func (c *Consumer[T]) newClaims() claims[T] {
	if c.queue.letters != nil {
		return &sentClaims[T]{queue: c.queue, visibility: c.options.Visibility}
	}
	return &keptClaims[T]{queue: c.queue, poll: c.options.Poll, putOff: make(map[string]time.Time)}
}

// sentClaims receives dead letters from a mailbox.
type sentClaims[T any] struct {
	queue      *Queue[T]
	visibility time.Duration
}

// receiveWait bounds one receive. A new dead letter wakes it.
const receiveWait = 20 * time.Second

func (s *sentClaims[T]) claim(ctx context.Context, wait bool) (*claim[T], error) {
	patience := time.Duration(0)
	if wait {
		patience = receiveWait
	}
	messages, err := s.queue.letters.Receive(ctx, mailbox.WithWait(patience), mailbox.WithVisibility(s.visibility))
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	message := messages[0]
	longest := s.queue.letters.Traits().MaxVisibility
	resent := false
	return &claim[T]{
		id:     message.ID,
		letter: message.Body,
		remove: message.Ack,
		putOff: func(ctx context.Context, delay time.Duration, cause error) error {
			return message.Nack(ctx, min(delay, longest), cause)
		},
		release: func(ctx context.Context) error { return message.Release(ctx) },
		redrive: func(ctx context.Context, mark func() error) error {
			if !resent {
				if err := s.queue.resend(ctx, &message.Body); err != nil {
					return err
				}
				resent = true
			}
			if err := mark(); err != nil {
				return err
			}
			return message.Ack(ctx)
		},
		extend: func(ctx context.Context) error { return message.Extend(ctx, s.visibility) },
	}, nil
}

// keptClaims lists the dead letters that a backend keeps. It remembers which of
// them were put off, because the backend does not.
type keptClaims[T any] struct {
	queue  *Queue[T]
	poll   time.Duration
	putOff map[string]time.Time // until when, by message id
}

func (k *keptClaims[T]) claim(ctx context.Context, wait bool) (*claim[T], error) {
	letter, err := k.find(ctx)
	if err != nil {
		return nil, err
	}
	if letter == nil {
		if wait {
			_ = backoff.Pause(ctx, k.poll)
		}
		return nil, nil
	}
	ids := []string{letter.MessageID}
	return &claim[T]{
		id:     letter.MessageID,
		letter: *letter,
		remove: func(ctx context.Context) error {
			_, err := k.queue.source.Discard(ctx, ids)
			return err
		},
		putOff: func(_ context.Context, delay time.Duration, _ error) error {
			k.putOff[letter.MessageID] = time.Now().Add(delay)
			return nil
		},
		release: func(context.Context) error { return nil },
		redrive: func(ctx context.Context, mark func() error) error {
			if _, err := k.queue.source.Redrive(ctx, ids); err != nil {
				return err
			}
			return mark()
		},
	}, nil
}

// find returns the oldest dead letter that is not put off, and forgets those that
// are gone.
func (k *keptClaims[T]) find(ctx context.Context) (*Message[T], error) {
	now := time.Now()
	still := make(map[string]time.Time)
	for letter, err := range k.queue.List(ctx) {
		if err != nil {
			return nil, err
		}
		until, waits := k.putOff[letter.MessageID]
		if !waits || !now.Before(until) {
			return &letter, nil
		}
		still[letter.MessageID] = until
	}
	k.putOff = still // the list is complete
	return nil, nil
}
