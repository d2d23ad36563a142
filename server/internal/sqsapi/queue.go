package sqsapi

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// A queue has the cached settings of a queue. It is immutable; a change makes a new one.
type queue struct {
	broker.TenantQueue
	settings
	config driver.Config
	read   time.Time
}

// settingsTTL is how long settings are cached. Only another daemon on the same backend,
// or another surface, can change them in the meantime.
const settingsTTL = time.Second

// maxQueues bounds how many queues are cached.
const maxQueues = 20_000

// changeLocks is how many changes of queues can be under way at once.
const changeLocks = 64

// A queueTable caches queues, and serializes the changes of each.
type queueTable struct {
	mu     sync.RWMutex // guards known
	known  map[broker.TenantQueue]*queue
	seed   maphash.Seed
	change [changeLocks]sync.Mutex
}

func (t *queueTable) init() {
	t.known = make(map[broker.TenantQueue]*queue)
	t.seed = maphash.MakeSeed()
}

func (t *queueTable) get(place broker.TenantQueue) *queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.known[place]
}

// put caches a queue, unless the cached one is newer: a change may have overtaken the
// read of q.
func (t *queueTable) put(q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.known[q.TenantQueue]; known != nil && known.read.After(q.read) {
		return
	}
	if len(t.known) >= maxQueues && t.known[q.TenantQueue] == nil {
		for victim := range t.known { // any one: it is read again when it is used
			delete(t.known, victim)
			break
		}
	}
	t.known[q.TenantQueue] = q
}

func (t *queueTable) forget(place broker.TenantQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, place)
}

// lock prevents other changes of the queue in this daemon, until unlock is called.
func (t *queueTable) lock(place broker.TenantQueue) (unlock func()) {
	mu := &t.change[maphash.Comparable(t.seed, place)%changeLocks]
	mu.Lock()
	return mu.Unlock
}

// find returns a queue on which the caller is allowed some operation, at most
// settingsTTL old. Codes: QueueDoesNotExist, and those of authorisation.
func (r *request) find(ctx context.Context, url string) (*queue, error) {
	name, err := nameOf(url)
	if err != nil {
		return nil, err
	}
	if err := r.caller.Uses(ctx, name); err != nil {
		return nil, err
	}
	place := broker.TenantQueue{Tenant: r.caller.Tenant(), Queue: name}
	known := r.service.queues.get(place)
	if known != nil && time.Since(known.read) < settingsTTL {
		return known, nil
	}
	q, err := r.service.load(ctx, place)
	if err != nil && known != nil && errors.Is(err, driver.ErrUnavailable) {
		return known, nil // a draining daemon cannot read settings, but still settles
	}
	if err != nil {
		return nil, err
	}
	return r.repairDeadLetters(ctx, q), nil
}

// load reads a queue from the backend and caches it.
func (s *Service) load(ctx context.Context, place broker.TenantQueue) (*queue, error) {
	daemon, err := s.daemon(place.Tenant)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	config, err := daemon.Config(ctx, place.Queue)
	if err != nil {
		if errors.Is(err, driver.ErrNotFound) || errors.Is(err, driver.ErrInvalid) {
			s.queues.forget(place)
			return nil, sqswire.QueueDoesNotExist.Default()
		}
		return nil, err
	}
	q := &queue{TenantQueue: place, settings: readSettings(place.Queue, &config), config: config, read: asked}
	s.queues.put(q)
	s.adopt(q) //nolint:contextcheck // a task outlives the request that finds it
	return q, nil
}

// nameOf returns the name in the URL of a queue.
func nameOf(url string) (string, error) {
	if url == "" {
		return "", sqswire.MissingParameter.Withf("The request must contain the parameter QueueUrl.")
	}
	_, name := sqswire.QueueName(url)
	if name == "" || driver.CheckName(name) != nil {
		return "", sqswire.QueueDoesNotExist.Default()
	}
	return name, nil
}

// change calls edit with the current settings of a queue, and stores the result on
// behalf of caller. edit is called at most once, and must not call change.
func (s *Service) change(ctx context.Context, caller broker.Caller, place broker.TenantQueue, edit func(q *queue) error) (*queue, error) {
	defer s.queues.lock(place)()
	q, err := s.load(ctx, place)
	if err != nil {
		return nil, err
	}
	changed := *q
	if err := edit(&changed); err != nil {
		return nil, err
	}
	changed.configure(&changed.config, &q.settings)
	if err := s.aimDeadLetters(ctx, &changed); err != nil {
		return nil, err
	}
	if err := s.store(ctx, caller, &changed); err != nil {
		return nil, err
	}
	return &changed, nil
}

// store writes a queue and caches it.
func (s *Service) store(ctx context.Context, caller broker.Caller, q *queue) error {
	if err := q.annotate(&q.config); err != nil {
		return err
	}
	if err := caller.Configure(ctx, q.Queue, q.config); err != nil {
		s.queues.forget(q.TenantQueue)
		return err
	}
	// The stored configuration also has the defaults of the broker, which this package
	// does not use.
	q.read = time.Now()
	s.queues.put(q)
	return nil
}
