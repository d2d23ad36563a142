package opening

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Pool keeps one backend open for each key, for as long as it is in use. The first
// user opens the backend, the others share it, and the last one closes it. A user that
// comes while it is being closed waits, and opens it again. Use it where a backend can
// be open only once, or should be. The zero value has no limit. It is safe for
// concurrent use; Max must not be changed once it is used.
type Pool struct {
	// Max bounds how many backends are open at once; 0 means no bound.
	Max int

	mu      sync.Mutex // guards the fields below, and users and closing of every entry
	entries map[string]*poolEntry
	closed  bool
}

// A poolEntry is a backend of a Pool.
type poolEntry struct {
	users   int  // those that wait for turn included
	kept    bool // by Share: not closed by the pool
	closing bool // a goroutine closes the backend, and removes the entry if there are no users then

	// turn is held while the backend is opened or closed, and guards backend. It is
	// a channel because that may take long, and waiting for it ends with a context.
	turn    chan struct{}
	backend driver.Backend // nil if it is not open
}

// Acquire returns the backend of key, which open opens if it is not open, and the
// function that releases it. It blocks while the backend is opened or closed;
// cancelling ctx abandons that. If open fails, the next caller tries again. Codes:
// ErrFull (Max backends are open), ErrClosed, and those of open.
func (p *Pool) Acquire(ctx context.Context, key string, open func(context.Context) (driver.Backend, error)) (backend driver.Backend, release func() error, err error) {
	p.mu.Lock()
	e, err := p.enterLocked(key)
	p.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	leave := sync.OnceValue(func() error { return p.leave(key, e) })
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, joinErrors(ctx.Err(), leave())
	}
	opened := false
	defer func() {
		if !opened { // open has failed, or panics
			err = joinErrors(err, leave())
		}
	}()
	if backend, err = p.openInTurn(ctx, e, open); err != nil {
		return nil, nil, err
	}
	opened = true
	return backend, leave, nil
}

// openInTurn returns the backend of e, which it opens if it is not open, and ends the turn of
// the caller.
func (p *Pool) openInTurn(ctx context.Context, e *poolEntry, open func(context.Context) (driver.Backend, error)) (driver.Backend, error) {
	defer func() { <-e.turn }()
	if e.backend != nil {
		return e.backend, nil
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, &driver.Error{Code: driver.ErrClosed, Op: "open"}
	}
	backend, err := open(ctx)
	if err != nil {
		return nil, err
	}
	e.backend = backend
	return backend, nil
}

// OpenQueue opens a queue of the backend of key, which is released when the queue is
// closed. It blocks and fails as Acquire and the backend's OpenQueue do.
func (p *Pool) OpenQueue(ctx context.Context, key, name string, open func(context.Context) (driver.Backend, error)) (driver.Queue, error) {
	backend, release, err := p.Acquire(ctx, key, open)
	if err != nil {
		return nil, err
	}
	queue, err := backend.OpenQueue(ctx, name)
	if err != nil {
		return nil, joinErrors(err, release())
	}
	return &pooledQueue{Queue: queue, release: release}, nil
}

// Share makes key use backend, which is open, and which the caller closes after the
// pool. Codes: ErrConflict (key is in use), ErrFull, ErrClosed.
func (p *Pool) Share(key string, backend driver.Backend) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries[key] != nil {
		return &driver.Error{Code: driver.ErrConflict, Op: "share", Detail: "is open"}
	}
	e, err := p.enterLocked(key)
	if err == nil {
		e.backend, e.kept = backend, true // it counts as a user, so the backend is never closed
	}
	return err
}

// Len returns how many backends are open, or being opened.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}

// Close closes all backends, whether in use or not, except shared ones. Nothing can be
// acquired from then on. It blocks until they are closed. Closing twice is fine.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	entries := p.entries
	p.entries = nil
	p.mu.Unlock()
	var err error
	for _, e := range entries {
		e.turn <- struct{}{}
		if e.backend != nil && !e.kept {
			err = joinErrors(err, e.backend.Close())
		}
		e.backend = nil
		<-e.turn
	}
	return err
}

// enterLocked adds a user to the entry of key.
func (p *Pool) enterLocked(key string) (*poolEntry, error) {
	e := p.entries[key]
	switch {
	case p.closed:
		return nil, &driver.Error{Code: driver.ErrClosed, Op: "open"}
	case e != nil:
	case p.Max > 0 && len(p.entries) >= p.Max:
		return nil, &driver.Error{
			Code: driver.ErrFull, Op: "open", RetryAfter: time.Second,
			Detail: fmt.Sprintf("%d backends are open, which is the limit; close some", len(p.entries)),
		}
	default:
		if p.entries == nil {
			p.entries = make(map[string]*poolEntry)
		}
		e = &poolEntry{turn: make(chan struct{}, 1)}
		p.entries[key] = e
	}
	e.users++
	return e, nil
}

// leave removes a user from the entry of key, and closes the backend after the last.
func (p *Pool) leave(key string, e *poolEntry) error {
	p.mu.Lock()
	e.users--
	last := e.users == 0 && !e.closing
	p.mu.Unlock()
	if !last {
		return nil
	}
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	p.mu.Lock()
	unused := e.users == 0 && p.entries[key] == e
	e.closing = unused
	p.mu.Unlock()
	if !unused { // another user came, or the backend is closed already
		return nil
	}
	var err error
	if e.backend != nil {
		err = e.backend.Close()
		e.backend = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.closing = false
	if e.users == 0 && p.entries[key] == e {
		delete(p.entries, key)
	}
	return err
}

// pooledQueue is a queue that releases its backend when it is closed.
type pooledQueue struct {
	driver.Queue
	release func() error
}

func (q *pooledQueue) Close() error {
	return joinErrors(q.Queue.Close(), q.release())
}

// joinErrors is errors.Join that keeps a single error as it is.
func joinErrors(first, second error) error {
	if second == nil {
		return first
	}
	if first == nil {
		return second
	}
	return errors.Join(first, second)
}
