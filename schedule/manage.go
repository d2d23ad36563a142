package schedule

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Runner manages the schedules that are stored with one queue, and sends their messages
// while Run runs. It is safe for concurrent use.
type Runner struct {
	queue   driver.Queue
	name    string // of the queue
	refresh time.Duration
	emptyAt time.Time
	logger  *slog.Logger
	clock   func() time.Time // measures how much time has passed

	changed chan struct{} // holds one token after a change of this process
}

// RunnerOptions configure a Runner.
type RunnerOptions struct {
	// Refresh is how often schedules are read again, to notice changes of other processes;
	// at least a second. 0 means 10 seconds.
	Refresh time.Duration
	// EmptyAt is a time at which the queue had no schedules, by the clock of the process; zero if
	// none is known. What was due since then was not missed; see Schedule.CatchUp.
	EmptyAt time.Time
	// Logger gets failures of the backend and schedules that cannot be read; nil means that
	// nothing is logged.
	Logger *slog.Logger
}

const (
	defaultRefresh = 10 * time.Second
	minRefresh     = time.Second
)

// NewRunner returns a runner for a queue and its name. The queue must stay open while the
// runner is in use. Codes: ErrInvalid, ErrUnsupported (the backend keeps no schedules).
func NewRunner(queue driver.Queue, name string, options *RunnerOptions) (*Runner, error) {
	var o RunnerOptions
	if options != nil {
		o = *options
	}
	if o.Refresh == 0 {
		o.Refresh = defaultRefresh
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Refresh < minRefresh:
		return nil, invalid("Refresh", fmt.Sprintf("%v is less than %v", o.Refresh, minRefresh))
	case !queue.Traits().Schedules:
		return nil, &driver.Error{Code: driver.ErrUnsupported, Op: opSchedule, Queue: name, Detail: "this queue keeps no schedules"}
	}
	return &Runner{
		queue: queue, name: name, refresh: o.Refresh, emptyAt: o.EmptyAt, logger: o.Logger, clock: time.Now, changed: make(chan struct{}, 1),
	}, nil
}

// A Status is a schedule and what became of it.
type Status struct {
	Schedule Schedule
	// Next is the next due time; zero if there is none, or the schedule is paused.
	Next time.Time
	// Through is the time through which the schedule was dealt with.
	Through time.Time
	// Runs are the latest runs, at most driver.MaxRuns, oldest first. A run that was asked for
	// with RunNow has no due time.
	Runs []driver.Run
	// Now is the time of the backend when it answered.
	Now time.Time
	// Err says why the schedule cannot be read; nil if it can.
	Err error
}

// Put stores a schedule, or changes the one of this name. Due times before the change are not
// caught up if the times of the schedule change, nor are those that CatchUpNone has left out if
// the rule changes. Storing what is stored changes nothing, so a
// program may call it whenever it starts.
//
// An empty Queue means that of the runner; no other is allowed. A zero Created means now, by the
// clock of the backend, or that of the schedule that is stored. A schedule that is stored
// stays paused, or not, whatever s says; see Pause. Codes: ErrInvalid, ErrTooLarge, ErrConflict (what
// is stored cannot be read; see List), ErrFull (as many schedules as a queue may have),
// ErrUnavailable (the outcome is unknown; repeating it is safe), ErrClosed.
func (r *Runner) Put(ctx context.Context, s Schedule) (Status, error) {
	if s.Queue != "" && s.Queue != r.name {
		return Status{}, invalid("Queue", fmt.Sprintf("%q is not the queue of this runner, %q", s.Queue, r.name))
	}
	s.Queue = r.name
	return r.change(ctx, s.Name, func(known *Schedule, now time.Time) (Schedule, error) {
		next := s
		if known != nil {
			next.Paused = known.Paused
		}
		switch {
		case !s.Created.IsZero():
			next.Created = s.Created.UTC().Truncate(time.Millisecond)
		case known != nil:
			next.Created = known.Created
		default:
			next.Created = now
		}
		if _, err := next.Compile(); err != nil {
			return next, err
		}
		traits, message := r.queue.Traits(), next.message(next.Created)
		return next, message.Check(&traits)
	})
}

// Pause stops a schedule until Resume. Due times that pass meanwhile, and earlier ones that
// nothing was sent for, are not caught up. Codes: those of Put, ErrNotFound.
func (r *Runner) Pause(ctx context.Context, name string) (Status, error) {
	return r.setPaused(ctx, name, true)
}

// Resume ends a pause. Codes: those of Pause.
func (r *Runner) Resume(ctx context.Context, name string) (Status, error) {
	return r.setPaused(ctx, name, false)
}

func (r *Runner) setPaused(ctx context.Context, name string, paused bool) (Status, error) {
	return r.change(ctx, name, func(known *Schedule, _ time.Time) (Schedule, error) {
		if known == nil {
			return Schedule{}, r.notFound(name)
		}
		next := *known
		next.Paused = paused
		return next, nil
	})
}

// change stores what a function makes of a schedule, which is nil if there is none. It calls the
// function again if another process was first.
func (r *Runner) change(ctx context.Context, name string, change func(known *Schedule, now time.Time) (Schedule, error)) (Status, error) {
	for {
		record, err := r.read(ctx, name)
		if err != nil {
			return Status{}, err
		}
		var known *Schedule
		if record.Revision != 0 {
			parsed, err := r.parse(&record)
			if err != nil {
				return Status{}, err
			}
			known = &parsed
		}
		next, err := change(known, record.Now)
		if err != nil {
			return Status{}, err
		}
		if known != nil && next.Equal(known) {
			return r.statusOf(record)
		}
		f := driver.Firing{Name: name, Revision: record.Revision}
		if f.Definition, err = json.Marshal(next); err != nil {
			return Status{}, err
		}
		switch {
		case known == nil || !next.sameTimes(known):
			f.Through = record.Now
		case known.CatchUp == CatchUpNone && next.CatchUp != CatchUpNone: // what was left out is stored nowhere
			f.Through = later(record.Through, record.Now.Add(-lateLimit-time.Millisecond))
		}
		record, done, err := r.queue.Fire(ctx, f)
		if err != nil {
			return Status{}, err
		}
		if done {
			r.Wake()
			return r.statusOf(record)
		}
	}
}

