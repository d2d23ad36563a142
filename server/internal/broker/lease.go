package broker

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// A lease is a delivery that is out. The backend knows it best; the broker keeps
// enough to settle it for its holder without a receipt, and to count.
type lease struct {
	receipt  driver.Receipt
	holder   holder
	takenAt  time.Time
	deadline time.Duration // on the broker's clock
	attempt  int
}

// A leaseTable has the leases of a queue by message id. A queue that rests has no
// leases, and keeps no room for any.
type leaseTable struct {
	pool   *share.Pool // that the leases are units of
	tenant string

	mu   sync.Mutex       // guards the fields below
	byID map[string]lease // nil while there are none
	most int              // that byID had at once since it was taken
}

// spareLeases are maps without leases, for the queues that take some next. Only
// those are kept that never had more than maxSpareLeases.
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

// rest gives the map away if nothing is in it. The table is locked.
func (t *leaseTable) rest() {
	if t.byID == nil || len(t.byID) > 0 {
		return
	}
	if t.most <= maxSpareLeases {
		spareLeases.Put(t.byID)
	}
	t.byID, t.most = nil, 0
}

// give returns the unit of a lease that ended to the share of the token that took
// it.
func (t *leaseTable) give(l *lease) {
	owner := ownerOf(t.tenant, l.holder.token)
	t.pool.Give(owner[:], 1)
}

// add records deliveries, for which the holder has taken units. A message that was
// out before, and whose lease ended, counts for its holder before no more.
func (t *leaseTable) add(deliveries []driver.Delivery, by holder, takenAt time.Time, deadline time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = takeLeases(len(deliveries))
	}
	for i := range deliveries {
		d := &deliveries[i]
		if old, ok := t.byID[d.ID]; ok {
			t.give(&old)
		}
		t.byID[d.ID] = lease{d.Receipt, by, takenAt, deadline, d.Deliveries}
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

// attempt returns which delivery a receipt is of; 1 if this is not known.
func (t *leaseTable) attempt(id string, r driver.Receipt) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[id]; ok && l.receipt == r {
		return l.attempt
	}
	return 1
}

// remove ends the lease with this receipt, if there is one.
func (t *leaseTable) remove(id string, r driver.Receipt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[id]; ok && l.receipt == r {
		delete(t.byID, id)
		t.give(&l)
		t.rest()
	}
}

// extend moves the deadline of the lease with this receipt.
func (t *leaseTable) extend(id string, r driver.Receipt, deadline time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.byID[id]; ok && l.receipt == r {
		l.deadline = deadline
		t.byID[id] = l
	}
}

// expire removes what has ended and returns how many are left.
func (t *leaseTable) expire(now time.Duration) (left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, l := range t.byID {
		if now >= l.deadline {
			delete(t.byID, id)
			t.give(&l)
		}
	}
	left = len(t.byID)
	t.rest()
	return left
}

// clear removes all.
func (t *leaseTable) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.byID {
		t.give(&l)
	}
	t.byID, t.most = nil, 0
}

// ownerOf is the share that a token of a tenant counts against.
func ownerOf(tenant string, token capability.TokenID) [2]share.Key {
	return [2]share.Key{{Name: tenant}, {ID: token}}
}

// Owner is the share that the caller counts against, for surfaces that divide
// something themselves.
func (c Caller) Owner() [2]share.Key { return c.owner() }

// owner is Owner.
func (c *Caller) owner() [2]share.Key { return ownerOf(c.tenant, c.holder.token) }

const (
	// sweepEvery bounds how often the leases of all queues are looked through,
	// however many receives are refused.
	sweepEvery = 20 * time.Millisecond
	// sweepRest is how many times as long as it took a sweep is not repeated: a
	// caller that has used up its share must not keep a processor busy with it.
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
		waiting = int(b.waits.Held(owner[:1])) + 1
	}
	n, err := b.inFlight.TakeUpTo(owner[:], int64(most), waiting)
	if err != nil && b.sweep() {
		n, err = b.inFlight.TakeUpTo(owner[:], int64(most), waiting)
	}
	return int(n), err
}

// sweep removes the leases that have ended in all queues. It reports false if
// that was done a moment ago.
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

// InFlight is how many messages are out, as far as they were received through
// this broker, for a metric beside Limits.MaxInFlight. Leases that ended a
// moment ago may still be counted.
func (b *Broker) InFlight() int {
	b.sweep()
	return int(b.inFlight.Stats().Used)
}
