package broker

import (
	"strings"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// A lease is a delivery in flight. The backend decides about it; the broker keeps
// enough to settle it for its holder without a receipt, and to count.
type lease struct {
	receipt  driver.Receipt
	holder   holder
	takenAt  time.Time
	deadline time.Duration // on the broker's clock
	attempt  int
	worker   *worker   // nil if it is not listed
	progress *Progress // what its worker has reported last; nil for nothing
}

// ended counts a lease that ended.
func (l *lease) ended(how leaseEnd) {
	w := l.worker
	if w == nil {
		return
	}
	w.held--
	if l.progress != nil {
		w.reports--
	}
	switch how {
	case endedAcked:
		w.acked++
	case endedFailed:
		w.failed++
	case endedExpired:
		w.expired++
	}
}

// report keeps what the holder says, if its worker is listed and has room for it. The same report
// again keeps its time: a handler that makes no progress does not seem to make some.
func (l *lease) report(progress *driver.Progress) {
	switch {
	case progress == nil || l.worker == nil || l.progress != nil && l.progress.Progress == *progress:
		return
	case l.progress == nil && l.worker.reports >= maxReports:
		return
	case l.progress == nil:
		l.worker.reports++
	}
	l.progress = &Progress{Progress: driver.Progress{Fraction: progress.Fraction, Text: strings.Clone(progress.Text)}, At: time.Now()}
}

// A leaseTable holds the leases of a queue by message id. An idle queue has no leases
// and uses no memory for them.
type leaseTable struct {
	pools  *leasePools
	tenant string

	mu      sync.Mutex       // guards the fields below
	byID    map[string]lease // nil while there are none
	most    int              // most leases that byID had at once
	workers map[workerKey]*worker
}

// leasePools are what the leases of all queues share.
type leasePools struct {
	// inFlight divides leases among callers: those held, and those that running receives may add.
	inFlight *share.Pool
	workers  *share.Pool // has a unit for each worker that is listed
}

// spareLeases are empty maps for reuse. Maps that had more than maxSpareLeases are not
// kept.
var spareLeases sync.Pool

const maxSpareLeases = 256

// takeLeases returns a map with room for n leases.
func takeLeases(n int) map[string]lease {
	if n <= maxSpareLeases {
		if spare, ok := spareLeases.Get().(map[string]lease); ok {
			return spare
		}
	}
	return make(map[string]lease, n)
}

// rest gives the map away if it is empty. The table is locked.
func (t *leaseTable) rest() {
	if t.byID == nil || len(t.byID) > 0 {
		return
	}
	if t.most <= maxSpareLeases {
		spareLeases.Put(t.byID)
	}
	t.byID, t.most = nil, 0
}

// give returns the units of n ended leases to the share of the token that took them.
func (t *leaseTable) give(token capability.TokenID, n int64) {
	owner := ownerOf(t.tenant, token)
	t.pools.inFlight.Give(owner[:], n)
}

// add records deliveries, for which the holder has taken units. An earlier lease of the
// same message has ended, and its unit is given back.
func (t *leaseTable) add(deliveries []driver.Delivery, by holder, w *worker, takenAt time.Time, deadline time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = takeLeases(len(deliveries))
	}
	for i := range deliveries {
		d := &deliveries[i]
		if old, ok := t.byID[d.ID]; ok {
			t.give(old.holder.token, 1)
			old.ended(endedExpired)
		}
		t.byID[d.ID] = lease{receipt: d.Receipt, holder: by, takenAt: takenAt, deadline: deadline, attempt: d.Deliveries, worker: w}
	}
	if w != nil {
		w.held += int32(len(deliveries))
	}
	t.most = max(t.most, len(t.byID))
}

// find returns the lease of a message if it has not ended.
func (t *leaseTable) find(id string, now time.Duration) (lease, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.byID[id]
	return l, ok && now < l.deadline
}

