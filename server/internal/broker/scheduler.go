package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/schedule"
)

// A scheduler runs the schedules of all queues, and counts them.
type scheduler struct {
	pool   *share.Pool
	wanted chan struct{} // holds one token if starting or scanning is not empty

	mu       sync.Mutex // guards the fields below
	running  map[queueKey]*queueRunner
	starting map[queueKey]struct{} // a schedule of theirs was changed here
	scanning bool                  // a queue was deleted; there may be another one of its name
	scanned  time.Time             // when the last scan that was whole began
	// counts are the schedules of each queue, as far as they are known here. The pool has as many.
	counts map[queueKey]int
}

// A queueRunner runs the schedules of one queue.
type queueRunner struct {
	stop   context.CancelFunc
	runner *schedule.Runner // nil until the queue is open
	// changedAt is when a schedule was last changed here, on the broker's clock.
	changedAt time.Duration
	// emptyAt is when a scan last did not find the queue; zero if none did.
	emptyAt time.Time
}

const (
	// scanEvery is how often the backend is asked which queues have schedules, because other
	// processes store some too. A scan takes at most one part in scanShare of the time.
	scanEvery = 10 * time.Second
	scanShare = 50
	// retrySchedules is the RetryAfter of the limit of schedules.
	retrySchedules = time.Minute
)

func (s *scheduler) init() {
	s.pool = share.New("schedules", "max_schedules", 0, retrySchedules)
	s.wanted = make(chan struct{}, 1)
	s.running, s.starting, s.counts = make(map[queueKey]*queueRunner), make(map[queueKey]struct{}), make(map[queueKey]int)
}

// RunSchedules sends messages for the due times of all schedules of all queues until ctx ends. Any
// number of brokers may do so on one backend. It returns when all its goroutines have ended, and
// at once if the backend keeps no schedules. Call it once.
func (b *Broker) RunSchedules(ctx context.Context) {
	if b.lister == nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		scan := true
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.scheduler.wanted:
			scan = b.startWanted(ctx, &running)
		}
		if !scan {
			continue
		}
		began := b.now()
		if err := b.scanSchedules(ctx, &running); err != nil && ctx.Err() == nil {
			b.log.LogAttrs(ctx, slog.LevelWarn, "schedules.not_listed", slog.String("error", err.Error()))
		}
		timer.Reset(max(scanEvery, (b.now()-began)*scanShare))
	}
}

// startWanted starts the runners of queues whose schedules were changed here, and reports whether
// a scan is wanted.
func (b *Broker) startWanted(ctx context.Context, running *sync.WaitGroup) (scan bool) {
	s := &b.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.starting {
		b.startQueueLocked(ctx, key, running)
	}
	clear(s.starting)
	scan, s.scanning = s.scanning, false
	return scan
}

