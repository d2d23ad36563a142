package broker

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/audit"
)

// run runs a job to its end.
func (j *job) run(ctx context.Context) {
	state, err := j.work(ctx)
	j.leave()
	j.cut()
	j.change(func(now *Job) {
		now.State, now.Why, now.Ended = state, "", time.Now().UTC()
		if err != nil {
			now.Why = err.Error()
		}
	})
	j.record(err)
	owner := j.caller.owner()
	j.table.pool.Give(owner[:], 1)
	close(j.done)
}

// record puts the end of a job into the audit log.
func (j *job) record(err error) {
	c, now := &j.caller, j.snapshot()
	result := string(now.State)
	if now.State != JobStopped {
		result, _ = resultOf(err, now.Done)
	}
	c.broker.append(audit.Record{
		Operation: string(now.Action) + " job " + string(now.State), Queue: now.Queue, Tenant: c.tenant, TokenID: c.holder.token.String(), CorrID: c.origin.CorrelationID,
		Subject: now.ID, Count: now.Done, Result: result,
	})
}

// work repeats steps until the job ends.
func (j *job) work(ctx context.Context) (JobState, error) {
	for {
		if err := j.rest(); err != nil {
			return JobStopped, err
		}
		over, err := j.step(ctx)
		switch {
		case over && err == nil:
			return JobDone, nil
		case err == nil:
			j.failing = time.Time{}
			continue
		}
		if stopped := j.stopped(); stopped != nil { // it was cut off
			return JobStopped, stopped
		}
		if j.failing.IsZero() {
			j.failing = time.Now()
		}
		if !passing(err) || time.Since(j.failing) >= jobPatience {
			return JobFailed, err
		}
		j.change(func(now *Job) { now.Why = err.Error() })
		j.due = time.Now().Add(jobPause)
	}
}

// passing reports whether a step that failed may succeed later.
func passing(err error) bool {
	return errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrTimeout)
}

// rest waits until the next step is due, or returns why the job is stopped.
func (j *job) rest() error {
	timer := time.NewTimer(time.Until(j.due))
	defer timer.Stop()
	select {
	case <-j.halt:
		return j.stopped()
	default:
	}
	select {
	case <-j.halt:
		return j.stopped()
	case <-timer.C:
		return nil
	}
}

func (j *job) stopped() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stop
}

// step looks at some dead letters and acts on those that are selected. It reports whether the job is complete.
func (j *job) step(ctx context.Context) (over bool, err error) {
	c := &j.caller
	if _, err := c.authorize(ctx, capability.OpDLQ, j.key.name); err != nil {
		return false, err
	}
	if len(j.pending) == 0 && !j.last {
		if err := j.look(ctx); err != nil {
			j.rewind()
			return false, err
		}
	}
	n := min(j.size(), len(j.pending))
	if n > 0 {
		if err := j.act(ctx, j.pending[:n]); err != nil {
			return false, err
		}
		j.pending = j.pending[n:]
		if now := j.snapshot(); now.Rate > 0 && now.Action != JobCount {
			j.due = later(j.due, time.Now()).Add(time.Duration(n) * time.Second / time.Duration(now.Rate))
		}
	}
	return j.last && len(j.pending) == 0, nil
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// size is how many dead letters the next step may act on: those of a quarter of a second.
func (j *job) size() int {
	switch rate := j.snapshot().Rate; {
	case j.single:
		return 1
	case rate > 0:
		return min(jobBatch, max(1, rate/4))
	}
	return jobBatch
}

// look reads on among the dead letters until some are selected. The sequence of the backend goes on from step to step, so
// none is read twice.
func (j *job) look(ctx context.Context) error {
	c, b := &j.caller, j.caller.broker
	if err := b.admit("run job", j.key.name, lastForWrites); err != nil {
		return err
	}
	q, err := c.use(ctx, "run job", j.key.name, false)
	if err != nil {
		return err
	}
	defer func() { q.release(b.now()) }()
	if err := c.turn(ctx, "run job", j.key.name, 1); err != nil {
		return err
	}
	defer c.done(1)
	if j.next == nil {
		q.users.Add(1) // the sequence uses the handle until rewind
		next, stop := iter.Pull2(q.handle.DeadLetters(ctx))
		j.next, j.forget = next, func() {
			stop()
			q.release(b.now())
		}
	}
	looked, selected, bytes := 0, 0, 0
	request := &j.now // these fields do not change
	for looked < jobLook && selected < jobBatch && bytes < lookBytes && !j.last {
		letter, err, more := j.next()
		if err != nil {
			b.gone(q, err)
			return localised(err, q)
		}
		if !more || letter.DeadAt.After(request.Selection.Until) || !j.counts(looked, selected) {
			j.last = true
			break
		}
		looked++
		bytes += len(letter.Body)
		m := q.peeked(driver.Peeked{DeadLetter: letter, State: driver.StateDead})
		if request.Selection.Wants(&m, request.Started) {
			selected++
			j.pending = append(j.pending, letter.ID)
		}
	}
	j.change(func(now *Job) {
		now.Looked += looked
		now.Selected += selected
	})
	_ = c.pace(ctx, nil, b.looks, min(int64(bytes)+1, lookBytes)) // an error ends with the next step
	return nil
}

// counts reports whether one more dead letter may be looked at: as many as there were at the start, whatever the
// clocks of the daemon and the backend say, and as many as are wanted.
func (j *job) counts(looked, selected int) bool {
	now := j.snapshot()
	return now.Looked+looked < now.Total && (now.Selection.Limit == 0 || now.Selected+selected < now.Selection.Limit)
}

// act acts on selected dead letters. After an error they are pending, or selected again.
func (j *job) act(ctx context.Context, ids []string) error {
	c, action := &j.caller, j.now.Action
	done, failed, err := len(ids), 0, error(nil)
	if action != JobCount {
		done, err = inQueue(ctx, c, string(action), j.key.name, lastForWrites, func(q *queueUse) (int, error) {
			if action == JobDiscard {
				return q.discard(ctx, ids)
			}
			return c.redrive(ctx, q, ids, 0)
		})
	}
	switch {
	case errors.Is(err, driver.ErrConflict): // other messages have their unique keys; the rest was redriven
		failed, err = len(ids)-done, nil
	case errors.Is(err, driver.ErrIntegrity) && len(ids) == 1: // it is damaged
		failed, err = 1, nil
	}
	j.change(func(now *Job) {
		now.Done += done
		now.Failed += failed
		if err == nil {
			now.Why = ""
		}
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrIntegrity): // of one among them
		for _, id := range ids {
			if err := j.act(ctx, []string{id}); err != nil {
				j.rewind()
				return err
			}
		}
		return nil
	case done > 0 || !errors.Is(err, driver.ErrFull): // it is unknown which
		j.rewind()
		j.single = true
	}
	return err
}

// rewind makes the next look begin with the oldest dead letter. What was redriven or discarded is not among them
// any more, or died later.
func (j *job) rewind() {
	j.leave()
	j.pending, j.last = nil, false
	j.change(func(now *Job) {
		if now.Action == JobCount {
			now.Done = 0
		}
		now.Looked, now.Selected, now.Failed = now.Done, now.Done, 0
	})
}

// leave ends the sequence of dead letters.
func (j *job) leave() {
	if j.forget != nil {
		j.forget()
	}
	j.next, j.forget = nil, nil
}
