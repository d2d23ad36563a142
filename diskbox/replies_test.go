package diskbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/store"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

func TestReplyStoreConformance(t *testing.T) {
	volume.Repeats(t)
	drivertest.RunReplyStore(t, drivertest.ReplyStore{
		Open: func(t testing.TB) driver.ReplyStore {
			disk := storetest.NewDisk()
			m := start(t, disk)
			t.Cleanup(func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
				ctx := context.WithoutCancel(t.Context())
				if report, err := Check(ctx, "queues", offline(disk)); err != nil || len(report.Problems) > 0 {
					t.Errorf("check: %+v, error %v", report, err)
				}
			})
			return m.Replies()
		},
		Virtual: true,
	})
}

// largeAnswer is one that is not kept in memory.
var largeAnswer = driver.Answer{Body: bytes.Repeat([]byte("tea "), 16<<10)}

func answerOf(body string) driver.Answer { return driver.Answer{Body: []byte(body)} }

// expectSlot checks the state of a slot, and its answer.
func expectSlot(t *testing.T, slots driver.ReplyStore, id string, state driver.SlotState, answer driver.Answer) {
	t.Helper()
	got, err := slots.Get(t.Context(), id)
	if err != nil || got.State != state || !bytes.Equal(got.Answer.Body, answer.Body) || got.Answer.Failure != answer.Failure || got.Answer.FailureKind != answer.FailureKind {
		t.Errorf("slot %q is %s with %d bytes, failure %q, error %v; want %s with %d bytes",
			id, got.State, len(got.Answer.Body), got.Answer.Failure, err, state, len(answer.Body))
	}
}

// expectCode checks the code of an error; "" means none.
func expectCode(t *testing.T, err error, want driver.Code) {
	t.Helper()
	if want == "" && err != nil || want != "" && !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func TestSlotsSurviveEveryCrash(t *testing.T) {
	for _, how := range virtual.Crashes {
		t.Run(fmt.Sprint(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := start(t, storetest.NewDisk())
				slots := m.Replies()
				failure := driver.Answer{Failure: "out of tea", FailureKind: "sold out"}
				for _, id := range []string{"pending", "answered", "large", "failed", "cancelled", "deleted", "read"} {
					expectCode(t, slots.Create(t.Context(), id, time.Hour), "")
				}
				expectCode(t, slots.Create(t.Context(), "short", time.Minute), "")
				expectCode(t, slots.Resolve(t.Context(), "answered", answerOf("tea")), "")
				expectCode(t, slots.Resolve(t.Context(), "large", largeAnswer), "")
				expectCode(t, slots.Resolve(t.Context(), "failed", failure), "")
				expectCode(t, slots.Resolve(t.Context(), "read", largeAnswer), "")
				expectCode(t, slots.Cancel(t.Context(), "cancelled"), "")
				expectCode(t, slots.Delete(t.Context(), "deleted"), "")
				if got, err := slots.Consume(t.Context(), "read"); err != nil || !bytes.Equal(got.Answer.Body, largeAnswer.Body) {
					t.Errorf("consume: %d bytes, error %v", len(got.Answer.Body), err)
				}
				before, _ := slots.Get(t.Context(), "answered")
				time.Sleep(time.Minute)

				m = restart(t, m, how).(*machine)
				slots = m.Replies()
				expectSlot(t, slots, "pending", driver.SlotPending, driver.Answer{})
				expectSlot(t, slots, "answered", driver.SlotResolved, answerOf("tea"))
				expectSlot(t, slots, "large", driver.SlotResolved, largeAnswer)
				expectSlot(t, slots, "failed", driver.SlotResolved, failure)
				expectSlot(t, slots, "cancelled", driver.SlotCancelled, driver.Answer{})
				expectSlot(t, slots, "short", driver.SlotExpired, driver.Answer{})
				for _, id := range []string{"deleted", "read"} {
					_, err := slots.Get(t.Context(), id)
					expectCode(t, err, driver.ErrNotFound)
				}
				if after, _ := slots.Get(t.Context(), "answered"); !after.CreatedAt.Equal(before.CreatedAt) || !after.ExpiresAt.Equal(before.ExpiresAt) || !after.ResolvedAt.Equal(before.ResolvedAt) {
					t.Errorf("the times were %+v, and are %+v", before, after)
				}
				// A slot is written once, across restarts.
				expectCode(t, slots.Resolve(t.Context(), "answered", answerOf("milk")), driver.ErrReplyAlreadySent)
				expectCode(t, slots.Cancel(t.Context(), "large"), driver.ErrReplyAlreadySent)
				expectCode(t, slots.Resolve(t.Context(), "cancelled", answerOf("milk")), driver.ErrReplyCancelled)
				expectCode(t, slots.Resolve(t.Context(), "pending", answerOf("late")), "")
				if got, err := slots.Consume(t.Context(), "large"); err != nil || !bytes.Equal(got.Answer.Body, largeAnswer.Body) {
					t.Errorf("consume: %d bytes, error %v", len(got.Answer.Body), err)
				}
				time.Sleep(time.Hour) // the rest expires, at its own time
				expectSlot(t, slots, "answered", driver.SlotExpired, driver.Answer{})
			})
		})
	}
}

