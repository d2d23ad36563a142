package sqsapi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	// taskLease is how long a task belongs to a daemon that does not extend its lease.
	taskLease = 10 * time.Second
	// taskStep is how many messages a task without a rate moves in one step.
	taskStep = 100
	// taskPause is the time between the steps of a task with a rate, between records
	// of its progress, and before a failed step is repeated.
	taskPause = time.Second
	// taskRenewal is how long after its last claim a daemon must claim the task again
	// before it moves more: another daemon may take it over soon.
	taskRenewal = taskLease - 2*taskPause
	// maxTaskFailures is how often in a row a step may fail.
	maxTaskFailures = 60
)

// claim leases the task to a daemon.
func (t *moveTask) claim(owner string) {
	t.Owner, t.Until = owner, time.Now().Add(taskLease).UnixMilli()
}

// end ends the task with a status.
func (t *moveTask) end(status, failure string) {
	t.Status, t.Failure, t.Owner, t.Until, t.Held = status, failure, "", 0, 0
}

// A taskTable has the tasks that this daemon runs.
type taskTable struct {
	owner string
	work  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	running map[broker.TenantQueue]*mover
	closed  bool
	// base is the context of the daemon, for tasks that are resumed without a request;
	// nil before Resume.
	base context.Context
}

// A mover runs a task.
type mover struct {
	service   *Service
	source    broker.TenantQueue
	task      moveTask
	stop      context.CancelFunc
	cancelled chan struct{} // closed when a client cancels the task
	once      sync.Once
	moved     atomic.Int64
	unsure    bool      // more may have moved than is known: by an earlier daemon, or in a step without an answer
	claimed   time.Time // last successful claim
	noted     time.Time // last attempt to store the progress
	failures  int
}

func (t *taskTable) init() {
	t.owner = uuid.NewString()
	t.running = make(map[broker.TenantQueue]*mover)
}

// close stops all tasks and waits for them.
func (t *taskTable) close() {
	t.mu.Lock()
	t.closed = true
	for _, m := range t.running {
		m.stop()
	}
	t.mu.Unlock()
	t.work.Wait()
}

// stop stops the task of a deleted source.
func (t *taskTable) stop(source broker.TenantQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.running[source]; m != nil {
		m.stop()
	}
}

// cancel cancels the task of a source, and returns its progress.
func (t *taskTable) cancel(source broker.TenantQueue) (moved int64, running bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.running[source]
	if m == nil {
		return 0, false
	}
	m.once.Do(func() { close(m.cancelled) })
	return m.moved.Load(), true
}

// moved returns the progress of the task of a source.
func (t *taskTable) moved(source broker.TenantQueue) (moved int64, running bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.running[source]; m != nil {
		return m.moved.Load(), true
	}
	return 0, false
}

// run starts a task here. The task outlives ctx.
func (s *Service) run(ctx context.Context, source broker.TenantQueue, task moveTask) {
	t := &s.tasks
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.running[source] != nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	now := time.Now()
	m := &mover{
		service: s, source: source, task: task, stop: stop, cancelled: make(chan struct{}),
		unsure: task.Owner != s.tasks.owner, claimed: now, noted: now,
	}
	m.moved.Store(task.Moved)
	t.running[source] = m
	t.work.Go(func() {
		defer func() {
			t.mu.Lock()
			delete(t.running, source)
			t.mu.Unlock()
			stop()
		}()
		m.work(ctx)
	})
}

// taken reports whether a daemon has leased the task. On a backend that is not shared,
// a foreign lease is that of an earlier process of this daemon, and does not count.
func (s *Service) taken(task *moveTask) bool {
	return task.Until > time.Now().UnixMilli() && (s.options.Shared || task.Owner == s.tasks.owner)
}

// adopt resumes the task of a queue if no daemon has leased it.
func (s *Service) adopt(q *queue) {
	if i := q.activeTask(); i >= 0 && !s.taken(&q.Tasks[i]) {
		s.tasks.adopt(s, q.TenantQueue, q.Tasks[i])
	}
}

