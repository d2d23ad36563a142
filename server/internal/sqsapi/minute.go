package sqsapi

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// minute is how long AWS wants clients to wait.
const minute = time.Minute

// maxMinutes bounds how many deletions and purges are remembered.
const maxMinutes = 10_000

// A minuteTable remembers what happened within the last minute, in this daemon.
type minuteTable struct {
	mu        sync.Mutex // guards the fields below
	deletions map[broker.TenantQueue]time.Time
	purges    map[broker.TenantQueue]time.Time
}

func (t *minuteTable) init() {
	t.deletions = make(map[broker.TenantQueue]time.Time)
	t.purges = make(map[broker.TenantQueue]time.Time)
}

func (t *minuteTable) deleted(place broker.TenantQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.deletions, place)
	delete(t.purges, place)
}

func (t *minuteTable) purged(place broker.TenantQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.purges, place)
}

// note writes down what happened now, and forgets what is over if there is much.
func note(table map[broker.TenantQueue]time.Time, place broker.TenantQueue) {
	if len(table) >= maxMinutes {
		for other, at := range table {
			if time.Since(at) >= minute {
				delete(table, other)
			}
		}
	}
	if len(table) < maxMinutes {
		table[place] = time.Now()
	}
}

func (t *minuteTable) within(table map[broker.TenantQueue]time.Time, place broker.TenantQueue) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := table[place]
	return ok && time.Since(at) < minute
}

// mayCreate returns QueueDeletedRecently where AWS would.
func (s *Service) mayCreate(place broker.TenantQueue) error {
	if s.options.StrictMinute && s.minute.within(s.minute.deletions, place) {
		return sqswire.QueueDeletedRecently.Default()
	}
	return nil
}

// mayPurge returns PurgeQueueInProgress where AWS would.
func (s *Service) mayPurge(place broker.TenantQueue) error {
	if s.options.StrictMinute && s.minute.within(s.minute.purges, place) {
		return sqswire.PurgeQueueInProgress.Withf("Only one PurgeQueue operation on %s is allowed every 60 seconds.", place.Queue)
	}
	return nil
}
