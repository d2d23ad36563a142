// Package registry finds the queues of mailboxes by identifier. A [Registry] knows queues that
// were registered with it, and opens others on demand, in a bounded cache. [Schemes] open them
// by URI, and a [Prefix] separates tenants that share a backend:
//
//	queues := registry.New(&registry.Options{Fallback: backend})
//	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[Request]{Resolver: queues})
package registry

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/identifier"
	"github.com/mailboxmq/mailbox/internal/replyslot"
)

// The defaults of Options.
const (
	defaultCacheMax = 1000
	defaultCacheTTL = 10 * time.Minute
)

const opResolve = "resolve"

// pingWithin is how long a health check waits for one queue.
const pingWithin = 5 * time.Second

// Options configure a Registry. The zero value, and nil, mean the
// defaults.
type Options struct {
	// Fallback opens identifiers that are not registered: a backend, Schemes,
	// or a Prefix around either. Nil means that only registered ones resolve.
	Fallback driver.Opener
	// Replies makes the addresses of reply slots resolve too. Nil means that
	// they do not.
	Replies driver.ReplyStore
	// CacheMax is how many queues that Fallback has opened are kept open at
	// most; the least recently used goes first. More are open only while that
	// many are in use at once. 0 means 1,000.
	CacheMax int
	// CacheTTL is how long an unused one is kept. It is looked at when the
	// registry is used. 0 means 10 minutes.
	CacheTTL time.Duration
	// Hooks are called for what the registry does.
	Hooks Hooks
}

// A Registry is a mailbox.Resolver: it knows queues that were registered with it, and
// opens others on demand. It is also a driver.Opener, so that mailboxes can be
// opened by identifier:
//
//	replies, err := mailbox.Open[Result](ctx, queues, "redis://cache:6379/replies", nil)
//
// What it returns are handles that hold nothing open. Each of their calls
// borrows the queue from the registry, which keeps it in a bounded cache,
// closes it only while no call borrows it, and opens it again when it is needed. So
// handles need not be closed, and a thousand of them cost no more connections than the
// cache allows. The registry itself runs no goroutine.
//
// Make one with New. It is safe for concurrent use.
type Registry struct {
	fallback driver.Opener
	replies  driver.ReplyStore
	cacheMax int
	cacheTTL time.Duration
	hooks    Hooks

	mu         sync.Mutex // guards the fields below, and those of entries
	registered map[string]*entry
	cached     map[string]*list.Element // of *entry
	recent     list.List                // the cached ones, latest use first
	opening    map[string]*opening
	waits      map[*wait]struct{}
	inUse      int
	closed     bool
}

var _ driver.Opener = (*Registry)(nil)

// An entry is a queue that is open.
type entry struct {
	id         string
	queue      driver.Queue
	registered bool // then it is not ours to close
	users      int
	evicted    string // why it is closed when its last user is done; empty if it stays
	usedAt     time.Time
}

// An opening is an attempt to open a queue, which others wait for.
type opening struct {
	done chan struct{}
	// err is set before done is closed, and so is abandoned, if the caller that
	// tried gave up, which says nothing about the queue.
	err       error
	abandoned bool
}

// New returns an empty registry. It does no I/O.
func New(options *Options) *Registry {
	r := &Registry{
		cacheMax: defaultCacheMax, cacheTTL: defaultCacheTTL,
		registered: make(map[string]*entry),
		cached:     make(map[string]*list.Element),
		opening:    make(map[string]*opening),
		waits:      make(map[*wait]struct{}),
	}
	if options != nil {
		r.fallback, r.replies, r.hooks = options.Fallback, options.Replies, options.Hooks
		if options.CacheMax > 0 {
			r.cacheMax = options.CacheMax
		}
		if options.CacheTTL > 0 {
			r.cacheTTL = options.CacheTTL
		}
	}
	return r
}

