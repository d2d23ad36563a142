package faulty

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

var slotWriteFaults = []ReplyStoreSaboteur{
	{
		Name: "resolves-twice", Breaks: "RPL-2",
		What: "A second answer replaces the first.",
		Wrap: sabotaged(func(s store) *resolvesTwice { return &resolvesTwice{store: s} }),
	},
	{
		Name: "swallows-the-second-answer", Breaks: "RPL-2",
		What: "A second answer is accepted, and dropped.",
		Wrap: sabotaged(func(s store) accepts { return accepts{s, driver.ErrReplyAlreadySent} }),
	},
	{
		Name: "resolves-the-cancelled", Breaks: "RPL-2",
		What: "A cancelled slot accepts an answer.",
		Wrap: sabotaged(func(s store) accepts { return accepts{s, driver.ErrReplyCancelled} }),
	},
	{
		Name: "resolves-the-expired", Breaks: "RPL-2",
		What: "An expired slot accepts an answer.",
		Wrap: sabotaged(func(s store) accepts { return accepts{s, driver.ErrReplyExpired} }),
	},
	{
		Name: "resolves-what-is-not-there", Breaks: "RPL-5",
		What: "A missing slot accepts an answer.",
		Wrap: sabotaged(func(s store) accepts { return accepts{s, driver.ErrNotFound} }),
	},
	{
		Name: "says-expired-for-cancelled", Breaks: "RPL-2",
		What: "An answer to a cancelled request fails as expired.",
		Wrap: sabotaged(func(s store) mistakesCodes {
			return mistakesCodes{s, map[driver.Code]driver.Code{driver.ErrReplyCancelled: driver.ErrReplyExpired}}
		}),
	},
	{
		Name: "says-missing-for-expired", Breaks: "RPL-2",
		What: "An answer to an expired request fails as not found before the slot is swept.",
		Wrap: sabotaged(func(s store) mistakesCodes {
			return mistakesCodes{s, map[driver.Code]driver.Code{driver.ErrReplyExpired: driver.ErrNotFound}}
		}),
	},
	{
		Name: "cancels-the-answered", Breaks: "RPL-4",
		What: "Cancelling a request that was answered succeeds and removes the answer.",
		Wrap: sabotaged(func(s store) *cancelsTheAnswered { return &cancelsTheAnswered{store: s} }),
	},
	{
		Name: "cancels-once", Breaks: "RPL-4",
		What: "Cancelling a second time returns an error.",
		Wrap: sabotaged(func(s store) cancelsOnce { return cancelsOnce{s} }),
	},
	{
		Name: "writes-twice-in-a-race", Breaks: "RPL-5",
		What: "Checking a slot and writing it are two steps, so that several answers are accepted.",
		Wrap: sabotaged(func(s store) writesTwice { return writesTwice{s} }),
	},
	{
		Name: "cancels-and-resolves-in-a-race", Breaks: "RPL-5",
		What: "A cancel and a concurrent answer both succeed.",
		Wrap: sabotaged(func(s store) cancelsInRace { return cancelsInRace{s} }),
	},
	{
		Name: "keeps-the-senders-bytes", Breaks: "RPL-5",
		What: "The body of an answer is not copied, and changes when the caller reuses the bytes.",
		Wrap: sabotaged(func(s store) *sharesBodies { return &sharesBodies{store: s} }),
	},
	{
		Name: "cuts-bodies-at-a-zero", Breaks: "RPL-5",
		What: "A body ends at its first zero byte.",
		Wrap: sabotaged(func(s store) rewritesAnswers {
			return rewritesAnswers{s, func(answer *driver.Answer) { answer.Body, _, _ = bytes.Cut(answer.Body, []byte{0}) }}
		}),
	},
	{
		Name: "cuts-long-bodies", Breaks: "RPL-5",
		What: "Only the beginning of a long body is kept.",
		Wrap: sabotaged(func(s store) rewritesAnswers {
			return rewritesAnswers{s, func(answer *driver.Answer) { answer.Body = answer.Body[:min(len(answer.Body), 4096)] }}
		}),
	},
	{
		Name: "makes-an-answer-of-a-failure", Breaks: "RPL-6",
		What: "The text of a failure is stored as the answer.",
		Wrap: sabotaged(func(s store) rewritesAnswers {
			return rewritesAnswers{s, func(answer *driver.Answer) {
				if answer.Failure != "" {
					*answer = driver.Answer{Body: []byte(answer.Failure)}
				}
			}}
		}),
	},
	{
		Name: "forgets-the-kind-of-a-failure", Breaks: "RPL-6",
		What: "Failures lose their kind.",
		Wrap: sabotaged(func(s store) rewritesAnswers {
			return rewritesAnswers{s, func(answer *driver.Answer) { answer.FailureKind = "" }}
		}),
	},
}

type resolvesTwice struct {
	store
	latest table[string, []byte]
}

