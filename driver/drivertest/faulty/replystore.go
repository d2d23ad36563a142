package faulty

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A ReplyStoreSaboteur breaks one promise of the reply stores it wraps.
type ReplyStoreSaboteur struct {
	// Name says what it does, in a form that can name a test.
	Name string
	// Breaks is the rule it breaks, as in docs/semantics.md.
	Breaks string
	// What says in one sentence what goes wrong.
	What string
	// Wrap returns a store with the fault. It does no I/O.
	Wrap func(driver.ReplyStore) driver.ReplyStore
}

// ReplyStores returns the saboteurs of reply stores, in the order of what they
// spoil. The suite that has to notice is drivertest.RunReplyStore.
func ReplyStores() []ReplyStoreSaboteur {
	return slices.Concat(slotMakers, slotWriters, slotTellers, slotTimers, slotWaiters, slotConsumers, slotSweepers)
}

// A store is a reply store that passes everything on. A saboteur embeds it and
// overrides the method it spoils.
type store struct{ driver.ReplyStore }

// PassReplyStore wraps a store as saboteurs do, and spoils nothing. What a test
// holds against a saboteur has to hold for it too.
func PassReplyStore(inner driver.ReplyStore) driver.ReplyStore { return store{inner} }

// sabotaged makes a Wrap of a function that spoils a store.
func sabotaged[S driver.ReplyStore](spoil func(store) S) func(driver.ReplyStore) driver.ReplyStore {
	return func(inner driver.ReplyStore) driver.ReplyStore { return spoil(store{inner}) }
}

// state is that of a slot, and empty if there is none.
func (s store) state(ctx context.Context, id string) driver.SlotState {
	slot, err := s.ReplyStore.Get(ctx, id)
	if err != nil {
		return ""
	}
	return slot.State
}

// doze waits for d, or until ctx ends and then returns its error.
func doze(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reads passes everything that returns a slot through see.
type reads struct {
	store
	see func(ctx context.Context, slot driver.Slot, err error) (driver.Slot, error)
}

func (s reads) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, id)
	return s.see(ctx, slot, err)
}

func (s reads) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	slot, err := s.ReplyStore.Wait(ctx, id, wait)
	return s.see(ctx, slot, err)
}

func (s reads) Consume(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Consume(ctx, id)
	return s.see(ctx, slot, err)
}

// misreadsSlots spoils every slot that is read.
func misreadsSlots(change func(*driver.Slot)) func(driver.ReplyStore) driver.ReplyStore {
	return sabotaged(func(s store) reads {
		return reads{s, func(_ context.Context, slot driver.Slot, err error) (driver.Slot, error) {
			if err == nil {
				change(&slot)
			}
			return slot, err
		}}
	})
}
