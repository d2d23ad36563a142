package faulty

import (
	"context"
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A ReplyStoreSaboteur breaks one rule in the reply stores it wraps.
type ReplyStoreSaboteur struct {
	// Name describes the fault, in a form that can name a test.
	Name string
	// Breaks is the rule it breaks, as in docs/semantics.md.
	Breaks string
	// What says in one sentence what goes wrong.
	What string
	// Wrap returns a store with the fault. It does no I/O.
	Wrap func(driver.ReplyStore) driver.ReplyStore
}

// ReplyStores returns the saboteurs of reply stores. drivertest.RunReplyStore must catch all of
// them.
func ReplyStores() []ReplyStoreSaboteur {
	return slices.Concat(slotCreateFaults, slotWriteFaults, slotReadFaults, slotExpiryFaults, slotWaitFaults, slotConsumeFaults, slotSweepFaults)
}

// A store is a reply store that passes every call on. A saboteur embeds it and overrides one
// method.
type store struct{ driver.ReplyStore }

// PassReplyStore wraps a store as saboteurs do, without a fault. The suite must pass on it.
func PassReplyStore(inner driver.ReplyStore) driver.ReplyStore { return store{inner} }

// sabotaged returns a Wrap that replaces a store.
func sabotaged[S driver.ReplyStore](spoil func(store) S) func(driver.ReplyStore) driver.ReplyStore {
	return func(inner driver.ReplyStore) driver.ReplyStore { return spoil(store{inner}) }
}

// state returns the state of a slot, or "" if there is none.
func (s store) state(ctx context.Context, id string) driver.SlotState {
	slot, err := s.ReplyStore.Get(ctx, id)
	if err != nil {
		return ""
	}
	return slot.State
}

// reads passes every slot that is read through see.
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

// misreadsSlots changes every slot that is read.
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
