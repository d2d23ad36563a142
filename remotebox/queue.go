package remotebox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/oap"
)

// queue is one handle on one queue. It has the abilities that the protocol carries,
// if the backend behind the daemon has them.
type queue struct {
	driver.Unsupported
	backend *Backend
	name    string
	traits  atomic.Pointer[driver.Traits]
	closed  chan struct{}
	once    sync.Once

	where   atomic.Pointer[place]
	known   atomic.Pointer[known] // nil while the queue has not been found
	opening chan struct{}         // holds one token: who has it may open the queue
}

// place is what a queue is called on a link.
type place struct {
	link   *link
	handle uint32
}

// known is which queue a handle is on, among those that have the name one after the other.
type known struct {
	identity string
	daemon   [16]byte // the process that said so
}

var _ driver.Queue = (*queue)(nil)

// OpenQueue returns a handle on the queue called name. If the queue does not exist,
// opening does not create it: the first send through the handle does, and until
// then everything else is ErrNotFound, a receive at once, however long it would
// wait. The handle stays on its queue, over reconnects too: once that is deleted,
// everything is ErrNotFound, even if there is a new queue of that name. With a daemon
// of an earlier version, or on a backend that cannot tell queues apart, it works on
// the new one. It blocks until the daemon has answered. Codes: ErrInvalid
// (the name), ErrForbidden, ErrUnauthenticated, ErrFull, ErrUnavailable,
// ErrClosed.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	q := &queue{backend: b, name: name, closed: make(chan struct{}), opening: make(chan struct{}, 1)}
	q.opening <- struct{}{}
	if err := b.open(ctx, q); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, closedError("open", name)
	}
	b.queues[q] = struct{}{}
	return q, nil
}

// open opens a queue on whatever link there is.
func (b *Backend) open(ctx context.Context, q *queue) error {
	_, _, err := q.openWith("", func(o *operation) (bool, error) { return false, b.roundTrip(ctx, o) })
	return err
}

// openWith opens the queue with this identity, or the one that has the name now if it is
// empty. A daemon of an earlier version knows names alone. do does a request, and reports
// whether the link was lost.
func (q *queue) openWith(identity string, do func(*operation) (again bool, err error)) (opened oap.Opened, again bool, err error) {
	b := q.backend
	fill := func(dst []byte, _ oap.Target) []byte { return oap.AppendIdentifiedName(dst, q.name, identity) }
	parse := oap.ParseIdentified
	c := b.newCall(oap.OpOpenIdentified, fill)
	o := operation{name: "open", call: c, repeatable: true}
	again, err = do(&o)
	if errors.Is(err, driver.ErrUnsupported) {
		parse = oap.ParseOpened
		c = b.newCall(oap.OpOpen, func(dst []byte, _ oap.Target) []byte { return oap.AppendName(dst, q.name) })
		o = operation{name: "open", call: c, repeatable: true}
		again, err = do(&o)
	}
	if again || err != nil {
		return opened, again, err
	}
	if opened, err = parse(c.payload); err != nil {
		return opened, false, o.unknown(err.Error())
	}
	q.learn(c.link, &opened)
	q.where.Store(&place{link: c.link, handle: opened.Handle})
	b.free(c)
	return opened, false, nil
}

// learn takes in what a daemon says about the queue. The daemon may allow larger bodies
// than fit in its frames, for clients of other protocols.
func (q *queue) learn(l *link, opened *oap.Opened) {
	opened.Traits.MaxBodyBytes = min(opened.Traits.MaxBodyBytes, q.backend.maxBody())
	q.traits.Store(&opened.Traits)
	if opened.Traits.Release {
		l.releases.Store(true)
	}
	if opened.Identity != "" {
		q.known.Store(&known{identity: opened.Identity, daemon: l.instance})
	}
}

// identityOn returns which queue to open on a link. A queue without any durability ends
// with its daemon, which does not delete it: the handle is then on the next one.
func (q *queue) identityOn(l *link) string {
	known := q.known.Load()
	if known == nil || known.daemon != l.instance && !q.Traits().Durability.Restarts() {
		return ""
	}
	return known.identity
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
	opened, again, err := q.openWith(q.identityOn(l), func(o *operation) (bool, error) { return q.backend.attemptOn(ctx, l, o) })
	return opened.Handle, again, err
}

