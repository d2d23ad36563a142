package faulty

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// slotListFaults list slots wrongly.
var slotListFaults = []ReplyStoreSaboteur{
	{Name: "lists-answers", Breaks: "RPL-5",
		What: "A list of slots has their answers.",
		on: listSlots(func(s *store, ctx context.Context, slots []driver.Slot) []driver.Slot {
			for i := range slots {
				if slot, err := s.Get(ctx, slots[i].ID); err == nil {
					slots[i] = slot
				}
			}
			return slots
		})},
	{Name: "lists-only-the-pending", Breaks: "RPL-5",
		What: "A list of slots has pending slots only.",
		on: listSlots(func(_ *store, _ context.Context, slots []driver.Slot) []driver.Slot {
			return slices.DeleteFunc(slots, func(slot driver.Slot) bool { return slot.State != driver.SlotPending })
		})},
	{Name: "lists-the-expired-as-pending", Breaks: "RPL-5",
		What: "A list of slots shows expired slots as pending.",
		on: listSlots(func(_ *store, _ context.Context, slots []driver.Slot) []driver.Slot {
			for i := range slots {
				if slots[i].State == driver.SlotExpired {
					slots[i].State = driver.SlotPending
				}
			}
			return slots
		})},
	{Name: "lists-by-name", Breaks: "RPL-5",
		What: "A list of slots is in the order of their ids.",
		on: listSlots(func(_ *store, _ context.Context, slots []driver.Slot) []driver.Slot {
			slices.SortFunc(slots, func(a, b driver.Slot) int { return strings.Compare(a.ID, b.ID) })
			return slots
		})},
	{Name: "lists-the-end-of-a-page-twice", Breaks: "RPL-5",
		What: "The last slot of a page is the first of the next.",
		on: listSlots(func(_ *store, _ context.Context, slots []driver.Slot) []driver.Slot {
			const page = 16
			if len(slots) > page {
				return slices.Insert(slots, page, slots[page-1])
			}
			return slots
		})},
	{Name: "lists-on-without-a-caller", Breaks: "RPL-5",
		What: "A list of slots goes on when its context has ended.",
		on: storeHooks{list: func(s *store, ctx context.Context) iter.Seq2[driver.Slot, error] {
			return s.slots(context.WithoutCancel(ctx))
		}}},
}

// listSlots changes every list of slots.
func listSlots(change func(s *store, ctx context.Context, slots []driver.Slot) []driver.Slot) storeHooks {
	return storeHooks{list: func(s *store, ctx context.Context) iter.Seq2[driver.Slot, error] {
		return func(yield func(driver.Slot, error) bool) {
			var slots []driver.Slot
			for slot, err := range s.slots(ctx) {
				if err != nil {
					yield(slot, err)
					return
				}
				slots = append(slots, slot)
			}
			for _, slot := range change(s, ctx, slots) {
				if !yield(slot, nil) {
					return
				}
			}
		}
	}}
}
