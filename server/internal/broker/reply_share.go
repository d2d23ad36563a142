package broker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/internal/share"
)

// slotTable has the slots that were created through this broker, or that its store had before, until
// they are removed through it or expire, to count them against shares.
type slotTable struct {
	pool  *share.Pool
	bytes *share.Pool // of answers that a store in memory keeps

	stop      context.CancelFunc // ends restoring
	restoring sync.WaitGroup

	mu    sync.Mutex // guards slots
	slots map[string]*heldSlot
}

// A heldSlot is a slot in a share.
type heldSlot struct {
	owner   share.Path
	expires *time.Timer
	since   time.Time // when it was last created
	read    bool      // a caller has got its answer
	answer  int64     // bytes of its answer in the share
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
	t.bytes = share.New("answer bytes", "max_reply_bytes", 0, retrySlots)
	t.slots = make(map[string]*heldSlot)
	t.stop = func() {}
}

// restore counts the slots that the store has from before the broker began, if it can list them: a
// tenant must not get a second share by a restart. Their tokens are not known: they count for the tenant.
// A store that several daemons use has slots of the others too, which count as well. A store that may block is read in
// the background: until then a tenant may use its share beside slots that were not read yet, which count against it later.
func (t *slotTable) restore(store driver.ReplyStore, log *slog.Logger) {
	lister, ok := store.(driver.SlotLister)
	if !ok {
		return
	}
	if _, own := store.(quickStore); own {
		_ = t.charge(context.Background(), lister, math.MaxInt64) // it does not block
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // it ends with the broker
	t.stop = cancel
	t.restoring.Go(func() {
		for attempt := 1; ; attempt++ {
			err := t.charge(ctx, lister, t.pool.Stats().Limit)
			if err == nil || ctx.Err() != nil {
				return
			}
			again := errors.Is(err, driver.ErrUnavailable)
			if attempt == 1 || !again {
				log.Warn("slots.not_counted", slog.String("error", err.Error()), slog.Bool("again", again))
			}
			if !again || backoff.Pause(ctx, backoff.AfterError(attempt, err)) != nil {
				return
			}
		}
	})
}

// charge counts the slots of a store that are not in the table, until the table has most: programs without a
// daemon can have many more in the store than the daemon has room for.
func (t *slotTable) charge(ctx context.Context, lister driver.SlotLister, most int64) error {
	for slot, err := range lister.Slots(ctx) {
		if err != nil {
			return err
		}
		key, ok := keyOf(slot.ID)
		if !ok || slot.State == driver.SlotExpired {
			continue
		}
		if t.pool.Stats().Used >= most {
			return nil
		}
		t.addFound(slot.ID, share.Path{{Name: key.tenant}}, time.Until(slot.ExpiresAt))
	}
	return nil
}

// addFound adds a slot that was found in the store, and counts it, unless it is known.
func (t *slotTable) addFound(name string, owner share.Path, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[name] == nil {
		t.pool.Charge(owner, 1)
		t.addLocked(name, owner, ttl)
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
	return t.addLocked(name, owner, ttl)
}

func (t *slotTable) addLocked(name string, owner share.Path, ttl time.Duration) *heldSlot {
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
	t.bytes.Give(held.owner, held.answer)
}

// takeAnswer takes the bytes of an answer from the share of the slot's owner, and returns the slot for
// endAnswer. It takes nothing for a slot that is not known or has an answer: the store refuses that.
func (t *slotTable) takeAnswer(name string, bytes int64) (*heldSlot, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.slots[name]
	if held == nil || held.answer > 0 {
		return nil, nil
	}
	if err := t.bytes.Take(held.owner, bytes); err != nil {
		return nil, err
	}
	return held, nil
}

// endAnswer leaves the bytes of an answer with its slot if the answer is stored and the slot exists, and
// otherwise gives them back.
func (t *slotTable) endAnswer(name string, held *heldSlot, bytes int64, stored bool) {
	if held == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if stored && t.slots[name] == held {
		held.answer = bytes
		return
	}
	t.bytes.Give(held.owner, bytes)
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

// close ends restoring and stops the timers.
func (t *slotTable) close() {
	t.stop()
	t.restoring.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, held := range t.slots {
		t.removeLocked(name, held)
	}
}
