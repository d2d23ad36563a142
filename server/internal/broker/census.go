package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// A census counts the queues of the backend, because an existing queue costs memory
// and disk whether or not it is open. Queues that other daemons create on the same
// backend are counted when they are opened here, or at the next count.
type census struct {
	pool *share.Pool

	counting  sync.Mutex // held while the backend lists its queues
	countedAt time.Duration

	mu sync.Mutex // guards the fields below
	// madeBy maps the backend's name of a queue to the token that created it; zero if
	// the queue existed before.
	madeBy map[string]capability.TokenID
	// version changes with the keys of madeBy.
	version uint64
}

const (
	// retryQueues is the RetryAfter of the limit of queues.
	retryQueues = 5 * time.Second
	// recountEvery bounds how often a refused queue makes the backend list its queues:
	// another daemon may have deleted some.
	recountEvery = 10 * time.Second
)

// owner returns the share that a queue counts against.
func (s *census) owner(backend string, by capability.TokenID) [2]share.Key {
	return ownerOf(tenantQueueOf(backend).Tenant, by)
}

// add counts an existing queue.
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
	s.version++
	owner := s.owner(backend, by)
	s.pool.Charge(owner[:], 1)
}

// remove stops counting a queue.
func (s *census) remove(backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by, known := s.madeBy[backend]; known {
		delete(s.madeBy, backend)
		s.version++
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

// versionNow returns the version of the census.
func (s *census) versionNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// matching returns the queues of a tenant that match, in order.
func (s *census) matching(tenant string, matches func(queue string) bool) []string {
	s.mu.Lock()
	var found []string
	for backend := range s.madeBy {
		if name, ours := queueName(tenant, backend); ours && !isReserved(backend) && matches(name) {
			found = append(found, name)
		}
	}
	s.mu.Unlock()
	slices.Sort(found)
	return found
}

// claim takes room for a queue from the share of the token that creates it.
func (s *census) claim(backend string, by capability.TokenID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.madeBy[backend]; known {
		return nil // another caller is creating it
	}
	owner := s.owner(backend, by)
	if err := s.pool.Take(owner[:], 1); err != nil {
		return err
	}
	s.madeBy[backend] = by
	s.version++
	return nil
}

// count lists the queues of the backend, unless that was done after since.
func (b *Broker) count(ctx context.Context, since time.Duration) error {
	s := &b.census
	s.counting.Lock()
	defer s.counting.Unlock()
	if b.admin == nil || s.countedAt != 0 && s.countedAt >= since {
		return nil
	}
	now := b.now()
	s.mu.Lock()
	missing := make(map[string]struct{}, len(s.madeBy)) // known before, and not in the list
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

// paceCreation waits for the caller's turn to create a queue, unless the queue exists. Codes:
// ErrFull, and those of the backend.
func (c *Caller) paceCreation(ctx context.Context, op, backend, queue string) error {
	b := c.broker
	if err := b.count(ctx, 0); err != nil || b.census.knows(backend) {
		return err
	}
	if err := c.pace(ctx, nil, b.creations, 1); err != nil {
		b.metrics.Rejected(metricSaturated)
		return refusedShare(err, op, queue)
	}
	return nil
}

// claimQueue takes room for a queue that the caller is about to create, unless it
// exists. The caller calls unclaim to return the room if the queue was not created.
// Codes: ErrFull, and those of the backend.
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
