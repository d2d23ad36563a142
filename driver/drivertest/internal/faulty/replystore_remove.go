package faulty

import (
	"context"
	"errors"
	"sync"

	"github.com/mailboxmq/mailbox/driver"
)

// slotConsumeFaults remove slots wrongly.
var slotConsumeFaults = []ReplyStoreSaboteur{
	{
		Name: "consumes-twice", Breaks: "RPL-5",
		What: "Consuming does not remove the slot.",
		Wrap: sabotaged(func(s store) consumesTwice { return consumesTwice{s} }),
	},
	{
		Name: "consumes-twice-in-a-race", Breaks: "RPL-5",
		What: "Reading a slot and removing it are two steps, so that several callers get the answer.",
		Wrap: sabotaged(func(s store) consumesInRace { return consumesInRace{s} }),
	},
	{
		Name: "consumes-the-pending", Breaks: "RPL-5",
		What: "Consuming removes a slot that is still pending.",
		Wrap: sabotaged(func(s store) consumesPending { return consumesPending{s} }),
	},
	{
		Name: "leaves-the-cancelled", Breaks: "RPL-5",
		What: "Consuming removes only answered slots.",
		Wrap: sabotaged(func(s store) leavesCancelled { return leavesCancelled{s} }),
	},
	{
		Name: "consumes-without-the-failure", Breaks: "RPL-5",
		What: "A consumed failure is an empty answer.",
		Wrap: sabotaged(func(s store) losesFailure { return losesFailure{s} }),
	},
	{
		Name: "deletes-only-the-pending", Breaks: "RPL-5",
		What: "Deleting leaves written slots.",
		Wrap: sabotaged(func(s store) deletesPending { return deletesPending{s} }),
	},
	{
		Name: "complains-about-nothing-to-delete", Breaks: "RPL-5",
		What: "Deleting a missing slot returns an error.",
		Wrap: sabotaged(func(s store) complains { return complains{s} }),
	},
}

type consumesTwice struct{ store }

func (s consumesTwice) Consume(ctx context.Context, id string) (driver.Slot, error) {
	return s.ReplyStore.Get(ctx, id)
}

type consumesInRace struct{ store }

func (s consumesInRace) Consume(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, id)
	if err != nil || slot.State == driver.SlotPending {
		return slot, err
	}
	yieldToOthers()
	return slot, s.ReplyStore.Delete(ctx, id)
}

type consumesPending struct{ store }

func (s consumesPending) Consume(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Consume(ctx, id)
	if err == nil {
		err = s.ReplyStore.Delete(ctx, id)
	}
	return slot, err
}

type leavesCancelled struct{ store }

func (s leavesCancelled) Consume(ctx context.Context, id string) (driver.Slot, error) {
	if s.state(ctx, id) == driver.SlotCancelled {
		return s.ReplyStore.Get(ctx, id)
	}
	return s.ReplyStore.Consume(ctx, id)
}

type losesFailure struct{ store }

func (s losesFailure) Consume(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Consume(ctx, id)
	slot.Answer.Failure, slot.Answer.FailureKind = "", ""
	return slot, err
}

type deletesPending struct{ store }

func (s deletesPending) Delete(ctx context.Context, id string) error {
	if s.state(ctx, id) != driver.SlotPending {
		return ctx.Err()
	}
	return s.ReplyStore.Delete(ctx, id)
}

type complains struct{ store }

func (s complains) Delete(ctx context.Context, id string) error {
	if _, err := s.ReplyStore.Get(ctx, id); errors.Is(err, driver.ErrNotFound) {
		return err
	}
	return s.ReplyStore.Delete(ctx, id)
}