// Register makes id lead to queue, which stays the caller's: the registry never
// closes it, and it must stay open for as long as it is registered. It does
// not block. Codes: ErrInvalid (the id or the queue), ErrConflict if id is
// registered already, ErrClosed.
func (r *Registry) Register(id string, queue driver.Queue) error {
	if problem := identifier.Problem(id); problem != "" {
		return &driver.Error{Code: driver.ErrInvalid, Op: "register", Queue: identifier.Printable(id), Field: "id", Detail: problem}
	}
	if queue == nil {
		return &driver.Error{Code: driver.ErrInvalid, Op: "register", Queue: identifier.Printable(id), Field: "queue", Detail: "is nil"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return &driver.Error{Code: driver.ErrClosed, Op: "register", Queue: identifier.Printable(id)}
	case r.registered[id] != nil:
		return &driver.Error{Code: driver.ErrConflict, Op: "register", Queue: identifier.Printable(id), Detail: "is registered already"}
	}
	r.registered[id] = &entry{id: id, queue: queue, registered: true}
	return nil
}

// Unregister ends what Register began, and reports whether id was registered.
// Calls that are under way are not disturbed.
func (r *Registry) Unregister(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, was := r.registered[id]
	delete(r.registered, id)
	return was
}

// Resolve returns a handle on the queue that id names: the one registered under
// it, or else one that is open in the cache, or else one that the fallback
// opens, once however many ask at the same time. It blocks while the fallback
// does. Codes: ErrUnresolved if id is not registered and there is no fallback,
// or if that cannot make anything of it (ErrInvalid, ErrNotFound, which the
// error then is too); ErrClosed; other errors of the fallback as they are.
func (r *Registry) Resolve(ctx context.Context, id string) (driver.Queue, error) {
	if r.hooks.Resolved == nil {
		queue, _, err := r.resolve(ctx, id)
		return queue, err
	}
	start := time.Now()
	queue, source, err := r.resolve(ctx, id)
	r.hooks.Resolved(ctx, ResolvedEvent{ID: identifier.Printable(id), Source: source, Duration: time.Since(start), Err: err})
	return queue, err
}

// OpenQueue is Resolve.
func (r *Registry) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	return r.Resolve(ctx, name)
}

func (r *Registry) resolve(ctx context.Context, id string) (driver.Queue, string, error) {
	if slotID, isSlot := driver.SlotID(id); isSlot {
		if r.replies == nil {
			return nil, "", identifier.Unresolved(id, "it names a reply slot, and the registry has no reply store", driver.ErrInvalid)
		}
		return &replyslot.Queue{Store: r.replies, ID: slotID}, sourceSlot, nil
	}
	e, source, err := r.borrow(ctx, id)
	if err != nil {
		return nil, source, err
	}
	queue := newHandle(r, e)
	r.giveBack(e, nil)
	return queue, source, nil
}

