package reply_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/reply"
)

// counted counts how often serve was called.
func counted(n *int, serve func(context.Context, *mailbox.Message[string]) (string, error)) func(context.Context, *mailbox.Message[string]) (string, error) {
	return func(ctx context.Context, message *mailbox.Message[string]) (string, error) {
		*n++
		return serve(ctx, message)
	}
}

func TestRPL2RedeliveredAnsweredRequestIsOnlyAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		served := 0
		handle := reply.Handle(counted(&served, echo), nil)

		// The worker crashes between its reply and its ack.
		crash := o.faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable})
		expectError(t, handle(t.Context(), o.receive(t)), mailbox.ErrUnavailable)
		crash()
		time.Sleep(mailbox.DefaultVisibility)

		again := o.receive(t)
		expectEqual(t, "deliveries", again.Deliveries, 2)
		expectError(t, handle(t.Context(), again), nil)
		expectEqual(t, "times it was served", served, 1)
		o.expectRequests(t, mailbox.Stats{})
		answer, err := future.Wait(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "tea!")
	})
}

func TestRPL2RedeliveryAfterAnswerWasReadIsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		served := 0
		handle := reply.Handle(counted(&served, echo), nil)
		crash := o.faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable})
		expectError(t, handle(t.Context(), o.receive(t)), mailbox.ErrUnavailable)
		crash()
		_, err := future.Wait(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "slots", reply.Len(o.slots), 0)
		time.Sleep(mailbox.DefaultVisibility)
		expectError(t, handle(t.Context(), o.receive(t)), nil)
		expectEqual(t, "times it was served", served, 1)
		o.expectRequests(t, mailbox.Stats{})
	})
}

func TestRPL3RequestComesBackWhileStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		handle := reply.Handle(echo, nil)
		o.faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable, Times: 2})
		o.faults.Add(mailboxtest.Fault{Op: "get", Err: mailbox.ErrUnavailable, Times: 1})
		for range 3 {
			message := o.receive(t)
			expectError(t, handle(t.Context(), message), mailbox.ErrUnavailable)
			expectEqual(t, "settled", message.Settled(), false)
			time.Sleep(mailbox.DefaultVisibility)
		}
		expectError(t, handle(t.Context(), o.receive(t)), nil)
		answer, err := future.Wait(t.Context())
		expectError(t, err, nil)
		expectEqual(t, "answer", answer, "tea!")
		o.expectRequests(t, mailbox.Stats{})
	})
}

func TestHandleAcksRequestWithoutReplyAddress(t *testing.T) {
	o := newEnv(t)
	served := 0
	handle := reply.Handle(counted(&served, echo), nil)
	must(o.requests.Send(t.Context(), "tea"))(t)
	expectError(t, handle(t.Context(), o.receive(t)), nil)
	expectEqual(t, "served", served, 1)
	o.expectRequests(t, mailbox.Stats{})

	// A failure without a reply address is returned to the caller.
	must(o.requests.Send(t.Context(), "coffee"))(t)
	message := o.receive(t)
	expectError(t, handle(t.Context(), message), errSoldOut)
	expectEqual(t, "settled", message.Settled(), false)
}

func TestHandleRepliesToMailboxThenAcks(t *testing.T) {
	o := newEnv(t)
	replies := o.replies(t, "replies")
	handle := reply.Handle(echo, nil)
	for _, body := range []string{"tea", "coffee"} {
		sent := must(o.requests.Send(t.Context(), body, mailbox.WithReplyTo("replies")))(t)
		expectError(t, handle(t.Context(), o.receive(t)), nil)
		answer, err := reply.Await(t.Context(), replies, sent.ID)
		if body == "tea" {
			expectError(t, err, nil)
			expectEqual(t, "answer", answer, "tea!")
		} else {
			expectError(t, err, errSoldOut)
		}
	}
	o.expectRequests(t, mailbox.Stats{})
}

func TestHandleReturnsErrorForBadReplyAddress(t *testing.T) {
	o := newEnv(t)
	handle := reply.Handle(echo, nil)
	for _, address := range []string{"no{where}", "gopher://x"} {
		must(o.requests.Send(t.Context(), "tea", mailbox.WithReplyTo(address)))(t)
	}
	o.registry.Close()
	for range 2 {
		message := o.receive(t)
		if err := handle(t.Context(), message); err == nil {
			t.Errorf("%s: no error", message.ReplyTo)
		}
		expectEqual(t, "settled", message.Settled(), false)
	}
}

func TestNonFinalFailureIsReturnedNotAnswered(t *testing.T) {
	o := newEnv(t)
	future := must(o.client(nil).Send(t.Context(), "coffee"))(t)
	handle := reply.Handle(echo, &reply.HandleOptions[string]{
		Final: func(deliveries int, err error) bool { return deliveries >= 2 && errors.Is(err, errSoldOut) },
	})
	first := o.receive(t)
	expectError(t, handle(t.Context(), first), errSoldOut)
	expectEqual(t, "settled", first.Settled(), false)
	ready, err := future.Ready(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "answered", ready, false)
	expectError(t, first.Nack(t.Context(), 0, errSoldOut), nil)

	expectError(t, handle(t.Context(), o.receive(t)), nil)
	_, err = future.Wait(t.Context())
	expectError(t, err, errSoldOut)
	o.expectRequests(t, mailbox.Stats{})
}

