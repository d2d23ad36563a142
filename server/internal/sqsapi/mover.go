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
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	// taskLease is how long a task belongs to a daemon that says nothing.
	taskLease = 10 * time.Second
	// taskStep is how many messages move at a time where no rate was asked for.
	taskStep = 100
	// taskPause is between the steps of a task with a rate, between the notes of how
	// far it came, and before it tries again what failed.
	taskPause = time.Second
	// taskDoubt is how long after its last claim a daemon moves nothing before it has
	// claimed the task again: somebody else may have it soon.
	taskDoubt = taskLease - 2*taskPause
	// maxTaskFailures is how often in a row a step may fail.
	maxTaskFailures = 60
)

// claim makes a task that of a daemon, for a while.
func (t *moveTask) claim(owner string) {
	t.Owner, t.Until = owner, time.Now().Add(taskLease).UnixMilli()
}

// end is how a task is over.
func (t *moveTask) end(status, failure string) {
	t.Status, t.Failure, t.Owner, t.Until, t.Held = status, failure, "", 0, 0
}

// A taskTable has the tasks that run in this daemon.
type taskTable struct {
	owner string
	work  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	running map[broker.TenantQueue]*mover
	closed  bool
	// base is the context of the daemon, for tasks that nobody asked for now; nil
	// until there is one.
	base context.Context
}

// A mover is a task that runs here.
type mover struct {
	service   *Service
	source    broker.TenantQueue
	task      moveTask
	stop      context.CancelFunc
	cancelled chan struct{} // closed by who cancels the task
	once      sync.Once
	moved     atomic.Int64
	unsure    bool      // more may have moved than is known: by a daemon that is gone, or in a step that got lost
	claimed   time.Time // when the task was known to be ours
	noted     time.Time // when that was last tried
	failures  int
}

func (t *taskTable) init() {
	t.owner = uuid.NewString()
	t.running = make(map[broker.TenantQueue]*mover)
}

// close ends all tasks and waits for them.
func (t *taskTable) close() {
	t.mu.Lock()
	t.closed = true
	for _, m := range t.running {
		m.stop()
	}
	t.mu.Unlock()
	t.work.Wait()
}

// stop ends the task of a source that is no more.
func (t *taskTable) stop(source broker.TenantQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.running[source]; m != nil {
		m.stop()
	}
}

// cancel tells the task of a source to end, and returns how far it came.
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

// moved returns how far the task of a source came.
func (t *taskTable) moved(source broker.TenantQueue) (moved int64, running bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.running[source]; m != nil {
		return m.moved.Load(), true
	}
	return 0, false
}

// run starts a task here. It goes on when ctx ends.
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

// taken reports whether somebody is at a task. Where no other daemon can be on the
// backend it was an earlier life of this one, however short ago.
func (s *Service) taken(task *moveTask) bool {
	return task.Until > time.Now().UnixMilli() && (s.options.Shared || task.Owner == s.tasks.owner)
}

// adopt goes on with the task of a queue whose daemon is gone.
func (s *Service) adopt(q *queue) {
	if i := q.activeTask(); i >= 0 && !s.taken(&q.Tasks[i]) {
		s.tasks.adopt(s, q.TenantQueue, q.Tasks[i])
	}
}

// adopt claims a task before it runs it, in the background: who finds it may hold
// the lock of its queue.
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

// Resume goes on with the tasks of daemons that are gone, now and whenever one is
// found later, until ctx ends or Close is called. It blocks until it has looked at
// all queues, and for as long as a task may still be somebody's.
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
			q, err := s.load(ctx, place) // which adopts
			if err != nil {
				continue
			}
			if i := q.activeTask(); i >= 0 && q.Tasks[i].Owner != s.tasks.owner && s.taken(&q.Tasks[i]) {
				if until := time.UnixMilli(q.Tasks[i].Until + 1); next.IsZero() || until.Before(next) {
					next = until
				}
			}
		}
		if next.IsZero() || !pause(ctx, time.Until(next)) {
			return
		}
	}
}

// pause waits, and reports false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// work moves messages until there are no more, or somebody says stop.
func (m *mover) work(ctx context.Context) {
	for {
		select {
		case <-m.cancelled:
			m.note(ctx, taskCancelled, "")
			return
		case <-ctx.Done():
			m.release(ctx)
			return
		default:
		}
		if m.task.Status == taskCancelling { // by who has found it so
			m.note(ctx, taskCancelled, "")
			return
		}
		if m.doubtful() {
			if !m.note(ctx, "", "") {
				return
			}
			if m.doubtful() {
				m.rest(ctx)
			}
			continue
		}
		status, failure := m.step(ctx)
		if ctx.Err() != nil {
			continue
		}
		due := time.Since(m.noted) >= taskPause
		if (status != "" || due) && !m.note(ctx, status, failure) || !m.task.active() {
			return
		}
		if m.task.Rate > 0 || m.failures > 0 || status != "" { // which could not be noted
			m.rest(ctx)
		}
	}
}

// doubtful reports whether the task may be somebody else's, or may have come further
// than is known here.
func (m *mover) doubtful() bool { return m.unsure || time.Since(m.claimed) >= taskDoubt }

// rest waits for the next step, unless somebody says stop.
func (m *mover) rest(ctx context.Context) {
	timer := time.NewTimer(taskPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-m.cancelled:
	}
}

// step moves some messages. It returns how the task ended, or "".
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
	// The destination is full, or the backend is away for a moment, and may have moved
	// what it could not say.
	m.unsure = errors.Is(err, driver.ErrUnavailable)
	if m.failures++; m.failures > maxTaskFailures {
		return taskFailed, "Messages could not be moved for a minute."
	}
	return "", ""
}

// Why a task failed, as AWS says it.
const (
	noQueueReason  = "AWS.SimpleQueueService.NonExistentQueue"
	noSourceReason = "CouldNotDetermineMessageSource"
)

// errHeld says that messages wait behind others of their group that are in flight.
var errHeld = errors.New("sqs: the messages to move are held by their group")

// unmoved says what becomes of a task that moved nothing although it was not done:
// it is complete if no message waits any more, and failed if a message cannot go where
// it came from. An error means that a later step may move it.
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

// errNotOurs ends a task that is somebody else's, or over.
var errNotOurs = errors.New("the task is not ours")

// note writes down how far the task came, and how it ended if it did. It reports
// whether the task is still to be done here. A task that was somebody's until now
// becomes ours, as far as it came.
func (m *mover) note(ctx context.Context, status, failure string) bool {
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
				task.reckon(stats)
				m.moved.Store(max(m.moved.Load(), task.Moved))
			}
			task.claim(s.tasks.owner)
			task.note(m.moved.Load(), stats)
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
	return true // it can be tried again
}

// release leaves the task to whoever comes next.
func (m *mover) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taskPause)
	defer cancel()
	daemon, err := m.service.daemon(m.source.Tenant)
	if err != nil {
		return
	}
	_, _ = m.service.change(ctx, daemon, m.source, func(q *queue) error { // else its lease ends by itself
		i := slices.IndexFunc(q.Tasks, func(t moveTask) bool { return t.ID == m.task.ID })
		if i < 0 || q.Tasks[i].Owner != m.service.tasks.owner {
			return errNotOurs
		}
		q.Tasks = slices.Clone(q.Tasks)
		task := &q.Tasks[i]
		task.Until = 0
		if !m.unsure {
			task.Moved, task.Held = m.moved.Load(), 0 // exactly, so there is nothing to reckon
		}
		return nil
	})
}
