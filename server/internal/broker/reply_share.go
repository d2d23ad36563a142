package broker

import (
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/internal/share"
)

// slotTable has the slots that were created through this broker, until they are removed through it
// or expire, to count them against shares.
type slotTable struct {
	pool *share.Pool

	mu    sync.Mutex
	slots map[string]*heldSlot
}

// A heldSlot is a slot in a share.
type heldSlot struct {
	owner   [2]share.Key
	expires *time.Timer
}

func (t *slotTable) init() {
	t.pool = share.New("reply slots", "max_reply_slots", 0, retrySlots)
	t.slots = make(map[string]*heldSlot)
}

// add adds a slot whose unit was taken. A slot that is known already has one.
func (t *slotTable) add(name string, owner [2]share.Key, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[name] != nil {
		t.pool.Give(owner[:], 1)
		return
	}
	held := &heldSlot{owner: owner}
	held.expires = time.AfterFunc(ttl, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.slots[name] == held {
			t.removeLocked(name, held)
		}
	})
	t.slots[name] = held
}

// remove gives back the unit of a slot, if the slot is known.
func (t *slotTable) remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held := t.slots[name]; held != nil {
		t.removeLocked(name, held)
	}
}

func (t *slotTable) removeLocked(name string, held *heldSlot) {
	held.expires.Stop()
	delete(t.slots, name)
	t.pool.Give(held.owner[:], 1)
}

// close stops the timers.
func (t *slotTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, held := range t.slots {
		t.removeLocked(name, held)
	}
}