func TestFailureOfStoppedWorkerIsNotAnswered(t *testing.T) {
	o := newEnv(t)
	future := must(o.client(nil).Send(t.Context(), "tea"))(t)
	ctx, stop := context.WithCancel(t.Context())
	handle := reply.Handle(func(ctx context.Context, _ *mailbox.Message[string]) (string, error) {
		stop()
		return "", ctx.Err()
	}, nil)
	message := o.receive(t)
	expectError(t, handle(ctx, message), context.Canceled)
	expectEqual(t, "settled", message.Settled(), false)
	ready, err := future.Ready(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "answered", ready, false)
}

func TestUnencodableAnswerSendsNoErrorReply(t *testing.T) {
	o := newEnv(t)
	future := must(o.client(nil).Send(t.Context(), "tea"))(t)
	handle := reply.Handle(func(context.Context, *mailbox.Message[string]) (func(), error) { return nil, nil }, nil)
	message := o.receive(t)
	expectError(t, handle(t.Context(), message), mailbox.ErrEncoding)
	expectEqual(t, "settled", message.Settled(), false)
	ready, err := future.Ready(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "answered", ready, false)
}

func TestHandleAcksRequestThatExpiredMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		future := must(o.client(&reply.Options[string]{TTL: time.Second}).Send(t.Context(), "tea"))(t)
		cancelled := must(o.client(nil).Send(t.Context(), "tea"))(t)
		handle := reply.Handle(func(ctx context.Context, m *mailbox.Message[string]) (string, error) {
			time.Sleep(2 * time.Second)
			_ = cancelled.Cancel(ctx)
			return "late", nil
		}, nil)
		for range 2 {
			expectError(t, handle(t.Context(), o.receive(t)), nil)
		}
		o.expectRequests(t, mailbox.Stats{})
		_, err := future.Wait(t.Context())
		expectError(t, err, mailbox.ErrTimeout)
	})
}

func TestHandleUsesItsCodec(t *testing.T) {
	o := newEnv(t)
	client := o.client(&reply.Options[string]{Codec: mailbox.String()})
	future := must(client.Send(t.Context(), "tea"))(t)
	handle := reply.Handle(echo, &reply.HandleOptions[string]{Codec: mailbox.String()})
	expectError(t, handle(t.Context(), o.receive(t)), nil)
	slot, err := o.slots.Get(t.Context(), future.ID())
	expectError(t, err, nil)
	expectEqual(t, "body", string(slot.Answer.Body), "tea!")
	answer, err := future.Wait(t.Context())
	expectError(t, err, nil)
	expectEqual(t, "answer", answer, "tea!")
}

func TestDeadLetteredRequestIsAckedAfterFailedReply(t *testing.T) {
	o := newEnv(t)
	must(o.client(nil).Send(t.Context(), "tea"))(t)
	message := o.receive(t)
	o.faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable})
	// A worker that keeps dead letters in a mailbox writes the dead letter, tries the
	// error reply, and acks.
	expectError(t, mailbox.ReplyError(t.Context(), message, io.EOF), mailbox.ErrUnavailable)
	expectError(t, message.Ack(t.Context()), mailbox.ErrReplyExpected)
	expectError(t, message.AckUnanswered(t.Context()), nil)
	o.expectRequests(t, mailbox.Stats{})
}

func TestMemoryRefusesExcessSlotsAndLargeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := reply.NewMemory(&reply.MemoryOptions{MaxSlots: 2, MaxBodyBytes: 3})
		expectError(t, store.Create(t.Context(), "a", time.Minute), nil)
		expectError(t, store.Create(t.Context(), "b", time.Hour), nil)
		err := store.Create(t.Context(), "c", time.Hour)
		expectError(t, err, mailbox.ErrFull)
		expectEqual(t, "hint", mailbox.RetryAfter(err), time.Minute)
		expectError(t, store.Resolve(t.Context(), "a", driver.Answer{Body: []byte("four")}), mailbox.ErrTooLarge)
		expectError(t, store.Resolve(t.Context(), "a", driver.Answer{Body: []byte("tea")}), nil)
		time.Sleep(time.Minute)
		expectError(t, store.Create(t.Context(), "c", time.Hour), nil) // what has expired makes room
		expectEqual(t, "slots", reply.Len(store), 2)
	})
}

func TestMemorySweepsExpiredSlotsOnCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := reply.NewMemory(nil)
		for i := range 1000 {
			expectError(t, store.Create(t.Context(), string(rune('a'+i%26))+time.Duration(i).String(), time.Second), nil)
		}
		time.Sleep(2 * time.Minute)
		for i := range 1000 {
			expectError(t, store.Create(t.Context(), "new "+time.Duration(i).String(), time.Hour), nil)
		}
		expectEqual(t, "slots", reply.Len(store), 1000)
	})
}
