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

func TestRPL2RedeliveredAnsweredRequestIsAckedAndNotServedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		served := 0
		handle := reply.Handle(counted(&served, echo), nil)

		// The worker crashes between its reply and its ack.
		crash := o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Err: mailbox.ErrUnavailable})
		wantError(t, handle(t.Context(), o.receive(t)), mailbox.ErrUnavailable)
		crash()
		time.Sleep(mailbox.DefaultVisibility)

		again := o.receive(t)
		wantEqual(t, "deliveries", again.Deliveries, 2)
		wantError(t, handle(t.Context(), again), nil)
		wantEqual(t, "times it was served", served, 1)
		o.wantRequests(t, mailbox.Stats{})
		answer, err := future.Wait(t.Context())
		wantError(t, err, nil)
		wantEqual(t, "answer", answer, "tea!")
	})
}

func TestRPL2RedeliveryAfterTheAnswerWasReadAcksToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		served := 0
		handle := reply.Handle(counted(&served, echo), nil)
		crash := o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpAck, Err: mailbox.ErrUnavailable})
		wantError(t, handle(t.Context(), o.receive(t)), mailbox.ErrUnavailable)
		crash()
		_, err := future.Wait(t.Context())
		wantError(t, err, nil)
		wantEqual(t, "slots", o.slots.Len(), 0)
		time.Sleep(mailbox.DefaultVisibility)
		wantError(t, handle(t.Context(), o.receive(t)), nil)
		wantEqual(t, "times it was served", served, 1)
		o.wantRequests(t, mailbox.Stats{})
	})
}

func TestRPL3FailingStoreBringsTheRequestBackUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		handle := reply.Handle(echo, nil)
		o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpReplyResolve, Err: mailbox.ErrUnavailable, Times: 2})
		o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpReplyGet, Err: mailbox.ErrUnavailable, Times: 1})
		for range 3 {
			message := o.receive(t)
			wantError(t, handle(t.Context(), message), mailbox.ErrUnavailable)
			wantEqual(t, "settled", message.Settled(), false)
			time.Sleep(mailbox.DefaultVisibility)
		}
		wantError(t, handle(t.Context(), o.receive(t)), nil)
		answer, err := future.Wait(t.Context())
		wantError(t, err, nil)
		wantEqual(t, "answer", answer, "tea!")
		o.wantRequests(t, mailbox.Stats{})
	})
}

func TestHandleServesAndAcksWhatExpectsNoReply(t *testing.T) {
	o := newOffice(t)
	served := 0
	handle := reply.Handle(counted(&served, echo), nil)
	must(o.requests.Send(t.Context(), "tea"))(t)
	wantError(t, handle(t.Context(), o.receive(t)), nil)
	wantEqual(t, "served", served, 1)
	o.wantRequests(t, mailbox.Stats{})

	// A failure with nobody to tell is the caller's.
	must(o.requests.Send(t.Context(), "coffee"))(t)
	message := o.receive(t)
	wantError(t, handle(t.Context(), message), errSoldOut)
	wantEqual(t, "settled", message.Settled(), false)
}

func TestHandleRepliesToMailboxesAndThenAcks(t *testing.T) {
	o := newOffice(t)
	replies := o.replies(t, "replies")
	handle := reply.Handle(echo, nil)
	for _, body := range []string{"tea", "coffee"} {
		sent := must(o.requests.Send(t.Context(), body, mailbox.WithReplyTo("replies")))(t)
		wantError(t, handle(t.Context(), o.receive(t)), nil)
		answer, err := reply.Await(t.Context(), replies, sent.ID)
		if body == "tea" {
			wantError(t, err, nil)
			wantEqual(t, "answer", answer, "tea!")
		} else {
			wantError(t, err, errSoldOut)
		}
	}
	o.wantRequests(t, mailbox.Stats{})
}

func TestHandleLeavesWhatCannotBeAnswered(t *testing.T) {
	o := newOffice(t)
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
		wantEqual(t, "settled", message.Settled(), false)
	}
}

func TestFailureThatIsNotFinalIsReturnedAndNotAnswered(t *testing.T) {
	o := newOffice(t)
	future := must(o.client(nil).Send(t.Context(), "coffee"))(t)
	handle := reply.Handle(echo, &reply.HandleOptions[string]{
		Final: func(deliveries int, err error) bool { return deliveries >= 2 && errors.Is(err, errSoldOut) },
	})
	first := o.receive(t)
	wantError(t, handle(t.Context(), first), errSoldOut)
	wantEqual(t, "settled", first.Settled(), false)
	ready, err := future.Ready(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "answered", ready, false)
	wantError(t, first.Nack(t.Context(), 0, errSoldOut), nil)

	wantError(t, handle(t.Context(), o.receive(t)), nil)
	_, err = future.Wait(t.Context())
	wantError(t, err, errSoldOut)
	o.wantRequests(t, mailbox.Stats{})
}

