package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
)

// sendAndTake sends one body with options and returns what the backend got.
func sendAndTake(t *testing.T, options ...mailbox.SendOption) driver.Outgoing {
	t.Helper()
	var got driver.Outgoing
	queue := newFake()
	queue.send = func(_ context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		got = msgs[0]
		got.Attributes = maps.Clone(got.Attributes)
		return make([]driver.Sent, len(msgs)), nil
	}
	m := mailbox.New("orders", queue, &mailbox.Options[string]{Codec: mailbox.String()})
	if _, err := m.Send(t.Context(), "tea", options...); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSendPassesEveryOption(t *testing.T) {
	got := sendAndTake(t,
		mailbox.WithDelay(time.Minute), mailbox.WithReplyTo("answers"), mailbox.WithDedupKey("order 7"),
		mailbox.WithGroup("table 3"), mailbox.WithCorrelationID("c1"),
		mailbox.WithAttributes(map[string]string{"k": "v"}), nil)
	wantSame(t, "message", got, driver.Outgoing{
		Body: []byte("tea"), Delay: time.Minute, ReplyTo: "answers", DedupKey: "order 7",
		Group: "table 3", CorrelationID: "c1", Attributes: map[string]string{"k": "v"},
	})
	wantSame(t, "message without options", sendAndTake(t), driver.Outgoing{Body: []byte("tea")})
}

func TestLaterOptionsWin(t *testing.T) {
	got := sendAndTake(t, mailbox.WithDelay(time.Minute), mailbox.WithDelay(0), mailbox.WithGroup("a"), mailbox.WithGroup("b"))
	wantEqual(t, "delay", got.Delay, 0)
	wantEqual(t, "group", got.Group, "b")
}

func TestAttributeOptionsDoNotChangeCallersMaps(t *testing.T) {
	first, second := map[string]string{"a": "1", "b": "1"}, map[string]string{"b": "2"}
	got := sendAndTake(t, mailbox.WithAttributes(first), mailbox.WithAttribute("c", "3"), mailbox.WithAttributes(second))
	wantSame(t, "attributes", got.Attributes, map[string]string{"a": "1", "b": "2", "c": "3"})
	wantSame(t, "first map", first, map[string]string{"a": "1", "b": "1"})
	wantSame(t, "second map", second, map[string]string{"b": "2"})

	got = sendAndTake(t, mailbox.WithAttribute("a", "1"), mailbox.WithAttributes(nil), mailbox.WithAttribute("b", ""))
	wantSame(t, "attributes", got.Attributes, map[string]string{"a": "1", "b": ""})
}

func TestOptionsPrintAsCalls(t *testing.T) {
	for option, want := range map[fmt.Stringer]string{
		mailbox.WithDelay(time.Minute):      "WithDelay(1m0s)",
		mailbox.WithReplyTo("answers"):      `WithReplyTo("answers")`,
		mailbox.WithDedupKey("7"):           `WithDedupKey("7")`,
		mailbox.WithGroup("g"):              `WithGroup("g")`,
		mailbox.WithCorrelationID("c"):      `WithCorrelationID("c")`,
		mailbox.WithMax(10):                 "WithMax(10)",
		mailbox.WithMaxBytes(99):            "WithMaxBytes(99)",
		mailbox.WithVisibility(time.Second): "WithVisibility(1s)",
		mailbox.WithWait(0):                 "WithWait(0s)",
	} {
		wantEqual(t, "option", option.String(), want)
	}
	wantEqual(t, "option", mailbox.WithAttribute("k", "v").String(), `WithAttribute("k", "v")`)
	wantEqual(t, "option", mailbox.WithAttributes(map[string]string{"b": "2", "a": "1"}).String(), `WithAttributes(map["a":"1" "b":"2"])`)
}

func TestSendBeyondTraitsIsRefusedWithoutBackendCall(t *testing.T) {
	for _, refused := range []struct {
		name   string
		option mailbox.SendOption
		body   string
		code   mailbox.Code
		field  string
	}{
		{"long body", nil, strings.Repeat("x", 1001), mailbox.ErrTooLarge, "Body"},
		{"negative delay", mailbox.WithDelay(-1), "", mailbox.ErrInvalid, "Delay"},
		{"long delay", mailbox.WithDelay(driver.DefaultMaxDelay + 1), "", mailbox.ErrInvalid, "Delay"},
		{"dedup key where there is no window", mailbox.WithDedupKey("k"), "", mailbox.ErrUnsupported, "DedupKey"},
		{"group where there are none", mailbox.WithGroup("g"), "", mailbox.ErrUnsupported, "Group"},
		{"empty attribute", mailbox.WithAttribute("", "v"), "", mailbox.ErrInvalid, "Attributes"},
		{"long reply address", mailbox.WithReplyTo(strings.Repeat("x", driver.MaxReplyToBytes+1)), "", mailbox.ErrInvalid, "ReplyTo"},
	} {
		t.Run(refused.name, func(t *testing.T) {
			queue := newFake()
			queue.traits.DedupWindow, queue.traits.Groups = 0, false
			m := mailbox.New("orders", queue, &mailbox.Options[string]{Codec: mailbox.String()})
			_, err := m.Send(t.Context(), refused.body, refused.option)
			wantField(t, err, refused.code, refused.field)
			_, err = m.SendAll(t.Context(), []string{refused.body}, refused.option)
			wantField(t, mailbox.ErrorAt(err, 0), refused.code, refused.field)
			wantEqual(t, "calls of the backend", queue.count(), 0)
		})
	}
}

func TestUnencodableBodyIsNeverSent(t *testing.T) {
	queue := newFake()
	m := mailbox.New[float64]("orders", queue, nil)
	_, err := m.Send(t.Context(), math.NaN())
	e, ok := errors.AsType[*mailbox.Error](err)
	if !ok || e.Code != mailbox.ErrEncoding || e.Queue != "orders" || e.Op != "send" || e.Err == nil {
		t.Errorf("error is %#v", err)
	}
	results, err := m.SendAll(t.Context(), []float64{math.NaN(), math.Inf(1)})
	wantError(t, mailbox.ErrorAt(err, 0), mailbox.ErrEncoding)
	wantError(t, mailbox.ErrorAt(err, 1), mailbox.ErrEncoding)
	wantEqual(t, "number of results", len(results), 2)
	wantEqual(t, "calls of the backend", queue.count(), 0)
}

func TestSendAllKeepsPositionsOfUnencodableBodies(t *testing.T) {
	queue := newFake()
	queue.send = func(_ context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		wantSame(t, "bodies", []string{string(msgs[0].Body), string(msgs[1].Body)}, []string{"1", "3"})
		full := &driver.Error{Code: driver.ErrFull}
		return []driver.Sent{{ID: "one"}, {}}, &driver.BatchError{Errs: []error{nil, full}}
	}
	m := mailbox.New[float64]("orders", queue, nil)
	results, err := m.SendAll(t.Context(), []float64{math.NaN(), 1, math.NaN(), 3})
	if batch, ok := errors.AsType[*mailbox.BatchError](err); !ok || len(batch.Errs) != 4 {
		t.Fatalf("error is %#v, want a BatchError of 4", err)
	}
	for i, want := range []error{mailbox.ErrEncoding, nil, mailbox.ErrEncoding, mailbox.ErrFull} {
		wantError(t, mailbox.ErrorAt(err, i), want)
	}
	wantSame(t, "results", results, []mailbox.Sent{{}, {ID: "one"}, {}, {}})
}

func TestSendAllSplitsByMaxBatch(t *testing.T) {
	queue := newFake()
	var sizes []int
	queue.send = func(_ context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		sizes = append(sizes, len(msgs))
		sent, errs := make([]driver.Sent, len(msgs)), make([]error, len(msgs))
		for i, msg := range msgs {
			sent[i].ID = string(msg.Body)
			if string(msg.Body) == "3" {
				sent[i], errs[i] = driver.Sent{}, driver.ErrFull
			}
		}
		return sent, driver.NewBatchError(errs)
	}
	m := mailbox.New[int]("orders", queue, nil)
	numbers := make([]int, 25)
	for i := range numbers {
		numbers[i] = i
	}
	results, err := m.SendAll(t.Context(), numbers)
	wantSame(t, "steps", sizes, []int{10, 10, 5})
	for i := range numbers {
		if i == 3 {
			wantError(t, mailbox.ErrorAt(err, i), mailbox.ErrFull)
			continue
		}
		wantError(t, mailbox.ErrorAt(err, i), nil)
		wantEqual(t, "id", results[i].ID, fmt.Sprint(i))
	}
}

func TestSendAllStopsAfterFailedCall(t *testing.T) {
	queue := newFake()
	queue.send = func(_ context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
		if queue.count() == 2 {
			return nil, errUnavailable
		}
		return make([]driver.Sent, len(msgs)), nil
	}
	m := mailbox.New[int]("orders", queue, nil)
	results, err := m.SendAll(t.Context(), make([]int, 25))
	wantEqual(t, "calls of the backend", queue.count(), 2)
	wantEqual(t, "number of results", len(results), 25)
	for i := range 25 {
		want := error(nil)
		if i >= 10 {
			want = mailbox.ErrUnavailable
		}
		wantError(t, mailbox.ErrorAt(err, i), want)
	}
}

func TestSendMessagesKeepsSettingsOfEachMessage(t *testing.T) {
	m, _ := onMemory(t, nil)
	results, err := m.SendMessages(t.Context(), []mailbox.Outgoing[string]{
		{Body: "tea", Attributes: map[string]string{"k": "v"}, ReplyTo: "answers", CorrelationID: "c"},
		{Body: "late", Delay: time.Minute},
		{Body: "milk", DedupKey: "7", Group: "table 3"},
		{Body: "milk", DedupKey: "7"},
	})
	wantError(t, err, nil)
	wantEqual(t, "duplicate", results[3], mailbox.Sent{ID: results[2].ID, Duplicate: true})
	wantStats(t, m, mailbox.Stats{Ready: 2, Delayed: 1})
	got := mustReceive(t, m, 2)
	wantSame(t, "bodies", bodies(got), []string{"tea", "milk"})
	wantEqual(t, "id", got[0].ID, results[0].ID)
	wantSame(t, "attributes", got[0].Attributes, map[string]string{"k": "v"})
	wantEqual(t, "reply address", got[0].ReplyTo, "answers")
	wantEqual(t, "correlation id", got[0].CorrelationID, "c")
	wantEqual(t, "group", got[1].Group, "table 3")
}

func TestSendUnwrapsBatchError(t *testing.T) {
	queue := newFake()
	full := &driver.Error{Code: driver.ErrFull, RetryAfter: time.Second}
	queue.send = func(context.Context, []driver.Outgoing) ([]driver.Sent, error) {
		return make([]driver.Sent, 1), &driver.BatchError{Errs: []error{full}}
	}
	m := mailbox.New[string]("orders", queue, nil)
	_, err := m.Send(t.Context(), "tea")
	wantEqual(t, "error", err, error(full))
	wantEqual(t, "hint", mailbox.RetryAfter(err), time.Second)
}

func TestContextErrorsAreUnwrapped(t *testing.T) {
	m, _ := onMemory(t, nil)
	mustSend(t, m, "tea")
	message := mustReceive(t, m, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Send(ctx, "milk")
	wantEqual(t, "error of Send", err, context.Canceled)
	_, err = m.Receive(ctx)
	wantEqual(t, "error of Receive", err, context.Canceled)
	wantEqual(t, "error of Ack", message.Ack(ctx), context.Canceled)
}

func TestMissingResultsOfBackendAreAnError(t *testing.T) {
	queue := newFake()
	queue.send = func(context.Context, []driver.Outgoing) ([]driver.Sent, error) { return nil, nil }
	m := mailbox.New[string]("orders", queue, nil)
	_, err := m.Send(t.Context(), "tea")
	wantError(t, err, mailbox.ErrUnavailable)
	_, err = m.SendAll(t.Context(), make([]string, 15))
	wantError(t, mailbox.ErrorAt(err, 14), mailbox.ErrUnavailable)

	queue.send = func(context.Context, []driver.Outgoing) ([]driver.Sent, error) {
		return []driver.Sent{{ID: "one"}}, &driver.BatchError{Errs: []error{nil, driver.ErrFull}}
	}
	results, err := m.SendAll(t.Context(), make([]string, 2))
	wantSame(t, "results", results, []mailbox.Sent{{ID: "one"}, {}})
	wantError(t, mailbox.ErrorAt(err, 1), mailbox.ErrFull)
}

func TestCallerOwnsBodiesAfterSend(t *testing.T) {
	_, backend := onMemory(t, nil)
	m, err := mailbox.Open(t.Context(), backend, "bytes", &mailbox.Options[[]byte]{Codec: mailbox.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("tea")
	if _, err := m.Send(t.Context(), body); err != nil {
		t.Fatal(err)
	}
	copy(body, "XXX")
	wantSame(t, "body", mustReceive(t, m, 1)[0].Body, "tea")
}
