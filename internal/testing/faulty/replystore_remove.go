package faulty

import (
	"context"
	"errors"

	"github.com/mailboxmq/mailbox/driver"
)

// slotConsumeFaults remove slots wrongly.
var slotConsumeFaults = []ReplyStoreSaboteur{
	{Name: "consumes-twice", Breaks: "RPL-5",
		What: "Consuming does not remove the slot.",
		on:   storeHooks{consume: (*store).Get}},
	{Name: "consumes-twice-in-a-race", Breaks: "RPL-5",
		What: "Reading a slot and removing it are two steps, so that several callers get the answer.",
		on: storeHooks{consume: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
			slot, err := s.Get(ctx, id)
			if err != nil || slot.State == driver.SlotPending {
				return slot, err
			}
			yieldToOthers()
			return slot, s.Delete(ctx, id)
		}}},
	{Name: "consumes-the-pending", Breaks: "RPL-5",
		What: "Consuming removes a slot that is still pending.",
		on: storeHooks{consume: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
			slot, err := s.Consume(ctx, id)
			if err == nil {
				err = s.Delete(ctx, id)
			}
			return slot, err
		}}},
	{Name: "leaves-the-cancelled", Breaks: "RPL-5",
		What: "Consuming removes only answered slots.",
		on: storeHooks{consume: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
			if s.slotState(ctx, id) == driver.SlotCancelled {
				return s.Get(ctx, id)
			}
			return s.Consume(ctx, id)
		}}},
	{Name: "consumes-without-the-failure", Breaks: "RPL-5",
		What: "A consumed failure is an empty answer.",
		on: storeHooks{consume: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
			slot, err := s.Consume(ctx, id)
			slot.Answer.Failure, slot.Answer.FailureKind = "", ""
			return slot, err
		}}},
	{Name: "deletes-only-the-pending", Breaks: "RPL-5",
		What: "Deleting leaves written slots.",
		on: storeHooks{delete: func(s *store, ctx context.Context, id string) error {
			if s.slotState(ctx, id) != driver.SlotPending {
				return ctx.Err()
			}
			return s.Delete(ctx, id)
		}}},
	{Name: "complains-about-nothing-to-delete", Breaks: "RPL-5",
		What: "Deleting a missing slot returns an error.",
		on: storeHooks{delete: func(s *store, ctx context.Context, id string) error {
			if _, err := s.Get(ctx, id); errors.Is(err, driver.ErrNotFound) {
				return err
			}
			return s.Delete(ctx, id)
		}}},
}

// slotSweepFaults list or sweep the wrong slots.
var slotSweepFaults = []ReplyStoreSaboteur{
	{Name: "sweeps-the-living", Breaks: "RPL-5",
		What: "Sweeping removes pending slots.",
		on:   sweepToo(driver.SlotPending)},
	{Name: "sweeps-the-answered", Breaks: "RPL-5",
		What: "Sweeping removes answers before their time.",
		on:   sweepToo(driver.SlotResolved)},
	{Name: "lists-the-answered", Breaks: "RPL-5",
		What: "Listing expired slots returns answers.",
		on: storeHooks{resolve: resolveSeen, get: getSeen, expired: func(s *store, ctx context.Context, limit int) ([]string, error) {
			ids, err := s.Expired(ctx, limit)
			if err == nil {
				ids = append(ids, s.seenIn(ctx, driver.SlotResolved)...)
			}
			return ids, err
		}}},
	{Name: "sweeps-beyond-its-limit", Breaks: "RPL-5",
		What: "Sweeping ignores its limit.",
		on:   storeHooks{sweep: func(s *store, ctx context.Context, limit int) (int, error) { return s.Sweep(ctx, 1000*limit) }}},
	{Name: "miscounts-what-it-sweeps", Breaks: "RPL-5",
		What: "Sweeping returns its limit as the number of removed slots.",
		on: storeHooks{sweep: func(s *store, ctx context.Context, limit int) (int, error) {
			_, err := s.Sweep(ctx, limit)
			return limit, err
		}}},
	{Name: "sweeps-nothing", Breaks: "RPL-6",
		What: "Sweeping counts expired slots without removing them.",
		on: storeHooks{sweep: func(s *store, ctx context.Context, limit int) (int, error) {
			ids, err := s.Expired(ctx, limit)
			return len(ids), err
		}}},
	{Name: "sweeps-without-a-limit", Breaks: "RPL-5",
		What: "A limit of zero means one.",
		on:   storeHooks{sweep: func(s *store, ctx context.Context, limit int) (int, error) { return s.Sweep(ctx, max(limit, 1)) }}},
	{Name: "never-sweeps-the-answered", Breaks: "RPL-5",
		What: "Unread answers are never swept.",
		on: storeHooks{
			resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
				err := s.Resolve(ctx, id, answer)
				if err == nil {
					state[marks](s).put(id, true)
				}
				return err
			},
			sweep: func(s *store, ctx context.Context, limit int) (removed int, err error) {
				ids, err := s.Expired(ctx, limit)
				for _, id := range ids {
					if !state[marks](s).at(id) {
						err = errors.Join(err, s.Delete(ctx, id))
						removed++
					}
				}
				return removed, err
			},
		}},
	{Name: "lists-beyond-its-limit", Breaks: "RPL-5",
		What: "Listing ignores its limit.",
		on:   storeHooks{expired: func(s *store, ctx context.Context, limit int) ([]string, error) { return s.Expired(ctx, 1000*limit) }}},
	{Name: "sweeps-when-asked-to-list", Breaks: "RPL-5",
		What: "Listing expired slots removes them.",
		on: storeHooks{expired: func(s *store, ctx context.Context, limit int) ([]string, error) {
			ids, err := s.Expired(ctx, limit)
			if err == nil {
				_, err = s.Sweep(ctx, limit)
			}
			return ids, err
		}}},
}

// sweepToo sweeps all slots in a state that were read or resolved.
func sweepToo(state driver.SlotState) storeHooks {
	return storeHooks{resolve: resolveSeen, get: getSeen, sweep: func(s *store, ctx context.Context, limit int) (int, error) {
		for _, id := range s.seenIn(ctx, state) {
			_ = s.Delete(ctx, id)
		}
		return s.Sweep(ctx, limit)
	}}
}

// resolveSeen resolves a slot and remembers it for seenIn.
func resolveSeen(s *store, ctx context.Context, id string, answer driver.Answer) error {
	state[marks](s).put(id, true)
	return s.Resolve(ctx, id, answer)
}

// getSeen reads a slot and remembers it for seenIn.
func getSeen(s *store, ctx context.Context, id string) (driver.Slot, error) {
	state[marks](s).put(id, true)
	return s.Get(ctx, id)
}

// seenIn returns the remembered slots that are in a state.
func (s *store) seenIn(ctx context.Context, wanted driver.SlotState) (ids []string) {
	for _, id := range state[marks](s).keys() {
		if s.slotState(ctx, id) == wanted {
			ids = append(ids, id)
		}
	}
	return ids
}
