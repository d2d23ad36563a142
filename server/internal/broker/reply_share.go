package broker

import (
	"context"
	"errors"
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
	since   time.Time // when it was last created
	read    bool      // a caller has got its answer
}

// A recount asks the store for at most maxRecounted slots of a tenant that were created at least
// recountAfter ago, among at most maxRecountScan of the table.
const (
	maxRecounted   = 64
	maxRecountScan = 4096
	recountAfter   = 10 * time.Second
)

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
	if held := t.slots[name]; held != nil {
		held.since, held.read = time.Now(), false
		t.pool.Give(owner, 1)
		return nil
	}
	held := &heldSlot{owner: owner, since: time.Now()}
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

// noteRead records that a caller has got the answer of a slot.
func (t *slotTable) noteRead(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if held := t.slots[name]; held != nil {
		held.read = true
	}
}

// wasRead reports whether a caller has got the answer of a slot.
func (t *slotTable) wasRead(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.slots[name]
	return held != nil && held.read
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

// take takes a unit for an owner. Before it refuses one it recounts: slots in a store that several daemons
// use may have been removed through another. It blocks on the store then.
func (t *slotTable) take(ctx context.Context, store driver.ReplyStore, owner share.Path) error {
	err := t.pool.Take(owner, 1)
	if _, own := store.(quickStore); err == nil || own {
		return err
	}
	if t.recount(ctx, store, owner[0].Name) {
		err = t.pool.Take(owner, 1)
	}
	return err
}

// recount gives back the units of some slots of a tenant that the store does not have any more, and
// reports whether there were any.
func (t *slotTable) recount(ctx context.Context, store driver.ReplyStore, tenant string) (freed bool) {
	for name, held := range t.sample(tenant) {
		_, err := store.Get(ctx, name)
		if errors.Is(err, driver.ErrNotFound) {
			t.drop(name, held)
			freed = true
		} else if err != nil {
			break
		}
	}
	return freed
}

// sample returns slots of a tenant for a recount, others each time.
func (t *slotTable) sample(tenant string) map[string]*heldSlot {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots, scanned := make(map[string]*heldSlot), 0
	for name, held := range t.slots { // in random order
		if held.owner[0].Name == tenant && time.Since(held.since) >= recountAfter {
			slots[name] = held
		}
		if scanned++; scanned == maxRecountScan || len(slots) == maxRecounted {
			break
		}
	}
	return slots
}

// close stops the timers.
func (t *slotTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, held := range t.slots {
		t.removeLocked(name, held)
	}
}