func TestSlotsThatExpiredLongAgoAreRemovedAtOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		for _, id := range []string{"a", "b"} {
			expectCode(t, m.Replies().Create(t.Context(), id, time.Minute), "")
		}
		expectCode(t, m.Replies().Resolve(t.Context(), "b", largeAnswer), "")
		expectCode(t, m.Replies().Create(t.Context(), "c", time.Hour), "")
		time.Sleep(10 * time.Minute)
		for range 2 {
			m = restart(t, m, drivertest.CrashClean).(*machine)
		}
		closeIt(t, m)
		report, err := Check(t.Context(), "queues", offline(m.disk))
		if err != nil || report.Slots != 1 || len(report.Problems) > 0 {
			t.Errorf("check: %+v, error %v", report, err)
		}
	})
}

// A request is sent with its slot in one commit, and acked with its answer in another.
func TestCallTakesTwoCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		m := start(t, disk)
		q, slots := openQueue(t, m, "requests"), m.Replies()
		if !slots.LinkedTo(q) {
			t.Fatal("the store is not linked to a queue of its backend")
		}
		other := start(t, storetest.NewDisk())
		if slots.LinkedTo(openQueue(t, other, "requests")) {
			t.Error("the store is linked to a queue of another backend")
		}
		send(t, q, driver.Outgoing{Body: []byte("warm up")})
		flush(t, m)
		var syncs atomic.Int64
		disk.Before(func(op storetest.Operation) error {
			if op.Kind == storetest.Sync && strings.HasSuffix(op.Path, ".log") {
				syncs.Add(1)
			}
			return nil
		})
		sending, created, err := slots.CreateWithSend(t.Context(), "a", time.Hour)
		expectCode(t, err, "")
		if _, err := q.Send(sending, []driver.Outgoing{{ReplyTo: driver.SlotAddress("a")}}); err != nil || !created() {
			t.Errorf("send: %v, created %v", err, created())
		}
		if n := syncs.Load(); n != 1 {
			t.Errorf("a request and its slot took %d syncs", n)
		}
		got := receive(t, q, 2)
		acking, stored, err := slots.ResolveWithAck(t.Context(), "a", answerOf("tea"))
		expectCode(t, err, "")
		expectCode(t, q.Ack(acking, []driver.Receipt{got[1].Receipt}), "")
		expectCode(t, stored(), "")
		if n := syncs.Load(); n != 2 {
			t.Errorf("an answer and its ack took %d syncs", n-1)
		}
		expectSlot(t, slots, "a", driver.SlotResolved, answerOf("tea"))
		_, _, err = slots.ResolveWithAck(t.Context(), "a", answerOf("milk"))
		expectCode(t, err, driver.ErrReplyAlreadySent)
		_, _, err = slots.CreateWithSend(t.Context(), "a", time.Hour)
		expectCode(t, err, driver.ErrConflict)
	})
}

// An answer is not seen before it is durable: a crash could take it back.
func TestAnswerIsSeenWhenDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newStalledDisk()
		m := start(t, disk.Disk)
		slots := m.Replies()
		expectCode(t, slots.Create(t.Context(), "a", time.Hour), "")
		disk.stall()
		var seen atomic.Int32
		read := func(ask func(context.Context) (driver.Slot, error)) {
			go func() {
				got, err := ask(t.Context())
				if err != nil || got.State != driver.SlotResolved {
					t.Errorf("got %+v, error %v", got, err)
				}
				seen.Add(1)
			}()
			synctest.Wait()
		}
		wait := func(ctx context.Context) (driver.Slot, error) { return slots.Wait(ctx, "a", time.Hour) }
		read(wait)
		go func() {
			expectCode(t, slots.Resolve(t.Context(), "a", largeAnswer), "")
			seen.Add(1)
		}()
		synctest.Wait()
		read(wait)
		read(func(ctx context.Context) (driver.Slot, error) { return slots.Get(ctx, "a") })
		go func() {
			expectCode(t, slots.Resolve(t.Context(), "a", answerOf("milk")), driver.ErrReplyAlreadySent)
			seen.Add(1)
		}()
		synctest.Wait()
		if n := seen.Load(); n != 0 {
			t.Errorf("%d calls returned before the answer was durable", n)
		}
		disk.goOn()
		synctest.Wait()
		if n := seen.Load(); n != 5 {
			t.Errorf("%d calls returned after the answer was durable, want 5", n)
		}
	})
}

