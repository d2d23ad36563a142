package broker

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/schedule"
)

// A ScheduleStatus is a schedule, what becomes of it next, and what became of it.
type ScheduleStatus struct {
	schedule.Status
	// Upcoming are the next due times, in the zone of the schedule; none if it is paused.
	Upcoming []time.Time
	// Outcomes are the last events of the messages of Runs, as far as the traces of this broker
	// have them; empty otherwise.
	Outcomes []string
}

// upcomingRuns is how many due times a ScheduleStatus has.
const upcomingRuns = 5

// PutSchedule stores a schedule with a queue, or changes the one of its name; see
// schedule.Runner.Put. The queue must exist. It needs a token for admin and for send, which must
// allow the body, and blocks until the backend is done. Repeating it is safe. Codes: ErrInvalid,
// ErrTooLarge, ErrNotFound (the queue), ErrConflict (what is stored cannot be read), ErrFull (as
// many schedules as the queue or the tenant may have), ErrUnsupported (the backend keeps none),
// ErrUnavailable.
func (c Caller) PutSchedule(ctx context.Context, queue string, s schedule.Schedule) (status ScheduleStatus, err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return status, err
	}
	if err := c.authorizeBody(ctx, queue, len(s.Body)); err != nil {
		return status, err
	}
	defer func() { c.record("put schedule", queue, shortened(s.Name), 0, err) }()
	return inSchedules(ctx, &c, "put schedule", queue, lastForWrites, func(q *scheduledQueue, r *schedule.Runner) (ScheduleStatus, error) {
		if err := q.checkReserved(&s); err != nil {
			return ScheduleStatus{}, err
		}
		status, err := r.Put(ctx, s)
		return q.shown(status, err)
	})
}

// Schedule returns a schedule of a queue. It needs a token for admin, and may block on I/O. Codes:
// ErrNotFound (the queue or the schedule), ErrConflict (it cannot be read), ErrUnsupported,
// ErrUnavailable.
func (c Caller) Schedule(ctx context.Context, queue, name string) (status ScheduleStatus, err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return status, err
	}
	return inSchedules(ctx, &c, "show schedule", queue, lastForReads, func(q *scheduledQueue, r *schedule.Runner) (ScheduleStatus, error) {
		status, err := r.Get(ctx, name)
		return q.shown(status, err)
	})
}

// ScheduleList returns all schedules of a queue, by name, without bodies and attributes. Those that
// cannot be read have Err. It needs a token for admin, and may block on I/O. Codes: ErrNotFound,
// ErrUnsupported, ErrUnavailable.
func (c Caller) ScheduleList(ctx context.Context, queue string) ([]schedule.Status, error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return nil, err
	}
	return inSchedules(ctx, &c, "list schedules", queue, lastForReads, func(_ *scheduledQueue, r *schedule.Runner) ([]schedule.Status, error) {
		var all []schedule.Status
		for status, err := range r.List(ctx) {
			if err != nil {
				return nil, err
			}
			status.Schedule.Body, status.Schedule.Attributes = nil, nil
			all = append(all, status)
		}
		return all, nil
	})
}

// ScheduledQueues lists the queues with schedules: those of the caller's tenant, or of all tenants
// for a token of none. It needs a token for admin on any queue; an error ends the sequence. Codes:
// ErrUnsupported (the backend keeps no schedules), ErrUnavailable.
func (c Caller) ScheduledQueues(ctx context.Context) iter.Seq2[TenantQueue, error] {
	return func(yield func(TenantQueue, error) bool) {
		_, err := c.administer(ctx, "list schedules", "", lastForReads)
		if err == nil && c.broker.lister == nil {
			err = &driver.Error{Code: driver.ErrUnsupported, Op: "list schedules", Detail: "backend keeps no schedules"}
		}
		if err != nil {
			yield(TenantQueue{}, err)
			return
		}
		for scheduled, err := range c.broker.lister.ScheduledQueues(ctx) {
			if err != nil {
				yield(TenantQueue{}, err)
				return
			}
			key, ok := keyOf(scheduled.Name)
			if ours := c.tenant == "" || key.tenant == c.tenant; ok && ours && !yield(TenantQueue{key.tenant, key.name}, nil) {
				return
			}
		}
	}
}

// PauseSchedule stops a schedule, and ResumeSchedule starts it again; see schedule.Runner. They
// need a token for admin, and block until the backend is done. Repeating them is safe. Codes:
// those of Schedule.
func (c Caller) PauseSchedule(ctx context.Context, queue, name string) (ScheduleStatus, error) {
	return c.changeSchedule(ctx, "pause schedule", queue, name, (*schedule.Runner).Pause)
}

// ResumeSchedule ends a pause.
func (c Caller) ResumeSchedule(ctx context.Context, queue, name string) (ScheduleStatus, error) {
	return c.changeSchedule(ctx, "resume schedule", queue, name, (*schedule.Runner).Resume)
}

