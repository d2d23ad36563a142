package faulty

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// slotExpiryFaults let slots expire at the wrong time.
var slotExpiryFaults = []ReplyStoreSaboteur{
	{Name: "forgets-the-time-of-a-slot", Breaks: "RPL-5",
		What: "Slots never expire.",
		on:   alterTTL(func(time.Duration) time.Duration { return driver.MaxSlotTTL })},
	{Name: "expires-early", Breaks: "RPL-5",
		What: "Slots live for nine tenths of their time.",
		on:   alterTTL(func(ttl time.Duration) time.Duration { return ttl - ttl/10 })},
	{Name: "expires-late", Breaks: "RPL-5",
		What: "Slots live a second longer than they should.",
		on:   alterTTL(func(ttl time.Duration) time.Duration { return ttl + time.Second })},
	{Name: "expires-only-when-swept", Breaks: "RPL-5",
		What: "A slot whose time is over reads as pending until it is swept.",
		on:   alterSlots(func(slot *driver.Slot) { set(slot.State == driver.SlotExpired, &slot.State, driver.SlotPending) })},
	{Name: "keeps-answers-forever", Breaks: "RPL-5",
		What: "Answered slots do not expire.",
		on: storeHooks{get: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
			slot, err := s.Get(ctx, id)
			answered := state[table[string, driver.Slot]](s)
			if err == nil && slot.State == driver.SlotResolved {
				answered.put(id, slot)
			}
			if old, ok := answered.get(id); ok && err == nil && slot.State == driver.SlotExpired {
				return old, nil
			}
			return slot, err
		}}},
}

// alterTTL changes the time to live of slots.
func alterTTL(change func(time.Duration) time.Duration) storeHooks {
	return alterCreate(func(_ *string, ttl *time.Duration) {
		if *ttl > 0 && *ttl < driver.MaxSlotTTL-time.Second {
			*ttl = change(*ttl)
		}
	})
}

