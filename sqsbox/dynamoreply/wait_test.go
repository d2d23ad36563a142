package dynamoreply_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
	"github.com/mailboxmq/mailbox/sqsbox/dynamoreply"
)

// An ending is the result of a wait in the background, and its time.
type ending struct {
	slot driver.Slot
	err  error
	at   time.Time
}

// wait starts a wait for a slot in the background.
func (d *env) wait(ctx context.Context, id string, wait time.Duration) <-chan ending {
	ended := make(chan ending, 1)
	go func() {
		slot, err := d.store.Wait(ctx, id, wait)
		ended <- ending{slot, err, time.Now()}
	}()
	return ended
}

func TestPollingSlowsDownToItsBound(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		create(t, d.store, "a")
		before := d.looked()
		waiting := d.wait(t.Context(), "a", time.Hour/2)
		at := make(map[time.Duration]int)
		start := time.Now()
		for _, moment := range []time.Duration{0, 20 * time.Millisecond, time.Second, 10 * time.Second, 20 * time.Second} {
			time.Sleep(time.Until(start.Add(moment)))
			synctest.Wait()
			at[moment] = d.looked() - before
		}
		wantEqual(t, "looks at once", at[0], 1)
		wantBetween(t, "looks in 20ms", at[20*time.Millisecond], 2, 5)
		wantBetween(t, "looks in 1s", at[time.Second], 8, 15)
		wantBetween(t, "looks in ten seconds of a long wait", at[20*time.Second]-at[10*time.Second], 9, 11)
		wantError(t, d.store.Delete(t.Context(), "a"), nil)
		wantError(t, (<-waiting).err, driver.ErrNotFound)
	})
}

func TestWaitsForOneSlotShareReads(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		const waiters = 50
		create(t, d.store, "a")
		before := d.looked()
		var ended []<-chan ending
		for range waiters {
			ended = append(ended, d.wait(t.Context(), "a", time.Hour))
		}
		time.Sleep(time.Minute)
		// Each wait reads once when it begins, and then they share the reads.
		wantBetween(t, "looks in a minute", d.looked()-before, waiters+55, waiters+75)
		wantError(t, d.another(t).store.Resolve(t.Context(), "a", tea("yes")), nil)
		for _, waiting := range ended {
			got := <-waiting
			wantError(t, got.err, nil)
			wantEqual(t, "answer", string(got.slot.Answer.Body), "yes")
		}
	})
}

func TestManySlotsAreReadInBatches(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		const slots = 120 // more than one batch holds
		other := d.another(t)
		ended := make(map[string]<-chan ending)
		for i := range slots {
			id := fmt.Sprint("slot ", i)
			create(t, d.store, id)
			ended[id] = d.wait(t.Context(), id, time.Hour)
			time.Sleep(time.Millisecond) // the waits start one after the other
		}
		time.Sleep(10 * time.Second)
		batches, single := d.count("BatchGetItem"), d.count("GetItem")
		looks := d.looked()
		time.Sleep(10 * time.Second)
		batches, single, looks = d.count("BatchGetItem")-batches, d.count("GetItem")-single, d.looked()-looks
		t.Logf("%d slots in 10s: %d looks in %d batches, %d alone", slots, looks, batches, single)
		wantBetween(t, "looks", looks, slots*9, slots*15)
		wantBetween(t, "requests", batches+single, looks/100, looks/20)
		for id := range ended {
			wantError(t, other.store.Resolve(t.Context(), id, tea("for "+id)), nil)
		}
		for id, waiting := range ended {
			got := <-waiting
			wantError(t, got.err, nil)
			wantEqual(t, "answer", string(got.slot.Answer.Body), "for "+id)
		}
	})
}

// Slots that are due at about the same time are read together, and stay together
// from then on.
func TestSlotsDueSoonAreReadTogether(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		const slots = 10
		var ended []<-chan ending
		for i := range slots {
			create(t, d.store, fmt.Sprint(i))
			ended = append(ended, d.wait(t.Context(), fmt.Sprint(i), time.Minute))
			time.Sleep(93 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		requests, looks := d.total(), d.looked()
		time.Sleep(10 * time.Second)
		requests, looks = d.total()-requests, d.looked()-looks
		t.Logf("%d slots in 10s: %d looks in %d requests", slots, looks, requests)
		wantBetween(t, "looks", looks, 9*slots, 15*slots)
		wantBetween(t, "requests", requests, 9, 50)
		for _, waiting := range ended {
			wantEqual(t, "state", (<-waiting).slot.State, driver.SlotPending)
		}
	})
}

