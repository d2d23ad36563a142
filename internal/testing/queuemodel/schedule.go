package queuemodel

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// Fire changes a schedule and sends messages, both or neither (TIME-1).
func (m *Model) Fire(now time.Duration, f driver.Firing) (driver.Schedule, bool, error) {
	if err := f.Check(&m.Traits); err != nil {
		return driver.Schedule{}, false, err
	}
	m.advance(now)
	at := slices.IndexFunc(m.Schedules, func(s driver.Schedule) bool { return s.Name == f.Name })
	s := driver.Schedule{Name: f.Name}
	if at >= 0 {
		s = m.Schedules[at]
	}
	if s.Revision != f.Revision || f.Through.After(m.wall()) { // the clock of the queue decides
		return m.shown(s), false, nil
	}
	if f.Remove {
		m.Schedules = slices.Delete(m.Schedules, at, at+1)
		return m.shown(driver.Schedule{Name: f.Name}), true, nil
	}
	size := 0
	for _, msg := range f.Messages {
		size += len(msg.Body)
	}
	if len(f.Messages) > 0 && !m.fits(len(f.Messages), size) {
		return driver.Schedule{}, false, m.fail("fire", driver.ErrFull, SomeTime) // SND-5
	}
	if f.Definition != nil {
		s.Definition = f.Definition
	}
	if f.Through.After(s.Through) {
		s.Through = f.Through
	}
	for _, msg := range f.Messages {
		sent, err := m.send(&msg.Outgoing)
		if err != nil {
			return driver.Schedule{}, false, err
		}
		m.settle()
		s.Runs = append(slices.Clone(s.Runs), driver.Run{Due: msg.Due, At: m.wall().Truncate(time.Millisecond), MessageID: sent.ID})
	}
	s.Runs = s.Runs[max(0, len(s.Runs)-driver.MaxRuns):]
	m.Revision++
	s.Revision = m.Revision
	if at < 0 {
		m.Schedules = append(m.Schedules, s)
		slices.SortFunc(m.Schedules, func(a, b driver.Schedule) int { return strings.Compare(a.Name, b.Name) })
	} else {
		m.Schedules[at] = s
	}
	return m.shown(s), true, nil
}

func (m *Model) shown(s driver.Schedule) driver.Schedule {
	s.Now = m.wall().Truncate(time.Millisecond)
	return s
}

func (q *Queue) Fire(_ context.Context, f driver.Firing) (now driver.Schedule, done bool, err error) {
	err = At(q, func(at time.Duration) (err error) {
		now, done, err = q.Model.Fire(at, f)
		return err
	})
	return now, done, err
}

func (q *Queue) Schedules(_ context.Context, name string) iter.Seq2[driver.Schedule, error] {
	return WithoutErrors(At(q, func(now time.Duration) (found []driver.Schedule) {
		q.Model.advance(now)
		for _, s := range q.Model.Schedules {
			if name == "" || s.Name == name {
				found = append(found, q.Model.shown(s))
			}
		}
		return found
	}))
}
