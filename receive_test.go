package mailbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// requests makes a fake that notes the requests it gets and finds nothing.
func requests(seen *[]driver.ReceiveRequest) *fakeQueue {
	queue := newFake()
	queue.receive = func(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
		*seen = append(*seen, req)
		return nil, backoff.Pause(ctx, req.Wait)
	}
	return queue
}

func TestReceiveHasDocumentedDefaults(t *testing.T) {
	var seen []driver.ReceiveRequest
	m := mailbox.New[string]("orders", requests(&seen), nil)
	messages, err := m.Receive(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "messages", len(messages), 0)
	wantSame(t, "requests", seen, []driver.ReceiveRequest{{Max: 1, Visibility: 30 * time.Second}})
}

func TestReceivePassesEveryOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []driver.ReceiveRequest
		m := mailbox.New[string]("orders", requests(&seen), nil)
		_, err := m.Receive(t.Context(), mailbox.WithMax(3), mailbox.WithMaxBytes(100),
			mailbox.WithVisibility(0), mailbox.WithWait(time.Minute), mailbox.WithMax(4), nil)
		wantError(t, err, nil)
		wantSame(t, "requests", seen, []driver.ReceiveRequest{{Max: 4, MaxBytes: 100, Wait: time.Minute}})
	})
}

func TestReceiveClampsMaxAndDefaultVisibility(t *testing.T) {
	var seen []driver.ReceiveRequest
	queue := requests(&seen)
	queue.traits.MaxVisibility = time.Second
	m := mailbox.New[string]("orders", queue, nil)
	_, err := m.Receive(t.Context(), mailbox.WithMax(1000))
	wantError(t, err, nil)
	wantSame(t, "requests", seen, []driver.ReceiveRequest{{Max: queue.traits.MaxBatch, Visibility: time.Second}})
}

func TestReceiveBeyondTraitsIsRefusedWithoutBackendCall(t *testing.T) {
	for field, option := range map[string]mailbox.ReceiveOption{
		"Max":        mailbox.WithMax(0),
		"MaxBytes":   mailbox.WithMaxBytes(-1),
		"Visibility": mailbox.WithVisibility(driver.DefaultMaxVisibility + 1),
		"Wait":       mailbox.WithWait(-1),
	} {
		queue := newFake()
		m := mailbox.New[string]("orders", queue, nil)
		_, err := m.Receive(t.Context(), option)
		wantField(t, err, mailbox.ErrInvalid, field)
		for _, err := range m.Messages(t.Context(), option) {
			wantField(t, err, mailbox.ErrInvalid, field)
		}
		wantEqual(t, "calls of the backend", queue.count(), 0)
	}
}

func TestWaitBeyondMaxWaitIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []driver.ReceiveRequest
		queue := requests(&seen)
		queue.traits.MaxWait = 20 * time.Second
		m := mailbox.New[string]("orders", queue, nil)
		start := time.Now()
		messages, err := m.Receive(t.Context(), mailbox.WithWait(50*time.Second))
		wantError(t, err, nil)
		wantEqual(t, "messages", len(messages), 0)
		wantEqual(t, "time waited", time.Since(start), 50*time.Second)
		var waits []time.Duration
		for _, req := range seen {
			waits = append(waits, req.Wait)
		}
		wantSame(t, "steps", waits, []time.Duration{20 * time.Second, 20 * time.Second, 10 * time.Second})
	})
}

func TestMessageInLaterPollEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.traits.MaxWait = 20 * time.Second
		queue.receive = func(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if queue.count() == 3 {
				return []driver.Delivery{delivery("1", `"tea"`)}, backoff.Pause(ctx, 5*time.Second)
			}
			return nil, backoff.Pause(ctx, req.Wait)
		}
		m := mailbox.New[string]("orders", queue, nil)
		start := time.Now()
		mustReceive(t, m, 1, mailbox.WithWait(time.Hour))
		wantEqual(t, "time waited", time.Since(start), 45*time.Second)
	})
}

func TestReceivePausesWhenBackendAnswersEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) { return nil, nil }
		m := mailbox.New[string]("orders", queue, nil)
		start := time.Now()
		_, err := m.Receive(t.Context(), mailbox.WithWait(20*time.Second))
		wantError(t, err, nil)
		wantEqual(t, "time waited", time.Since(start), 20*time.Second)
		if calls := queue.count(); calls > 40 {
			t.Errorf("%d calls of the backend in 20 s", calls)
		}
	})
}

func TestCancelEndsPauseOfReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) { return nil, nil }
		m := mailbox.New[string]("orders", queue, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second+time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := m.Receive(ctx, mailbox.WithWait(time.Hour))
		wantEqual(t, "error", err, context.DeadlineExceeded)
		wantEqual(t, "time waited", time.Since(start), 3*time.Second+time.Millisecond)

		done := make(chan error)
		go func() {
			_, err := m.Receive(t.Context(), mailbox.WithWait(time.Hour))
			done <- err
		}()
		time.Sleep(time.Second)
		m.Close()
		wantError(t, <-done, mailbox.ErrClosed)
	})
}

func TestReceiveWaitsWhileInFlightLimitIsReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newFake()
		queue.traits.MaxWait = 10 * time.Second
		queue.receive = func(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			if err := backoff.Pause(ctx, req.Wait); err != nil {
				return nil, err
			}
			if queue.count() == 3 {
				return []driver.Delivery{delivery("1", `"tea"`)}, nil
			}
			return nil, &driver.Error{Code: driver.ErrFull, RetryAfter: time.Second}
		}
		m := mailbox.New[string]("orders", queue, nil)
		_, err := m.Receive(t.Context(), mailbox.WithWait(20*time.Second))
		wantError(t, err, mailbox.ErrFull)
		mustReceive(t, m, 1, mailbox.WithWait(20*time.Second))
	})
}

func TestDeliveriesWithErrorAreReturned(t *testing.T) {
	queue := newFake()
	queue.receive = func(context.Context, driver.ReceiveRequest) ([]driver.Delivery, error) {
		return []driver.Delivery{delivery("1", `"tea"`)}, context.Canceled
	}
	m := mailbox.New[string]("orders", queue, nil)
	wantEqual(t, "body", mustReceive(t, m, 1)[0].Body, "tea")
}

func TestMessageHasAllFieldsOfDelivery(t *testing.T) {
	sent, first := time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	record := driver.Delivery{
		Message: driver.Message{
			ID: "1", Body: []byte(`"tea"`), Attributes: map[string]string{"k": "v"}, Group: "g", ReplyTo: "r",
			CorrelationID: "c", Deliveries: 3, EnqueuedAt: sent, FirstReceivedAt: first, LastError: "boom",
		},
		Receipt: driver.Receipt{Handle: "1", Place: 2, Nonce: 3},
	}
	for _, batch := range [][]driver.Delivery{{record}, {record, record}} {
		queue := newFake()
		queue.receive = deliver(batch)
		m := mailbox.New[string]("orders", queue, nil)
		for _, got := range mustReceive(t, m, len(batch)) {
			wantSame(t, "message", []any{
				got.ID, got.Body, got.Attributes, got.Group, got.ReplyTo, got.CorrelationID,
				got.Deliveries, got.EnqueuedAt, got.FirstReceivedAt, got.LastError, got.Receipt,
			}, []any{
				"1", "tea",
				map[string]string{"k": "v"},
				"g", "r", "c",
				3, sent, first, "boom", record.Receipt,
			})
		}
	}
}

func TestReceiverOwnsAttributesAndBytes(t *testing.T) {
	shared := delivery("1", "tea")
	shared.Attributes = map[string]string{"k": "v"}
	queue := newFake()
	queue.receive = deliver([]driver.Delivery{shared})
	m := mailbox.New("orders", queue, &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	message := mustReceive(t, m, 1)[0]
	message.Attributes["k"] = "changed"
	copy(message.Body, "XXX")
	wantSame(t, "attributes of the backend", shared.Attributes, map[string]string{"k": "v"})
	wantSame(t, "body of the backend", shared.Body, "tea")
}

func TestReceivedTimesComeFromBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		sent := time.Now()
		mustSend(t, m, "tea")
		time.Sleep(time.Second)
		first := time.Now()
		wantEqual(t, "deliveries", mustReceive(t, m, 1, mailbox.WithVisibility(time.Minute))[0].Deliveries, 1)
		time.Sleep(time.Hour)
		again := mustReceive(t, m, 1)[0]
		wantEqual(t, "deliveries", again.Deliveries, 2)
		if !again.EnqueuedAt.Equal(sent) || !again.FirstReceivedAt.Equal(first) || again.EnqueuedAt.Location() != time.UTC {
			t.Errorf("enqueued at %v and first received at %v, want %v and %v in UTC", again.EnqueuedAt, again.FirstReceivedAt, sent, first)
		}
	})
}
