package worker

import "time"

// leases is the list of the leases of a run, sorted by when they are due. Times
// count from the beginning of the run. It reads no clock, and zero is a valid
// time.
type leases[T any] struct {
	first, last *job[T]
	count       int
	// visibility is how long a lease lasts. It is extended early before its end; 0
	// means never.
	visibility time.Duration
	early      time.Duration
}

// A lease is the list element of a job.
type lease[T any] struct {
	previous, next *job[T]
	// until is when the lease ends, and due when it must be extended or ended.
	until, due time.Duration
	// listed says that it is in the list, extending that an extension is under way,
	// released that the lease is not extended any more.
	listed, extending, released bool
}

func newLeases[T any](visibility time.Duration, extend bool) leases[T] {
	l := leases[T]{visibility: visibility}
	if extend {
		l.early = visibility - visibility/3
	}
	return l
}

// add inserts a lease that began, or was extended, now.
func (l *leases[T]) add(j *job[T], now time.Duration) { l.addUntil(j, now+l.visibility) }

// addUntil inserts a lease that ends at until.
func (l *leases[T]) addUntil(j *job[T], until time.Duration) {
	j.lease.until = until
	l.insert(j, until-l.early)
}

// retry inserts a lease that could not be extended: it is due after pause, or when
// it ends.
func (l *leases[T]) retry(j *job[T], now, pause time.Duration) {
	l.insert(j, min(now+pause, j.lease.until))
}

// insert searches from the end, where nearly all belong: leases last equally long.
func (l *leases[T]) insert(j *job[T], due time.Duration) {
	j.lease.due, j.lease.listed = due, true
	l.count++
	after := l.last
	for after != nil && after.lease.due > due {
		after = after.lease.previous
	}
	j.lease.previous = after
	if after == nil {
		j.lease.next, l.first = l.first, j
	} else {
		j.lease.next, after.lease.next = after.lease.next, j
	}
	if j.lease.next == nil {
		l.last = j
	} else {
		j.lease.next.lease.previous = j
	}
}

// remove removes a job from the list if it is in it.
func (l *leases[T]) remove(j *job[T]) {
	if !j.lease.listed {
		return
	}
	if j.lease.previous == nil {
		l.first = j.lease.next
	} else {
		j.lease.previous.lease.next = j.lease.next
	}
	if j.lease.next == nil {
		l.last = j.lease.previous
	} else {
		j.lease.next.lease.previous = j.lease.previous
	}
	j.lease.previous, j.lease.next, j.lease.listed = nil, nil, false
	l.count--
}

// take removes and returns the leases that are due: those to extend, and those that
// have ended.
func (l *leases[T]) take(now time.Duration) (extend, ended []*job[T]) {
	for l.first != nil && l.first.lease.due <= now {
		j := l.first
		l.remove(j)
		if j.lease.until <= now {
			ended = append(ended, j)
		} else {
			extend = append(extend, j)
		}
	}
	return extend, ended
}

// next returns when the first lease is due.
func (l *leases[T]) next() (due time.Duration, found bool) {
	if l.first == nil {
		return 0, false
	}
	return l.first.lease.due, true
}
