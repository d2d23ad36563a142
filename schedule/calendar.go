package schedule

import "time"

// maxDue bounds how many times one call of Calendar.Due returns.
const maxDue = 1000

// A Calendar has the due times of a schedule. Make one with Schedule.Compile. It does not
// change, and may be used from many goroutines at once.
type Calendar struct {
	cron    cron
	zone    *time.Location // nil for an interval
	every   time.Duration
	created time.Time
	catchUp CatchUp
	paused  bool
}

// Next returns the first due time after a time, in UTC, whether the schedule is paused or
// not. It is zero if there is none within 40 years.
func (c *Calendar) Next(after time.Time) time.Time {
	if after.Before(c.created) {
		after = c.created
	}
	if c.zone != nil {
		return c.cron.next(after, c.zone).UTC()
	}
	// In steps of Every as whole numbers: a Duration cannot have more than 292 years.
	passed := (after.UnixMilli() - c.created.UnixMilli()) / c.every.Milliseconds()
	due := c.at(passed)
	for !due.After(after) {
		passed++
		due = c.at(passed)
	}
	return due
}

// at returns due time n of an interval.
func (c *Calendar) at(n int64) time.Time {
	sinceCreated := n * c.every.Milliseconds()
	const dayMs = 24 * 60 * 60 * 1000
	day, rest := sinceCreated/dayMs, sinceCreated%dayMs
	return c.created.UTC().Add(time.Duration(rest)*time.Millisecond).AddDate(0, 0, int(day))
}

// Due returns the due times for which a message must be sent at now, oldest first, and
// the time through which the schedule has then been dealt with. last is what an earlier
// call returned for that, or zero if there was none. Due times that are left out, by the
// rule for catching up or because the schedule is paused, are not returned by a later
// call either. With CatchUpAll, at most 1,000 times are returned; the next call returns
// those that follow. If now is not after last, nothing is due.
func (c *Calendar) Due(last, now time.Time) (send []time.Time, through time.Time) {
	if last.Before(c.created) {
		last = c.created
	}
	through = last.UTC()
	if c.catchUp == CatchUpAll && !c.paused {
		for len(send) < maxDue {
			due := c.Next(through)
			if due.IsZero() || due.After(now) {
				break
			}
			send, through = append(send, due), due
		}
		return send, through
	}
	latest := c.latest(last, now)
	if latest.IsZero() {
		return nil, through
	}
	if c.paused || c.catchUp == CatchUpNone && now.Sub(latest) > lateLimit {
		return nil, latest
	}
	return []time.Time{latest}, latest
}

// dueSince is Due for a schedule that the caller knows only since a time: what was due after
// that time was not missed, and is returned whatever the rule for catching up.
func (c *Calendar) dueSince(known, last, now time.Time) []time.Time {
	if !known.IsZero() && !c.paused && c.catchUp != CatchUpAll { // which leaves out nothing
		all := *c
		all.catchUp = CatchUpAll
		if send, _ := all.Due(later(known, last), now); len(send) > 0 {
			return send
		}
	}
	send, _ := c.Due(last, now)
	return send
}

// latest returns the last due time that is after a time and not after now, or zero.
func (c *Calendar) latest(after, now time.Time) time.Time {
	for window := 2 * time.Minute; ; window *= 4 {
		from := now.Add(-window)
		whole := !from.After(after) || window > maxEvery
		if whole {
			from = after
		}
		var found time.Time
		for due := c.Next(from); !due.IsZero() && !due.After(now); due = c.Next(due) {
			found = due
		}
		if !found.IsZero() || whole {
			return found
		}
	}
}