func TestFailureOfAWorkerThatIsStoppedIsNotAnswered(t *testing.T) {
	o := newOffice(t)
	future := must(o.client(nil).Send(t.Context(), "tea"))(t)
	ctx, stop := context.WithCancel(t.Context())
	handle := reply.Handle(func(ctx context.Context, _ *mailbox.Message[string]) (string, error) {
		stop()
		return "", ctx.Err()
	}, nil)
	message := o.receive(t)
	wantError(t, handle(ctx, message), context.Canceled)
	wantEqual(t, "settled", message.Settled(), false)
	ready, err := future.Ready(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "answered", ready, false)
}

func TestAnswerThatCannotBeEncodedIsNoMadeUpError(t *testing.T) {
	o := newOffice(t)
	future := must(o.client(nil).Send(t.Context(), "tea"))(t)
	handle := reply.Handle(func(context.Context, *mailbox.Message[string]) (func(), error) { return nil, nil }, nil)
	message := o.receive(t)
	wantError(t, handle(t.Context(), message), mailbox.ErrEncoding)
	wantEqual(t, "settled", message.Settled(), false)
	ready, err := future.Ready(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "answered", ready, false)
}

func TestHandleAcksWhatExpiredOrWasCancelledWhileItWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		future := must(o.client(&reply.Options[string]{TTL: time.Second}).Send(t.Context(), "tea"))(t)
		cancelled := must(o.client(nil).Send(t.Context(), "tea"))(t)
		handle := reply.Handle(func(ctx context.Context, m *mailbox.Message[string]) (string, error) {
			time.Sleep(2 * time.Second)
			_ = cancelled.Cancel(ctx)
			return "late", nil
		}, nil)
		for range 2 {
			wantError(t, handle(t.Context(), o.receive(t)), nil)
		}
		o.wantRequests(t, mailbox.Stats{})
		_, err := future.Wait(t.Context())
		wantError(t, err, mailbox.ErrTimeout)
	})
}

func TestHandleUsesItsCodec(t *testing.T) {
	o := newOffice(t)
	client := o.client(&reply.Options[string]{Codec: mailbox.String()})
	future := must(client.Send(t.Context(), "tea"))(t)
	handle := reply.Handle(echo, &reply.HandleOptions[string]{Codec: mailbox.String()})
	wantError(t, handle(t.Context(), o.receive(t)), nil)
	slot, err := o.slots.Get(t.Context(), future.ID())
	wantError(t, err, nil)
	wantEqual(t, "body", string(slot.Answer.Body), "tea!")
	answer, err := future.Wait(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "answer", answer, "tea!")
}

func TestDeadLetteredRequestIsAckedAlthoughItsErrorReplyFailed(t *testing.T) {
	o := newOffice(t)
	must(o.client(nil).Send(t.Context(), "tea"))(t)
	message := o.receive(t)
	o.faults.Add(mailboxtest.Fault{Op: mailboxtest.OpReplyResolve, Err: mailbox.ErrUnavailable})
	// What a worker does that keeps dead letters elsewhere: the letter first,
	// then the error reply as well as may be, then the ack.
	wantError(t, mailbox.ReplyError(t.Context(), message, io.EOF), mailbox.ErrUnavailable)
	wantError(t, message.Ack(t.Context()), mailbox.ErrReplyExpected)
	wantError(t, message.AckUnanswered(t.Context()), nil)
	o.wantRequests(t, mailbox.Stats{})
}

func TestMemoryRefusesTooManySlotsAndTooLargeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := reply.NewMemory(&reply.MemoryOptions{MaxSlots: 2, MaxBodyBytes: 3})
		wantError(t, store.Create(t.Context(), "a", time.Minute), nil)
		wantError(t, store.Create(t.Context(), "b", time.Hour), nil)
		err := store.Create(t.Context(), "c", time.Hour)
		wantError(t, err, mailbox.ErrFull)
		wantEqual(t, "hint", mailbox.RetryAfter(err), time.Minute)
		wantError(t, store.Resolve(t.Context(), "a", driver.Answer{Body: []byte("four")}), mailbox.ErrTooLarge)
		wantError(t, store.Resolve(t.Context(), "a", driver.Answer{Body: []byte("tea")}), nil)
		time.Sleep(time.Minute)
		wantError(t, store.Create(t.Context(), "c", time.Hour), nil) // what has expired makes room
		wantEqual(t, "slots", store.Len(), 2)
	})
}

func TestMemorySweepsWhatHasLongExpiredByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := reply.NewMemory(nil)
		for i := range 1000 {
			wantError(t, store.Create(t.Context(), string(rune('a'+i%26))+time.Duration(i).String(), time.Second), nil)
		}
		time.Sleep(2 * time.Minute)
		for i := range 1000 {
			wantError(t, store.Create(t.Context(), "new "+time.Duration(i).String(), time.Hour), nil)
		}
		wantEqual(t, "slots", store.Len(), 1000)
	})
}