// adopt resumes a task in the background, because the caller may hold the lock of its
// queue. The task is claimed before it moves messages.
func (t *taskTable) adopt(s *Service, source broker.TenantQueue, task moveTask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.running[source] != nil || t.base == nil {
		return
	}
	task.Owner = ""
	ctx := t.base
	t.work.Go(func() { s.run(ctx, source, task) })
}

// Resume resumes the tasks of other daemons that have stopped, now and whenever one is
// found later, until ctx ends or Close is called. It blocks until it has read all
// queues, and until the leases of all tasks it found have ended.
func (s *Service) Resume(ctx context.Context) {
	s.tasks.mu.Lock()
	s.tasks.base = ctx
	s.tasks.mu.Unlock()
	for {
		var next time.Time
		for place, err := range s.broker.AllQueues(ctx) {
			if err != nil {
				return
			}
			q, err := s.load(ctx, place) // adopts the task
			if err != nil {
				continue
			}
			if i := q.activeTask(); i >= 0 && q.Tasks[i].Owner != s.tasks.owner && s.taken(&q.Tasks[i]) {
				if until := time.UnixMilli(q.Tasks[i].Until + 1); next.IsZero() || until.Before(next) {
					next = until
				}
			}
		}
		if next.IsZero() || backoff.Pause(ctx, time.Until(next)) != nil {
			return
		}
	}
}

// work moves messages until there are no more, or the task is stopped or cancelled.
func (m *mover) work(ctx context.Context) {
	for {
		select {
		case <-m.cancelled:
			m.store(ctx, taskCancelled, "")
			return
		case <-ctx.Done():
			m.release(ctx)
			return
		default:
		}
		if m.task.Status == taskCancelling { // cancelled through another daemon
			m.store(ctx, taskCancelled, "")
			return
		}
		if m.needsClaim() {
			if !m.store(ctx, "", "") {
				return
			}
			if m.needsClaim() {
				m.rest(ctx)
			}
			continue
		}
		status, failure := m.step(ctx)
		if ctx.Err() != nil {
			continue
		}
		due := time.Since(m.noted) >= taskPause
		if (status != "" || due) && !m.store(ctx, status, failure) || !m.task.active() {
			return
		}
		if m.task.Rate > 0 || m.failures > 0 || status != "" { // a status that could not be stored
			m.rest(ctx)
		}
	}
}

// needsClaim reports whether the task must be claimed before the next step: another
// daemon may have it, or its progress is not known exactly.
func (m *mover) needsClaim() bool { return m.unsure || time.Since(m.claimed) >= taskRenewal }

// rest waits for the next step, or until the task is stopped or cancelled.
func (m *mover) rest(ctx context.Context) {
	timer := time.NewTimer(taskPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-m.cancelled:
	}
}

// step moves some messages. It returns the final status of the task, or "".
func (m *mover) step(ctx context.Context) (status, failure string) {
	left := m.task.Total - m.moved.Load()
	if left <= 0 {
		return taskCompleted, ""
	}
	limit := int64(taskStep)
	if m.task.Rate > 0 {
		limit = int64(m.task.Rate)
	}
	daemon, err := m.service.daemon(m.source.Tenant)
	moved := 0
	if err == nil {
		moved, err = daemon.Move(ctx, m.source.Queue, m.task.To, int(min(limit, left)))
	}
	m.moved.Add(int64(moved))
	if err == nil && moved == 0 {
		status, failure, err = m.unmoved(ctx, daemon)
	}
	switch {
	case status != "":
		return status, failure
	case err == nil:
		m.failures = 0
		return "", ""
	case broker.NoTarget(err):
		return taskFailed, noQueueReason
	case errors.Is(err, driver.ErrNotFound):
		return taskFailed, noQueueReason
	case errors.Is(err, driver.ErrUnsupported):
		return taskFailed, "The backend of this service cannot move messages."
	}
	// The destination is full, or the backend is unavailable and may have moved messages
	// without reporting it.
	m.unsure = errors.Is(err, driver.ErrUnavailable)
	if m.failures++; m.failures > maxTaskFailures {
		return taskFailed, "Messages could not be moved for a minute."
	}
	return "", ""
}

