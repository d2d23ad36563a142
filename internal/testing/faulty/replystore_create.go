package faulty

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotCreateFaults = []ReplyStoreSaboteur{
	{Name: "creates-over-what-is-there", Breaks: "RPL-5",
		What: "Creating a slot whose id is taken replaces it.",
		on:   createOver(func(driver.SlotState) bool { return true })},
	{Name: "creates-over-the-expired", Breaks: "RPL-5",
		What: "Creating a slot replaces one that has expired and was not swept.",
		on:   createOver(func(state driver.SlotState) bool { return state == driver.SlotExpired })},
	{Name: "creates-twice-in-a-race", Breaks: "RPL-5",
		What: "Checking an id and taking it are two steps, so that several creates succeed.",
		on: storeHooks{create: func(s *store, ctx context.Context, id string, ttl time.Duration) error {
			free := s.slotState(ctx, id) == ""
			yieldToOthers()
			err := s.Create(ctx, id, ttl)
			return unless(free && errors.Is(err, driver.ErrConflict), err)
		}}},
	{Name: "never-frees-an-id", Breaks: "RPL-5",
		What: "The id of a removed slot stays in use.",
		on: storeHooks{create: func(s *store, ctx context.Context, id string, ttl time.Duration) error {
			taken := state[marks](s)
			if taken.at(id) {
				return driver.SlotError("create slot", id, driver.ErrConflict)
			}
			err := s.Create(ctx, id, ttl)
			if err == nil {
				taken.put(id, true)
			}
			return err
		}}},
	{Name: "accepts-any-time", Breaks: "RPL-5",
		What: "A slot without time to live gets an hour.",
		on:   alterCreate(func(_ *string, ttl *time.Duration) { set(*ttl <= 0, ttl, time.Hour) })},
	{Name: "cuts-long-times", Breaks: "RPL-5",
		What: "A time to live that is too long is clamped instead of refused.",
		on:   alterCreate(func(_ *string, ttl *time.Duration) { *ttl = min(*ttl, driver.MaxSlotTTL) })},
	{Name: "accepts-a-slot-without-id", Breaks: "RPL-5",
		What: "A slot can have an empty id.",
		on:   alterCreate(func(id *string, _ *time.Duration) { set(*id == "", id, "empty") })},
	{Name: "cuts-long-ids", Breaks: "RPL-5",
		What: "An id that is too long is cut.",
		on:   alterCreate(func(id *string, _ *time.Duration) { *id = (*id)[:min(len(*id), 100)] })},
	{Name: "folds-the-case-of-ids", Breaks: "RPL-1",
		What: "Ids that differ in case are one.",
		on:   renameSlots(strings.ToLower)},
	{Name: "trims-ids", Breaks: "RPL-1",
		What: "Blanks around an id do not count.",
		on:   renameSlots(strings.TrimSpace)},
	{Name: "invents-slots", Breaks: "RPL-5",
		What: "A missing slot reads as a slot without a state.",
		on: readSlots(func(slot driver.Slot, err error) (driver.Slot, error) {
			return slot, unless(errors.Is(err, driver.ErrNotFound), err)
		})},
	{Name: "says-expired-for-missing", Breaks: "RPL-5",
		What: "Writing to a missing slot returns ErrReplyExpired.",
		on:   mistakeCode(driver.ErrNotFound, driver.ErrReplyExpired)},
	{Name: "acts-after-the-end-of-the-context", Breaks: "RPL-5",
		What: "The store acts although the context has ended.",
		on: storeHooks{
			create: func(s *store, ctx context.Context, id string, ttl time.Duration) error {
				return s.Create(context.WithoutCancel(ctx), id, ttl)
			},
			delete: func(s *store, ctx context.Context, id string) error { return s.Delete(context.WithoutCancel(ctx), id) },
		}},
	{Name: "wraps-the-contexts-error", Breaks: "RPL-5",
		What: "The error of a context that has ended is wrapped.",
		on: storeHooks{get: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
			slot, err := s.Get(ctx, id)
			if ctx.Err() != nil {
				err = fmt.Errorf("get: %w", err)
			}
			return slot, err
		}}},
	{Name: "returns-bare-codes", Breaks: "RPL-5",
		What: "Errors are codes without any details.",
		on: storeHooks{
			create: func(s *store, ctx context.Context, id string, ttl time.Duration) error {
				return bare(s.Create(ctx, id, ttl))
			},
			resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
				return bare(s.Resolve(ctx, id, answer))
			},
		}},
}

// createOver creates slots in the place of others that match.
func createOver(match func(driver.SlotState) bool) storeHooks {
	return storeHooks{create: func(s *store, ctx context.Context, id string, ttl time.Duration) error {
		err := s.Create(ctx, id, ttl)
		if errors.Is(err, driver.ErrConflict) && match(s.slotState(ctx, id)) {
			_ = s.Delete(ctx, id)
			return s.Create(ctx, id, ttl)
		}
		return err
	}}
}

// alterCreate changes what slots are created with.
func alterCreate(change func(id *string, ttl *time.Duration)) storeHooks {
	return storeHooks{create: func(s *store, ctx context.Context, id string, ttl time.Duration) error {
		change(&id, &ttl)
		return s.Create(ctx, id, ttl)
	}}
}

// renameSlots replaces ids, like a store that writes without a check.
func renameSlots(rename func(string) string) storeHooks {
	return storeHooks{
		create: func(s *store, ctx context.Context, id string, ttl time.Duration) error {
			err := s.Create(ctx, rename(id), ttl)
			return unless(errors.Is(err, driver.ErrConflict), err)
		},
		resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
			err := s.Resolve(ctx, rename(id), answer)
			return unless(errors.Is(err, driver.ErrReplyAlreadySent), err)
		},
		get: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
			slot, err := s.Get(ctx, rename(id))
			if err == nil {
				slot.ID = id
			}
			return slot, err
		},
	}
}

// mistakeCode returns another code when a slot is written.
func mistakeCode(code, other driver.Code) storeHooks {
	mistake := func(op, id string, err error) error {
		if errors.Is(err, code) {
			return driver.SlotError(op, id, other)
		}
		return err
	}
	return storeHooks{
		resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
			return mistake("resolve", id, s.Resolve(ctx, id, answer))
		},
		cancel: func(s *store, ctx context.Context, id string) error { return mistake("cancel", id, s.Cancel(ctx, id)) },
	}
}

func bare(err error) error {
	if detail, ok := errors.AsType[*driver.Error](err); ok {
		return detail.Code
	}
	return err
}