func TestReadsOfWaitsAreBounded(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, &dynamoreply.Options{ReadsPerSecond: 50})
		const slots = 100
		other := d.another(t)
		var ended []<-chan ending
		for i := range slots {
			id := fmt.Sprint("slot ", i)
			create(t, d.store, id)
			ended = append(ended, d.wait(t.Context(), id, time.Hour))
		}
		synctest.Wait()
		before := d.looked()
		time.Sleep(20 * time.Second)
		wantBetween(t, "looks in 20s at 50 a second", d.looked()-before, 800, 1100)
		for i := range slots { // and every wait gets its answer
			wantError(t, other.store.Resolve(t.Context(), fmt.Sprint("slot ", i), tea("yes")), nil)
		}
		start := time.Now()
		for _, waiting := range ended {
			wantEqual(t, "state", (<-waiting).slot.State, driver.SlotResolved)
		}
		wantBetween(t, "time until all have their answer", time.Since(start), 0, 10*time.Second)
	})
}

func TestAnswerMakesOtherSlotsDueSoon(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		other := d.another(t)
		create(t, d.store, "a")
		create(t, d.store, "b")
		first, second := d.wait(t.Context(), "a", time.Hour), d.wait(t.Context(), "b", time.Hour)
		time.Sleep(time.Minute)
		wantError(t, other.store.Resolve(t.Context(), "a", tea("yes")), nil)
		<-first
		start := time.Now()
		time.Sleep(time.Millisecond)
		wantError(t, other.store.Resolve(t.Context(), "b", tea("yes")), nil)
		got := <-second
		wantEqual(t, "state", got.slot.State, driver.SlotResolved)
		wantBetween(t, "time until the next answer is seen", got.at.Sub(start), 0, 50*time.Millisecond)
	})
}

func TestWritesOfThisProcessWakeItsWaits(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		for name, write := range map[string]func(id string) error{
			"answer": func(id string) error { return d.store.Resolve(t.Context(), id, tea("yes")) },
			"cancel": func(id string) error { return d.store.Cancel(t.Context(), id) },
			"delete": func(id string) error { return d.store.Delete(t.Context(), id) },
		} {
			create(t, d.store, name)
			waiting := d.wait(t.Context(), name, time.Hour)
			time.Sleep(59*time.Second + 123*time.Millisecond)
			start := time.Now()
			wantError(t, write(name), nil)
			got := <-waiting
			wantBetween(t, name+": time until it is seen", got.at.Sub(start), 0, 5*time.Millisecond)
		}
	})
}

func TestAnswerShortlyBeforeExpiryIsSeen(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		other := d.another(t)
		for i := range 5 { // wherever the expiry falls between two reads
			id := fmt.Sprint(i)
			ttl := time.Minute + time.Duration(i)*197*time.Millisecond
			wantError(t, d.store.Create(t.Context(), id, ttl), nil)
			waiting := d.wait(t.Context(), id, time.Hour)
			time.Sleep(ttl - 200*time.Millisecond)
			wantError(t, other.store.Resolve(t.Context(), id, tea("yes")), nil)
			got := <-waiting
			wantError(t, got.err, nil)
			wantEqual(t, "state", got.slot.State, driver.SlotResolved)
		}
	})
}

func TestWaitEndsWhenSlotIsRecreated(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		other := d.another(t)
		again := func() {
			wantError(t, other.store.Delete(t.Context(), "a"), nil)
			create(t, other.store, "a")
		}
		create(t, d.store, "a")
		first := d.wait(t.Context(), "a", time.Hour)
		synctest.Wait()
		again()
		second := d.wait(t.Context(), "a", time.Hour) // finds the new slot before the watcher reads it
		wantError(t, (<-first).err, driver.ErrNotFound)
		time.Sleep(time.Minute)
		again()
		wantError(t, (<-second).err, driver.ErrNotFound)
	})
}

func TestPollingStopsWithTheLastWait(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		create(t, d.store, "a")
		ctx, cancel := context.WithCancel(t.Context())
		var ended []<-chan ending
		for range 3 {
			ended = append(ended, d.wait(ctx, "a", time.Hour))
		}
		passing := d.wait(t.Context(), "a", 10*time.Second)
		time.Sleep(time.Minute)
		wantEqual(t, "state after a wait that passed", (<-passing).slot.State, driver.SlotPending)
		cancel()
		for _, waiting := range ended {
			wantError(t, (<-waiting).err, context.Canceled)
		}
		synctest.Wait()
		before := d.looked()
		time.Sleep(10 * time.Minute)
		wantEqual(t, "reads without a wait", d.looked()-before, 0)
	})
}

