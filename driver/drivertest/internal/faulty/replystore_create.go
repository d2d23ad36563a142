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
	{
		Name: "creates-over-what-is-there", Breaks: "RPL-5",
		What: "Creating a slot whose id is taken replaces it.",
		Wrap: sabotaged(func(s store) createsOver { return createsOver{s, func(driver.SlotState) bool { return true }} }),
	},
	{
		Name: "creates-over-the-expired", Breaks: "RPL-5",
		What: "Creating a slot replaces one that has expired and was not swept.",
		Wrap: sabotaged(func(s store) createsOver {
			return createsOver{s, func(state driver.SlotState) bool { return state == driver.SlotExpired }}
		}),
	},
	{
		Name: "creates-twice-in-a-race", Breaks: "RPL-5",
		What: "Checking an id and taking it are two steps, so that several creates succeed.",
		Wrap: sabotaged(func(s store) createsTwice { return createsTwice{s} }),
	},
	{
		Name: "never-frees-an-id", Breaks: "RPL-5",
		What: "The id of a removed slot stays in use.",
		Wrap: sabotaged(func(s store) *neverFreesIDs { return &neverFreesIDs{store: s} }),
	},
	{
		Name: "accepts-any-time", Breaks: "RPL-5",
		What: "A slot without time to live gets an hour.",
		Wrap: sabotaged(func(s store) acceptsBadSlots {
			return acceptsBadSlots{s, func(_ *string, ttl *time.Duration) {
				if *ttl <= 0 {
					*ttl = time.Hour
				}
			}}
		}),
	},
	{
		Name: "cuts-long-times", Breaks: "RPL-5",
		What: "A time to live that is too long is clamped instead of refused.",
		Wrap: sabotaged(func(s store) acceptsBadSlots {
			return acceptsBadSlots{s, func(_ *string, ttl *time.Duration) { *ttl = min(*ttl, driver.MaxSlotTTL) }}
		}),
	},
	{
		Name: "accepts-a-slot-without-id", Breaks: "RPL-5",
		What: "A slot can have an empty id.",
		Wrap: sabotaged(func(s store) acceptsBadSlots {
			return acceptsBadSlots{s, func(id *string, _ *time.Duration) {
				if *id == "" {
					*id = "empty"
				}
			}}
		}),
	},
	{
		Name: "cuts-long-ids", Breaks: "RPL-5",
		What: "An id that is too long is cut.",
		Wrap: sabotaged(func(s store) acceptsBadSlots {
			return acceptsBadSlots{s, func(id *string, _ *time.Duration) { *id = (*id)[:min(len(*id), 100)] }}
		}),
	},
	{
		Name: "folds-the-case-of-ids", Breaks: "RPL-1",
		What: "Ids that differ in case are one.",
		Wrap: sabotaged(func(s store) renames { return renames{s, strings.ToLower} }),
	},
	{
		Name: "trims-ids", Breaks: "RPL-1",
		What: "Blanks around an id do not count.",
		Wrap: sabotaged(func(s store) renames { return renames{s, strings.TrimSpace} }),
	},
	{
		Name: "invents-slots", Breaks: "RPL-5",
		What: "A missing slot reads as a slot without a state.",
		Wrap: sabotaged(func(s store) reads {
			return reads{s, func(_ context.Context, slot driver.Slot, err error) (driver.Slot, error) {
				if errors.Is(err, driver.ErrNotFound) {
					return driver.Slot{}, nil
				}
				return slot, err
			}}
		}),
	},
	{
		Name: "says-expired-for-missing", Breaks: "RPL-5",
		What: "Writing to a missing slot returns ErrReplyExpired.",
		Wrap: sabotaged(func(s store) mistakesCodes {
			return mistakesCodes{s, map[driver.Code]driver.Code{driver.ErrNotFound: driver.ErrReplyExpired}}
		}),
	},
	{
		Name: "acts-after-the-end-of-the-context", Breaks: "RPL-5",
		What: "The store acts although the context has ended.",
		Wrap: sabotaged(func(s store) ignoresContexts { return ignoresContexts{s} }),
	},
	{
		Name: "wraps-the-contexts-error", Breaks: "RPL-5",
		What: "The error of a context that has ended is wrapped.",
		Wrap: sabotaged(func(s store) wrapsContextErrors { return wrapsContextErrors{s} }),
	},
	{
		Name: "returns-bare-codes", Breaks: "RPL-5",
		What: "Errors are codes without any details.",
		Wrap: sabotaged(func(s store) bareCodes { return bareCodes{s} }),
	},
}

