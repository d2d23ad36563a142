package mailbox_test

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
)

func TestReplyChannelTakesOneReplyWithoutAck(t *testing.T) {
	for _, address := range []string{"reply:a", "replies"} {
		d := newDesk(t, nil)
		wantError(t, d.slots.Create(t.Context(), "a", driver.MaxSlotTTL), nil)
		request := d.askAt(t, address)
		channel := mailbox.NewReplyChannel(request, mailbox.String())
		open, err := channel.Open(t.Context())
		wantError(t, err, nil)
		wantEqual(t, "open", open, true)
		wantError(t, channel.Send(t.Context(), "yes"), nil)
		wantError(t, channel.Send(t.Context(), "no"), mailbox.ErrReplyAlreadySent)
		wantError(t, channel.Fail(t.Context(), io.EOF), mailbox.ErrReplyAlreadySent)
		open, err = channel.Open(t.Context())
		wantError(t, err, nil)
		wantEqual(t, "open after the reply", open, false)
		wantEqual(t, "settled", request.Settled(), false)
		wantError(t, request.Ack(t.Context()), nil)
		if address == "replies" {
			wantEqual(t, "replies", len(d.resolver.Sent("replies")), 1)
		} else {
			d.wantSlot(t, "a", driver.SlotResolved, "yes")
		}
	}
}

func TestReplyChannelCanRepeatFailedSend(t *testing.T) {
	d := newDesk(t, nil)
	channel := mailbox.NewReplyChannel[int](d.ask(t, "a"), nil)
	remove := d.faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable})
	wantError(t, channel.Send(t.Context(), 1), mailbox.ErrUnavailable)
	remove()
	wantError(t, channel.Send(t.Context(), 1), nil)
	d.wantSlot(t, "a", driver.SlotResolved, "1")
}

func TestReplyChannelFailHasKind(t *testing.T) {
	d := newDesk(t, nil)
	channel := mailbox.NewReplyChannel[int](d.ask(t, "a"), nil)
	wantError(t, channel.Fail(t.Context(), nil), mailbox.ErrInvalid)
	wantError(t, channel.Fail(t.Context(), errSoldOut), nil)
	slot, err := d.slots.Get(t.Context(), "a")
	wantError(t, err, nil)
	wantEqual(t, "kind", slot.Answer.FailureKind, string(errSoldOut))
}

func TestReplyChannelClosesWithSlot(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	channel := mailbox.NewReplyChannel[int](request, nil)
	wantError(t, d.slots.Cancel(t.Context(), "a"), nil)
	open, err := channel.Open(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "open", open, false)
	wantError(t, channel.Send(t.Context(), 1), mailbox.ErrReplyCancelled)
	wantError(t, request.Ack(t.Context()), nil)

	gone := mailbox.NewReplyChannel[int](&mailbox.Message[string]{}, nil)
	open, err = gone.Open(t.Context())
	wantError(t, err, nil)
	wantEqual(t, "open without a mailbox", open, false)
}

func TestConcurrentRepliesSendOne(t *testing.T) {
	d := newDesk(t, nil)
	channel := mailbox.NewReplyChannel[int](d.askAt(t, "replies"), nil)
	var sent atomic.Int32
	parallel(8, func(i int) {
		if err := channel.Send(t.Context(), i); err == nil {
			sent.Add(1)
		} else if !errors.Is(err, mailbox.ErrReplyAlreadySent) {
			t.Error(err)
		}
	})
	wantEqual(t, "accepted", sent.Load(), 1)
	wantEqual(t, "sent", len(d.resolver.Sent()), 1)
}

// parallel runs f n times at once.
func parallel(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}