// borrow returns the entry for id, opening it if need be. It must be given
// back.
func (r *Registry) borrow(ctx context.Context, id string) (*entry, string, error) {
	if problem := identifier.Problem(id); problem != "" {
		return nil, "", identifier.Unresolved(id, "", &driver.Error{Code: driver.ErrInvalid, Field: "id", Detail: problem})
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		e, source, attempt, err := r.find(id)
		if e != nil || err != nil {
			return e, source, err
		}
		if attempt == nil { // ours to make
			e, err := r.open(ctx, id)
			return e, sourceOpened, err
		}
		select {
		case <-attempt.done:
			if attempt.err != nil && !attempt.abandoned {
				return nil, "", attempt.err
			}
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
}

// find returns an entry that is open, or the attempt to open it that is under
// way. If it returns neither, the caller has to open it.
func (r *Registry) find(id string) (*entry, string, *opening, error) {
	now := time.Now()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, "", nil, &driver.Error{Code: driver.ErrClosed, Op: opResolve, Queue: identifier.Printable(id)}
	}
	leaving := r.evictIdleLocked(now)
	defer r.closeEvicted(leaving)
	defer r.mu.Unlock()
	if e := r.registered[id]; e != nil {
		r.lendLocked(e, now)
		return e, sourceRegistered, nil, nil
	}
	if element := r.cached[id]; element != nil {
		e := element.Value.(*entry)
		r.recent.MoveToFront(element)
		r.lendLocked(e, now)
		return e, sourceCached, nil, nil
	}
	if r.fallback == nil {
		return nil, "", nil, identifier.Unresolved(id, "is not registered", nil)
	}
	if attempt := r.opening[id]; attempt != nil {
		return nil, "", attempt, nil
	}
	r.opening[id] = &opening{done: make(chan struct{})}
	return nil, "", nil, nil
}

// open makes the attempt that find has registered.
func (r *Registry) open(ctx context.Context, id string) (*entry, error) {
	concluded := false
	defer func() {
		if !concluded { // the fallback has panicked
			r.mu.Lock()
			defer r.mu.Unlock()
			r.concludeLocked(id, nil, true)
		}
	}()
	start := time.Now()
	queue, err := r.fallback.OpenQueue(ctx, id)
	if err == nil && queue == nil {
		err = &driver.Error{Code: driver.ErrUnavailable, Op: opResolve, Queue: identifier.Printable(id), Detail: "the fallback returned neither a queue nor an error"}
	}
	now := time.Now()
	if r.hooks.Opened != nil {
		r.hooks.Opened(ctx, OpenedEvent{ID: identifier.Printable(id), Duration: now.Sub(start), Err: err})
	}
	if errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrUnresolved) {
		err = identifier.Unresolved(id, "", err)
	}
	r.mu.Lock()
	if err == nil && r.closed {
		err = &driver.Error{Code: driver.ErrClosed, Op: opResolve, Queue: identifier.Printable(id)}
		defer func() { _ = queue.Close() }()
	}
	concluded = true
	// A fallback that runs out of time of its own has tried as well as any other.
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	r.concludeLocked(id, err, ended && ctx.Err() != nil)
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	e := &entry{id: id, queue: queue}
	r.lendLocked(e, now)
	r.cached[id] = r.recent.PushFront(e)
	var leaving []*entry
	for r.recent.Len() > r.cacheMax {
		leaving = r.evictLocked(r.recent.Back(), evictedForRoom, leaving)
	}
	r.mu.Unlock()
	r.closeEvicted(leaving)
	return e, nil
}

// concludeLocked ends an attempt to open id. After one that was abandoned, those
// who waited for it try by themselves.
func (r *Registry) concludeLocked(id string, err error, abandoned bool) {
	attempt := r.opening[id]
	delete(r.opening, id)
	attempt.err, attempt.abandoned = err, abandoned
	close(attempt.done)
}

func (r *Registry) lendLocked(e *entry, now time.Time) {
	if e.users == 0 {
		r.inUse++
	}
	e.users++
	e.usedAt = now
}

// giveBack ends a loan. result is what the last call on the queue returned: a
// queue that is gone or closed leaves the cache.
func (r *Registry) giveBack(e *entry, result error) {
	broken := result != nil && (errors.Is(result, driver.ErrClosed) || errors.Is(result, driver.ErrNotFound))
	var leaving []*entry
	r.mu.Lock()
	e.users--
	if e.users == 0 {
		r.inUse--
	}
	element := r.cached[e.id]
	switch {
	case broken && element != nil && element.Value == e:
		leaving = r.evictLocked(element, evictedAsBroken, leaving)
	case e.evicted != "" && e.users == 0:
		leaving = append(leaving, e)
	}
	r.mu.Unlock()
	r.closeEvicted(leaving)
}

// evictIdleLocked removes the queues that were idle for too long from the cache.
// Uses are in order, so it looks at nothing that stays, but one.
func (r *Registry) evictIdleLocked(now time.Time) (leaving []*entry) {
	for element := r.recent.Back(); element != nil; element = r.recent.Back() {
		e := element.Value.(*entry)
		if now.Sub(e.usedAt) < r.cacheTTL {
			break
		}
		if e.users > 0 { // a long receive is a use, too
			e.usedAt = now
			r.recent.MoveToFront(element)
			continue
		}
		leaving = r.evictLocked(element, evictedAsIdle, leaving)
	}
	return leaving
}

