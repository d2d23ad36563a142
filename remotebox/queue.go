package remotebox

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// queue is one handle on one queue.
type queue struct {
	backend *Backend
	name    string
	traits  atomic.Pointer[driver.Traits]
	closed  chan struct{}
	once    sync.Once

	where   atomic.Pointer[place]
	opening chan struct{} // holds one token: who has it may open the queue
}

// place is what a queue is called on a link.
type place struct {
	link   *link
	handle uint32
}

var _ driver.Queue = (*queue)(nil)

// What a handle can do depends on the backend behind the daemon.
type (
	queueWithDead struct {
		*queue
		deadLetters
	}
	queueWithPeek struct {
		*queue
		peeker
	}
	queueWithAll struct {
		*queue
		deadLetters
		peeker
	}
)

// OpenQueue returns a handle on the queue called name. If the queue does not exist,
// opening does not create it: the first send through the handle does, and until
// then everything else is ErrNotFound, a receive at once, however long it would
// wait. It blocks until the daemon has answered. Codes: ErrInvalid
// (the name), ErrForbidden, ErrUnauthenticated, ErrFull, ErrUnavailable,
// ErrClosed.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	q := &queue{backend: b, name: name, closed: make(chan struct{}), opening: make(chan struct{}, 1)}
	q.opening <- struct{}{}
	opened, err := b.open(ctx, q)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, closedError("open", name)
	}
	b.queues[q] = struct{}{}
	switch {
	case opened.Traits.DeadLetters && opened.Peeker:
		return &queueWithAll{q, deadLetters{q}, peeker{q}}, nil
	case opened.Traits.DeadLetters:
		return &queueWithDead{q, deadLetters{q}}, nil
	case opened.Peeker:
		return &queueWithPeek{q, peeker{q}}, nil
	}
	return q, nil
}

// open opens a queue on whatever link there is.
func (b *Backend) open(ctx context.Context, q *queue) (opened oap.Opened, err error) {
	c := b.openCall(q.name)
	o := operation{name: "open", call: c, repeatable: true}
	if err := b.roundTrip(ctx, &o); err != nil {
		return opened, err
	}
	defer q.backend.free(c)
	if opened, err = oap.ParseOpened(c.payload); err != nil {
		return opened, o.unknown(err.Error())
	}
	q.traits.Store(&opened.Traits)
	q.where.Store(&place{link: c.link, handle: opened.Handle})
	return opened, nil
}

func (b *Backend) openCall(name string) *call {
	return b.newCall(oap.OpOpen, func(dst []byte, _ oap.Target) []byte { return oap.AppendName(dst, name) })
}

// handleOn returns the number of the queue on a link. A link that is new does
// not know the queue; it is opened there first. again says that the link was
// lost.
func (q *queue) handleOn(ctx context.Context, l *link) (handle uint32, again bool, err error) {
	if at := q.where.Load(); at != nil && at.link == l {
		return at.handle, false, nil
	}
	select {
	case <-q.opening:
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
	defer func() { q.opening <- struct{}{} }()
	if at := q.where.Load(); at != nil && at.link == l {
		return at.handle, false, nil
	}
	c := q.backend.openCall(q.name)
	o := operation{name: "open", call: c, repeatable: true}
	if again, err = q.backend.attemptOn(ctx, l, &o); again || err != nil {
		return 0, again, err
	}
	opened, err := oap.ParseOpened(c.payload)
	if err != nil {
		return 0, false, o.unknown(err.Error())
	}
	q.backend.free(c)
	q.traits.Store(&opened.Traits)
	q.where.Store(&place{link: l, handle: opened.Handle})
	return opened.Handle, false, nil
}

// traitsChanged is called when a queue was configured anew.
func (b *Backend) traitsChanged(l *link, opened *oap.Opened) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for q := range b.queues {
		if at := q.where.Load(); at != nil && at.link == l && at.handle == opened.Handle {
			q.traits.Store(&opened.Traits)
		}
	}
}

func (q *queue) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// Traits says what the queue promises. It does not block.
func (q *queue) Traits() driver.Traits { return *q.traits.Load() }

// Close ends the handle. It does not block.
func (q *queue) Close() error {
	q.once.Do(func() {
		close(q.closed)
		b := q.backend
		b.mu.Lock()
		delete(b.queues, q)
		b.mu.Unlock()
		if at := q.where.Load(); at != nil {
			at.link.release(at.handle)
		}
	})
	return nil
}

// release tells the daemon that a handle is not used any more.
func (l *link) release(handle uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return
	}
	l.previous++ // nobody waits for the answer
	start := l.beginLocked(oap.Request, oap.OpClose, l.previous)
	l.pending = oap.AppendTarget(l.pending, oap.Target{Handle: handle})
	oap.SetLength(l.pending, start)
	l.wakeLocked()
}

// Purge removes everything that is not dead. It blocks until the daemon has
// answered.
func (q *queue) Purge(ctx context.Context) (removed int, err error) {
	return q.count(ctx, "purge", oap.OpPurge, oap.AppendTarget)
}

// count does an operation whose answer is a number.
func (q *queue) count(ctx context.Context, name string, code uint16, fill func([]byte, oap.Target) []byte) (n int, err error) {
	c := q.backend.newCall(code, fill)
	o := operation{name: name, queue: q, call: c, numbered: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return 0, err
	}
	defer q.backend.free(c)
	if n, err = oap.ParseCount(c.payload); err != nil {
		return 0, o.unknown(err.Error())
	}
	return n, nil
}

// Stats counts the messages in each state. It blocks until the daemon has
// answered.
func (q *queue) Stats(ctx context.Context) (stats driver.Stats, err error) {
	c := q.backend.newCall(oap.OpStats, oap.AppendTarget)
	o := operation{name: "stats", queue: q, call: c, repeatable: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return stats, err
	}
	defer q.backend.free(c)
	if stats, err = oap.ParseStats(c.payload); err != nil {
		return stats, o.unknown(err.Error())
	}
	return stats, nil
}