// TestReadsOfUndurableAnswerShareItsCommit reads and waits for an answer before its ack is recorded, and
// while both are written.
func TestReadsOfUndurableAnswerShareItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newStalledDisk()
		m := start(t, disk.Disk)
		q, slots := openQueue(t, m, "requests"), m.Replies()
		expectCode(t, slots.Create(t.Context(), "a", time.Hour), "")
		send(t, q, driver.Outgoing{ReplyTo: driver.SlotAddress("a")})
		request := receive(t, q, 1)[0]
		flush(t, m)
		disk.syncs.Store(0)
		disk.stall()
		var reads sync.WaitGroup
		read := func(wait time.Duration) {
			reads.Go(func() {
				got, err := slots.Wait(t.Context(), "a", wait)
				if err != nil || got.State != driver.SlotResolved {
					t.Errorf("got %+v, error %v", got, err)
				}
			})
			synctest.Wait()
		}
		acking, stored, err := slots.ResolveWithAck(t.Context(), "a", answerOf("tea"))
		expectCode(t, err, "")
		read(time.Hour)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			expectCode(t, q.Ack(acking, []driver.Receipt{request.Receipt}), "")
			expectCode(t, stored(), "")
		}()
		synctest.Wait()
		read(time.Hour)
		read(0)
		disk.goOn()
		reads.Wait()
		<-answered
		if n := disk.syncs.Load(); n != 1 {
			t.Errorf("an answer, its ack and three reads took %d syncs, want 1", n)
		}
	})
}

func TestSlotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := Open(t.Context(), "queues", &Options{fs: storetest.NewDisk().FS(), boot: bubbleClock{}, small: true, MaxReplySlots: 3, MaxBodyBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		slots := b.Replies()
		for _, id := range []string{"a", "b", "c"} {
			expectCode(t, slots.Create(t.Context(), id, time.Minute), "")
		}
		err = slots.Create(t.Context(), "d", time.Minute)
		expectCode(t, err, driver.ErrFull)
		if e, ok := errors.AsType[*driver.Error](err); !ok || e.RetryAfter != time.Minute || !strings.Contains(e.Detail, "3") {
			t.Errorf("the error does not say how many, or when: %+v", err)
		}
		expectCode(t, slots.Resolve(t.Context(), "a", driver.Answer{Body: make([]byte, 101)}), driver.ErrTooLarge)
		expectCode(t, slots.Resolve(t.Context(), "a", driver.Answer{Failure: strings.Repeat("x", 101)}), driver.ErrTooLarge)
		expectCode(t, slots.Delete(t.Context(), "a"), "")
		expectCode(t, slots.Create(t.Context(), "d", time.Hour), "")
		time.Sleep(time.Minute) // b and c expire, and make room
		expectCode(t, slots.Create(t.Context(), "e", time.Hour), "")
		expectCode(t, slots.Create(t.Context(), "f", time.Hour), "")
		expectCode(t, slots.Create(t.Context(), "g", time.Hour), driver.ErrFull)
	})
	_, err := Open(t.Context(), t.TempDir(), &Options{MaxReplySlots: -1})
	expectCode(t, err, driver.ErrInvalid)
}

// Below the reserve, slots and answers are refused like messages, and what ends a slot is not.
func TestSlotsKeepTheReserve(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		expectCode(t, b.Replies().Create(t.Context(), id, time.Hour), "")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err = Open(t.Context(), dir, &Options{ReserveBytes: 1 << 50}); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	slots := b.Replies()
	expectCode(t, slots.Create(t.Context(), "d", time.Hour), driver.ErrFull)
	expectCode(t, slots.Resolve(t.Context(), "a", answerOf("tea")), driver.ErrFull)
	expectSlot(t, slots, "a", driver.SlotPending, driver.Answer{})
	expectCode(t, slots.Cancel(t.Context(), "b"), "")
	expectCode(t, slots.Delete(t.Context(), "c"), "")
}

func TestDamagedSlotsAreFoundAndRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t, storetest.NewDisk())
		slots := m.Replies()
		for _, id := range []string{"good", "bad", "bad answer", "no answer"} {
			expectCode(t, slots.Create(t.Context(), id, time.Hour), "")
			expectCode(t, slots.Resolve(t.Context(), id, largeAnswer), "")
		}
		closeIt(t, m)
		meddle(t, m.disk, func(s *store.Store) {
			spoil(t, s, appendSlotKey(nil, answerKind, "bad answer"), "damaged")
			spoil(t, s, appendSlotKey(nil, answerKind, "no answer"), "removed")
		})
		report, err := Check(t.Context(), "queues", offline(m.disk))
		if err != nil || report.Slots != 4 || report.Damaged != 1 || len(report.Problems) != 2 {
			t.Errorf("check: %+v, error %v", report, err)
		}
		m = start(t, m.disk) // damage costs one answer
		_, err = m.Replies().Get(t.Context(), "bad answer")
		expectCode(t, err, driver.ErrIntegrity)
		_, err = m.Replies().Consume(t.Context(), "bad answer")
		expectCode(t, err, driver.ErrIntegrity)
		_, err = m.Replies().Wait(t.Context(), "no answer", time.Hour)
		expectCode(t, err, driver.ErrNotFound)
		expectSlot(t, m.Replies(), "good", driver.SlotResolved, largeAnswer)
		closeIt(t, m)

		meddle(t, m.disk, func(s *store.Store) { spoil(t, s, appendSlotKey(nil, slotKind, "bad"), "damaged") })
		options := &Options{fs: m.disk.FS(), boot: bubbleClock{}, small: true}
		if _, err := Open(t.Context(), "queues", options); !errors.Is(err, driver.ErrIntegrity) || !strings.Contains(err.Error(), "reply slot") {
			t.Errorf("open: %v", err)
		}
		if result, err := Repair(t.Context(), "queues", options); err != nil || result.Removed != 3 || result.Damaged != 1 {
			t.Errorf("repair: %+v, error %v", result, err)
		}
		m = start(t, m.disk)
		expectSlot(t, m.Replies(), "good", driver.SlotResolved, largeAnswer)
		_, err = m.Replies().Get(t.Context(), "bad")
		expectCode(t, err, driver.ErrNotFound)
	})
}

func TestClosedAndFailedBackendEndWaits(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Backend, *storetest.Disk) driver.Code{
		"closed": func(t *testing.T, b *Backend, _ *storetest.Disk) driver.Code {
			expectCode(t, b.Close(), "")
			return driver.ErrClosed
		},
		"failed": func(t *testing.T, b *Backend, disk *storetest.Disk) driver.Code {
			disk.Before(func(storetest.Operation) error { return errors.New("I/O error") })
			expectCode(t, b.Replies().Create(t.Context(), "b", time.Hour), driver.ErrUnavailable)
			return driver.ErrUnavailable
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := storetest.NewDisk()
			b, err := Open(t.Context(), "queues", &Options{fs: disk.FS(), small: true, OnFail: func(error) {}})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			slots := b.Replies()
			expectCode(t, slots.Create(t.Context(), "a", time.Hour), "")
			done := make(chan error, 1)
			go func() {
				_, err := slots.Wait(t.Context(), "a", time.Hour)
				done <- err
			}()
			want := end(t, b, disk)
			expectCode(t, <-done, want)
			_, err = slots.Get(t.Context(), "a")
			expectCode(t, err, want)
			expectCode(t, slots.Create(t.Context(), "c", time.Hour), want)
			expectCode(t, slots.Resolve(t.Context(), "a", answerOf("tea")), want)
			_, err = slots.Sweep(t.Context(), 1)
			expectCode(t, err, want)
		})
	}
}

// A directory that was written before there were reply slots gets them.
func TestEarlierDirectoryHasReplyStore(t *testing.T) {
	dir := unpack(t, "format-1.tar.gz")
	for opened := range 2 {
		b, err := Open(t.Context(), dir, &Options{boot: longAfter(t, dir)})
		if err != nil {
			t.Fatal(err)
		}
		if opened == 0 {
			expectCode(t, b.Replies().Create(t.Context(), "a", time.Hour), "")
			expectCode(t, b.Replies().Resolve(t.Context(), "a", answerOf("tea")), "")
		}
		expectSlot(t, b.Replies(), "a", driver.SlotResolved, answerOf("tea"))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
