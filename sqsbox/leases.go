package sqsbox

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// leases are the unsettled deliveries of this backend. A standard queue of SQS accepts
// a receipt that has expired, and one that was used before; a driver must not, so the
// backend tracks the deadlines itself. A lease that is not in the map is over.
type leases struct {
	mu      sync.Mutex // guards the fields below
	byKey   map[leaseKey]*lease
	sweepAt int // number of leases at which expired ones are removed
}

type leaseKey struct{ queue, handle string }

// A lease is one delivery.
type lease struct {
	id         string // of the message
	deliveries int
	taken      time.Time // earliest time at which SQS may have delivered it
	deadline   time.Time
	settling   bool // a request to settle it is under way
}

const fewLeases = 1024

func newLeases() *leases {
	return &leases{byKey: make(map[leaseKey]*lease), sweepAt: fewLeases}
}

func (l *leases) add(key leaseKey, fresh lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.byKey) >= l.sweepAt {
		now := time.Now()
		for key, old := range l.byKey {
			if !now.Before(old.deadline) && !old.settling {
				delete(l.byKey, key)
			}
		}
		l.sweepAt = max(2*len(l.byKey), fewLeases)
	}
	l.byKey[key] = &fresh
}

// claim begins the settlement of a lease. It reports false if the lease is settled,
// being settled, or expired.
func (l *leases) claim(key leaseKey) (lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.aliveLocked(key)
	if found == nil {
		return lease{}, false
	}
	found.settling = true
	return *found, true
}

// look returns a lease that is neither expired nor being settled.
func (l *leases) look(key leaseKey) (lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.aliveLocked(key)
	if found == nil {
		return lease{}, false
	}
	return *found, true
}

// aliveLocked returns a lease that is neither expired nor being settled, or nil.
func (l *leases) aliveLocked(key leaseKey) *lease {
	found := l.byKey[key]
	if found == nil || found.settling || !time.Now().Before(found.deadline) {
		return nil
	}
	return found
}

// settled ends a claim. After an error other than ErrReceiptExpired the lease can be
// claimed again, because SQS may not have settled it.
func (l *leases) settled(key leaseKey, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.byKey[key]; found != nil && err != nil && !isCode(err, driver.ErrReceiptExpired) {
		found.settling = false
		return
	}
	delete(l.byKey, key)
}

// extended records the result of an extension.
func (l *leases) extended(key leaseKey, deadline time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch found := l.byKey[key]; {
	case found == nil:
	case err == nil:
		found.deadline = deadline
	case isCode(err, driver.ErrReceiptExpired):
		delete(l.byKey, key)
	}
}

// forget ends all leases of a queue.
func (l *leases) forget(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.byKey {
		if key.queue == queue {
			delete(l.byKey, key)
		}
	}
}
