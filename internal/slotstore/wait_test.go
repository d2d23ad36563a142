package slotstore

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// TestWatchReadsNoReusedSlot has a watch that ends in two ways at once, for the race detector: the
// second must not look at a slot that the store uses for another id by then.
func TestWatchReadsNoReusedSlot(t *testing.T) {
	m := New(Options{})
	for range 200 {
		if err := m.Create(t.Context(), "a", time.Hour); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		m.StartWait("a", time.Hour/2, func(driver.Slot, error) { close(done) })
		m.mu.Lock()
		w := m.slots["a"].watches[0]
		m.mu.Unlock()
		ended := make(chan struct{})
		if err := m.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		go func() { // as its timer does
			w.end(nil)
			close(ended)
		}()
		<-done
		if err := m.Create(t.Context(), "b", time.Hour); err != nil { // it is the slot of a
			t.Fatal(err)
		}
		<-ended
		if err := m.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
	}
}

// slowJournal has one answer, and reads it slowly. Writes are durable at once.
type slowJournal struct {
	sync.Mutex
	reading, most atomic.Int64
}

func (j *slowJournal) Failed() error              { return nil }
func (j *slowJournal) Admit() error               { return nil }
func (j *slowJournal) SlotWritten(*Record)        {}
func (j *slowJournal) SlotRemoved(string, bool)   {}
func (j *slowJournal) AwaitThen(then func(error)) { go then(nil) }
func (j *slowJournal) Start(bool)                 {}
func (j *slowJournal) Ride()                      {}

func (j *slowJournal) Answer(string, time.Duration) (driver.Answer, error) {
	j.most.Store(max(j.most.Load(), j.reading.Add(1)))
	time.Sleep(time.Second)
	j.reading.Add(-1)
	return driver.Answer{Body: make([]byte, 1)}, nil
}

func TestWaitsForAnswerOnDiskReadFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &slowJournal{}
		m := New(Options{Journal: j})
		if err := m.Create(t.Context(), "a", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := m.Resolve(t.Context(), "a", driver.Answer{Body: make([]byte, 2*keptAnswerBytes)}); err != nil {
			t.Fatal(err)
		}
		const waits = 100
		answered := make(chan error, waits)
		for range waits {
			m.StartWait("a", time.Minute, func(_ driver.Slot, err error) { answered <- err })
		}
		for range waits {
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
		if most := j.most.Load(); most > maxReads {
			t.Errorf("%d answers were read at once", most)
		}
	})
}

// TestPendingIsFalseUnlessSlotWaits: a slot that is not there, is written, or ends within a second
// does not count.
func TestPendingIsFalseUnlessSlotWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		for _, id := range []string{"waits", "resolved", "cancelled", "deleted"} {
			if err := m.Create(t.Context(), id, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		for _, err := range []error{
			m.Resolve(t.Context(), "resolved", driver.Answer{}), m.Cancel(t.Context(), "cancelled"), m.Delete(t.Context(), "deleted"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"resolved", "cancelled", "deleted", "unknown"} {
			if m.Pending(id) {
				t.Errorf("slot %q is pending", id)
			}
		}
		if !m.Pending("waits") {
			t.Error("a slot that waits is not pending")
		}
		time.Sleep(time.Minute - pendingMargin)
		if m.Pending("waits") {
			t.Error("a slot that is about to end is pending")
		}
	})
}
