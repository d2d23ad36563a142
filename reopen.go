package mailbox

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox/driver"
)

// reopener returns what opens the queue called name again if it exists, or nil where
// that cannot be known without creating it.
func reopener(backend driver.Opener, name string) func(context.Context) (driver.Queue, error) {
	admin, ok := backend.(driver.Admin)
	if !ok {
		return nil
	}
	return func(ctx context.Context) (driver.Queue, error) {
		// A token that may not ask is one of a daemon, where opening creates nothing.
		if _, err := admin.QueueConfig(ctx, name); err != nil && !errors.Is(err, ErrForbidden) {
			return nil, err
		}
		return backend.OpenQueue(ctx, name)
	}
}

// follow puts the next queue of the same name in the place of one that was deleted, if
// there is one. A handle stays on its queue, and a loop that waits on a handle of a
// deleted one would wait in vain.
func (m *Mailbox[T]) follow(ctx context.Context, deleted *driver.Queue) {
	if m.reopen == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queue.Load() != deleted || m.ready(ctx, opReceive) != nil {
		return
	}
	next, err := m.reopen(ctx)
	if err != nil {
		return // the next receive tries again
	}
	m.queue.Store(&next)
	_ = (*deleted).Close() // there is nothing behind it
}
