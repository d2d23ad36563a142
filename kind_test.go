package mailbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

func TestKindIsCarriedInAttribute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onMemory(t, nil)
		_, err := m.Send(t.Context(), "tea", mailbox.WithAttribute("table", "7"), mailbox.WithKind("order"))
		wantError(t, err, nil)
		mustSend(t, m, "milk")
		messages := mustReceive(t, m, 2, mailbox.WithMax(2))
		wantEqual(t, "kind", messages[0].Kind(), "order")
		wantEqual(t, "attribute", messages[0].Attributes[mailbox.AttributeKind], "order")
		wantEqual(t, "other attribute", messages[0].Attributes["table"], "7")
		wantEqual(t, "kind of a message without one", messages[1].Kind(), "")
	})
}

func TestMessageWithBodyIsSameDelivery(t *testing.T) {
	for name, settle := range everySettlement {
		t.Run(name, func(t *testing.T) {
			queue := newFake()
			message := held(t, queue)
			other := mailbox.MessageWithBody(message, 7)
			wantEqual(t, "id", other.ID, message.ID)
			wantEqual(t, "body", other.Body, 7)
			queue.granted = []time.Duration{time.Second}
			wantError(t, other.Extend(t.Context(), time.Minute), nil)
			wantEqual(t, "granted", message.Granted(), time.Second)
			wantEqual(t, "granted to the other", other.Granted(), time.Second)
			wantError(t, settle(t.Context(), mailbox.MessageWithBody(other, "milk")), nil)
			if !message.Settled() || !other.Settled() {
				t.Error("settling one did not settle the other")
			}
			wantError(t, other.Ack(t.Context()), mailbox.ErrSettled)
			wantError(t, mailbox.ErrorAt(mailbox.AckAll(t.Context(), other), 0), mailbox.ErrSettled)
		})
	}
	t.Run("settling the original", func(t *testing.T) {
		queue := newFake()
		message := held(t, queue)
		other := mailbox.MessageWithBody(message, 7)
		wantError(t, message.Ack(t.Context()), nil)
		wantError(t, mailbox.NackAll(t.Context(), 0, nil, other), mailbox.ErrSettled)
	})
	t.Run("many at once", func(t *testing.T) {
		queue := newFake()
		message := held(t, queue)
		wantError(t, mailbox.AckAll(t.Context(), mailbox.MessageWithBody(message, 7)), nil)
		if !message.Settled() {
			t.Error("the message is not settled")
		}
	})
}

func TestMessageWithBodyIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := reply.NewMemory(nil)
		m, err := mailbox.Open(t.Context(), membox.New(nil), "orders", &mailbox.Options[string]{Replies: store})
		wantError(t, err, nil)
		defer m.Close()
		client := reply.NewClient[string, string](m, store, nil)
		for name, answer := range map[string]func(ctx context.Context, message *mailbox.Message[int]) error{
			"reply": func(ctx context.Context, message *mailbox.Message[int]) error {
				return mailbox.Reply(ctx, message, "fine")
			},
			"reply channel": func(ctx context.Context, message *mailbox.Message[int]) error {
				channel := mailbox.NewReplyChannel[string](message, nil)
				if open, err := channel.Open(ctx); !open || err != nil {
					t.Errorf("the channel is closed: %v", err)
				}
				wantError(t, channel.Send(ctx, "fine"), nil)
				return message.Ack(ctx)
			},
			"reply mailbox": func(ctx context.Context, message *mailbox.Message[int]) error {
				to, err := mailbox.ReplyMailbox[string](ctx, message, nil)
				wantError(t, err, nil)
				_, err = to.Send(ctx, "fine")
				wantError(t, err, nil)
				return message.Ack(ctx)
			},
		} {
			future, err := client.Send(t.Context(), "tea")
			wantError(t, err, nil)
			message := mustReceive(t, m, 1)[0]
			other := mailbox.MessageWithBody(message, 7)
			wantError(t, other.Ack(t.Context()), mailbox.ErrReplyExpected)
			wantError(t, answer(t.Context(), other), nil)
			got, err := future.Wait(t.Context())
			if err != nil || got != "fine" || !message.Settled() {
				t.Errorf("%s: the answer is %q, %v; settled %v", name, got, err, message.Settled())
			}
		}
	})
}

func TestSendOnlyCodecDoesNotReceive(t *testing.T) {
	codec := mailbox.CodecFunc("text/plain", func(string) ([]byte, error) { return nil, nil }, nil)
	m := mailbox.New("orders", driver.Queue(newFake()), &mailbox.Options[string]{Codec: codec})
	_, err := m.Receive(t.Context())
	wantError(t, err, mailbox.ErrInvalid)
}
