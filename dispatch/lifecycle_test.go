package dispatch_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/dispatch"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
)

// collect subscribes to events of one type.
func collect[E any](d *dispatch.Dispatcher) *[]E {
	events := new([]E)
	dispatch.Subscribe(d, func(_ context.Context, event E) error {
		*events = append(*events, event)
		return nil
	})
	return events
}

func TestLOOP7MessageLifePublishesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := mailboxtest.NewFaults(nil)
		defer faults.Close()
		d := dispatch.New(nil)
		sent, received := collect[dispatch.Sent](d), collect[dispatch.Received](d)
		settled, dead := collect[dispatch.Settled](d), collect[dispatch.DeadLettered](d)
		replied := collect[dispatch.Replied](d)
		store := reply.NewMemory(nil)
		options := &mailbox.Options[string]{Hooks: dispatch.Hooks(d), Replies: store}
		orders, err := mailbox.Open(t.Context(), faults, "orders", options)
		expectError(t, err, nil)
		expectError(t, store.Create(t.Context(), "a", time.Hour), nil)

		_, err = orders.Send(t.Context(), "tea", mailbox.WithReplyTo("reply:a"), mailbox.WithCorrelationID("order 7"))
		expectError(t, err, nil)
		time.Sleep(time.Second)
		messages, err := orders.Receive(t.Context())
		expectError(t, err, nil)
		time.Sleep(time.Minute / 2)
		_ = messages[0].Extend(t.Context(), time.Minute)
		messages, err = orders.Receive(t.Context())
		expectError(t, err, nil)
		time.Sleep(time.Second)
		expectError(t, mailbox.ReplyError(t.Context(), messages[0], io.EOF), nil)

		_, err = orders.Send(t.Context(), "cake")
		expectError(t, err, nil)
		messages, err = orders.Receive(t.Context())
		expectError(t, err, nil)
		expectError(t, messages[0].DeadLetter(t.Context(), mailbox.ReasonFatal, io.ErrUnexpectedEOF), nil)
		faults.Add(mailboxtest.Fault{Op: "send", Err: mailbox.ErrUnavailable})
		_, err = orders.SendAll(t.Context(), []string{"milk", "sugar"})
		if err == nil {
			t.Error("the fault did not hit")
		}

		id := (*sent)[0].MessageID
		if first := (*sent)[0]; id == "" || first.Queue != "orders" || first.ReplyTo != "reply:a" || first.CorrelationID != "order 7" {
			t.Errorf("sent %+v", first)
		}
		if len(*sent) != 4 || !errors.Is((*sent)[3].Err, mailbox.ErrUnavailable) || (*sent)[3].MessageID != "" {
			t.Errorf("sent %+v", *sent)
		}
		if second := (*received)[1]; len(*received) != 3 || second.MessageID != id || second.Deliveries != 2 || second.Waited != time.Second+30*time.Second {
			t.Errorf("received %+v", *received)
		}
		if first := (*settled)[0]; len(*settled) != 2 || first.MessageID != id || first.Outcome != mailbox.OutcomeAck || first.Held != time.Second || first.Deliveries != 2 {
			t.Errorf("settled %+v", *settled)
		}
		if len(*dead) != 1 || (*dead)[0].Reason != mailbox.ReasonFatal || !errors.Is((*dead)[0].Cause, io.ErrUnexpectedEOF) {
			t.Errorf("dead-lettered %+v", *dead)
		}
		if len(*replied) != 1 || (*replied)[0].MessageID != id || (*replied)[0].ReplyTo != "reply:a" || (*replied)[0].Failure.Text != "EOF" || (*replied)[0].Err != nil {
			t.Errorf("replied %+v", *replied)
		}
	})
}

func TestLOOP7UndecodableBodyPublishesDeadLettered(t *testing.T) {
	faults := mailboxtest.NewFaults(nil)
	defer faults.Close()
	d := dispatch.New(nil)
	settled, dead := collect[dispatch.Settled](d), collect[dispatch.DeadLettered](d)
	raw, err := mailbox.Open(t.Context(), faults, "orders", &mailbox.Options[string]{Codec: mailbox.String()})
	expectError(t, err, nil)
	orders, err := mailbox.Open(t.Context(), faults, "orders", &mailbox.Options[int]{Hooks: dispatch.Hooks(d)})
	expectError(t, err, nil)
	for range 2 {
		_, err = raw.Send(t.Context(), "not a number")
		expectError(t, err, nil)
		_, err = orders.Receive(t.Context())
		expectError(t, err, nil)
		// The second message cannot be dead-lettered.
		faults.Add(mailboxtest.Fault{Op: "dead-letter", Err: mailbox.ErrUnavailable})
	}
	if len(*settled) != 2 || (*settled)[0].Outcome != mailbox.OutcomeDeadLetter || (*settled)[0].Err != nil || (*settled)[1].Err == nil {
		t.Errorf("settled %+v", *settled)
	}
	if len(*dead) != 1 || (*dead)[0].Reason != mailbox.ReasonParse || !errors.Is((*dead)[0].Cause, mailbox.ErrEncoding) {
		t.Errorf("dead-lettered %+v", *dead)
	}
}

func TestEventWithoutSubscribersDoesNotAllocate(t *testing.T) {
	d := dispatch.New(nil)
	ctx := t.Context()
	allocations := testing.AllocsPerRun(100, func() {
		if err := dispatch.Publish(ctx, d, dispatch.Sent{Queue: "orders"}); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 0 {
		t.Errorf("an event without subscribers costs %v allocations", allocations)
	}
}