func (s *resolvesTwice) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	err := s.ReplyStore.Resolve(ctx, id, answer)
	if errors.Is(err, driver.ErrReplyAlreadySent) {
		s.latest.put(id, bytes.Clone(answer.Body))
		return nil
	}
	return err
}

func (s *resolvesTwice) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, id)
	if body, ok := s.latest.get(id); ok && err == nil {
		slot.Answer.Body = body
	}
	return slot, err
}

// accepts answers without storing them.
type accepts struct {
	store
	code driver.Code
}

func (s accepts) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	err := s.ReplyStore.Resolve(ctx, id, answer)
	if errors.Is(err, s.code) {
		return nil
	}
	return err
}

type cancelsTheAnswered struct {
	store
	cancelled table[string, bool]
}

func (s *cancelsTheAnswered) Cancel(ctx context.Context, id string) error {
	err := s.ReplyStore.Cancel(ctx, id)
	if errors.Is(err, driver.ErrReplyAlreadySent) {
		s.cancelled.put(id, true)
		return nil
	}
	return err
}

func (s *cancelsTheAnswered) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, id)
	if cancelled, _ := s.cancelled.get(id); cancelled && err == nil {
		slot.State, slot.Answer, slot.ResolvedAt = driver.SlotCancelled, driver.Answer{}, time.Time{}
	}
	return slot, err
}

type cancelsOnce struct{ store }

func (s cancelsOnce) Cancel(ctx context.Context, id string) error {
	if s.state(ctx, id) == driver.SlotCancelled {
		return driver.SlotError("cancel", id, driver.ErrReplyCancelled)
	}
	return s.ReplyStore.Cancel(ctx, id)
}

type writesTwice struct{ store }

func (s writesTwice) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	pending := s.state(ctx, id) == driver.SlotPending
	yieldToOthers()
	err := s.ReplyStore.Resolve(ctx, id, answer)
	if pending && errors.Is(err, driver.ErrReplyAlreadySent) {
		return nil
	}
	return err
}

type cancelsInRace struct{ store }

func (s cancelsInRace) Cancel(ctx context.Context, id string) error {
	pending := s.state(ctx, id) == driver.SlotPending
	yieldToOthers()
	err := s.ReplyStore.Cancel(ctx, id)
	if pending && errors.Is(err, driver.ErrReplyAlreadySent) {
		return nil
	}
	return err
}

type sharesBodies struct {
	store
	bodies table[string, []byte]
}

func (s *sharesBodies) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	err := s.ReplyStore.Resolve(ctx, id, answer)
	if err == nil {
		s.bodies.put(id, answer.Body)
	}
	return err
}

func (s *sharesBodies) Get(ctx context.Context, id string) (driver.Slot, error) {
	slot, err := s.ReplyStore.Get(ctx, id)
	if body, ok := s.bodies.get(id); ok && err == nil && slot.State == driver.SlotResolved {
		slot.Answer.Body = body
	}
	return slot, err
}

type rewritesAnswers struct {
	store
	rewrite func(*driver.Answer)
}

func (s rewritesAnswers) Resolve(ctx context.Context, id string, answer driver.Answer) error {
	s.rewrite(&answer)
	return s.ReplyStore.Resolve(ctx, id, answer)
}

// slotReadFaults return wrong slots.
var slotReadFaults = []ReplyStoreSaboteur{
	{
		Name: "tells-local-times", Breaks: "RPL-5",
		What: "The times of a slot are not in UTC.",
		Wrap: misreadsSlots(func(slot *driver.Slot) {
			zone := time.FixedZone("elsewhere", 3600)
			slot.CreatedAt, slot.ExpiresAt = slot.CreatedAt.In(zone), slot.ExpiresAt.In(zone)
		}),
	},
	{
		Name: "tells-no-end", Breaks: "RPL-5",
		What: "A slot has no expiry time.",
		Wrap: misreadsSlots(func(slot *driver.Slot) { slot.ExpiresAt = slot.CreatedAt }),
	},
	{
		Name: "forgets-when-it-was-answered", Breaks: "RPL-5",
		What: "A resolved slot has no time of resolution.",
		Wrap: misreadsSlots(func(slot *driver.Slot) { slot.ResolvedAt = time.Time{} }),
	},
	{
		Name: "forgets-whose-slot-it-is", Breaks: "RPL-5",
		What: "A slot that is read has no id.",
		Wrap: misreadsSlots(func(slot *driver.Slot) { slot.ID = "" }),
	},
	{
		Name: "reads-once", Breaks: "RPL-5",
		What: "Reading an answer removes it.",
		Wrap: sabotaged(func(s store) readsOnce { return readsOnce{s} }),
	},
}

type readsOnce struct{ store }

func (s readsOnce) Get(ctx context.Context, id string) (driver.Slot, error) {
	return s.ReplyStore.Consume(ctx, id)
}
