package faulty

import (
	"context"
	"iter"
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

	on storeHooks // the fault
}

// Wrap returns a store with the fault. It does no I/O.
func (s ReplyStoreSaboteur) Wrap(inner driver.ReplyStore) driver.ReplyStore {
	return hookedStore{&store{ReplyStore: inner}, &s.on}
}

// ReplyStores returns the saboteurs of reply stores. drivertest.RunReplyStore must catch all of
// them.
func ReplyStores() []ReplyStoreSaboteur {
	return slices.Concat(slotCreateFaults, slotWriteFaults, slotReadFaults, slotExpiryFaults, slotWaitFaults, slotConsumeFaults, slotSweepFaults, slotListFaults)
}

// PassReplyStore wraps a store as saboteurs do, without a fault. The suite must pass on it.
func PassReplyStore(inner driver.ReplyStore) driver.ReplyStore {
	return ReplyStoreSaboteur{}.Wrap(inner)
}

// A store is a reply store that passes every call on. Hooks get it, so that they can call the
// wrapped store.
type store struct {
	driver.ReplyStore
	memory
}

// slots lists the slots of the wrapped store, which must be able to.
func (s *store) slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return s.ReplyStore.(driver.SlotLister).Slots(ctx)
}

// slotState returns the state of a slot, or "" if there is none.
func (s *store) slotState(ctx context.Context, id string) driver.SlotState {
	slot, err := s.Get(ctx, id)
	if err != nil {
		return ""
	}
	return slot.State
}

// storeHooks are the functions of a reply store that a saboteur replaces. A nil hook passes the
// call on.
type storeHooks struct {
	create  func(s *store, ctx context.Context, id string, ttl time.Duration) error
	resolve func(s *store, ctx context.Context, id string, answer driver.Answer) error
	cancel  func(s *store, ctx context.Context, id string) error
	get     func(s *store, ctx context.Context, id string) (driver.Slot, error)
	wait    func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error)
	consume func(s *store, ctx context.Context, id string) (driver.Slot, error)
	delete  func(s *store, ctx context.Context, id string) error
	expired func(s *store, ctx context.Context, limit int) ([]string, error)
	sweep   func(s *store, ctx context.Context, limit int) (int, error)
	list    func(s *store, ctx context.Context) iter.Seq2[driver.Slot, error]
}

// A hookedStore is a reply store with the hooks of a saboteur.
type hookedStore struct {
	s  *store
	on *storeHooks
}

func (h hookedStore) Create(ctx context.Context, id string, ttl time.Duration) error {
	return or(h.on.create, (*store).Create, h.on.create != nil)(h.s, ctx, id, ttl)
}

func (h hookedStore) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	return or(h.on.resolve, (*store).Resolve, h.on.resolve != nil)(h.s, ctx, id, answer)
}

func (h hookedStore) Cancel(ctx context.Context, id string) error {
	return or(h.on.cancel, (*store).Cancel, h.on.cancel != nil)(h.s, ctx, id)
}

func (h hookedStore) Get(ctx context.Context, id string) (driver.Slot, error) {
	return or(h.on.get, (*store).Get, h.on.get != nil)(h.s, ctx, id)
}

func (h hookedStore) Wait(ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
	return or(h.on.wait, (*store).Wait, h.on.wait != nil)(h.s, ctx, id, wait)
}

func (h hookedStore) Consume(ctx context.Context, id string) (driver.Slot, error) {
	return or(h.on.consume, (*store).Consume, h.on.consume != nil)(h.s, ctx, id)
}

func (h hookedStore) Delete(ctx context.Context, id string) error {
	return or(h.on.delete, (*store).Delete, h.on.delete != nil)(h.s, ctx, id)
}

func (h hookedStore) Expired(ctx context.Context, limit int) ([]string, error) {
	return or(h.on.expired, (*store).Expired, h.on.expired != nil)(h.s, ctx, limit)
}

func (h hookedStore) Sweep(ctx context.Context, limit int) (int, error) {
	return or(h.on.sweep, (*store).Sweep, h.on.sweep != nil)(h.s, ctx, limit)
}

func (h hookedStore) Slots(ctx context.Context) iter.Seq2[driver.Slot, error] {
	return or(h.on.list, (*store).slots, h.on.list != nil)(h.s, ctx)
}

// readSlots passes every slot that is read through see.
func readSlots(see func(slot driver.Slot, err error) (driver.Slot, error)) storeHooks {
	return storeHooks{
		get:     func(s *store, ctx context.Context, id string) (driver.Slot, error) { return see(s.Get(ctx, id)) },
		consume: func(s *store, ctx context.Context, id string) (driver.Slot, error) { return see(s.Consume(ctx, id)) },
		wait: func(s *store, ctx context.Context, id string, wait time.Duration) (driver.Slot, error) {
			return see(s.Wait(ctx, id, wait))
		},
	}
}

// alterSlots changes every slot that is read.
func alterSlots(change func(*driver.Slot)) storeHooks {
	return readSlots(func(slot driver.Slot, err error) (driver.Slot, error) {
		if err == nil {
			change(&slot)
		}
		return slot, err
	})
}
