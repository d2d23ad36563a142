package schedule

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// Run sends messages for the due times of all schedules of the queue until ctx ends, and then
// returns nil. Any number of processes may run them at the same time. While the backend fails it
// asks again, with growing pauses, and it catches up afterwards as each schedule says. It returns
// an error only if that cannot help. Codes: ErrClosed, ErrNotFound (the queue was deleted),
// ErrUnsupported, ErrForbidden, ErrUnauthenticated.
func (r *Runner) Run(ctx context.Context) error {
	loop := runLoop{Runner: r, read: r.emptyAt, stale: true}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.changed:
			loop.stale = true
		}
		wait, err := loop.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures, loop.failed = 0, false
		case isFinal(err):
			return err
		default:
			failures++
			loop.stale = true // the outcome of a firing may be unknown
			loop.failed = true
			wait = backoff.AfterError(failures, err)
			r.logger.WarnContext(ctx, "schedules cannot be run", "queue", r.name, "error", err, "retry_after", wait)
		}
		timer.Reset(wait)
	}
}

// isFinal reports whether an error stays.
func isFinal(err error) bool {
	for _, code := range []driver.Code{
		driver.ErrClosed, driver.ErrNotFound, driver.ErrUnsupported, driver.ErrForbidden, driver.ErrUnauthenticated,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// A runLoop is one call of Run.
type runLoop struct {
	*Runner
	entries []*entry
	read    time.Time // when the schedules were read, by the clock of the process
	stale   bool      // they must be read again
	failed  bool      // the last round did, so that due times may have been missed
}

// An entry is a schedule as a runner knows it.
type entry struct {
	record   driver.Schedule
	read     time.Time // when record was read, by the clock of the process
	schedule Schedule
	calendar *Calendar // nil: it cannot be run
	next     time.Time // before this, by the time of the backend, nothing is sent; zero if that is unknown
	// unknown is when the runner last looked without finding this definition, by the time of the
	// backend. It is zero once the due times since then are dealt with, and after an outage.
	unknown  time.Time
	failures int // for lack of room, since the last message
}

// round sends what is due, and returns how long nothing will be.
func (l *runLoop) round(ctx context.Context) (time.Duration, error) {
	if since := l.clock().Sub(l.read); l.stale || since >= l.refresh || since < 0 {
		if err := l.readAll(ctx); err != nil {
			return 0, err
		}
	}
	wait := l.refresh
	for _, e := range l.entries {
		if !e.runs() {
			continue
		}
		more, err := false, error(nil)
		if !l.now(e).Before(e.next) {
			more, err = l.fireDue(ctx, e)
		}
		switch {
		case errors.Is(err, driver.ErrFull): // others may fit
			e.failures++
			e.next = l.now(e).Add(backoff.AfterError(e.failures, err))
			l.logger.WarnContext(ctx, "a schedule finds no room in its queue", "queue", l.name, "schedule", e.record.Name, "error", err)
		case err != nil:
			return 0, err
		case more:
			wait = 0
		}
		if e.runs() && !e.next.IsZero() {
			wait = min(wait, max(e.next.Sub(l.now(e)), 0))
		}
	}
	return min(wait, max(l.refresh-l.clock().Sub(l.read), 0)), nil
}

// readAll reads all schedules.
func (l *runLoop) readAll(ctx context.Context) error {
	known := make(map[string]*entry, len(l.entries))
	for _, e := range l.entries {
		known[e.record.Name] = e
	}
	var entries []*entry
	for record, err := range l.queue.Schedules(ctx, "") {
		if err != nil {
			return err
		}
		e := cmp.Or(known[record.Name], &entry{})
		l.take(ctx, e, record)
		e.next = time.Time{} // the clock of the backend may have been set
		entries = append(entries, e)
	}
	l.entries, l.read, l.stale = entries, l.clock(), false
	return nil
}

// take notes what a schedule is now.
func (l *runLoop) take(ctx context.Context, e *entry, record driver.Schedule) {
	isNew := e.record.Revision == 0 || !same(&e.record, &record)
	if e.record.Revision != record.Revision {
		e.next = time.Time{}
	}
	now, looked := l.clock(), l.read
	if e.record.Revision != 0 {
		looked = e.read
	}
	e.record, e.read = record, now
	if isNew {
		e.unknown = time.Time{}
		if passed := now.Sub(looked); !l.failed && !looked.IsZero() && passed >= 0 && passed <= 2*l.refresh {
			e.unknown = record.Now.Add(-passed)
		}
	}
	switch {
	case record.Revision == 0: // it was removed
		e.calendar = nil
		return
	case !isNew:
		return
	}
	s, err := Parse(record.Definition)
	if err == nil {
		e.schedule = s
		e.calendar, err = s.Compile()
	}
	if err != nil {
		l.breakOff(ctx, e, err)
	}
}

// breakOff stops running a schedule until it is changed.
func (l *runLoop) breakOff(ctx context.Context, e *entry, err error) {
	e.calendar = nil
	l.logger.ErrorContext(ctx, "a schedule cannot be run until it is changed", "queue", l.name, "schedule", e.record.Name, "error", err)
}

// now returns the time of the backend, as far as it is known.
func (l *runLoop) now(e *entry) time.Time {
	return e.record.Now.Add(max(l.clock().Sub(e.read), 0))
}

// runs reports whether a schedule can be due.
func (e *entry) runs() bool { return e.calendar != nil && !e.schedule.Paused }

// fireDue sends messages for the first due times, and reports whether there may be more. If
// nothing is due, it notes when something is next. Other schedules get their turn in between.
func (l *runLoop) fireDue(ctx context.Context, e *entry) (more bool, err error) {
	now := l.now(e)
	due := e.calendar.dueSince(e.unknown, e.record.Through, now)
	if len(due) == 0 {
		e.unknown = time.Time{}
		e.next = e.calendar.Next(later(e.record.Through, now))
		return false, nil
	}
	due = due[:min(len(due), driver.MaxRuns, e.schedule.fitting())]
	err = l.fire(ctx, e, due)
	if errors.Is(err, driver.ErrFull) && len(due) > 1 {
		err = l.fire(ctx, e, due[:1]) // there may be room for one
	}
	if err == nil {
		e.failures = 0
	}
	return err == nil && e.runs(), err
}

// maxFiringBytes bounds the messages of a firing, so that it fits in one request of any backend.
const maxFiringBytes = 512 << 10

// fitting returns how many messages of a schedule a firing has at most; at least one.
func (s *Schedule) fitting() int {
	size := len(s.Body) + 1
	for name, value := range s.Attributes {
		size += len(name) + len(value)
	}
	return max(1, maxFiringBytes/size)
}

// fire sends messages for due times, if no other process has, and notes what the schedule is
// then.
func (l *runLoop) fire(ctx context.Context, e *entry, due []time.Time) error {
	f := driver.Firing{Name: e.record.Name, Revision: e.record.Revision, Through: due[len(due)-1]}
	for _, at := range due {
		f.Messages = append(f.Messages, e.schedule.message(at))
	}
	record, _, err := l.queue.Fire(ctx, f)
	if errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrTooLarge) {
		l.breakOff(ctx, e, err)
		return nil
	}
	if err != nil {
		return err
	}
	l.take(ctx, e, record)
	return nil
}
