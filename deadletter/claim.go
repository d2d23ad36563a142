package deadletter

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// A claim is a letter that a consumer has taken to deal with.
type claim[T any] struct {
	id     string // of the letter in its box
	letter Letter[T]
	// remove takes the letter out of the box for ever.
	remove func(context.Context) error
	// putOff leaves it in the box, not to be shown again before the delay.
	putOff func(ctx context.Context, delay time.Duration, cause error) error
	// replay sends the message back, calls mark, and removes the letter. It may
	// be repeated, and goes on where it failed.
	replay func(ctx context.Context, mark func() error) error
	// extend holds it for longer. Nil if it is not leased.
	extend func(context.Context) error
}

// claims is where a consumer gets letters from.
type claims[T any] interface {
	// claim returns the next letter, and nil if there is none. If wait is set, it
	// waits for one, for some time or until ctx ends.
	claim(ctx context.Context, wait bool) (*claim[T], error)
}

// newClaims returns the source for where the letters are.
func (c *Consumer[T]) newClaims() claims[T] {
	if c.box.letters != nil {
		return &sentClaims[T]{box: c.box, visibility: c.options.Visibility}
	}
	return &keptClaims[T]{box: c.box, poll: c.options.Poll, putOff: make(map[string]time.Time)}
}

// sentClaims takes letters out of a mailbox.
type sentClaims[T any] struct {
	box        *Box[T]
	visibility time.Duration
}

// receiveWait bounds one call of the backend. A letter that is sent wakes it.
const receiveWait = 20 * time.Second

func (s *sentClaims[T]) claim(ctx context.Context, wait bool) (*claim[T], error) {
	patience := time.Duration(0)
	if wait {
		patience = receiveWait
	}
	messages, err := s.box.letters.Receive(ctx, mailbox.WithWait(patience), mailbox.WithVisibility(s.visibility))
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	message := messages[0]
	longest := s.box.letters.Traits().MaxVisibility
	resent := false
	return &claim[T]{
		id:     message.ID,
		letter: message.Body,
		remove: message.Ack,
		putOff: func(ctx context.Context, delay time.Duration, cause error) error {
			return message.Nack(ctx, min(delay, longest), cause)
		},
		replay: func(ctx context.Context, mark func() error) error {
			if !resent {
				if err := s.box.resend(ctx, &message.Body); err != nil {
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

// keptClaims lists the letters that a backend keeps. It remembers which of them
// were put off, because nobody else does.
type keptClaims[T any] struct {
	box    *Box[T]
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
			backoff.Pause(ctx, k.poll)
		}
		return nil, nil
	}
	ids := []string{letter.MessageID}
	return &claim[T]{
		id:     letter.MessageID,
		letter: *letter,
		remove: func(ctx context.Context) error {
			_, err := k.box.source.Discard(ctx, ids)
			return err
		},
		putOff: func(_ context.Context, delay time.Duration, _ error) error {
			k.putOff[letter.MessageID] = time.Now().Add(delay)
			return nil
		},
		replay: func(ctx context.Context, mark func() error) error {
			if _, err := k.box.source.Redrive(ctx, ids); err != nil {
				return err
			}
			return mark()
		},
	}, nil
}

// find returns the oldest letter that is not put off, and forgets about those
// that are gone.
func (k *keptClaims[T]) find(ctx context.Context) (*Letter[T], error) {
	now := time.Now()
	still := make(map[string]time.Time)
	for letter, err := range k.box.Letters(ctx) {
		if err != nil {
			return nil, err
		}
		until, waits := k.putOff[letter.MessageID]
		if !waits || !now.Before(until) {
			return &letter, nil
		}
		still[letter.MessageID] = until
	}
	k.putOff = still // all there are have been seen
	return nil, nil
}
