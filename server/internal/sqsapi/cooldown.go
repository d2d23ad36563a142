package sqsapi

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// cooldown is how long AWS makes clients wait after a deletion or a purge.
const cooldown = time.Minute

// maxCooldowns bounds how many deletions and purges are remembered.
const maxCooldowns = 10_000

// A cooldownTable remembers the deletions and purges of the last minute, in this daemon.
type cooldownTable struct {
	mu        sync.Mutex // guards the fields below
	deletions map[broker.TenantQueue]time.Time
	purges    map[broker.TenantQueue]time.Time
}

func (t *cooldownTable) init() {
	t.deletions = make(map[broker.TenantQueue]time.Time)
	t.purges = make(map[broker.TenantQueue]time.Time)
}

func (t *cooldownTable) deleted(place broker.TenantQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.deletions, place)
	delete(t.purges, place)
}

func (t *cooldownTable) purged(place broker.TenantQueue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.purges, place)
}

// note records the current time for a queue, and drops expired entries if the table is
// full.
func note(table map[broker.TenantQueue]time.Time, place broker.TenantQueue) {
	if len(table) >= maxCooldowns {
		for other, at := range table {
			if time.Since(at) >= cooldown {
				delete(table, other)
			}
		}
	}
	if len(table) < maxCooldowns {
		table[place] = time.Now()
	}
}

func (t *cooldownTable) within(table map[broker.TenantQueue]time.Time, place broker.TenantQueue) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := table[place]
	return ok && time.Since(at) < cooldown
}

// mayCreate returns QueueDeletedRecently where AWS would.
func (s *Service) mayCreate(place broker.TenantQueue) error {
	if s.options.StrictMinute && s.cooldowns.within(s.cooldowns.deletions, place) {
		return sqswire.QueueDeletedRecently.Default()
	}
	return nil
}

// mayPurge returns PurgeQueueInProgress where AWS would.
func (s *Service) mayPurge(place broker.TenantQueue) error {
	if s.options.StrictMinute && s.cooldowns.within(s.cooldowns.purges, place) {
		return sqswire.PurgeQueueInProgress.Withf("Only one PurgeQueue operation on %s is allowed every 60 seconds.", place.Queue)
	}
	return nil
}