// scanSchedules starts runners for the queues that have schedules, and stops those of the others.
func (b *Broker) scanSchedules(ctx context.Context, running *sync.WaitGroup) error {
	s, began, start := &b.scheduler, b.now(), time.Now()
	found := make(map[queueKey]int)
	for q, err := range b.lister.ScheduledQueues(ctx) {
		if err != nil {
			return err
		}
		if key, ok := keyOf(q.Name); ok {
			found[key] = q.Schedules
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, n := range found {
		s.countLocked(key, n)
		b.startQueueLocked(ctx, key, running)
	}
	for key := range s.counts {
		if found[key] == 0 {
			s.countLocked(key, 0)
		}
	}
	for key, r := range s.running {
		if found[key] == 0 && r.changedAt < began {
			r.stop()
			delete(s.running, key)
		}
	}
	s.scanned = start
	return nil
}

// startQueueLocked runs the schedules of a queue on a goroutine of its own, unless they are run.
func (b *Broker) startQueueLocked(ctx context.Context, key queueKey, running *sync.WaitGroup) {
	if b.scheduler.running[key] != nil {
		return
	}
	r := &queueRunner{changedAt: b.now(), emptyAt: b.scheduler.scanned}
	ctx, r.stop = context.WithCancel(ctx)
	b.scheduler.running[key] = r
	running.Go(func() {
		defer r.stop()
		b.runQueue(ctx, key, r)
	})
}

// runQueue runs the schedules of a queue until ctx ends, or that cannot go on. The next scan starts
// it again if there are schedules.
func (b *Broker) runQueue(ctx context.Context, key queueKey, r *queueRunner) {
	s := &b.scheduler
	c := &Caller{broker: b, tenant: key.tenant, existing: true}
	deleted := false
	q, err := c.useAny(ctx, "run schedules", key.name, false)
	if err == nil {
		defer func() { q.release(b.now()) }()
		var runner *schedule.Runner
		handle := &scheduledQueue{Queue: q.handle, caller: c, queue: q, runs: true}
		if runner, err = schedule.NewRunner(handle, key.name, &schedule.RunnerOptions{Logger: b.log, EmptyAt: r.emptyAt}); err == nil {
			s.mu.Lock()
			r.runner = runner
			s.mu.Unlock()
			err = runner.Run(ctx)
			deleted = c.used(q, err)
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, driver.ErrNotFound) {
		b.log.LogAttrs(ctx, slog.LevelWarn, "schedules.not_run", slog.String("queue", key.name), slog.String("tenant", key.tenant), slog.String("error", err.Error()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key] == r {
		delete(s.running, key)
	}
	if deleted {
		s.scanning = true
		s.wantLocked()
	}
}

// changed makes the schedules of a queue be run, or read again.
func (s *scheduler) changed(key queueKey, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.running[key]
	if r == nil {
		s.starting[key] = struct{}{}
		s.wantLocked()
		return
	}
	r.changedAt = now
	if r.runner != nil { // otherwise it will read them
		r.runner.Wake()
	}
}

func (s *scheduler) wantLocked() {
	select {
	case s.wanted <- struct{}{}:
	default: // it has one
	}
}

// countLocked sets how many schedules a queue has.
func (s *scheduler) countLocked(key queueKey, n int) {
	owner := s.owner(key)
	if more := int64(n - s.counts[key]); more > 0 {
		s.pool.Charge(owner, more)
	} else if more < 0 {
		s.pool.Give(owner, -more)
	}
	if s.counts[key] = n; n == 0 {
		delete(s.counts, key)
	}
}

// added and removed count a schedule that was made or removed here. Room for it was taken.
func (s *scheduler) added(key queueKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[key]++
}

func (s *scheduler) removed(key queueKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.counts[key]; n > 0 {
		s.countLocked(key, n-1)
	}
}

// owner returns the share that the schedules of a queue count against: its tenant's.
func (s *scheduler) owner(key queueKey) share.Path { return share.Path{{Name: key.tenant}} }

// A scheduledQueue is an open queue for package schedule. It seals the messages of firings, and
// counts them and the schedules.
type scheduledQueue struct {
	driver.Queue // of the backend
	caller       *Caller
	queue        *queue
	runs         bool // it is used by the broker, not by a request
}

// Traits returns the traits of the queue within the limits of the broker.
func (q *scheduledQueue) Traits() driver.Traits { return q.queue.traits(q.caller.limits()) }

// Fire fires sealed messages; see driver.Queue.
func (q *scheduledQueue) Fire(ctx context.Context, f driver.Firing) (now driver.Schedule, done bool, err error) {
	c, s := q.caller, &q.caller.broker.scheduler
	traits := q.Traits()
	if err := f.Check(&traits); err != nil {
		return now, false, err
	}
	if f.Messages, err = q.sealed(f.Messages); err != nil {
		return now, false, err
	}
	if q.runs {
		if err := c.turn(ctx, "fire", q.queue.name, 1); err != nil {
			return now, false, err
		}
		defer c.done(1)
	}
	owner := s.owner(q.queue.queueKey)
	if f.Revision == 0 {
		if err := s.pool.Take(owner, 1); err != nil {
			c.broker.metrics.Rejected(metricSaturated)
			return now, false, refusedShare(err, "put schedule", q.queue.name)
		}
	}
	now, done, err = q.Queue.Fire(ctx, f)
	switch {
	case f.Revision == 0 && done:
		s.added(q.queue.queueKey)
	case f.Revision == 0:
		s.pool.Give(owner, 1)
	case f.Remove && done:
		s.removed(q.queue.queueKey)
	}
	q.fired(ctx, &f, &now, done, err)
	return now, done, err
}

// sealed returns the messages with seals.
func (q *scheduledQueue) sealed(messages []driver.DueMessage) ([]driver.DueMessage, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	c := *q.caller
	if c.origin.CorrelationID == "" {
		if id, err := uuid.NewV7(); err == nil {
			c.origin.CorrelationID = id.String()
		}
	}
	sealed, now := slices.Clone(messages), time.Now()
	for i := range sealed {
		var err error
		if sealed[i].Outgoing, _, err = c.stamp(q.queue, &Outgoing{Outgoing: messages[i].Outgoing}, now, nil); err != nil {
			return nil, err
		}
	}
	return sealed, nil
}

// fired counts and traces the messages of a firing.
func (q *scheduledQueue) fired(ctx context.Context, f *driver.Firing, now *driver.Schedule, done bool, err error) {
	n := len(f.Messages)
	switch {
	case n > 0 && err != nil && ctx.Err() == nil:
		q.queue.meter.Fired("failed", 1)
	case n > 0 && done:
		q.queue.meter.Sent(n, 0)
		q.queue.flow.sent.Add(uint64(n))
		q.queue.meter.Fired("sent", n)
		for _, run := range now.Runs[max(0, len(now.Runs)-n):] {
			q.caller.broker.traces.note(&q.queue.queueKey, run.MessageID, q.caller.holder, EventSent, 0, "schedule "+now.Name, run.At)
		}
	}
}
