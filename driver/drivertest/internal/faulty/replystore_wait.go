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
	{
		Name: "forgets-the-time-of-a-slot", Breaks: "RPL-5",
		What: "Slots never expire.",
		Wrap: sabotaged(func(s store) stretches {
			return stretches{s, func(time.Duration) time.Duration { return driver.MaxSlotTTL }}
		}),
	},
	{
		Name: "expires-early", Breaks: "RPL-5",
		What: "Slots live for nine tenths of their time.",
		Wrap: sabotaged(func(s store) stretches {
			return stretches{s, func(ttl time.Duration) time.Duration { return ttl - ttl/10 }}
		}),
	},
	{
		Name: "expires-late", Breaks: "RPL-5",
		What: "Slots live a second longer than they should.",
		Wrap: sabotaged(func(s store) stretches {
			return stretches{s, func(ttl time.Duration) time.Duration { return ttl + time.Second }}
		}),
	},
	{
		Name: "expires-only-when-swept", Breaks: "RPL-5",
		What: "A slot whose time is over reads as pending until it is swept.",
		Wrap: misreadsSlots(func(slot *driver.Slot) {
			if slot.State == driver.SlotExpired {
				slot.State = driver.SlotPending
			}
		}),
	},
	{
		Name: "keeps-answers-forever", Breaks: "RPL-5",
		What: "Answered slots do not expire.",
		Wrap: sabotaged(func(s store) *keepsAnswers { return &keepsAnswers{store: s} }),
	},
}

type stretches struct {
	store
	stretch func(time.Duration) time.Duration
}

func (s stretches) Create(ctx context.Context, id string, ttl time.Duration) error {
	if ttl > 0 && ttl < driver.MaxSlotTTL-time.Second {
		ttl = s.stretch(ttl)
	}
	return s.ReplyStore.Create(ctx, id, ttl)
}

type keepsAnswers struct {
	store
	answered table[string, driver.Slot]
}

func (s *keepsAnswers) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, id)
	if err != nil {
		return slot, err
	}
	if slot.State == driver.SlotResolved {
		s.answered.put(id, slot)
	}
	if old, ok := s.answered.get(id); ok && slot.State == driver.SlotExpired {
		return old, nil
	}
	return slot, nil
}

// slotWaitFaults wake waiters too late, too early, or not at all.
var slotWaitFaults = []ReplyStoreSaboteur{
	{
		Name: "loses-a-waiter", Breaks: "RPL-4",
		What: "Only the first of several waiters of a slot is woken.",
		Wrap: sabotaged(func(s store) *losesWaiter { return &losesWaiter{store: s} }),
	},
	{
		Name: "looks-again-instead-of-waking", Breaks: "RPL-4",
		What: "A waiter polls every second, and is not woken.",
		Wrap: sabotaged(func(s store) looksAgain { return looksAgain{s} }),
	},
	{
		Name: "sleeps-through-the-cancel", Breaks: "RPL-4",
		What: "A cancel does not wake waiters.",
		Wrap: sabotaged(func(s store) sleepsThrough {
			return sleepsThrough{s, func(slot driver.Slot, _ error) bool { return slot.State == driver.SlotCancelled }}
		}),
	},
	{
		Name: "sleeps-through-the-answer", Breaks: "RPL-4",
		What: "An answer does not wake waiters.",
		Wrap: sabotaged(func(s store) sleepsThrough {
			return sleepsThrough{s, func(slot driver.Slot, _ error) bool { return slot.State == driver.SlotResolved }}
		}),
	},
	{
		Name: "sleeps-through-the-end", Breaks: "RPL-4",
		What: "Expiry of a slot does not wake waiters.",
		Wrap: sabotaged(func(s store) sleepsThrough {
			return sleepsThrough{s, func(slot driver.Slot, _ error) bool { return slot.State == driver.SlotExpired }}
		}),
	},
	{
		Name: "sleeps-through-the-removal", Breaks: "RPL-4",
		What: "Removing a slot does not wake waiters.",
		Wrap: sabotaged(func(s store) sleepsThrough {
			return sleepsThrough{s, func(_ driver.Slot, err error) bool { return errors.Is(err, driver.ErrNotFound) }}
		}),
	},
	{
		Name: "waits-through-the-end-of-the-context", Breaks: "RPL-4",
		What: "A wait does not end with its context.",
		Wrap: sabotaged(func(s store) waitsOn { return waitsOn{s} }),
	},
	{
		Name: "restarts-the-wait", Breaks: "RPL-4",
		What: "A spurious wake-up restarts the wait.",
		Wrap: sabotaged(func(s store) restartsClock { return restartsClock{s} }),
	},
	{
		Name: "gives-up-early", Breaks: "RPL-4",
		What: "A wait ends after half of its time.",
		Wrap: sabotaged(func(s store) givesUp { return givesUp{s} }),
	},
	{
		Name: "waits-when-asked-to-look", Breaks: "RPL-4",
		What: "A wait of zero takes a second.",
		Wrap: sabotaged(func(s store) waitsToLook { return waitsToLook{s} }),
	},
	{
		Name: "wakes-for-others", Breaks: "RPL-4",
		What: "A change of any slot ends the waits for all slots.",
		Wrap: sabotaged(func(s store) *wakesForOthers { return &wakesForOthers{store: s, changed: make(chan struct{})} }),
	},
	{
		Name: "misses-what-comes-meanwhile", Breaks: "RPL-4",
		What: "An answer that comes between the check and the wait is missed.",
		Wrap: sabotaged(func(s store) missesAnswer { return missesAnswer{s} }),
	},
	{
		Name: "never-moves-its-timer-forward", Breaks: "RPL-4",
		What: "While a slot has a waiter, slots that expire before it do not wake theirs.",
		Wrap: sabotaged(func(s store) *oneTimer { return &oneTimer{store: s} }),
	},
}