// evictLocked takes an entry out of the cache, and adds it to leaving if it can
// be closed now. Otherwise its last user closes it.
func (r *Registry) evictLocked(element *list.Element, reason string, leaving []*entry) []*entry {
	e := element.Value.(*entry)
	r.recent.Remove(element)
	delete(r.cached, e.id)
	e.evicted = reason
	if e.users == 0 {
		leaving = append(leaving, e)
	}
	return leaving
}

// closeEvicted is closeAll for who called about something else, and has no use
// for the errors. The hooks get them.
func (r *Registry) closeEvicted(leaving []*entry) { _ = r.closeAll(leaving) }

// closeAll closes entries that no caller can reach any more.
func (r *Registry) closeAll(leaving []*entry) (err error) {
	for _, e := range leaving {
		closeErr := e.queue.Close()
		if r.hooks.Evicted != nil {
			r.hooks.Evicted(EvictedEvent{ID: identifier.Printable(e.id), Reason: e.evicted, Err: closeErr})
		}
		err = errors.Join(err, closeErr)
	}
	return err
}

// Evict takes the queue that was opened for id out of the cache and closes it,
// at once or, if calls are under way, after the last of them. It may block as
// closing a queue does. An id that is not in the cache, or that is
// registered, is not an error.
func (r *Registry) Evict(id string) error {
	var leaving []*entry
	r.mu.Lock()
	if element := r.cached[id]; element != nil {
		leaving = r.evictLocked(element, evictedOnRequest, leaving)
	}
	r.mu.Unlock()
	return r.closeAll(leaving)
}

// Check asks every queue in the cache for its Stats, and evicts those that do not answer, so that they are opened
// again when they are needed. It returns what was wrong with them. It blocks for
// as long as they take, a few seconds each at most; when ctx ends it stops, evicts
// nothing more, and returns the context's error. Registered queues are not looked
// at.
func (r *Registry) Check(ctx context.Context) error {
	r.mu.Lock()
	ids := make([]string, 0, len(r.cached))
	for id := range r.cached {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	var unhealthy []error
	for _, id := range ids {
		e := r.borrowCached(id)
		if e == nil {
			continue
		}
		err := ping(ctx, e.queue)
		if ctx.Err() != nil {
			r.giveBack(e, nil)
			return ctx.Err()
		}
		if err != nil {
			unhealthy = append(unhealthy, fmt.Errorf("%s: %w", identifier.Printable(id), err))
			err = driver.ErrClosed // whatever it was, it is to leave
		}
		r.giveBack(e, err)
	}
	return errors.Join(unhealthy...)
}

// borrowCached borrows what is in the cache, and does not count as a use.
func (r *Registry) borrowCached(id string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	element := r.cached[id]
	if element == nil {
		return nil
	}
	e := element.Value.(*entry)
	r.lendLocked(e, e.usedAt)
	return e
}

// ping asks a queue for a sign of life. One that hangs gives none.
func ping(ctx context.Context, queue driver.Queue) error {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	_, err := queue.Stats(ctx)
	return err
}

// Stats counts what the registry holds. It does not block.
func (r *Registry) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{Registered: len(r.registered), Cached: len(r.cached), InUse: r.inUse}
}

// Close closes what the registry has opened, at once or, where calls are under
// way, after the last of them; receives that wait are woken. From then on the
// registry and its handles return ErrClosed. Registered queues are not closed.
// It may block as closing queues does. Closing twice is fine.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	var leaving []*entry
	for element := r.recent.Back(); element != nil; element = r.recent.Back() {
		leaving = r.evictLocked(element, evictedByClose, leaving)
	}
	for w := range r.waits {
		w.cancel()
	}
	r.mu.Unlock()
	return r.closeAll(leaving)
}