// slotSweepFaults list or sweep the wrong slots.
var slotSweepFaults = []ReplyStoreSaboteur{
	{
		Name: "sweeps-the-living", Breaks: "RPL-5",
		What: "Sweeping removes pending slots.",
		Wrap: sabotaged(func(s store) *remembers {
			return &remembers{store: s, sweep: func(slot driver.Slot) bool { return slot.State == driver.SlotPending }}
		}),
	},
	{
		Name: "sweeps-the-answered", Breaks: "RPL-5",
		What: "Sweeping removes answers before their time.",
		Wrap: sabotaged(func(s store) *remembers {
			return &remembers{store: s, sweep: func(slot driver.Slot) bool { return slot.State == driver.SlotResolved }}
		}),
	},
	{
		Name: "lists-the-answered", Breaks: "RPL-5",
		What: "Listing expired slots returns answers.",
		Wrap: sabotaged(func(s store) *remembers {
			return &remembers{store: s, list: func(slot driver.Slot) bool { return slot.State == driver.SlotResolved }}
		}),
	},
	{
		Name: "sweeps-beyond-its-limit", Breaks: "RPL-5",
		What: "Sweeping ignores its limit.",
		Wrap: sabotaged(func(s store) sweeps {
			return sweeps{s, func(ctx context.Context, s store, limit int) (int, error) { return s.ReplyStore.Sweep(ctx, 1000*limit) }}
		}),
	},
	{
		Name: "miscounts-what-it-sweeps", Breaks: "RPL-5",
		What: "Sweeping returns its limit as the number of removed slots.",
		Wrap: sabotaged(func(s store) sweeps {
			return sweeps{s, func(ctx context.Context, s store, limit int) (int, error) {
				_, err := s.ReplyStore.Sweep(ctx, limit)
				return limit, err
			}}
		}),
	},
	{
		Name: "sweeps-nothing", Breaks: "RPL-6",
		What: "Sweeping counts expired slots without removing them.",
		Wrap: sabotaged(func(s store) sweeps {
			return sweeps{s, func(ctx context.Context, s store, limit int) (int, error) {
				ids, err := s.ReplyStore.Expired(ctx, limit)
				return len(ids), err
			}}
		}),
	},
	{
		Name: "sweeps-without-a-limit", Breaks: "RPL-5",
		What: "A limit of zero means one.",
		Wrap: sabotaged(func(s store) sweeps {
			return sweeps{s, func(ctx context.Context, s store, limit int) (int, error) {
				return s.ReplyStore.Sweep(ctx, max(limit, 1))
			}}
		}),
	},
	{
		Name: "never-sweeps-the-answered", Breaks: "RPL-5",
		What: "Unread answers are never swept.",
		Wrap: sabotaged(func(s store) *neverSweeps { return &neverSweeps{store: s} }),
	},
	{
		Name: "lists-beyond-its-limit", Breaks: "RPL-5",
		What: "Listing ignores its limit.",
		Wrap: sabotaged(func(s store) lists {
			return lists{s, func(ctx context.Context, s store, limit int) ([]string, error) {
				return s.ReplyStore.Expired(ctx, 1000*limit)
			}}
		}),
	},
	{
		Name: "sweeps-when-asked-to-list", Breaks: "RPL-5",
		What: "Listing expired slots removes them.",
		Wrap: sabotaged(func(s store) lists {
			return lists{s, func(ctx context.Context, s store, limit int) ([]string, error) {
				ids, err := s.ReplyStore.Expired(ctx, limit)
				if err == nil {
					_, err = s.ReplyStore.Sweep(ctx, limit)
				}
				return ids, err
			}}
		}),
	},
}

// remembers records which slots were created, to sweep or list some of them.
type remembers struct {
	store
	sweep, list func(driver.Slot) bool

	mu  sync.Mutex // guards ids
	ids []string
}

func (s *remembers) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	s.note(id)
	return s.ReplyStore.Resolve(ctx, id, answer)
}

func (s *remembers) Get(ctx context.Context, id string) (driver.Slot, error) {
	s.note(id)
	return s.ReplyStore.Get(ctx, id)
}

func (s *remembers) note(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, id)
}

// matching returns the existing slots that match.
func (s *remembers) matching(ctx context.Context, match func(driver.Slot) bool) (ids []string) {
	if match == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.ids {
		if slot, err := s.ReplyStore.Get(ctx, id); err == nil && match(slot) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *remembers) Sweep(ctx context.Context, limit int) (int, error) {
	for _, id := range s.matching(ctx, s.sweep) {
		_ = s.ReplyStore.Delete(ctx, id)
	}
	return s.ReplyStore.Sweep(ctx, limit)
}

func (s *remembers) Expired(ctx context.Context, limit int) ([]string, error) {
	ids, err := s.ReplyStore.Expired(ctx, limit)
	if err == nil {
		ids = append(ids, s.matching(ctx, s.list)...)
	}
	return ids, err
}

type sweeps struct {
	store
	sweep func(context.Context, store, int) (int, error)
}

func (s sweeps) Sweep(ctx context.Context, limit int) (int, error) {
	return s.sweep(ctx, s.store, limit)
}

type lists struct {
	store
	list func(context.Context, store, int) ([]string, error)
}

func (s lists) Expired(ctx context.Context, limit int) ([]string, error) {
	return s.list(ctx, s.store, limit)
}

type neverSweeps struct {
	store
	answered table[string, bool]
}

func (s *neverSweeps) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	err := s.ReplyStore.Resolve(ctx, id, answer)
	if err == nil {
		s.answered.put(id, true)
	}
	return err
}

func (s *neverSweeps) Sweep(ctx context.Context, limit int) (removed int, err error) {
	ids, err := s.ReplyStore.Expired(ctx, limit)
	for _, id := range ids {
		if answered, _ := s.answered.get(id); !answered {
			err = errors.Join(err, s.ReplyStore.Delete(ctx, id))
			removed++
		}
	}
	return removed, err
}