// attempt returns the delivery count of a receipt; 1 if it is unknown.
func (t *leaseTable) attempt(id string, r driver.Receipt) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[id]; ok && l.receipt == r {
		return l.attempt
	}
	return 1
}

// remove ends leases, where there are any. Those that one token took after each other are given
// back together.
func (t *leaseTable) remove(gone ...endedLease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var token capability.TokenID
	units := int64(0)
	for i := range gone {
		receipt := &gone[i].receipt
		l, ok := t.byID[receipt.Handle]
		if !ok || l.receipt != *receipt {
			continue
		}
		delete(t.byID, receipt.Handle)
		l.ended(gone[i].how)
		if l.holder.token != token {
			t.give(token, units)
			token, units = l.holder.token, 0
		}
		units++
	}
	t.give(token, units)
	t.rest()
}

// extend moves the deadline of the lease with this receipt, and keeps the report of its holder.
func (t *leaseTable) extend(id string, r driver.Receipt, deadline time.Duration, progress *driver.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[id]; ok && l.receipt == r {
		l.deadline = deadline
		l.report(progress)
		t.byID[id] = l
	}
}

// expire removes expired leases, and workers that were not seen lately. It returns how many leases are left.
func (t *leaseTable) expire(now time.Duration) (left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, l := range t.byID {
		if now >= l.deadline {
			delete(t.byID, id)
			t.give(l.holder.token, 1)
			l.ended(endedExpired)
		}
	}
	t.forgetWorkersLocked(func(w *worker) bool { return w.idle(now) })
	left = len(t.byID)
	t.rest()
	return left
}

// clear removes all leases.
func (t *leaseTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.byID {
		t.give(l.holder.token, 1)
		l.ended(endedOtherwise)
	}
	t.byID, t.most = nil, 0
}

// ownerOf returns the share that a token of a tenant counts against.
func ownerOf(tenant string, token capability.TokenID) [2]share.Key {
	return [2]share.Key{{Name: tenant}, {ID: token}}
}

// Owner returns the share that the caller counts against, for surfaces with shared
// resources of their own.
func (c Caller) Owner() [2]share.Key { return c.owner() }

// owner is Owner.
func (c *Caller) owner() [2]share.Key { return ownerOf(c.tenant, c.holder.token) }

const (
	// sweepEvery bounds how often refused receives sweep the leases of all queues.
	sweepEvery = 20 * time.Millisecond
	// sweepRest times the duration of a sweep is the pause after it: a caller that has
	// used up its share must not keep a processor busy.
	sweepRest = 50
)

// reserve takes room for up to most leases from the caller's share. A receive that
// waits takes its room with it, so under pressure each gets less: at least half of
// what is free stays for the next one. The error is ErrFull.
func (c *Caller) reserve(most int, waits bool) (room int, err error) {
	b := c.broker
	owner := c.owner()
	waiting := 0
	if waits {
		waiting = int(b.waits.Held(owner[:1])) // this one is among them
	}
	n, err := b.inFlight.TakeUpTo(owner[:], int64(most), waiting)
	if err != nil && b.sweep() {
		n, err = b.inFlight.TakeUpTo(owner[:], int64(most), waiting)
	}
	return int(n), err
}

// sweep removes the expired leases of all queues. It reports false if the last sweep
// was a moment ago.
func (b *Broker) sweep() bool {
	now := b.now()
	last := b.sweptAt.Load()
	pause := max(sweepEvery, time.Duration(b.sweepPause.Load()))
	if last != 0 && now-time.Duration(last) < pause || !b.sweptAt.CompareAndSwap(last, int64(now)) {
		return false
	}
	for _, q := range b.queues.all() {
		q.leases.expire(b.now())
	}
	b.sweepPause.Store(int64(sweepRest * (b.now() - now)))
	return true
}

// InFlight returns how many messages that were received through this broker are in
// flight, for a metric beside Limits.MaxInFlight. Leases that expired a moment ago may
// still be counted.
func (b *Broker) InFlight() int {
	b.sweep()
	return int(b.inFlight.Stats().Used)
}
