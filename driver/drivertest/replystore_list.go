package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// The cases of driver.SlotLister. Stores that cannot list pass them.
var slotListCases = []slotCase{
	{"RPL-5", "slots are listed with their states and without answers, the first to expire first", slotsAreListed},
	{"RPL-5", "expired slots are listed as expired until they are removed", expiredAreListedToo},
	{"RPL-5", "a list has each slot once while others come and go", listIsWhole},
	{"RPL-5", "a list ends with its context", listEndsWithContext},
}

// list returns the slots of the store; ok is false if it cannot list them.
func (e *slotEnv) list(ctx context.Context) (slots []driver.Slot, ok bool, err error) {
	lister, ok := e.store.(driver.SlotLister)
	if !ok {
		return nil, false, nil
	}
	for slot, err := range lister.Slots(ctx) {
		if err != nil {
			return slots, !errors.Is(err, driver.ErrUnsupported), err
		}
		slots = append(slots, slot)
	}
	return slots, true, nil
}

// expectListed checks the list of slots, in this order. Each is as Get returns it, without its answer.
func (e *slotEnv) expectListed(want ...string) {
	e.t.Helper()
	slots, ok, err := e.list(e.ctx())
	if !ok {
		return
	}
	e.ok(err, "list slots")
	var got []string
	for _, slot := range slots {
		got = append(got, slot.ID)
	}
	if !slices.Equal(got, want) {
		e.failf("slots: got %q, want %q", got, want)
	}
	for _, listed := range slots {
		read, err := e.store.Get(e.ctx(), listed.ID)
		e.ok(err, "get slot %q", listed.ID)
		if len(listed.Answer.Body) > 0 || listed.Answer.Failure != "" || listed.Answer.FailureKind != "" {
			e.failf("slot %q is listed with its answer: %+v", listed.ID, listed)
		}
		if listed.State != read.State || !listed.CreatedAt.Equal(read.CreatedAt) || !listed.ExpiresAt.Equal(read.ExpiresAt) || !listed.ResolvedAt.Equal(read.ResolvedAt) {
			e.failf("slot %q: listed as %+v, and it is %+v", listed.ID, listed, read)
		}
	}
}

func slotsAreListed(e *slotEnv) {
	e.expectListed()
	for i, id := range []string{"d", "a", "c", "b"} { // in another order than their names
		e.createFor(id, e.hold+time.Duration(4-i)*time.Minute)
	}
	e.resolve("a", "tea")
	e.ok(e.other.Resolve(e.ctx(), "b", driver.Answer{Failure: "no milk", FailureKind: "sold out"}), "resolve")
	e.cancel("c")
	for range 2 { // listing changes nothing
		e.expectListed("b", "c", "a", "d")
	}
	e.ok(e.store.Delete(e.ctx(), "c"), "delete a slot")
	_, err := e.store.Consume(e.ctx(), "a")
	e.ok(err, "consume an answer")
	e.expectListed("b", "d")
}

func expiredAreListedToo(e *slotEnv) {
	e.createFor("pending", e.life())
	e.createFor("resolved", e.life()+time.Millisecond)
	created := time.Now()
	e.create("living")
	e.resolve("resolved", "tea")
	e.untilExpired(created, e.life()+time.Millisecond)
	e.expectListed("pending", "resolved", "living")
	e.expectSwept(100, 2)
	e.expectListed("living")
}

func listIsWhole(e *slotEnv) {
	const n = 40
	for i := range n {
		e.create(fmt.Sprint("stays ", i))
	}
	if _, ok, _ := e.list(e.ctx()); !ok {
		return
	}
	var done atomic.Bool
	e.running.Go(func() {
		for i := 0; !done.Load(); i++ {
			id := fmt.Sprint("goes ", i%n)
			_ = e.other.Create(e.ctx(), id, e.hold)
			_ = e.other.Delete(e.ctx(), id)
		}
	})
	defer done.Store(true)
	for range e.rounds(20, 5) {
		slots, _, err := e.list(e.ctx())
		e.ok(err, "list slots")
		times := make(map[string]int)
		for _, slot := range slots {
			times[slot.ID]++
		}
		for i := range n {
			if id := fmt.Sprint("stays ", i); times[id] != 1 {
				e.failf("slot %q is listed %d times", id, times[id])
			}
		}
	}
}

func listEndsWithContext(e *slotEnv) {
	e.create("a")
	if _, ok, _ := e.list(e.ctx()); !ok {
		return
	}
	ctx, cancel := context.WithCancel(e.ctx())
	cancel()
	if slots, _, err := e.list(ctx); !errors.Is(err, context.Canceled) {
		e.failf("list slots, cancelled: got %d slots, %v", len(slots), err)
	}
}
