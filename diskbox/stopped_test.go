package diskbox

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/storetest"
)

// Once a write has failed, no call may succeed with the state in memory.
func TestNothingIsAnsweredAfterAFailedWrite(t *testing.T) {
	disk := storetest.NewDisk()
	b, err := Open(t.Context(), "queues", &Options{fs: disk.FS(), boot: bubbleClock{}, small: true, OnFail: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	q := configure(t, b, "orders", driver.Config{MaxDeliveries: 1, RetainDead: driver.Retention{Count: 5}})
	for i := range 20 {
		send(t, q, driver.Outgoing{Body: fmt.Append(nil, i)})
	}
	held := lease(t, q, 2, time.Hour)
	disk.Before(func(storetest.Operation) error { return errors.New("the disk is gone") })
	ctx := t.Context()
	for _, do := range []struct {
		name string
		do   func() error
	}{
		{"send", func() error { _, err := q.Send(ctx, make([]driver.Outgoing, 1)); return err }},
		{"receive", func() error {
			_, err := q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Second})
			return err
		}},
		{"extend", func() error {
			_, err := q.Extend(ctx, []driver.Extension{{Receipt: held[0].Receipt}})
			return err
		}},
		{"ack", func() error { return q.Ack(ctx, []driver.Receipt{held[0].Receipt}) }},
		{"ack late", func() error { return q.AckLate(ctx, []driver.Receipt{held[0].Receipt}) }},
		{"move", func() error { _, err := q.Move(ctx, "", 0); return err }},
		{"nack", func() error { return q.Nack(ctx, []driver.Nack{{Receipt: held[0].Receipt}}) }},
		{"dead-letter", func() error {
			return q.DeadLetter(ctx, []driver.DeadLetterRequest{{Receipt: held[0].Receipt, Reason: driver.ReasonFatal}})
		}},
		{"peek", func() error {
			for _, err := range q.Peek(ctx, driver.Query{}) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"dead letters", func() error {
			for _, err := range q.DeadLetters(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"redrive", func() error { _, err := q.Redrive(ctx, nil, 0); return err }},
		{"discard", func() error { _, err := q.Discard(ctx, []string{"x"}); return err }},
		{"purge", func() error { _, err := q.Purge(ctx); return err }},
		{"purge the dead", func() error { _, err := q.PurgeDead(ctx); return err }},
		{"stats", func() error { _, err := q.Stats(ctx); return err }},
		{"ping", func() error { return b.Ping(ctx) }},
	} {
		if err := do.do(); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s: %v", do.name, err)
		}
	}
	if err := b.Close(); err == nil {
		t.Error("closing says that all is well")
	}
}

// A receive during Close returns ErrClosed, not an error of the disk.
func TestReceiveDuringCloseSaysClosed(t *testing.T) {
	for range 30 {
		m := start(t, storetest.NewDisk())
		q := openQueue(t, m, "orders")
		for range 2 {
			send(t, q, make([]driver.Outgoing, 250)...)
		}
		var wg sync.WaitGroup
		begun := make(chan struct{}, 500)
		for range 4 {
			wg.Go(func() {
				for {
					got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Hour})
					if err != nil {
						if !errors.Is(err, driver.ErrClosed) {
							t.Errorf("received %v", err)
						}
						return
					}
					if len(got) > 0 {
						begun <- struct{}{}
					}
				}
			})
		}
		for range 10 {
			<-begun
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// A receive that waits when a write fails returns the error, and delivers nothing.
func TestLongPollEndsWithAFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := storetest.NewDisk()
		var broken atomic.Bool
		disk.Before(func(op storetest.Operation) error {
			if broken.Load() && op.Kind == storetest.Sync && strings.HasSuffix(op.Path, ".log") {
				return errors.New("EIO")
			}
			return nil
		})
		b, err := Open(t.Context(), "queues", &Options{fs: disk.FS(), boot: bubbleClock{}, small: true, OnFail: func(error) {}})
		if err != nil {
			t.Fatal(err)
		}
		q := openQueue(t, b, "a")
		send(t, q, driver.Outgoing{Body: []byte("one"), Delay: 5 * time.Second})
		go func() {
			time.Sleep(time.Second)
			broken.Store(true)
			_, _ = q.Send(t.Context(), []driver.Outgoing{{}})
		}()
		began := time.Now()
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: 20 * time.Second})
		if err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("received %d, %v after %v", len(got), err, time.Since(began))
		}
		_ = b.Close()
	})
}

// While a disk stalls, calls that do not need it are answered.
func TestStalledDiskBlocksOnlyDurableCalls(t *testing.T) {
	for name, stalled := range map[string]func(m *machine) error{
		"configure": func(m *machine) error { return m.ConfigureQueue(t.Context(), "a", driver.Config{MaxMessages: 5}) },
		"delete":    func(m *machine) error { return m.DeleteQueue(t.Context(), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			disk := storetest.NewDisk()
			m := start(t, disk)
			openQueue(t, m, "a")
			openQueue(t, m, "b")
			flush(t, m)
			began, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			disk.Before(func(op storetest.Operation) error {
				if op.Kind == storetest.Sync {
					once.Do(func() { close(began) })
					<-goOn
				}
				return nil
			})
			done := make(chan error)
			go func() { done <- stalled(m) }()
			<-began
			if err := m.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			openQueue(t, m, "b")
			for _, err := range m.Queues(t.Context()) {
				if err != nil {
					t.Error(err)
				}
			}
			select {
			case err := <-done:
				t.Errorf("it did not wait for the disk: %v", err)
			default:
			}
			close(goOn)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