// The failure reasons of AWS.
const (
	noQueueReason  = "AWS.SimpleQueueService.NonExistentQueue"
	noSourceReason = "CouldNotDetermineMessageSource"
)

// errHeld: the messages wait behind others of their group that are in flight.
var errHeld = errors.New("sqs: the messages to move are held by their group")

// unmoved decides about a task that moved nothing before it was complete: it is complete
// if no message waits any more, and failed if a message cannot go to its source. An
// error means that a later step may move more.
func (m *mover) unmoved(ctx context.Context, daemon broker.Caller) (status, failure string, err error) {
	query := driver.Query{States: []driver.State{driver.StateReady}, Limit: 1}
	for letter, err := range daemon.Peek(ctx, m.source.Queue, query) {
		if errors.Is(err, driver.ErrUnsupported) {
			break
		}
		if err != nil {
			return "", "", err
		}
		if m.task.To != "" {
			return "", "", errHeld
		}
		home := letter.Attributes[driver.AttributeDeadSource]
		if home == "" || home == m.source.Queue {
			return taskFailed, noSourceReason, nil
		}
		_, err = daemon.Config(ctx, home)
		switch {
		case errors.Is(err, driver.ErrNotFound):
			return taskFailed, noQueueReason, nil
		case err != nil:
			return "", "", err
		}
		return "", "", errHeld
	}
	return taskCompleted, "", nil
}

// errNotOurs ends a task that another daemon has leased, or that is over.
var errNotOurs = errors.New("the task is not ours")

// store stores the progress of the task, and its status if it has ended, and extends the
// lease. It claims a task that no daemon has leased, with the progress of its last one.
// It reports false if this daemon must stop working on the task.
func (m *mover) store(ctx context.Context, status, failure string) bool {
	s := m.service
	m.noted = time.Now()
	daemon, err := s.daemon(m.source.Tenant)
	var stats driver.Stats
	var state string
	if err == nil {
		stats, err = daemon.Stats(ctx, m.source.Queue)
	}
	if err == nil {
		_, err = s.change(ctx, daemon, m.source, func(q *queue) error {
			i := slices.IndexFunc(q.Tasks, func(t moveTask) bool { return t.ID == m.task.ID })
			if i < 0 || !q.Tasks[i].active() {
				return errNotOurs
			}
			q.Tasks = slices.Clone(q.Tasks)
			task := &q.Tasks[i]
			if task.Owner != s.tasks.owner && s.taken(task) {
				return errNotOurs
			}
			if m.unsure || task.Owner != s.tasks.owner {
				task.catchUp(stats)
				m.moved.Store(max(m.moved.Load(), task.Moved))
			}
			task.claim(s.tasks.owner)
			task.record(m.moved.Load(), stats)
			if status != "" {
				task.end(status, failure)
			}
			state = task.Status
			return nil
		})
	}
	switch {
	case err == nil:
		m.claimed, m.unsure, m.task.Status = m.noted, false, state
		return true
	case errors.Is(err, errNotOurs), errors.Is(err, sqswire.QueueDoesNotExist), errors.Is(err, driver.ErrNotFound):
		return false
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "sqs.movetask", slog.String("queue", m.source.Queue), slog.String("error", err.Error()))
	return true // it is tried again later
}

// release ends the lease, so that another daemon can take the task over at once.
func (m *mover) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taskPause)
	defer cancel()
	daemon, err := m.service.daemon(m.source.Tenant)
	if err != nil {
		return
	}
	_, _ = m.service.change(ctx, daemon, m.source, func(q *queue) error { // on an error the lease expires later
		i := slices.IndexFunc(q.Tasks, func(t moveTask) bool { return t.ID == m.task.ID })
		if i < 0 || q.Tasks[i].Owner != m.service.tasks.owner {
			return errNotOurs
		}
		q.Tasks = slices.Clone(q.Tasks)
		task := &q.Tasks[i]
		task.Until = 0
		if !m.unsure {
			task.Moved, task.Held = m.moved.Load(), 0 // exact, so the next daemon need not catch up
		}
		return nil
	})
}
