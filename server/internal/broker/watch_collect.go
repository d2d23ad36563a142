package broker

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// beginWatch adds a watch, and starts the goroutine that measures if it is the first.
func (b *Broker) beginWatch(ctx context.Context, w *Watch) {
	b.metrics.Watches.Set(float64(b.watches.count.Add(1)))
	t := &b.sources
	list := b.watchedNames(w)
	t.mu.Lock()
	defer t.mu.Unlock()
	b.watches.all[w] = struct{}{}
	t.listLocked(w, &list, b.now())
	if b.watches.stop == nil {
		collecting, stop := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the first watch
		b.watches.stop = stop
		b.watches.running.Go(func() { b.collect(collecting) })
	}
	b.kickCollector()
}

// stopCollecting ends the goroutine that measures, and waits for it.
func (b *Broker) stopCollecting() {
	b.sources.mu.Lock()
	if b.watches.stop != nil {
		b.watches.stop()
		b.watches.stop = nil
	}
	b.sources.mu.Unlock()
	b.watches.running.Wait()
}

// kickCollector lets the goroutine that measures look at what is due.
func (b *Broker) kickCollector() {
	select {
	case b.watches.kick <- struct{}{}:
	default:
	}
}

// wakeUp lets the watch look for changes.
func (w *Watch) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// A watchList are the queues of a watch.
type watchList struct {
	names   []string // in order
	leftOut int      // how many more match
	version uint64   // of the census
}

// watchedNames looks up the queues of a watch.
func (b *Broker) watchedNames(w *Watch) (list watchList) {
	list.version = b.census.versionNow() // before the names: a queue that is added meanwhile is seen the next time
	list.names = slices.Clone(w.names)
	if len(w.wide) > 0 {
		list.names = append(list.names, b.census.matching(w.caller.tenant, w.matches)...)
	}
	slices.Sort(list.names)
	list.names = slices.Compact(list.names)
	if more := len(list.names) - MaxWatchedQueues; more > 0 {
		list.names, list.leftOut = list.names[:MaxWatchedQueues], more
	}
	return list
}

// listLocked makes the queues of a list those of a watch.
func (t *sourceTable) listLocked(w *Watch, list *watchList, now time.Duration) {
	w.leftOut, w.version = list.leftOut, list.version
	t.setMembersLocked(w, list.names, now)
}

// setMembersLocked makes the queues with these names those of a watch.
func (t *sourceTable) setMembersLocked(w *Watch, names []string, now time.Duration) {
	members := make([]*source, len(names))
	for i, name := range names {
		members[i] = t.ofLocked(queueKey{w.caller.tenant, name}, now)
	}
	for _, s := range w.members {
		if slices.Contains(members, s) {
			continue
		}
		delete(s.watches, w)
		if s.every = 0; len(s.watches) == 0 {
			delete(t.byKey, s.key)
		}
		for other := range s.watches {
			s.every = leastEvery(s.every, other.every)
		}
	}
	for _, s := range members {
		if s.watches == nil {
			s.watches = make(map[*Watch]struct{})
		}
		s.watches[w] = struct{}{}
		s.every = leastEvery(s.every, w.every)
		s.due = min(s.due, now+s.every)
	}
	w.members = members
}

// leastEvery returns the shorter of two intervals, of which 0 is none.
func leastEvery(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// collect measures the watched queues, each when it is due, until ctx ends: one at a time, and for
// all watches together.
func (b *Broker) collect(ctx context.Context) {
	var listed time.Duration
	for ctx.Err() == nil {
		began := b.now()
		if began-listed >= relistEvery {
			listed = began
			b.relist(ctx)
		}
		due, next := b.sources.due(began)
		for _, s := range due {
			b.collectOne(ctx, s)
		}
		pause(ctx, collectRest*(b.now()-began), nil)
		pause(ctx, next-b.now(), b.watches.kick)
	}
}

// pause waits for a time, or until ctx ends or wake has an element.
func pause(ctx context.Context, wait time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
	}
}

// due returns the watched sources that are due, and when the next one is. It says when those are due
// again.
func (t *sourceTable) due(now time.Duration) (due []*source, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next = now + relistEvery
	for _, s := range t.byKey {
		if len(s.watches) == 0 {
			continue
		}
		if s.due <= now {
			s.due = now + s.every
			due = append(due, s)
		}
		next = min(next, s.due)
	}
	return due, next
}

// collectOne measures a queue and wakes its watches if something has changed. A measurement that
// another goroutine made since half an interval is good enough.
func (b *Broker) collectOne(ctx context.Context, s *source) {
	measuring, cancel := context.WithTimeout(ctx, collectBudget)
	defer cancel()
	m, err := b.look(measuring, s, s.interval(&b.sources)/2)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		m = &measurement{taken: b.now(), err: &driver.Error{Code: driver.ErrUnavailable, Op: "watch", Queue: s.key.name, Detail: "backend did not answer within " + collectBudget.String()}}
		s.latest.Store(m)
	}
	b.sources.mu.Lock()
	defer b.sources.mu.Unlock()
	if !m.differs(s.announced) {
		return
	}
	s.announced = m
	for w := range s.watches {
		w.wakeUp()
	}
}

// interval returns how often a source is measured.
func (s *source) interval(t *sourceTable) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.every
}

// relist looks up the queues under prefixes if there are others than before.
func (b *Broker) relist(ctx context.Context) {
	var wide []*Watch
	b.sources.mu.Lock()
	for w := range b.watches.all {
		if len(w.wide) > 0 {
			wide = append(wide, w)
		}
	}
	b.sources.mu.Unlock()
	if len(wide) == 0 {
		return
	}
	counting, cancel := context.WithTimeout(ctx, collectBudget)
	_ = b.count(counting, b.now()-recountEvery) // queues of other daemons are seen when it works again
	cancel()
	for _, w := range wide {
		b.sources.mu.Lock()
		same := w.version == b.census.versionNow()
		b.sources.mu.Unlock()
		if same {
			continue
		}
		list := b.watchedNames(w)
		b.sources.mu.Lock()
		if _, open := b.watches.all[w]; open {
			b.sources.listLocked(w, &list, b.now())
			w.wakeUp()
		}
		b.sources.mu.Unlock()
	}
}
