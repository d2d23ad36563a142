package sqsbox

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// leases are the deliveries that this backend has handed out and that are not
// settled. A standard queue of SQS honours a receipt whose time is over, and one that
// was used before; a driver must not, and so the backend keeps the time itself. A
// lease that is not here is over.
type leases struct {
	mu      sync.Mutex // guards the fields below
	byKey   map[leaseKey]*lease
	sweepAt int // when so many are here, those that are over are thrown out
}

type leaseKey struct{ queue, handle string }

// A lease is one delivery.
type lease struct {
	id         string // of the message
	deliveries int
	taken      time.Time // when SQS handed it out, at the earliest
	deadline   time.Time
	settling   bool // somebody has asked SQS to settle it
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

// claim begins the settlement of a lease, and reports false if there is none: it is
// settled, being settled, or past its time.
func (l *leases) claim(key leaseKey) (lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.alive(key)
	if found == nil {
		return lease{}, false
	}
	found.settling = true
	return *found, true
}

// look returns a lease that is not over.
func (l *leases) look(key leaseKey) (lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.alive(key)
	if found == nil {
		return lease{}, false
	}
	return *found, true
}

// alive is called with the lock held.
func (l *leases) alive(key leaseKey) *lease {
	found := l.byKey[key]
	if found == nil || found.settling || !time.Now().Before(found.deadline) {
		return nil
	}
	return found
}

// settled ends a claim. What SQS may not have done can be tried again.
func (l *leases) settled(key leaseKey, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.byKey[key]; found != nil && err != nil && !isCode(err, driver.ErrReceiptExpired) {
		found.settling = false
		return
	}
	delete(l.byKey, key)
}

// extended notes what SQS made of an extension.
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
