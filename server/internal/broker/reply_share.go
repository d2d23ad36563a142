package broker

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

// slotTable has the slots that were created through this broker, or that its store had before, until
// they are removed through it or expire, to count them against shares.
type slotTable struct {
	pool *share.Pool

	mu    sync.Mutex
	slots map[string]*heldSlot
}

// A heldSlot is a slot in a share.
type heldSlot struct {
	owner   share.Path
	expires *time.Timer
}

func (t *slotTable) init() {
	t.pool = share.New("reply slots", "max_reply_slots", 0, retrySlots)
	t.slots = make(map[string]*heldSlot)
}

// restore counts the slots that the store has from before the broker began, if it can list them: a
// tenant must not get a second share by a restart. Their tokens are not known: they count for the tenant.
func (t *slotTable) restore(store driver.ReplyStore) {
	lister, ok := store.(driver.SlotLister)
	if !ok {
		return
	}
	for slot, err := range lister.Slots(context.Background()) { // it does not block
		key, ok := keyOf(slot.ID)
		if err != nil || !ok || slot.State == driver.SlotExpired {
			continue
		}
		owner := share.Path{{Name: key.tenant}}
		t.pool.Charge(owner, 1)
		t.add(slot.ID, owner, time.Until(slot.ExpiresAt))
	}
}

// add adds a slot whose unit was taken, and returns it; nil if the slot is known and has a unit.
func (t *slotTable) add(name string, owner share.Path, ttl time.Duration) *heldSlot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[name] != nil {
		t.pool.Give(owner, 1)
		return nil
	}
	held := &heldSlot{owner: owner}
	held.expires = time.AfterFunc(ttl, func() { t.drop(name, held) })
	t.slots[name] = held
	return held
}

// drop gives back the unit of a slot that add has returned, unless that was done.
func (t *slotTable) drop(name string, held *heldSlot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held != nil && t.slots[name] == held {
		t.removeLocked(name, held)
	}
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
	t.pool.Give(held.owner, 1)
}

// close stops the timers.
func (t *slotTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, held := range t.slots {
		t.removeLocked(name, held)
	}
}