// traitsChanged is called when a daemon says something about a queue that is open.
func (b *Backend) traitsChanged(l *link, opened *oap.Opened) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for q := range b.queues {
		if at := q.where.Load(); at != nil && at.link == l && at.handle == opened.Handle {
			q.learn(l, opened)
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
	l.requestLocked(oap.OpClose, func(dst []byte) []byte { return oap.AppendTarget(dst, oap.Target{Handle: handle}) })
	l.unlockAndWrite()
}

// Purge removes everything that is not dead. It blocks until the daemon has
// answered.
func (q *queue) Purge(ctx context.Context) (removed int, err error) {
	return q.count(ctx, "purge", oap.OpPurge, oap.AppendTarget)
}

// Pause stops deliveries. It blocks until the daemon has answered.
func (q *queue) Pause(ctx context.Context) error { return q.setPaused(ctx, "pause", oap.OpPause) }

// Resume ends a pause. It blocks until the daemon has answered.
func (q *queue) Resume(ctx context.Context) error { return q.setPaused(ctx, "resume", oap.OpResume) }

func (q *queue) setPaused(ctx context.Context, name string, code uint16) error {
	if !q.Traits().Pause { // a daemon of an earlier version has no such request
		return &driver.Error{Code: driver.ErrUnsupported, Op: name, Queue: q.name}
	}
	return q.do(ctx, name, code, oap.AppendTarget)
}

// Throttle delivers no message of a group for a time. It blocks until the daemon has answered.
func (q *queue) Throttle(ctx context.Context, group string, wait time.Duration) error {
	const op = "throttle"
	if !q.Traits().GroupLimits { // a daemon of an earlier version has no such request
		return &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: q.name}
	}
	if err := driver.CheckThrottle(group, wait); err != nil {
		return driver.Annotate(err, q.name, op)
	}
	return q.do(ctx, op, oap.OpThrottle, func(dst []byte, t oap.Target) []byte { return oap.AppendThrottle(dst, t, group, wait) })
}

// do does an operation that has no answer and can be repeated.
func (q *queue) do(ctx context.Context, name string, code uint16, fill func([]byte, oap.Target) []byte) error {
	c := q.backend.newCall(code, fill)
	o := operation{name: name, queue: q, call: c, numbered: true, repeatable: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return err
	}
	q.backend.free(c)
	return nil
}

// Edit changes a waiting message. It blocks until the daemon has answered.
func (q *queue) Edit(ctx context.Context, id string, edit driver.Edit) (was driver.State, err error) {
	traits := q.Traits()
	if !traits.Edit { // a daemon of an earlier version has no such request
		return "", &driver.Error{Code: driver.ErrUnsupported, Op: "edit", Queue: q.name}
	}
	if err := edit.Check(&traits); err != nil {
		return "", driver.Annotate(err, q.name, "edit")
	}
	c := q.backend.newCall(oap.OpEdit, func(dst []byte, t oap.Target) []byte { return oap.AppendEdit(dst, t, id, &edit) })
	o := operation{name: "edit", queue: q, call: c, numbered: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return "", err
	}
	defer q.backend.free(c)
	if was, err = oap.ParseEdited(c.payload); err != nil {
		return "", o.unknown(err.Error())
	}
	return was, nil
}

// Fire changes a schedule and sends its messages. It blocks until the daemon has answered. A
// firing that is longer than a frame of the daemon is ErrTooLarge.
func (q *queue) Fire(ctx context.Context, f driver.Firing) (now driver.Schedule, done bool, err error) {
	const op = "fire"
	traits := q.Traits() // a daemon of an earlier version has no such request, and no trait
	if err := f.Check(&traits); err != nil {
		return now, false, driver.Annotate(err, q.name, op)
	}
	if oap.FireBytes(&f) > q.backend.maxElement() {
		return now, false, &driver.Error{
			Code: driver.ErrTooLarge, Op: op, Queue: q.name,
			Detail: fmt.Sprintf("the definition and the messages are longer than the %d bytes that the daemon accepts in a frame", q.backend.maxFrame.Load()),
		}
	}
	c := q.backend.newCall(oap.OpFire, func(dst []byte, t oap.Target) []byte { return oap.AppendFire(dst, t, &f) })
	o := operation{name: op, queue: q, call: c, numbered: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return now, false, err
	}
	defer q.backend.free(c)
	if done, now, err = oap.ParseFired(c.payload); err != nil {
		return driver.Schedule{}, false, o.unknown(err.Error())
	}
	return now, done, nil
}

// Schedules yields schedules, a page at a time.
func (q *queue) Schedules(ctx context.Context, name string) iter.Seq2[driver.Schedule, error] {
	const op = "list schedules"
	if !q.Traits().Schedules {
		return func(yield func(driver.Schedule, error) bool) {
			yield(driver.Schedule{}, &driver.Error{Code: driver.ErrUnsupported, Op: op, Queue: q.name})
		}
	}
	return pages(ctx, q.backend, &listing{
		name: op, code: oap.OpSchedules, queue: q,
		fill: func(dst []byte, t oap.Target) []byte { return oap.AppendSchedules(dst, t, name) },
	}, oap.ParseSchedules)
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
	if q.Traits().Pause {
		stats, err = q.stats(ctx, oap.OpStatsPaused, oap.ParseStatsPaused)
		if !errors.Is(err, driver.ErrUnsupported) { // the next daemon may be of an earlier version
			return stats, err
		}
	}
	return q.stats(ctx, oap.OpStats, oap.ParseStats)
}

func (q *queue) stats(ctx context.Context, code uint16, parse func([]byte) (driver.Stats, error)) (stats driver.Stats, err error) {
	c := q.backend.newCall(code, oap.AppendTarget)
	o := operation{name: "stats", queue: q, call: c, repeatable: true}
	if err := q.backend.roundTrip(ctx, &o); err != nil {
		return stats, err
	}
	defer q.backend.free(c)
	if stats, err = parse(c.payload); err != nil {
		return stats, o.unknown(err.Error())
	}
	return stats, nil
}
