package deadletter_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

type order struct {
	Item string `json:"item"`
	ID   string `json:"id"`
}

func (o order) RequestID() string { return o.ID }

func full[T any](body T) deadletter.Message[T] {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return deadletter.Message[T]{
		MessageID: "m", Body: body, Source: "orders", Reason: mailbox.ReasonFatal, Deliveries: 3,
		LastError: "no milk", ErrorType: "*errors.errorString", Stack: "here",
		EnqueuedAt: at, FirstReceivedAt: at.Add(1), DeadAt: at.Add(2),
		RequestID: "r", ReplyTo: "answers", CorrelationID: "c", TraceID: "t", Group: "g",
		Attributes: map[string]string{"a": "b"}, Redrives: 2, Result: []byte("TEA"),
	}
}

// TestDeadLettersSurviveEncoding fails if the codec forgets a field of Message.
func TestDeadLettersSurviveEncoding(t *testing.T) {
	letter := full(order{Item: "tea", ID: "7"})
	fields := reflect.ValueOf(letter)
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		if fields.Field(i).IsZero() && name != "DecodeErr" && name != "Raw" {
			t.Fatalf("the test leaves out %s", name)
		}
	}
	for name, pair := range map[string][2]mailbox.Codec[deadletter.Message[order]]{
		"codec":        {deadletter.Codec[order](nil), deadletter.Codec[order](nil)},
		"codec, plain": {deadletter.Codec[order](nil), mailbox.JSON[deadletter.Message[order]]()},
		"plain, codec": {mailbox.JSON[deadletter.Message[order]](), deadletter.Codec[order](nil)},
	} {
		data, err := pair[0].Encode(letter)
		if err != nil {
			t.Fatal(err)
		}
		back, err := pair[1].Decode(data)
		if err != nil || !reflect.DeepEqual(back, letter) {
			t.Errorf("%s: %s became %+v, %v", name, data, back, err)
		}
	}
	binary := full([]byte{0, 255, 1})
	codec := deadletter.Codec(mailbox.Bytes())
	data, err := codec.Encode(binary)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := codec.Decode(data); err != nil || !reflect.DeepEqual(back, binary) {
		t.Errorf("%s became %+v, %v", data, back, err)
	}
}

func TestDeadLetterFieldsHaveWireNames(t *testing.T) {
	data, err := deadletter.Codec[order](nil).Encode(full(order{}))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"message_id", "body", "source_mailbox", "delivery_count", "last_error", "last_error_type",
		"dead_lettered_at", "first_received_at", "request_id", "reply_to", "trace_id", "reason",
	} {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s is missing in %v", name, fields)
		}
	}
}

func TestCodecRefusesInvalidDeadLetters(t *testing.T) {
	for _, data := range []string{"", "{", "[]", "{}", `{"message_id":"m"}`, `{"body":7}`} {
		if letter, err := deadletter.Codec[order](nil).Decode([]byte(data)); err == nil {
			t.Errorf("%q became %+v", data, letter)
		}
	}
	mute := deadletter.Codec(mailbox.CodecFunc[order]("x", nil, nil))
	if _, err := mute.Encode(full(order{})); err == nil {
		t.Error("an unencodable body was encoded")
	}
	if _, err := mute.Decode([]byte(`{"body_base64":"AA=="}`)); err == nil {
		t.Error("an undecodable body was decoded")
	}
}

func TestForwardedMessageDecodesAsDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx := t.Context()
		backend := membox.New(nil)
		defer backend.Close()
		must(backend.ConfigureQueue(ctx, "orders", driver.Config{MaxDeliveries: 1, DeadLetterTo: "dead"}))
		orders, err := mailbox.Open[order](ctx, backend, "orders", nil)
		must(err)
		letters, err := mailbox.Open(ctx, backend, "dead", &mailbox.Options[deadletter.Message[order]]{Codec: deadletter.Codec[order](nil)})
		must(err)
		sent, err := orders.Send(ctx, order{Item: "tea", ID: "7"}, mailbox.WithAttribute("colour", "green"))
		must(err)
		taken, err := orders.Receive(ctx)
		must(err)
		must(taken[0].Nack(ctx, 0, errors.New("no milk")))

		dead := deadletter.NewQueue(orders, letters)
		found := 0
		for letter, err := range dead.List(ctx) {
			must(err)
			found++
			if letter.MessageID != sent.ID || letter.Body.Item != "tea" || letter.Source != "orders" || letter.Reason != mailbox.ReasonMaxDeliveries ||
				letter.Deliveries != 1 || letter.LastError != "no milk" || letter.RequestID != "7" ||
				!maps.Equal(letter.Attributes, map[string]string{"colour": "green"}) {
				t.Errorf("the dead letter is %+v", letter)
			}
		}
		redriven, err := dead.Redrive(ctx, deadletter.Filter[order]{}, nil)
		must(err)
		if found != 1 || redriven.Moved != 1 {
			t.Errorf("found %d dead letters, redrove %d", found, redriven.Moved)
		}
		again, err := orders.Receive(ctx)
		if err != nil || len(again) != 1 || again[0].Body.Item != "tea" || again[0].Attributes["colour"] != "green" {
			t.Errorf("redriven is %+v, %v", again, err)
		}
	})
}
