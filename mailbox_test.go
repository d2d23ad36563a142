package mailbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// everyMethod calls each method of a mailbox that returns an error, Close
// excepted.
func everyMethod(ctx context.Context, m *mailbox.Mailbox[string]) map[string]error {
	errs := abilities(ctx, m)
	_, errs["Send"] = m.Send(ctx, "body")
	_, errs["SendAll"] = m.SendAll(ctx, []string{"body"})
	_, errs["SendAll of nothing"] = m.SendAll(ctx, nil)
	_, errs["SendMessages"] = m.SendMessages(ctx, []mailbox.Outgoing[string]{{Body: "body"}})
	_, errs["Receive"] = m.Receive(ctx)
	_, errs["Stats"] = m.Stats(ctx)
	_, errs["Purge"] = m.Purge(ctx)
	for _, err := range m.Messages(ctx) {
		errs["Messages"] = err
		if err == nil {
			break
		}
	}
	return errs
}

func TestMethodsOnNilQueueReturnErrInvalid(t *testing.T) {
	m := mailbox.New[string]("orders", nil, nil)
	for name, err := range everyMethod(t.Context(), m) {
		t.Run(name, func(t *testing.T) { wantField(t, err, mailbox.ErrInvalid, "queue") })
	}
	wantField(t, m.Close(), mailbox.ErrInvalid, "queue")
	wantEqual(t, "Traits", m.Traits(), mailbox.Traits{})
	wantEqual(t, "Queue", m.Queue(), nil)
	wantEqual(t, "Name", m.Name(), "orders")

	var zero mailbox.Mailbox[string]
	wantError(t, zero.Close(), mailbox.ErrInvalid)
}

func TestNilContextIsErrInvalid(t *testing.T) {
	queue := newFake()
	m := mailbox.New[string]("orders", queue, nil)
	for name, err := range everyMethod(nil, m) { //nolint:staticcheck // that is the point
		t.Run(name, func(t *testing.T) { wantField(t, err, mailbox.ErrInvalid, "ctx") })
	}
	wantEqual(t, "calls of the backend", queue.count(), 0)
}

func TestOpenNeedsBackendAndContext(t *testing.T) {
	_, err := mailbox.Open[string](t.Context(), nil, "orders", nil)
	wantField(t, err, mailbox.ErrInvalid, "backend")
	_, err = mailbox.Open[string](nil, membox.New(nil), "orders", nil) //nolint:staticcheck // that is the point
	wantField(t, err, mailbox.ErrInvalid, "ctx")
}

func TestOpenReturnsErrorOfBackend(t *testing.T) {
	_, err := mailbox.Open[string](t.Context(), membox.New(nil), "{braces}", nil)
	wantError(t, err, mailbox.ErrInvalid)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = mailbox.Open[string](cancelled, membox.New(nil), "orders", nil)
	wantEqual(t, "error", err, context.Canceled)
}

func TestClosedMailboxMakesNoBackendCalls(t *testing.T) {
	queue := newFake()
	queue.receive = deliver([]driver.Delivery{delivery("1", `"tea"`)})
	m := mailbox.New[string]("orders", queue, nil)
	message := mustReceive(t, m, 1)[0]
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	before := queue.count()
	errs := everyMethod(t.Context(), m)
	errs["Ack"] = message.Ack(t.Context())
	errs["Nack"] = message.Nack(t.Context(), 0, nil)
	errs["Release"] = message.Release(t.Context())
	errs["PutBack"] = message.PutBack(t.Context(), 0, nil)
	errs["Extend"] = message.Extend(t.Context(), time.Second)
	errs["DeadLetter"] = message.DeadLetter(t.Context(), mailbox.ReasonFatal, nil)
	errs["AckAll"] = mailbox.AckAll(t.Context(), message)
	for name, err := range errs {
		t.Run(name, func(t *testing.T) { wantError(t, err, mailbox.ErrClosed) })
	}
	wantEqual(t, "calls of the backend after Close", queue.count()-before, 0)
	if message.Settled() {
		t.Error("a message that could not be settled says it is")
	}
}

func TestClosingTwiceReturnsSameError(t *testing.T) {
	queue := newFake()
	failure := errors.New("the lock was stuck")
	queue.closing = func() error { return failure }
	m := mailbox.New[string]("orders", queue, nil)
	wantEqual(t, "first answer", m.Close(), failure)
	wantEqual(t, "second answer", m.Close(), failure)
	wantEqual(t, "calls of the backend", queue.count(), 1)
}

func TestCloseWakesWaitingReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		start := time.Now()
		done := make(chan error)
		go func() {
			_, err := m.Receive(t.Context(), mailbox.WithWait(time.Hour))
			done <- err
		}()
		synctest.Wait()
		time.Sleep(time.Minute)
		m.Close()
		wantError(t, <-done, mailbox.ErrClosed)
		wantEqual(t, "time until it woke", time.Since(start), time.Minute)
	})
}

func TestCloseLeavesOtherMailboxesAlone(t *testing.T) {
	m, backend := onMemory(t, nil)
	other, err := mailbox.Open[string](t.Context(), backend, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	mustSend(t, m, "tea")
	m.Close()
	wantEqual(t, "body", mustReceive(t, other, 1)[0].Body, "tea")
}

func TestPurgeAndStatsCallBackend(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "tea", "milk")
	wantStats(t, m, mailbox.Stats{Ready: 2})
	removed, err := m.Purge(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "removed", removed, 2)
	wantStats(t, m, mailbox.Stats{})
	wantEqual(t, "MaxBatch", m.Traits().MaxBatch, m.Queue().Traits().MaxBatch)
}

// TestReceiveFollowsRecreatedQueue deletes a queue under its receivers. They
// find the next of that name, do not create it, and sends through the old handle fail.
func TestReceiveFollowsRecreatedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		box, err := mailbox.Open[string](t.Context(), backend, "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer box.Close()
		received := make(chan string, 4)
		var receivers sync.WaitGroup
		for range 4 {
			receivers.Go(func() {
				for {
					messages, err := box.Receive(t.Context(), mailbox.WithWait(time.Minute))
					switch {
					case errors.Is(err, mailbox.ErrNotFound):
						time.Sleep(time.Second)
						continue
					case errors.Is(err, mailbox.ErrClosed):
						return
					case err != nil:
						t.Error(err)
						return
					}
					for _, message := range messages {
						received <- message.Body
					}
				}
			})
		}
		synctest.Wait()
		if err := backend.DeleteQueue(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, err := backend.QueueConfig(t.Context(), "orders"); !errors.Is(err, mailbox.ErrNotFound) {
			t.Errorf("receivers have created the queue: %v", err)
		}
		if _, err := box.Send(t.Context(), "lost"); !errors.Is(err, mailbox.ErrNotFound) {
			t.Errorf("send to a deleted queue: %v", err)
		}
		next, err := mailbox.Open[string](t.Context(), backend, "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if _, err := next.Send(t.Context(), "tea"); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-received:
			if got != "tea" {
				t.Errorf("received %q", got)
			}
		case <-time.After(time.Hour):
			t.Error("the new queue was not found")
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
		receivers.Wait()
	})
}