type createsOver struct {
	store
	over func(driver.SlotState) bool
}

func (s createsOver) Create(ctx context.Context, id string, ttl time.Duration) error {
	err := s.ReplyStore.Create(ctx, id, ttl)
	if errors.Is(err, driver.ErrConflict) && s.over(s.state(ctx, id)) {
		_ = s.ReplyStore.Delete(ctx, id)
		return s.ReplyStore.Create(ctx, id, ttl)
	}
	return err
}

type createsTwice struct{ store }

func (s createsTwice) Create(ctx context.Context, id string, ttl time.Duration) error {
	free := s.state(ctx, id) == ""
	yieldToOthers()
	err := s.ReplyStore.Create(ctx, id, ttl)
	if free && errors.Is(err, driver.ErrConflict) {
		return nil
	}
	return err
}

type neverFreesIDs struct {
	store
	taken table[string, bool]
}

func (s *neverFreesIDs) Create(ctx context.Context, id string, ttl time.Duration) error {
	if taken, _ := s.taken.get(id); taken {
		return driver.SlotError("create slot", id, driver.ErrConflict)
	}
	err := s.ReplyStore.Create(ctx, id, ttl)
	if err == nil {
		s.taken.put(id, true)
	}
	return err
}

type acceptsBadSlots struct {
	store
	mend func(id *string, ttl *time.Duration)
}

func (s acceptsBadSlots) Create(ctx context.Context, id string, ttl time.Duration) error {
	s.mend(&id, &ttl)
	return s.ReplyStore.Create(ctx, id, ttl)
}

// renames replaces the ids it gets.
type renames struct {
	store
	rename func(string) string
}

func (s renames) Create(ctx context.Context, id string, ttl time.Duration) error {
	err := s.ReplyStore.Create(ctx, s.rename(id), ttl)
	if errors.Is(err, driver.ErrConflict) {
		return nil // like a store that writes without a check
	}
	return err
}

func (s renames) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	err := s.ReplyStore.Resolve(ctx, s.rename(id), answer)
	if errors.Is(err, driver.ErrReplyAlreadySent) {
		return nil
	}
	return err
}

func (s renames) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, s.rename(id))
	if err == nil {
		slot.ID = id
	}
	return slot, err
}

// mistakesCodes returns another code when a slot is written.
type mistakesCodes struct {
	store
	codes map[driver.Code]driver.Code
}

func (s mistakesCodes) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	return s.mistake("resolve", id, s.ReplyStore.Resolve(ctx, id, answer))
}

func (s mistakesCodes) Cancel(ctx context.Context, id string) error {
	return s.mistake("cancel", id, s.ReplyStore.Cancel(ctx, id))
}

func (s mistakesCodes) mistake(op, id string, err error) error {
	for code, other := range s.codes {
		if errors.Is(err, code) {
			return driver.SlotError(op, id, other)
		}
	}
	return err
}

type ignoresContexts struct{ store }

func (s ignoresContexts) Create(ctx context.Context, id string, ttl time.Duration) error {
	return s.ReplyStore.Create(context.WithoutCancel(ctx), id, ttl)
}

func (s ignoresContexts) Delete(ctx context.Context, id string) error {
	return s.ReplyStore.Delete(context.WithoutCancel(ctx), id)
}

type wrapsContextErrors struct{ store }

func (s wrapsContextErrors) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, id)
	if ctx.Err() != nil {
		err = fmt.Errorf("get: %w", err)
	}
	return slot, err
}

type bareCodes struct{ store }

func (s bareCodes) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	return bare(s.ReplyStore.Resolve(ctx, id, answer))
}

func (s bareCodes) Create(ctx context.Context, id string, ttl time.Duration) error {
	return bare(s.ReplyStore.Create(ctx, id, ttl))
}

func bare(err error) error {
	if detail, ok := errors.AsType[*driver.Error](err); ok {
		return detail.Code
	}
	return err
}