func TestWaitReadsOnceMoreWhenItTimesOut(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, &dynamoreply.Options{PollMin: time.Minute, PollMax: time.Minute})
		create(t, d.store, "a")
		waiting := d.wait(t.Context(), "a", 10*time.Second)
		synctest.Wait()
		wantError(t, d.another(t).store.Resolve(t.Context(), "a", tea("yes")), nil)
		got := <-waiting
		wantError(t, got.err, nil)
		wantEqual(t, "state", got.slot.State, driver.SlotResolved)
	})
}

func TestWaitsFailWhenDynamoDoesNotRespond(t *testing.T) {
	for name, slots := range map[string]int{"one slot": 1, "many slots": 5} {
		t.Run(name, func(t *testing.T) {
			server := dynamotest.Shared(t)
			synctest.Test(t, func(t *testing.T) {
				d := newEnv(t, server, nil)
				var ended []<-chan ending
				for i := range slots {
					create(t, d.store, fmt.Sprint(i))
					ended = append(ended, d.wait(t.Context(), fmt.Sprint(i), time.Hour))
				}
				time.Sleep(time.Second)
				d.add(fault{})
				start := time.Now()
				for _, waiting := range ended {
					got := <-waiting
					wantError(t, got.err, driver.ErrUnavailable)
					wantBetween(t, "time until the waits fail", got.at.Sub(start), 0, 10*time.Second)
				}
				d.clear()
				wantError(t, d.store.Resolve(t.Context(), "0", tea("yes")), nil)
				got := <-d.wait(t.Context(), "0", time.Hour) // and can wait again
				wantEqual(t, "state", got.slot.State, driver.SlotResolved)
			})
		})
	}
}

func TestWaitsSurviveShortOutage(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		create(t, d.store, "a")
		waiting := d.wait(t.Context(), "a", time.Hour)
		time.Sleep(time.Minute)
		d.add(fault{times: 3})
		d.add(fault{code: "ProvisionedThroughputExceededException", times: 2})
		time.Sleep(time.Minute)
		wantError(t, d.store.Resolve(t.Context(), "a", tea("yes")), nil)
		got := <-waiting
		wantError(t, got.err, nil)
		wantEqual(t, "state", got.slot.State, driver.SlotResolved)
	})
}

func TestUnprocessedKeysAreReadAgain(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		var ended []<-chan ending
		for _, id := range []string{"a", "b"} {
			create(t, d.store, id)
			ended = append(ended, d.wait(t.Context(), id, time.Hour))
		}
		time.Sleep(time.Minute)
		key := `{"id":{"S":"%s"}}`
		d.add(fault{
			action: "BatchGetItem", times: 5,
			answer: fmt.Sprintf(`{"Responses":{},"UnprocessedKeys":{%q:{"Keys":[`+key+`,`+key+`]}}}`, d.table, "a", "b"),
		})
		other := d.another(t)
		for _, id := range []string{"a", "b"} {
			wantError(t, other.store.Resolve(t.Context(), id, tea("yes")), nil)
		}
		start := time.Now()
		for _, waiting := range ended {
			got := <-waiting
			wantError(t, got.err, nil)
			wantEqual(t, "state", got.slot.State, driver.SlotResolved)
			wantBetween(t, "time until it is seen", got.at.Sub(start), time.Second, 10*time.Second)
		}
	})
}

func TestConcurrentWaitsAndWrites(t *testing.T) {
	server := dynamotest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		d := newEnv(t, server, nil)
		other := d.another(t)
		var group sync.WaitGroup
		for i := range 40 {
			id := fmt.Sprint(i % 20)
			if i < 20 {
				create(t, d.store, id)
			}
			group.Go(func() {
				slot, err := d.store.Wait(t.Context(), id, time.Hour)
				wantError(t, err, nil)
				wantEqual(t, "answer", string(slot.Answer.Body), "for "+id)
			})
		}
		for i := range 20 {
			id := fmt.Sprint(i)
			store := []*dynamoreply.Store{d.store, other.store}[i%2]
			group.Go(func() {
				time.Sleep(time.Duration(i) * 37 * time.Millisecond)
				wantError(t, store.Resolve(t.Context(), id, tea("for "+id)), nil)
			})
		}
		group.Wait()
	})
}
