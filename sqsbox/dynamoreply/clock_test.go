package dynamoreply_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
)

// The clock of a synctest bubble starts in the year 2000. To a server on the real
// clock, that is a client whose clock is off by decades.
func TestClientsWhoseClocksAreDecadesApartAgree(t *testing.T) {
	server := dynamotest.Shared(t)
	table := dynamotest.Table()
	today := newWire(server).open(t, server, table, nil)
	create(t, today, "asked today")
	synctest.Test(t, func(t *testing.T) {
		long := newWire(server).open(t, server, table, nil) // keeps the Date that the server sends
		if off := time.Until(long.Now()); off < 20*365*24*time.Hour {
			t.Fatalf("the clocks are only %v apart: the test shows nothing", off)
		}
		wantError(t, long.Resolve(t.Context(), "asked today", tea("yes")), nil)
		create(t, long, "asked long ago")
		wantError(t, long.Create(t.Context(), "short", time.Minute), nil)
		expired, err := long.Expired(t.Context(), 10)
		wantError(t, err, nil)
		wantEqual(t, "expired slots", len(expired), 0)
	})
	slot, err := today.Get(t.Context(), "asked today")
	wantError(t, err, nil)
	wantEqual(t, "state", slot.State, driver.SlotResolved)
	slot, err = today.Get(t.Context(), "asked long ago")
	wantError(t, err, nil)
	wantEqual(t, "state", slot.State, driver.SlotPending)
	wantBetween(t, "how far the creation is off", time.Since(slot.CreatedAt).Abs(), 0, 10*time.Second)
	wantBetween(t, "how long it lives", time.Until(slot.ExpiresAt), time.Hour-10*time.Second, time.Hour+10*time.Second)
	wantError(t, today.Resolve(t.Context(), "short", tea("yes")), nil)
}

// A clock that is about right is not corrected, so that expiry is exact between
// clients whose clocks are synchronized.
func TestClockWithinTwoSecondsIsNotCorrected(t *testing.T) {
	for offset, corrected := range map[time.Duration]bool{
		0: false, 1500 * time.Millisecond: false, -1500 * time.Millisecond: false,
		time.Minute: true, -time.Minute: true, 5 * time.Second: true, -5 * time.Second: true,
	} {
		server := dynamotest.Shared(t)
		synctest.Test(t, func(t *testing.T) {
			d := newEnv(t, server, nil)
			d.ahead = offset
			for range 10 {
				_, _ = d.store.Get(t.Context(), "a")
				time.Sleep(317 * time.Millisecond)
			}
			off := time.Until(d.store.Now())
			if !corrected {
				wantEqual(t, "correction", off, 0)
				return
			}
			wantBetween(t, "correction beyond what it should be", off-offset, -2500*time.Millisecond, 2500*time.Millisecond)
		})
	}
}

// A program that has had no response for a while compares clocks before it writes
// a time, because its clock may have been set or the machine suspended.
func TestStaleClockIsComparedBeforeWrite(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		create(t, d.store, "a")
		d.ahead = time.Hour // from now on
		create(t, d.store, "b")
		time.Sleep(2 * time.Minute)
		reads := d.count("GetItem")
		create(t, d.store, "c")
		wantEqual(t, "probes", d.count("GetItem")-reads, 1)
		slot, err := d.store.Get(t.Context(), "c")
		wantError(t, err, nil)
		wantBetween(t, "how far the slot's time is off", slot.CreatedAt.Sub(time.Now().Add(time.Hour)), -3*time.Second, 3*time.Second)
		reads = d.count("GetItem")
		create(t, d.store, "d")
		wantEqual(t, "further probes", d.count("GetItem")-reads, 0)

		time.Sleep(2 * time.Minute)
		d.add(fault{action: "GetItem", code: "AccessDeniedException"})
		wantError(t, d.store.Create(t.Context(), "e", time.Hour), driver.ErrForbidden)
	})
}

func TestResponsesWithoutDateLeaveClockUncorrected(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		d.undated = true
		time.Sleep(time.Hour)
		create(t, d.store, "a")
		slot, err := d.store.Get(t.Context(), "a")
		wantError(t, err, nil)
		wantEqual(t, "creation", slot.CreatedAt.Equal(time.Now()), true)
	})
}