// sameTimes reports whether two schedules send at the same times.
func (s *Schedule) sameTimes(other *Schedule) bool {
	return s.Cron == other.Cron && s.Every == other.Every && s.Zone == other.Zone &&
		s.Created.Equal(other.Created) && s.Paused == other.Paused
}

// RunNow sends the message of a schedule now, without a due time, whether it is paused or not.
// Codes: ErrNotFound, ErrConflict (it cannot be read), ErrFull, ErrUnavailable (the outcome is
// unknown; the schedule's Runs say whether it was sent), ErrClosed.
func (r *Runner) RunNow(ctx context.Context, name string) (driver.Run, error) {
	for {
		record, s, err := r.find(ctx, name)
		if err != nil {
			return driver.Run{}, err
		}
		f := driver.Firing{Name: name, Revision: record.Revision, Messages: []driver.DueMessage{s.message(time.Time{})}}
		record, done, err := r.queue.Fire(ctx, f)
		if err != nil {
			return driver.Run{}, err
		}
		if done {
			r.Wake() // its revision is another one
			for _, run := range slices.Backward(record.Runs) {
				if run.Due.IsZero() {
					return run, nil
				}
			}
			return driver.Run{At: record.Now}, nil // the answer was lost, and others have changed it since
		}
	}
}

// Remove removes a schedule. Messages that were sent stay. Codes: ErrNotFound, ErrUnavailable
// (the outcome is unknown; repeating it is safe), ErrClosed.
func (r *Runner) Remove(ctx context.Context, name string) error {
	for {
		record, err := r.read(ctx, name)
		if err != nil {
			return err
		}
		if record.Revision == 0 {
			return r.notFound(name)
		}
		_, done, err := r.queue.Fire(ctx, driver.Firing{Name: name, Revision: record.Revision, Remove: true})
		if err != nil {
			return err
		}
		if done {
			r.Wake()
			return nil
		}
	}
}

// Get returns a schedule. Codes: ErrNotFound, ErrConflict (it cannot be read), ErrUnavailable,
// ErrClosed.
func (r *Runner) Get(ctx context.Context, name string) (Status, error) {
	record, _, err := r.find(ctx, name)
	if err != nil {
		return Status{}, err
	}
	return r.statusOf(record)
}

// List yields all schedules, by name. One that cannot be read, because another version or another
// program has stored it, has a name and Err; it can only be removed. An error ends the sequence.
// Codes: ErrUnavailable, ErrClosed.
func (r *Runner) List(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		for record, err := range r.queue.Schedules(ctx, "") {
			if err != nil {
				yield(Status{}, err)
				return
			}
			status, err := r.statusOf(record)
			if err != nil {
				status = Status{
					Schedule: Schedule{Name: record.Name, Queue: r.name}, Through: record.Through, Runs: record.Runs, Now: record.Now, Err: err,
				}
			}
			if !yield(status, nil) {
				return
			}
		}
	}
}

// unusedRevision is one that no schedule has: a firing with it reads the schedule and the time.
const unusedRevision = 1 << 53

// read returns what is stored; the revision is 0 if no schedule has this name.
func (r *Runner) read(ctx context.Context, name string) (driver.Schedule, error) {
	record, _, err := r.queue.Fire(ctx, driver.Firing{Name: name, Revision: unusedRevision})
	return record, err
}

// find returns a schedule that exists and can be read.
func (r *Runner) find(ctx context.Context, name string) (driver.Schedule, Schedule, error) {
	record, err := r.read(ctx, name)
	if err != nil {
		return record, Schedule{}, err
	}
	if record.Revision == 0 {
		return record, Schedule{}, r.notFound(name)
	}
	s, err := r.parse(&record)
	return record, s, err
}

// parse reads a definition that is stored.
func (r *Runner) parse(record *driver.Schedule) (Schedule, error) {
	s, err := Parse(record.Definition)
	if err != nil {
		return s, &driver.Error{
			Code: driver.ErrConflict, Op: opSchedule, Queue: r.name, Field: "Name",
			Detail: fmt.Sprintf("schedule %q cannot be read here; remove it, or use the version that stored it", record.Name), Err: err,
		}
	}
	return s, nil
}

func (r *Runner) notFound(name string) error {
	return &driver.Error{Code: driver.ErrNotFound, Op: opSchedule, Queue: r.name, Field: "Name", Detail: fmt.Sprintf("no schedule %q", name)}
}

// Wake makes Run read the schedules again: another runner has changed them. It does not block.
func (r *Runner) Wake() {
	select {
	case r.changed <- struct{}{}:
	default: // it will
	}
}

func (r *Runner) statusOf(record driver.Schedule) (Status, error) {
	s, err := r.parse(&record)
	if err != nil {
		return Status{}, err
	}
	calendar, err := s.Compile()
	if err != nil {
		return Status{}, err
	}
	status := Status{Schedule: s, Through: record.Through, Runs: record.Runs, Now: record.Now}
	if !s.Paused {
		status.Next = calendar.Next(later(record.Through, record.Now))
	}
	return status, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// same reports whether two records have the same definition.
func same(a, b *driver.Schedule) bool { return bytes.Equal(a.Definition, b.Definition) }
