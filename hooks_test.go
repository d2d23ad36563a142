package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

func TestTraceContextIsCarriedInAttributes(t *testing.T) {
	type spanKey struct{}
	var sentIn any
	received := ""
	caller := map[string]string{"k": "v"}
	m, _ := onMemory(t, &mailbox.Options[string]{Hooks: mailbox.Hooks{
		Sending: func(ctx context.Context, queue string, messages []driver.Outgoing) context.Context {
			for i := range messages {
				messages[i].Attributes["span"] = fmt.Sprint(queue, i)
			}
			return context.WithValue(ctx, spanKey{}, "span of the send")
		},
		Sent: func(ctx context.Context, _ mailbox.SentEvent) { sentIn = ctx.Value(spanKey{}) },
		Received: func(_ context.Context, queue string, d *driver.Delivery) {
			received += queue + ":" + d.Attributes["span"] + " "
		},
	}})
	_, err := m.SendAll(t.Context(), []string{"tea", "milk"}, mailbox.WithAttributes(caller))
	wantError(t, err, nil)
	_, err = m.Send(t.Context(), "sugar")
	wantError(t, err, nil)
	wantEqual(t, "context of Sent", sentIn, any("span of the send"))
	messages := mustReceive(t, m, 3)
	wantSame(t, "attributes", messages[1].Attributes, map[string]string{"k": "v", "span": "orders1"})
	wantSame(t, "attributes", messages[2].Attributes, map[string]string{"span": "orders0"})
	wantEqual(t, "received", received, "orders:orders0 orders:orders1 orders:orders0 ")
	wantSame(t, "the caller's map", caller, map[string]string{"k": "v"})
}

func TestSendingMayReturnNoContext(t *testing.T) {
	m, _ := onMemory(t, &mailbox.Options[string]{Hooks: mailbox.Hooks{
		Sending: func(context.Context, string, []driver.Outgoing) context.Context { return nil },
	}})
	_, err := m.Send(t.Context(), "tea")
	wantError(t, err, nil)
}

func TestSentEventHasPositionsOfSentMessages(t *testing.T) {
	queue := newFake()
	queue.send = func(context.Context, []driver.Outgoing) ([]driver.Sent, error) {
		return []driver.Sent{{ID: "one"}, {}}, &driver.BatchError{Errs: []error{nil, driver.ErrFull}}
	}
	var events []mailbox.SentEvent
	m := mailbox.New("orders", queue, &mailbox.Options[float64]{Hooks: mailbox.Hooks{
		Sent: func(_ context.Context, e mailbox.SentEvent) { events = append(events, e) },
	}})
	_, err := m.SendAll(t.Context(), []float64{math.NaN(), 1, 2})
	wantError(t, err, mailbox.ErrFull)
	wantEqual(t, "number of events", len(events), 1)
	event := events[0]
	wantEqual(t, "queue", event.Queue, "orders")
	wantEqual(t, "body", string(event.Messages[1].Body), "2")
	wantSame(t, "results", event.Results, []mailbox.Sent{{ID: "one"}, {}})
	wantError(t, mailbox.ErrorAt(event.Err, 0), nil)
	wantError(t, mailbox.ErrorAt(event.Err, 1), mailbox.ErrFull)

	_, err = m.Send(t.Context(), math.NaN())
	wantError(t, err, mailbox.ErrEncoding)
	wantEqual(t, "number of events after a refusal", len(events), 1)
}

func TestEventsHaveOutcomeAndDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) error { return backoff.Pause(ctx, time.Second) }
		queue := newFake()
		queue.receive = func(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
			return []driver.Delivery{delivery("1", `"tea"`)}, backoff.Pause(ctx, req.Wait)
		}
		queue.extend = func(ctx context.Context, _ []driver.Extension) error { return slow(ctx) }
		queue.nack = func(ctx context.Context, _ []driver.Nack) error { return errors.Join(slow(ctx), errUnavailable) }
		queue.ack = func(ctx context.Context, _ []driver.Receipt) error { return slow(ctx) }
		var polled []mailbox.PolledEvent
		var settled []mailbox.SettledEvent
		var extended []mailbox.ExtendedEvent
		m := mailbox.New("orders", queue, &mailbox.Options[string]{Hooks: mailbox.Hooks{
			Polled:   func(_ context.Context, e mailbox.PolledEvent) { polled = append(polled, e) },
			Settled:  func(_ context.Context, e mailbox.SettledEvent) { settled = append(settled, e) },
			Extended: func(_ context.Context, e mailbox.ExtendedEvent) { extended = append(extended, e) },
		}})
		message := mustReceive(t, m, 1, mailbox.WithWait(5*time.Second))[0]
		wantEqual(t, "poll", polled[0], mailbox.PolledEvent{
			Queue: "orders", Request: driver.ReceiveRequest{Max: 1, Visibility: 30 * time.Second, Wait: 5 * time.Second},
			Deliveries: 1, Duration: 5 * time.Second,
		})

		wantError(t, message.Extend(t.Context(), time.Minute), nil)
		wantEqual(t, "extension", extended[0], mailbox.ExtendedEvent{
			Queue: "orders", MessageID: "1", Visibility: time.Minute, Granted: time.Minute, Duration: time.Second,
		})

		cause := errors.New("no milk")
		wantError(t, message.Nack(t.Context(), time.Hour, cause), mailbox.ErrUnavailable)
		wantError(t, settled[0].Err, mailbox.ErrUnavailable)
		settled[0].Err = nil
		wantEqual(t, "failed nack", settled[0], mailbox.SettledEvent{
			Queue: "orders", MessageID: "1", Deliveries: 1, Outcome: mailbox.OutcomeNack,
			Delay: time.Hour, Cause: cause, Held: 2 * time.Second, Duration: time.Second,
		})

		wantError(t, mailbox.AckAll(t.Context(), message), nil)
		wantEqual(t, "ack", settled[1], mailbox.SettledEvent{
			Queue: "orders", MessageID: "1", Deliveries: 1, Outcome: mailbox.OutcomeAck,
			Held: 3 * time.Second, Duration: time.Second,
		})
		wantError(t, message.Ack(t.Context()), mailbox.ErrSettled)
		wantEqual(t, "number of events after a refusal", len(settled), 2)
	})
}

func TestExcessAttributesOfHookAreDropped(t *testing.T) {
	full := make(map[string]string)
	for i := range driver.MaxAttributes {
		full[strconv.Itoa(i)] = "x"
	}
	hooks := mailbox.Hooks{Sending: func(ctx context.Context, _ string, messages []driver.Outgoing) context.Context {
		for i := range messages {
			messages[i].Attributes["traceparent"] = "00-1-2-01"
		}
		return ctx
	}}
	m, _ := onMemory(t, &mailbox.Options[string]{Hooks: hooks})
	_, err := m.Send(t.Context(), "full", mailbox.WithAttributes(full))
	wantError(t, err, nil)
	_, err = m.SendMessages(t.Context(), []mailbox.Outgoing[string]{{Body: "full", Attributes: full}, {Body: "empty"}})
	wantError(t, err, nil)
	for i, message := range mustReceive(t, m, 3, mailbox.WithMax(3)) {
		want := 64
		if message.Body == "empty" {
			want = 1
		}
		wantEqual(t, "attributes of message "+strconv.Itoa(i), len(message.Attributes), want)
	}
	wantEqual(t, "attributes of the caller", len(full), driver.MaxAttributes)
}

func TestReplyMailboxOfSlotSkipsSendingHook(t *testing.T) {
	d := newDesk(t, nil)
	sent := 0
	hooks := mailbox.Hooks{
		Sending: func(ctx context.Context, _ string, messages []driver.Outgoing) context.Context {
			messages[0].Attributes["traceparent"] = "00-1-2-01"
			return ctx
		},
		Sent: func(context.Context, mailbox.SentEvent) { sent++ },
	}
	box, err := mailbox.ReplyMailbox(t.Context(), d.ask(t, "a"), &mailbox.Options[int]{Hooks: hooks})
	wantError(t, err, nil)
	_, err = box.Send(t.Context(), 4)
	wantError(t, err, nil)
	d.wantSlot(t, "a", driver.SlotResolved, "4")
	wantEqual(t, "sends that the hook saw", sent, 1)
}
