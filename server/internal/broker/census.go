package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// A census knows the queues of the backend, so that they can be bounded however
// they come and go: a queue that exists costs memory and disk whether or not it is
// open. Queues of daemons on the same backend are found when they are opened here,
// or at the next count.
type census struct {
	pool *share.Pool

	counting  sync.Mutex // held while the backend lists its queues
	countedAt time.Duration

	mu sync.Mutex // guards the fields below
	// madeBy has the token that made a queue, by the backend's name; zero if the
	// queue was there before.
	madeBy map[string]capability.TokenID
}

const (
	// retryQueues is when to try again for room for a queue.
	retryQueues = 5 * time.Second
	// recountEvery bounds how often the backend lists its queues because a queue
	// was refused: others may have deleted some.
	recountEvery = 10 * time.Second
)

// owner is the share that a queue counts against.
func (s *census) owner(backend string, by capability.TokenID) [2]share.Key {
	return ownerOf(tenantQueueOf(backend).Tenant, by)
}

// add counts a queue that exists.
func (s *census) add(backend string, by capability.TokenID) {
	if isReserved(backend) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.madeBy[backend]; known {
		return
	}
	s.madeBy[backend] = by
	owner := s.owner(backend, by)
	s.pool.Charge(owner[:], 1)
}

// remove counts a queue no more.
func (s *census) remove(backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by, known := s.madeBy[backend]; known {
		delete(s.madeBy, backend)
		owner := s.owner(backend, by)
		s.pool.Give(owner[:], 1)
	}
}

// knows reports whether a queue was counted.
func (s *census) knows(backend string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.madeBy[backend]
	return known
}

// claim takes room for a queue from the share of the token that will make it.
func (s *census) claim(backend string, by capability.TokenID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.madeBy[backend]; known {
		return nil // another caller makes it at the same time
	}
	owner := s.owner(backend, by)
	if err := s.pool.Take(owner[:], 1); err != nil {
		return err
	}
	s.madeBy[backend] = by
	return nil
}

// count lists the queues of the backend if that was not done since.
func (b *Broker) count(ctx context.Context, since time.Duration) error {
	s := &b.census
	s.counting.Lock()
	defer s.counting.Unlock()
	if b.admin == nil || s.countedAt != 0 && s.countedAt >= since {
		return nil
	}
	now := b.now()
	s.mu.Lock()
	missing := make(map[string]struct{}, len(s.madeBy)) // of those that were there before
	for name := range s.madeBy {
		missing[name] = struct{}{}
	}
	s.mu.Unlock()
	for name, err := range b.admin.Queues(ctx) {
		if err != nil {
			return err
		}
		delete(missing, name)
		s.add(name, capability.TokenID{})
	}
	for name := range missing {
		if _, err := b.admin.QueueConfig(ctx, name); errors.Is(err, driver.ErrNotFound) {
			s.remove(name)
		}
	}
	s.countedAt = max(1, now)
	return nil
}

// claimQueue takes room for a queue that the caller is about to make; it costs
// nothing if the queue exists. unclaim gives the room back, and is called if the
// queue was not made. Codes: ErrFull, and those of the backend.
func (c *Caller) claimQueue(ctx context.Context, op, backend, queue string) (unclaim func(), err error) {
	b := c.broker
	nothing := func() {}
	if err := b.count(ctx, 0); err != nil {
		return nothing, err
	}
	if b.census.knows(backend) {
		return nothing, nil
	}
	if b.admin != nil {
		if _, err := b.admin.QueueConfig(ctx, backend); err == nil {
			b.census.add(backend, capability.TokenID{})
			return nothing, nil
		} else if !errors.Is(err, driver.ErrNotFound) {
			return nothing, err
		}
	}
	err = b.census.claim(backend, c.holder.token)
	if err != nil && b.count(ctx, b.now()-recountEvery) == nil {
		err = b.census.claim(backend, c.holder.token)
	}
	if err != nil {
		b.metrics.Rejected(metricSaturated)
		return nothing, refusedShare(err, op, queue)
	}
	return func() { b.census.remove(backend) }, nil
}
