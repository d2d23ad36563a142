package faulty

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotWriteFaults = []ReplyStoreSaboteur{
	{Name: "resolves-twice", Breaks: "RPL-2",
		What: "A second answer replaces the first.",
		on: storeHooks{
			resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
				err := s.Resolve(ctx, id, answer)
				again := errors.Is(err, driver.ErrReplyAlreadySent)
				if again {
					state[table[string, []byte]](s).put(id, bytes.Clone(answer.Body))
				}
				return unless(again, err)
			},
			get: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
				slot, err := s.Get(ctx, id)
				if body, ok := state[table[string, []byte]](s).get(id); ok && err == nil {
					slot.Answer.Body = body
				}
				return slot, err
			},
		}},
	{Name: "swallows-the-second-answer", Breaks: "RPL-2",
		What: "A second answer is accepted, and dropped.",
		on:   swallow(driver.ErrReplyAlreadySent)},
	{Name: "resolves-the-cancelled", Breaks: "RPL-2",
		What: "A cancelled slot accepts an answer.",
		on:   swallow(driver.ErrReplyCancelled)},
	{Name: "resolves-the-expired", Breaks: "RPL-2",
		What: "An expired slot accepts an answer.",
		on:   swallow(driver.ErrReplyExpired)},
	{Name: "resolves-what-is-not-there", Breaks: "RPL-5",
		What: "A missing slot accepts an answer.",
		on:   swallow(driver.ErrNotFound)},
	{Name: "says-expired-for-cancelled", Breaks: "RPL-2",
		What: "An answer to a cancelled request fails as expired.",
		on:   mistakeCode(driver.ErrReplyCancelled, driver.ErrReplyExpired)},
	{Name: "says-missing-for-expired", Breaks: "RPL-2",
		What: "An answer to an expired request fails as not found before the slot is swept.",
		on:   mistakeCode(driver.ErrReplyExpired, driver.ErrNotFound)},
	{Name: "cancels-the-answered", Breaks: "RPL-4",
		What: "Cancelling a request that was answered succeeds and removes the answer.",
		on: storeHooks{
			cancel: func(s *store, ctx context.Context, id string) error {
				err := s.Cancel(ctx, id)
				answered := errors.Is(err, driver.ErrReplyAlreadySent)
				if answered {
					state[marks](s).put(id, true)
				}
				return unless(answered, err)
			},
			get: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
				slot, err := s.Get(ctx, id)
				if state[marks](s).at(id) && err == nil {
					slot.State, slot.Answer, slot.ResolvedAt = driver.SlotCancelled, driver.Answer{}, time.Time{}
				}
				return slot, err
			},
		}},
	{Name: "cancels-once", Breaks: "RPL-4",
		What: "Cancelling a second time returns an error.",
		on: storeHooks{cancel: func(s *store, ctx context.Context, id string) error {
			if s.slotState(ctx, id) == driver.SlotCancelled {
				return driver.SlotError("cancel", id, driver.ErrReplyCancelled)
			}
			return s.Cancel(ctx, id)
		}}},
	{Name: "writes-twice-in-a-race", Breaks: "RPL-5",
		What: "Checking a slot and writing it are two steps, so that several answers are accepted.",
		on: storeHooks{resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
			pending := s.slotState(ctx, id) == driver.SlotPending
			yieldToOthers()
			err := s.Resolve(ctx, id, answer)
			return unless(pending && errors.Is(err, driver.ErrReplyAlreadySent), err)
		}}},
	{Name: "cancels-and-resolves-in-a-race", Breaks: "RPL-5",
		What: "A cancel and a concurrent answer both succeed.",
		on: storeHooks{cancel: func(s *store, ctx context.Context, id string) error {
			pending := s.slotState(ctx, id) == driver.SlotPending
			yieldToOthers()
			err := s.Cancel(ctx, id)
			return unless(pending && errors.Is(err, driver.ErrReplyAlreadySent), err)
		}}},
	{Name: "keeps-the-senders-bytes", Breaks: "RPL-5",
		What: "The body of an answer is not copied, and changes when the caller reuses the bytes.",
		on: storeHooks{
			resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
				err := s.Resolve(ctx, id, answer)
				if err == nil {
					state[table[string, []byte]](s).put(id, answer.Body)
				}
				return err
			},
			get: func(s *store, ctx context.Context, id string) (driver.Slot, error) {
				slot, err := s.Get(ctx, id)
				if body, ok := state[table[string, []byte]](s).get(id); ok && err == nil && slot.State == driver.SlotResolved {
					slot.Answer.Body = body
				}
				return slot, err
			},
		}},
	{Name: "cuts-bodies-at-a-zero", Breaks: "RPL-5",
		What: "A body ends at its first zero byte.",
		on:   alterAnswers(func(answer *driver.Answer) { answer.Body, _, _ = bytes.Cut(answer.Body, []byte{0}) })},
	{Name: "cuts-long-bodies", Breaks: "RPL-5",
		What: "Only the beginning of a long body is kept.",
		on:   alterAnswers(func(answer *driver.Answer) { answer.Body = answer.Body[:min(len(answer.Body), 4096)] })},
	{Name: "makes-an-answer-of-a-failure", Breaks: "RPL-6",
		What: "The text of a failure is stored as the answer.",
		on: alterAnswers(func(answer *driver.Answer) {
			set(answer.Failure != "", answer, driver.Answer{Body: []byte(answer.Failure)})
		})},
	{Name: "forgets-the-kind-of-a-failure", Breaks: "RPL-6",
		What: "Failures lose their kind.",
		on:   alterAnswers(func(answer *driver.Answer) { answer.FailureKind = "" })},
}

// slotReadFaults return wrong slots.
var slotReadFaults = []ReplyStoreSaboteur{
	{Name: "tells-local-times", Breaks: "RPL-5",
		What: "The times of a slot are not in UTC.",
		on: alterSlots(func(slot *driver.Slot) {
			zone := time.FixedZone("elsewhere", 3600)
			slot.CreatedAt, slot.ExpiresAt = slot.CreatedAt.In(zone), slot.ExpiresAt.In(zone)
		})},
	{Name: "tells-no-end", Breaks: "RPL-5",
		What: "A slot has no expiry time.",
		on:   alterSlots(func(slot *driver.Slot) { slot.ExpiresAt = slot.CreatedAt })},
	{Name: "forgets-when-it-was-answered", Breaks: "RPL-5",
		What: "A resolved slot has no time of resolution.",
		on:   alterSlots(func(slot *driver.Slot) { slot.ResolvedAt = time.Time{} })},
	{Name: "forgets-whose-slot-it-is", Breaks: "RPL-5",
		What: "A slot that is read has no id.",
		on:   alterSlots(func(slot *driver.Slot) { slot.ID = "" })},
	{Name: "reads-once", Breaks: "RPL-5",
		What: "Reading an answer removes it.",
		on:   storeHooks{get: (*store).Consume}},
}

// swallow accepts answers that fail with a code, without storing them.
func swallow(code driver.Code) storeHooks {
	return storeHooks{resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
		err := s.Resolve(ctx, id, answer)
		return unless(errors.Is(err, code), err)
	}}
}

// alterAnswers changes each answer before the store gets it.
func alterAnswers(change func(*driver.Answer)) storeHooks {
	return storeHooks{resolve: func(s *store, ctx context.Context, id string, answer driver.Answer) error {
		change(&answer)
		return s.Resolve(ctx, id, answer)
	}}
}