func (c *Caller) changeSchedule(
	ctx context.Context, op, queue, name string, change func(*schedule.Runner, context.Context, string) (schedule.Status, error),
) (status ScheduleStatus, err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return status, err
	}
	defer func() { c.record(op, queue, shortened(name), 0, err) }()
	return inSchedules(ctx, c, op, queue, lastForWrites, func(q *scheduledQueue, r *schedule.Runner) (ScheduleStatus, error) {
		status, err := change(r, ctx, name)
		return q.shown(status, err)
	})
}

// RunSchedule sends the message of a schedule now, whether it is paused or not. It needs a token
// for admin and for send, and blocks until the backend is done. Codes: those of Schedule, ErrFull.
// After ErrUnavailable the runs of the schedule say whether it was sent.
func (c Caller) RunSchedule(ctx context.Context, queue, name string) (run driver.Run, err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return run, err
	}
	defer func() { c.record("run schedule", queue, shortened(name), 0, err) }()
	return inSchedules(ctx, &c, "run schedule", queue, lastForWrites, func(_ *scheduledQueue, r *schedule.Runner) (driver.Run, error) {
		status, err := r.Get(ctx, name)
		if err == nil {
			err = c.authorizeBody(ctx, queue, len(status.Schedule.Body))
		}
		if err != nil {
			return driver.Run{}, err
		}
		return r.RunNow(ctx, name)
	})
}

// RemoveSchedule removes a schedule. Messages that were sent stay. It needs a token for admin, and
// blocks until the backend is done. Codes: ErrNotFound (the queue or the schedule),
// ErrUnsupported, ErrUnavailable (repeating it is safe).
func (c Caller) RemoveSchedule(ctx context.Context, queue, name string) (err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return err
	}
	defer func() { c.record("remove schedule", queue, shortened(name), 0, err) }()
	_, err = inSchedules(ctx, &c, "remove schedule", queue, lastForWrites, func(_ *scheduledQueue, r *schedule.Runner) (struct{}, error) {
		return struct{}{}, r.Remove(ctx, name)
	})
	return err
}

// Fire changes a schedule of a queue and sends messages; see driver.Queue. The queue must exist. It
// needs a token for admin, and to store a definition or to send messages also for send. A definition
// that is a JSON object must be one of package schedule, for this queue and name; the broker does not
// run others. It blocks until the backend is done. Codes besides those of driver.Queue:
// ErrNotFound, ErrUnsupported.
func (c Caller) Fire(ctx context.Context, queue string, f driver.Firing) (now driver.Schedule, done bool, err error) {
	if _, err := c.authorize(ctx, capability.OpAdmin, queue); err != nil {
		return now, false, err
	}
	if f.Definition != nil || len(f.Messages) > 0 {
		request := c.request(capability.OpSend, queue)
		request.Load = firingLoad(&f)
		if _, err := c.authorizeRequest(ctx, request); err != nil {
			return now, false, err
		}
	}
	if op := auditedFiring(&f); op != "" {
		defer func() {
			if done || err != nil {
				c.record(op, queue, shortened(f.Name), 0, err)
			}
		}()
	}
	now, err = inQueue(ctx, &c, "fire", queue, lastForWrites, func(u *queueUse) (driver.Schedule, error) {
		if err := c.lacksSchedules(u.queue, "fire"); err != nil {
			return now, err
		}
		q := &scheduledQueue{Queue: u.handle, caller: &c, queue: u.queue}
		if err := q.checkDefinition(&f); err != nil {
			return now, err
		}
		now, done, err = q.Fire(ctx, f)
		return now, err
	})
	if done {
		c.broker.scheduler.changed(queueKey{c.tenant, queue}, c.broker.now())
	}
	return now, done, err
}

// firingLoad returns the load of a firing for quotas: its messages, or one as the definition says.
func firingLoad(f *driver.Firing) verify.Load {
	l := verify.Load{Messages: max(1, len(f.Messages))}
	for i := range f.Messages {
		size := int64(len(f.Messages[i].Body))
		l.Bytes += size
		l.LargestBody = max(l.LargestBody, size)
	}
	if s, err := schedule.Parse(f.Definition); err == nil {
		l.LargestBody = max(l.LargestBody, int64(len(s.Body)))
		l.Bytes = max(l.Bytes, l.LargestBody)
	}
	return l
}

// auditedFiring names what a firing does in the audit log. It is empty for one that reads, and for
// one that sends for due times, as a runner does.
func auditedFiring(f *driver.Firing) string {
	switch {
	case f.Remove:
		return "remove schedule"
	case f.Definition != nil:
		return "put schedule"
	case slices.ContainsFunc(f.Messages, func(m driver.DueMessage) bool { return m.Due.IsZero() }):
		return "run schedule"
	case len(f.Messages) == 0 && !f.Through.IsZero():
		return "put schedule"
	}
	return ""
}