// slotWaitFaults wake waiters too late, too early, or not at all.
var slotWaitFaults = []ReplyStoreSaboteur{
	{Name: "loses-a-waiter", Breaks: "RPL-4",
		What: "Only the first of several waiters of a slot is woken.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			waiting := state[counts](s)
			defer add(waiting, id, -1)
			if add(waiting, id, 1) > 1 && s.slotState(ctx, id) == driver.SlotPending {
				if err := backoff.Pause(ctx, wait); err != nil {
					return driver.Slot{}, err
				}
			}
			return s.Wait(ctx, id, wait)
		}}},
	{Name: "looks-again-instead-of-waking", Breaks: "RPL-4",
		What: "A waiter polls every second, and is not woken.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			for end := time.Now().Add(wait); ; {
				slot, err := s.Get(ctx, id)
				left := time.Until(end)
				if err != nil || slot.State != driver.SlotPending || left <= 0 {
					return slot, err
				}
				if err := backoff.Pause(ctx, min(left, time.Second)); err != nil {
					return driver.Slot{}, err
				}
			}
		}}},
	{Name: "sleeps-through-the-cancel", Breaks: "RPL-4",
		What: "A cancel does not wake waiters.",
		on:   sleepThrough(func(slot driver.Slot, _ error) bool { return slot.State == driver.SlotCancelled })},
	{Name: "sleeps-through-the-answer", Breaks: "RPL-4",
		What: "An answer does not wake waiters.",
		on:   sleepThrough(func(slot driver.Slot, _ error) bool { return slot.State == driver.SlotResolved })},
	{Name: "sleeps-through-the-end", Breaks: "RPL-4",
		What: "Expiry of a slot does not wake waiters.",
		on:   sleepThrough(func(slot driver.Slot, _ error) bool { return slot.State == driver.SlotExpired })},
	{Name: "sleeps-through-the-removal", Breaks: "RPL-4",
		What: "Removing a slot does not wake waiters.",
		on:   sleepThrough(func(_ driver.Slot, err error) bool { return errors.Is(err, driver.ErrNotFound) })},
	{Name: "waits-through-the-end-of-the-context", Breaks: "RPL-4",
		What: "A wait does not end with its context.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			if ctx.Err() != nil {
				return driver.Slot{}, ctx.Err()
			}
			slot, err := s.Wait(context.WithoutCancel(ctx), id, min(wait, 5*time.Minute))
			if ctx.Err() != nil {
				return driver.Slot{}, ctx.Err()
			}
			return slot, err
		}}},
	{Name: "restarts-the-wait", Breaks: "RPL-4",
		What: "A spurious wake-up restarts the wait.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			slot, err := s.Wait(ctx, id, wait/2)
			if err == nil && slot.State == driver.SlotPending {
				return s.Wait(ctx, id, wait)
			}
			return slot, err
		}}},
	{Name: "gives-up-early", Breaks: "RPL-4",
		What: "A wait ends after half of its time.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			return s.Wait(ctx, id, wait/2)
		}}},
	{Name: "waits-when-asked-to-look", Breaks: "RPL-4",
		What: "A wait of zero takes a second.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			return s.Wait(ctx, id, max(wait, time.Second))
		}}},
	{Name: "wakes-for-others", Breaks: "RPL-4",
		What: "A change of any slot ends the waits for all slots.",
		on: storeHooks{
			resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
				err := s.Resolve(ctx, id, answer)
				state[bell](s).ring()
				return err
			},
			wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
				waiting, cancel := context.WithCancel(ctx)
				defer cancel()
				state[bell](s).onRing(cancel)
				slot, err := s.Wait(waiting, id, wait)
				if err != nil && ctx.Err() == nil {
					return s.Get(ctx, id)
				}
				return slot, err
			},
		}},
	{Name: "misses-what-comes-meanwhile", Breaks: "RPL-4",
		What: "An answer that comes between the check and the wait is missed.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			if s.slotState(ctx, id) == driver.SlotPending {
				yieldToOthers()
				if s.slotState(ctx, id) == driver.SlotResolved {
					if err := backoff.Pause(ctx, wait); err != nil {
						return driver.Slot{}, err
					}
				}
			}
			return s.Wait(ctx, id, wait)
		}}},
	{Name: "never-moves-its-timer-forward", Breaks: "RPL-4",
		What: "While a slot has a waiter, slots that expire before it do not wake theirs.",
		on: storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			timer := state[table[string, time.Time]](s) // "" to the end of the first waiter's slot
			before, err := s.Get(ctx, id)
			waited := err == nil && before.State == driver.SlotPending
			if waited && time.Until(timer.at("")) <= 0 {
				timer.put("", before.ExpiresAt)
			}
			slot, err := s.Wait(ctx, id, wait)
			if err == nil && waited && slot.State == driver.SlotExpired {
				if err := backoff.Pause(ctx, max(time.Until(timer.at("")), 0)); err != nil {
					return driver.Slot{}, err
				}
			}
			return slot, err
		}}},
}

// sleepThrough misses changes after the wait has begun.
func sleepThrough(missed func(driver.Slot, error) bool) storeHooks {
	return storeHooks{wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
		end, waited := time.Now().Add(wait), s.slotState(ctx, id) == driver.SlotPending
		slot, err := s.Wait(ctx, id, wait)
		if waited && missed(slot, err) {
			if err := backoff.Pause(ctx, time.Until(end)); err != nil {
				return driver.Slot{}, err
			}
		}
		return slot, err
	}}
}

// A bell wakes all that wait for it.
type bell struct {
	mu    sync.Mutex // guards wakes
	wakes []func()
}

// onRing calls wake when the bell rings next.
func (b *bell) onRing(wake func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakes = append(b.wakes, wake)
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, wake := range b.wakes {
		wake()
	}
	b.wakes = nil
}
