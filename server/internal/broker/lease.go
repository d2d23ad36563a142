package broker

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
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

// A leaseTable has the leases of a topic by message id. A topic that rests has no
// leases, and keeps no room for any.
type leaseTable struct {
	mu   sync.Mutex
	byID map[string]lease // nil while there are none
	most int              // that byID had at once since it was taken
}

// spareLeases are maps without leases, for the topics that take some next. Only
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

// add records deliveries and returns by how many the number of leases grew: a
// message that was out before, and whose lease ended, is not one more.
func (t *leaseTable) add(deliveries []driver.Delivery, by holder, takenAt time.Time, deadline time.Duration) (grown int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = takeLeases(len(deliveries))
	}
	before := len(t.byID)
	for i := range deliveries {
		d := &deliveries[i]
		t.byID[d.ID] = lease{d.Receipt, by, takenAt, deadline, d.Deliveries}
	}
	t.most = max(t.most, len(t.byID))
	return len(t.byID) - before
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

// remove ends the lease with this receipt, and reports whether there was one.
func (t *leaseTable) remove(id string, r driver.Receipt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.byID[id]
	if ok = ok && l.receipt == r; ok {
		delete(t.byID, id)
		t.rest()
	}
	return ok
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

// expire removes what has ended and returns how many did, and how many are left.
func (t *leaseTable) expire(now time.Duration) (ended, left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, l := range t.byID {
		if now >= l.deadline {
			delete(t.byID, id)
			ended++
		}
	}
	left = len(t.byID)
	t.rest()
	return ended, left
}

// clear removes all and returns how many there were.
func (t *leaseTable) clear() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.byID)
	t.byID, t.most = nil, 0
	return n
}

// expireLeases removes what has ended of a topic and returns how many leases are
// left.
func (b *Broker) expireLeases(t *topic, now time.Duration) int {
	ended, left := t.leases.expire(now)
	b.inFlight.Add(-int64(ended))
	return left
}

// sweepEvery bounds how often the leases of all topics are looked through,
// however many receives are refused.
const sweepEvery = 20 * time.Millisecond

// reserve takes room for up to most leases, and 0 if there is none. A receive
// that waits takes its room with it, so under pressure each gets less: at least
// half of what is free stays for who comes next.
func (b *Broker) reserve(most int, waits bool) int {
	limit := int64(b.limits.Load().MaxInFlight)
	for swept := false; ; {
		out := b.inFlight.Load()
		free := limit - out
		if free <= 0 {
			if swept || !b.sweep() {
				return 0
			}
			swept = true
			continue
		}
		share := min(int64(most), free)
		if waits {
			share = min(share, max(1, free/2/int64(b.waiting.len()+1)))
		}
		if b.inFlight.CompareAndSwap(out, out+share) {
			return int(share)
		}
	}
}

// sweep removes the leases that have ended in all topics. It reports false if
// that was done a moment ago.
func (b *Broker) sweep() bool {
	now := b.now()
	last := b.sweptAt.Load()
	if last != 0 && now-time.Duration(last) < sweepEvery || !b.sweptAt.CompareAndSwap(last, int64(now)) {
		return false
	}
	for _, t := range b.topics.all() {
		b.expireLeases(t, now)
	}
	return true
}

// InFlight is how many messages are out, as far as they were received through
// this broker, for a metric beside Limits.MaxInFlight. Leases that ended a
// moment ago may still be counted.
func (b *Broker) InFlight() int {
	b.sweep()
	return int(b.inFlight.Load())
}