type losesWaiter struct {
	store
	waiting table[string, int]
}

func (s *losesWaiter) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	defer add(&s.waiting, id, -1)
	if add(&s.waiting, id, 1) > 1 && s.state(ctx, id) == driver.SlotPending {
		if err := backoff.Pause(ctx, wait); err != nil {
			return driver.Slot{}, err
		}
	}
	return s.ReplyStore.Wait(ctx, id, wait)
}

type looksAgain struct{ store }

func (s looksAgain) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	for end := time.Now().Add(wait); ; {
		slot, err := s.ReplyStore.Get(ctx, id)
		left := time.Until(end)
		if err != nil || slot.State != driver.SlotPending || left <= 0 {
			return slot, err
		}
		if err := backoff.Pause(ctx, min(left, time.Second)); err != nil {
			return driver.Slot{}, err
		}
	}
}

// sleepsThrough misses changes of a state after the wait has begun.
type sleepsThrough struct {
	store
	through func(driver.Slot, error) bool
}

func (s sleepsThrough) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	end, waited := time.Now().Add(wait), s.state(ctx, id) == driver.SlotPending
	slot, err := s.ReplyStore.Wait(ctx, id, wait)
	if waited && s.through(slot, err) {
		if err := backoff.Pause(ctx, time.Until(end)); err != nil {
			return driver.Slot{}, err
		}
	}
	return slot, err
}

type waitsOn struct{ store }

func (s waitsOn) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if ctx.Err() != nil {
		return driver.Slot{}, ctx.Err()
	}
	slot, err := s.ReplyStore.Wait(context.WithoutCancel(ctx), id, min(wait, 5*time.Minute))
	if ctx.Err() != nil {
		return driver.Slot{}, ctx.Err()
	}
	return slot, err
}

type restartsClock struct{ store }

func (s restartsClock) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	slot, err := s.ReplyStore.Wait(ctx, id, wait/2)
	if err == nil && slot.State == driver.SlotPending {
		return s.ReplyStore.Wait(ctx, id, wait)
	}
	return slot, err
}

type givesUp struct{ store }

func (s givesUp) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	return s.ReplyStore.Wait(ctx, id, wait/2)
}

type waitsToLook struct{ store }

func (s waitsToLook) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	return s.ReplyStore.Wait(ctx, id, max(wait, time.Second))
}

type wakesForOthers struct {
	store
	mu      sync.Mutex // guards changed
	changed chan struct{}
}

func (s *wakesForOthers) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	err := s.ReplyStore.Resolve(ctx, id, answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	return err
}

func (s *wakesForOthers) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-waiting.Done():
		}
	}()
	slot, err := s.ReplyStore.Wait(waiting, id, wait)
	if err != nil && ctx.Err() == nil {
		return s.ReplyStore.Get(ctx, id)
	}
	return slot, err
}

type missesAnswer struct{ store }

func (s missesAnswer) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	if s.state(ctx, id) == driver.SlotPending {
		yieldToOthers()
		if s.state(ctx, id) == driver.SlotResolved {
			if err := backoff.Pause(ctx, wait); err != nil {
				return driver.Slot{}, err
			}
		}
	}
	return s.ReplyStore.Wait(ctx, id, wait)
}

type oneTimer struct {
	store
	mu  sync.Mutex // guards set
	set time.Time
}

func (s *oneTimer) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	waited := false
	if slot, err := s.ReplyStore.Get(ctx, id); err == nil && slot.State == driver.SlotPending {
		waited = true
		s.mu.Lock()
		if s.set.IsZero() || time.Until(s.set) <= 0 {
			s.set = slot.ExpiresAt
		}
		s.mu.Unlock()
	}
	slot, err := s.ReplyStore.Wait(ctx, id, wait)
	if err == nil && waited && slot.State == driver.SlotExpired {
		s.mu.Lock()
		late := time.Until(s.set)
		s.mu.Unlock()
		if err := backoff.Pause(ctx, max(late, 0)); err != nil {
			return driver.Slot{}, err
		}
	}
	return slot, err
}