// checkDefinition refuses a schedule that the broker would have to run and cannot.
func (q *scheduledQueue) checkDefinition(f *driver.Firing) error {
	if text := bytes.TrimLeft(f.Definition, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return nil
	}
	name := q.queue.name
	invalid := func(field, got, want string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "fire", Queue: name, Field: field, Detail: fmt.Sprintf("definition has %q, want %q", got, want)}
	}
	s, err := schedule.Parse(f.Definition)
	switch {
	case err != nil:
		return err
	case s.Name != f.Name:
		return invalid("Name", s.Name, f.Name)
	case s.Queue != name:
		return invalid("Queue", s.Queue, name)
	}
	message := driver.Outgoing{Body: s.Body, Attributes: map[string]string{
		driver.AttributeScheduleName: s.Name, driver.AttributeScheduleDue: s.Created.Format(time.RFC3339Nano),
	}}
	maps.Copy(message.Attributes, s.Attributes)
	traits := q.Traits()
	if err := message.Check(&traits); err != nil {
		return err
	}
	return q.checkReserved(&s)
}

// checkReserved refuses a schedule whose messages could not be sealed.
func (q *scheduledQueue) checkReserved(s *schedule.Schedule) error {
	if _, taken := s.Attributes[AttributeSeal]; taken {
		return sendError(q.queue, "Attributes", AttributeSeal+" is reserved for the daemon")
	}
	return nil
}

// Schedules yields the schedule of this name, if there is one, or all if name is empty, as
// driver.Queue does. It needs a token for admin. An error ends the sequence. Codes: ErrNotFound,
// ErrUnsupported, ErrUnavailable.
func (c Caller) Schedules(ctx context.Context, queue, name string) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		_, err := c.authorize(ctx, capability.OpAdmin, queue)
		if err == nil {
			err = c.broker.admit("list schedules", queue, lastForReads)
		}
		if err != nil {
			yield(driver.Schedule{}, err)
			return
		}
		q, err := c.use(ctx, "list schedules", queue, false)
		if err != nil {
			yield(driver.Schedule{}, err)
			return
		}
		defer func() { q.release(c.broker.now()) }()
		if err := c.lacksSchedules(q, "list schedules"); err != nil {
			yield(driver.Schedule{}, err)
			return
		}
		turn, err := c.beginLook(ctx, "list schedules", queue)
		if err != nil {
			yield(driver.Schedule{}, err)
			return
		}
		defer turn.end()
		for s, err := range q.handle.Schedules(ctx, name) {
			if err == nil {
				err = turn.count(ctx, len(s.Definition))
			}
			c.used(q, err)
			if !yield(s, localised(err, q)) || err != nil {
				return
			}
		}
	}
}

// authorizeBody authorises a call that makes the broker send messages with bodies of this size.
func (c *Caller) authorizeBody(ctx context.Context, queue string, body int) error {
	request := c.request(capability.OpSend, queue)
	request.Load = verify.Load{Messages: 1, Bytes: int64(body), LargestBody: int64(body)}
	_, err := c.authorizeRequest(ctx, request)
	return err
}

// inSchedules calls do with the schedules of an existing queue, and the runner of the queue reads
// them again after a change.
func inSchedules[R any](ctx context.Context, c *Caller, op, name string, last State, do func(*scheduledQueue, *schedule.Runner) (R, error)) (R, error) {
	result, err := inQueue(ctx, c, op, name, last, func(u *queueUse) (R, error) {
		var none R
		if err := c.lacksSchedules(u.queue, op); err != nil {
			return none, err
		}
		q := &scheduledQueue{Queue: u.handle, caller: c, queue: u.queue}
		runner, err := schedule.NewRunner(q, name, nil)
		if err != nil {
			return none, err
		}
		return do(q, runner)
	})
	if err == nil && last == lastForWrites {
		c.broker.scheduler.changed(queueKey{c.tenant, name}, c.broker.now())
	}
	return result, err
}

// lacksSchedules returns ErrUnsupported, with the name of the backend, if a queue keeps no schedules.
func (c *Caller) lacksSchedules(q *queue, op string) error {
	backend := "the backend"
	if name := c.broker.backend; name != "" {
		backend += " " + name
	}
	return q.lacks(q.handle.Traits().Schedules && c.broker.lister != nil, op, backend+" keeps no schedules")
}

// shown returns what surfaces show of a schedule.
func (q *scheduledQueue) shown(status schedule.Status, err error) (ScheduleStatus, error) {
	if err != nil {
		return ScheduleStatus{}, err
	}
	shown := ScheduleStatus{Status: status}
	for _, run := range status.Runs {
		outcome := ""
		if events := q.caller.broker.traces.events(q.queue.queueKey, run.MessageID); len(events) > 0 {
			outcome = events[len(events)-1].Kind.String()
		}
		shown.Outcomes = append(shown.Outcomes, outcome)
	}
	calendar, err := status.Schedule.Compile()
	if err != nil {
		return ScheduleStatus{}, err
	}
	zone, err := time.LoadLocation(status.Schedule.Zone)
	if err != nil {
		return ScheduleStatus{}, err
	}
	for next := status.Next; !next.IsZero() && len(shown.Upcoming) < upcomingRuns; next = calendar.Next(next) {
		shown.Upcoming = append(shown.Upcoming, next.In(zone))
	}
	return shown, nil
}
