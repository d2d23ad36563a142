package mailbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

// desk is a mailbox of requests with a reply store and a resolver.
type desk struct {
	requests *mailbox.Mailbox[string]
	slots    driver.ReplyStore
	faults   *mailboxtest.Faults // of the store, and of the backend
	resolver *mailboxtest.Resolver
}

func newDesk(t *testing.T, options *mailbox.Options[string]) *desk {
	t.Helper()
	if options == nil {
		options = new(mailbox.Options[string])
	}
	backend := membox.New(nil)
	d := &desk{slots: reply.NewMemory(nil), faults: mailboxtest.NewFaults(backend), resolver: mailboxtest.NewResolver()}
	options.Replies, options.Resolver = d.faults.Replies(d.slots), d.resolver
	requests, err := mailbox.Open(t.Context(), d.faults, "requests", options)
	if err != nil {
		t.Fatal(err)
	}
	d.requests = requests
	t.Cleanup(func() { requests.Close(); backend.Close() })
	return d
}

// ask makes a slot and receives a request that names it.
func (d *desk) ask(t *testing.T, slot string, options ...mailbox.ReceiveOption) *mailbox.Message[string] {
	t.Helper()
	if err := d.slots.Create(t.Context(), slot, time.Hour); err != nil {
		t.Fatal(err)
	}
	return d.askAt(t, driver.SlotAddress(slot), options...)
}

// askAt receives a request with this reply address.
func (d *desk) askAt(t *testing.T, address string, options ...mailbox.ReceiveOption) *mailbox.Message[string] {
	t.Helper()
	if _, err := d.requests.Send(t.Context(), "tea?", mailbox.WithReplyTo(address)); err != nil {
		t.Fatal(err)
	}
	return mustReceive(t, d.requests, 1, options...)[0]
}

func (d *desk) wantSlot(t *testing.T, id string, state driver.SlotState, body string) {
	t.Helper()
	slot, err := d.slots.Get(t.Context(), id)
	wantError(t, err, nil)
	wantEqual(t, "state of slot "+id, slot.State, state)
	wantEqual(t, "answer in slot "+id, string(slot.Answer.Body), body)
}

func TestRPL1SlotQueueTakesOneMessage(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	box, err := mailbox.ReplyMailbox[int](t.Context(), request, nil)
	wantError(t, err, nil)
	for _, option := range []mailbox.SendOption{
		mailbox.WithAttribute("k", "v"), mailbox.WithDelay(time.Second), mailbox.WithGroup("g"),
		mailbox.WithDedupKey("k"), mailbox.WithReplyTo("elsewhere"), mailbox.WithCorrelationID("c"),
	} {
		if _, err := box.Send(t.Context(), 1, option); !errors.Is(err, mailbox.ErrUnsupported) && !errors.Is(err, mailbox.ErrInvalid) {
			t.Errorf("%v: error is %v, want a refusal", option, err)
		}
	}
	sent, err := box.SendAll(t.Context(), []int{1, 2})
	wantError(t, mailbox.ErrorAt(err, 0), nil)
	wantError(t, mailbox.ErrorAt(err, 1), mailbox.ErrReplyAlreadySent)
	wantEqual(t, "id of the reply", sent[0].ID, "a")
	d.wantSlot(t, "a", driver.SlotResolved, "1")
	wantEqual(t, "settled", request.Settled(), false)
	for name, err := range map[string]error{
		"receive": errorOf(box.Receive(t.Context())),
		"purge":   errorOf(box.Purge(t.Context())),
		"stats":   errorOf(box.Stats(t.Context())),
		"ack":     box.Queue().Ack(t.Context(), nil),
		"nack":    box.Queue().Nack(t.Context(), nil),
		"extend":  errorOf(box.Queue().Extend(t.Context(), nil)),
	} {
		if !errors.Is(err, mailbox.ErrUnsupported) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	wantError(t, box.Close(), nil)
	wantError(t, request.Ack(t.Context()), nil) // it was answered
}

func errorOf[V any](_ V, err error) error { return err }

func TestRPL1OneWorkerAnswersMailboxesAndSlots(t *testing.T) {
	d := newDesk(t, nil)
	for _, request := range []*mailbox.Message[string]{d.ask(t, "a"), d.askAt(t, "replies")} {
		if !request.ExpectsReply() {
			t.Error("a request with a reply address says that it expects no reply")
		}
		wantError(t, mailbox.Reply(t.Context(), request, 42), nil)
		if !request.Settled() {
			wantError(t, request.Ack(t.Context()), nil)
		}
	}
	d.wantSlot(t, "a", driver.SlotResolved, "42")
	replies := d.resolver.Sent("replies")
	if len(replies) != 1 || string(replies[0].Body) != "42" {
		t.Errorf("sent to replies: %+v", replies)
	}
	wantSame(t, "resolved identifiers", d.resolver.Log(), []string{"replies"})
	wantStats(t, d.requests, mailbox.Stats{})
}

func TestRPL2MailboxTakesRepliesUntilSettled(t *testing.T) {
	d := newDesk(t, nil)
	request := d.askAt(t, "replies")
	box, err := mailbox.ReplyMailbox[string](t.Context(), request, nil)
	wantError(t, err, nil)
	wantError(t, mailbox.Reply(t.Context(), request, "one"), nil)
	_, err = box.Send(t.Context(), "two", mailbox.WithCorrelationID("my own"))
	wantError(t, err, nil)
	wantError(t, mailbox.Reply(t.Context(), request, "three", mailbox.WithAttribute("k", "v")), nil)
	wantEqual(t, "settled", request.Settled(), false)
	wantStats(t, d.requests, mailbox.Stats{InFlight: 1})
	wantError(t, request.Ack(t.Context()), nil)

	wantError(t, mailbox.Reply(t.Context(), request, "late"), mailbox.ErrSettled)
	_, err = box.Send(t.Context(), "late")
	wantError(t, err, mailbox.ErrSettled)
	replies := d.resolver.Sent()
	texts, err := mailboxtest.Bodies(mailbox.JSON[string](), replies)
	wantError(t, err, nil)
	wantSame(t, "replies", texts, []string{"one", "two", "three"})
	wantEqual(t, "correlation", replies[0].CorrelationID, request.ID)
	wantEqual(t, "correlation that was given", replies[1].CorrelationID, "my own")
	wantEqual(t, "attribute", replies[2].Attributes["k"], "v")
}

func TestRPL2RepliesHaveCorrelationIDOfRequest(t *testing.T) {
	d := newDesk(t, nil)
	_, err := d.requests.Send(t.Context(), "tea?", mailbox.WithReplyTo("replies"), mailbox.WithCorrelationID("order 7"))
	wantError(t, err, nil)
	request := mustReceive(t, d.requests, 1)[0]
	wantError(t, mailbox.Reply(t.Context(), request, "yes"), nil)
	wantError(t, mailbox.ReplyError(t.Context(), request, io.EOF), nil)
	for _, reply := range d.resolver.Sent() {
		wantEqual(t, "correlation", reply.CorrelationID, "order 7")
	}
}

func TestRPL2SecondSlotReplyIsRefused(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	wantError(t, mailbox.Reply(t.Context(), request, "first"), nil)
	wantEqual(t, "settled", request.Settled(), true)
	wantStats(t, d.requests, mailbox.Stats{})
	wantError(t, mailbox.Reply(t.Context(), request, "second"), mailbox.ErrReplyAlreadySent)
	wantError(t, mailbox.ReplyError(t.Context(), request, io.EOF), mailbox.ErrReplyAlreadySent)
	d.wantSlot(t, "a", driver.SlotResolved, `"first"`)
}

func TestRPL2ReplyAcksRedeliveredRequest(t *testing.T) {
	d := newDesk(t, nil)
	first := d.ask(t, "a")
	box, err := mailbox.ReplyMailbox[string](t.Context(), first, nil)
	wantError(t, err, nil)
	_, err = box.Send(t.Context(), "first") // and then the worker dies, before its ack
	wantError(t, err, nil)
	wantError(t, first.Release(t.Context()), nil)

	again := mustReceive(t, d.requests, 1)[0]
	wantEqual(t, "deliveries", again.Deliveries, 1)
	wantError(t, mailbox.Reply(t.Context(), again, "second"), mailbox.ErrReplyAlreadySent)
	wantEqual(t, "settled", again.Settled(), true)
	wantStats(t, d.requests, mailbox.Stats{})
	d.wantSlot(t, "a", driver.SlotResolved, `"first"`)
}

func TestRPL2AckBeforeReplyIsRefused(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	wantError(t, request.Ack(t.Context()), mailbox.ErrReplyExpected)
	wantError(t, mailbox.ErrorAt(mailbox.AckAll(t.Context(), request), 0), mailbox.ErrReplyExpected)
	wantEqual(t, "settled", request.Settled(), false)
	wantError(t, request.Extend(t.Context(), time.Minute), nil)
	wantError(t, request.Nack(t.Context(), 0, io.EOF), nil)

	again := mustReceive(t, d.requests, 1)[0]
	wantError(t, again.DeadLetter(t.Context(), mailbox.ReasonFatal, io.EOF), nil)
	wantStats(t, d.requests, mailbox.Stats{Dead: 1})

	// A request that was dead-lettered elsewhere is acked too.
	elsewhere := d.ask(t, "b")
	wantError(t, elsewhere.Ack(t.Context()), mailbox.ErrReplyExpected)
	wantError(t, elsewhere.AckUnanswered(t.Context()), nil)
	wantError(t, elsewhere.AckUnanswered(t.Context()), mailbox.ErrSettled)
	wantStats(t, d.requests, mailbox.Stats{Dead: 1})
}

func TestRPL2MailboxRequestIsAckedWithoutReply(t *testing.T) {
	d := newDesk(t, nil)
	wantError(t, d.askAt(t, "replies").Ack(t.Context()), nil)
}

func TestRPL2ReplyToClosedSlotAcksWithError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code, end := range map[mailbox.Code]func(d *desk) error{
			mailbox.ErrReplyCancelled: func(d *desk) error { return d.slots.Cancel(t.Context(), "a") },
			mailbox.ErrReplyExpired:   func(*desk) error { time.Sleep(time.Hour); return nil },
			mailbox.ErrReplyAlreadySent: func(d *desk) error {
				return d.slots.Resolve(t.Context(), "a", driver.Answer{Body: []byte("1")})
			},
		} {
			d := newDesk(t, nil)
			request := d.ask(t, "a", mailbox.WithVisibility(2*time.Hour))
			wantError(t, end(d), nil)
			wantError(t, mailbox.Reply(t.Context(), request, 2), code)
			wantEqual(t, "settled after "+string(code), request.Settled(), true)
			wantError(t, mailbox.Reply(t.Context(), request, 3), code)
			wantStats(t, d.requests, mailbox.Stats{})
		}
	})
}

func TestRPL2MissingSlotCountsAsExpired(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	wantError(t, d.slots.Delete(t.Context(), "a"), nil) // read, or swept
	err := mailbox.Reply(t.Context(), request, "late")
	wantError(t, err, mailbox.ErrReplyExpired)
	wantError(t, err, mailbox.ErrNotFound)
	wantStats(t, d.requests, mailbox.Stats{})

	plain := d.ask(t, "b")
	wantError(t, d.slots.Delete(t.Context(), "b"), nil)
	wantError(t, plain.Ack(t.Context()), nil)
}

func TestRPL3ReplyIsStoredBeforeAck(t *testing.T) {
	var order []string
	d := newDesk(t, &mailbox.Options[string]{Hooks: mailbox.Hooks{
		Replied: func(_ context.Context, e mailbox.RepliedEvent) { order = append(order, "reply", e.ReplyTo) },
		Settled: func(_ context.Context, e mailbox.SettledEvent) { order = append(order, string(e.Outcome)) },
	}})
	wantError(t, mailbox.Reply(t.Context(), d.ask(t, "a"), 1), nil)
	wantSame(t, "order", order, []string{"reply", "reply:a", "ack"})
}

func TestRPL3FailedStoreLeavesRequestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		for _, late := range []bool{false, true} {
			slot := fmt.Sprint("late ", late)
			request := d.ask(t, slot)
			remove := d.faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable, Late: late})
			wantError(t, mailbox.Reply(t.Context(), request, 1), mailbox.ErrUnavailable)
			wantEqual(t, "settled", request.Settled(), false)
			wantStats(t, d.requests, mailbox.Stats{InFlight: 1})
			remove()
			time.Sleep(mailbox.DefaultVisibility)
			again := mustReceive(t, d.requests, 1)[0]
			err := mailbox.Reply(t.Context(), again, 1)
			if late { // the first was stored after all
				wantError(t, err, mailbox.ErrReplyAlreadySent)
			} else {
				wantError(t, err, nil)
			}
			d.wantSlot(t, slot, driver.SlotResolved, "1")
			wantStats(t, d.requests, mailbox.Stats{})
		}
	})
}

func TestRPL3FailedAckLeavesAnsweredRequest(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	remove := d.faults.Add(mailboxtest.Fault{Op: "ack", Err: mailbox.ErrUnavailable})
	wantError(t, mailbox.Reply(t.Context(), request, 1), mailbox.ErrUnavailable)
	d.wantSlot(t, "a", driver.SlotResolved, "1")
	wantEqual(t, "settled", request.Settled(), false)
	remove()
	wantError(t, mailbox.Reply(t.Context(), request, 2), mailbox.ErrReplyAlreadySent) // and acks
	wantEqual(t, "settled", request.Settled(), true)
	wantStats(t, d.requests, mailbox.Stats{})
}

func TestRPL3AckFailsWhileStoreIsUnreachable(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	d.faults.Add(mailboxtest.Fault{Op: "get", Err: mailbox.ErrUnavailable})
	wantError(t, request.Ack(t.Context()), mailbox.ErrUnavailable)
	wantEqual(t, "settled", request.Settled(), false)
}

func TestRPL4MissingReplyAddressIsErrNoReplyTo(t *testing.T) {
	d := newDesk(t, nil)
	bare, _ := onMemory(t, nil) // neither a resolver nor a store
	d.resolver.FailOn("nowhere", nil)
	for name, request := range map[string]*mailbox.Message[string]{
		"no address":    d.askAt(t, ""),
		"unresolved":    d.askAt(t, "nowhere"),
		"no resolver":   askOn(t, bare, "replies"),
		"no store":      askOn(t, bare, "reply:a"),
		"empty address": askOn(t, bare, ""),
	} {
		for what, err := range map[string]error{
			"reply":         mailbox.Reply(t.Context(), request, 1),
			"error reply":   mailbox.ReplyError(t.Context(), request, io.EOF),
			"reply mailbox": errorOf(mailbox.ReplyMailbox[int](t.Context(), request, nil)),
			"reply channel": mailbox.NewReplyChannel[int](request, nil).Send(t.Context(), 1),
		} {
			if !errors.Is(err, mailbox.ErrNoReplyTo) {
				t.Errorf("%s, %s: error is %v", name, what, err)
			}
		}
		if name == "unresolved" {
			wantError(t, mailbox.Reply(t.Context(), request, 1), mailbox.ErrUnresolved)
		}
		wantEqual(t, name+": settled", request.Settled(), false)
	}
}

func askOn(t *testing.T, requests *mailbox.Mailbox[string], address string) *mailbox.Message[string] {
	t.Helper()
	_, err := requests.Send(t.Context(), "tea?", mailbox.WithReplyTo(address))
	wantError(t, err, nil)
	return mustReceive(t, requests, 1)[0]
}

func TestRPL4UnavailableResolverIsNotErrNoReplyTo(t *testing.T) {
	d := newDesk(t, nil)
	d.resolver.FailOn("replies", mailbox.ErrUnavailable)
	err := mailbox.Reply(t.Context(), d.askAt(t, "replies"), 1)
	wantError(t, err, mailbox.ErrUnavailable)
	wantEqual(t, "taken for a missing address", errors.Is(err, mailbox.ErrNoReplyTo), false)
}

func TestReplyRefusesInvalidReply(t *testing.T) {
	d := newDesk(t, nil)
	request := d.ask(t, "a")
	wantError(t, mailbox.Reply(t.Context(), request, func() {}), mailbox.ErrEncoding)
	wantError(t, mailbox.ReplyError(t.Context(), request, nil), mailbox.ErrInvalid)
	wantError(t, mailbox.Reply(t.Context(), request, make([]byte, 2<<20)), mailbox.ErrTooLarge)
	wantError(t, mailbox.Reply[int, string](t.Context(), nil, 1), mailbox.ErrInvalid)
	wantError(t, mailbox.Reply(t.Context(), &mailbox.Message[string]{ReplyTo: "reply:a"}, 1), mailbox.ErrInvalid)
	wantEqual(t, "settled", request.Settled(), false)
	d.wantSlot(t, "a", driver.SlotPending, "")
}

const errSoldOut mailbox.FailureKind = "sold out"

func TestRPL6ErrorRepliesKeepKind(t *testing.T) {
	for _, test := range []struct {
		cause error
		kind  mailbox.FailureKind
		text  string
	}{
		{errSoldOut, "sold out", "sold out"},
		{fmt.Errorf("tea: %w", errSoldOut), "sold out", "tea: sold out"},
		{&mailbox.Failure{Kind: "remote", Text: "from afar"}, "remote", "from afar"},
		{errUnavailable, "backend unavailable", errUnavailable.Error()},
		{fmt.Errorf("wrapped: %w", mailbox.ErrFull), "full", "wrapped: full"},
		{io.ErrUnexpectedEOF, "*errors.errorString", "unexpected EOF"},
		{errors.New(""), "*errors.errorString", "*errors.errorString"},
		{errors.New("bad \xff byte"), "*errors.errorString", "bad \uFFFD byte"},
	} {
		d := newDesk(t, nil)
		wantError(t, mailbox.ReplyError(t.Context(), d.ask(t, "a"), test.cause), nil)
		slot, err := d.slots.Get(t.Context(), "a")
		wantError(t, err, nil)
		wantEqual(t, "kind", slot.Answer.FailureKind, string(test.kind))
		wantEqual(t, "text", slot.Answer.Failure, test.text)
		wantEqual(t, "body", len(slot.Answer.Body), 0)

		failure := mailbox.NewFailure(test.cause)
		wantError(t, failure, test.kind)
		wantEqual(t, "local codes of a remote failure", errors.Is(failure, mailbox.ErrFull), false)
	}
}

func TestRPL6PlainMailboxCannotDecodeErrorReply(t *testing.T) {
	// An empty body would be a string to this codec.
	box, _ := onMemory(t, &mailbox.Options[string]{Codec: mailbox.String()})
	for _, attributes := range []map[string]string{
		{replyslot.AttributeError: "sold out", replyslot.AttributeKind: "sold out"},
		{replyslot.AttributeEnd: "true"},
	} {
		_, err := box.Send(t.Context(), "", mailbox.WithAttributes(attributes))
		wantError(t, err, nil)
	}
	messages, err := box.Receive(t.Context(), mailbox.WithMax(10))
	wantError(t, err, nil)
	wantEqual(t, "messages", len(messages), 0)
	for letter, err := range box.DeadLetters(t.Context()) {
		wantError(t, err, nil)
		wantEqual(t, "reason", letter.Reason, mailbox.ReasonParse)
		wantError(t, letter.DecodeErr, mailbox.ErrEncoding)
	}
	wantStats(t, box, mailbox.Stats{Dead: 2})
}

func TestRepliedEventsHaveFailure(t *testing.T) {
	var events []mailbox.RepliedEvent
	d := newDesk(t, &mailbox.Options[string]{Hooks: mailbox.Hooks{
		Replied: func(_ context.Context, e mailbox.RepliedEvent) { events = append(events, e) },
	}})
	request := d.askAt(t, "replies")
	wantError(t, mailbox.ReplyError(t.Context(), request, errSoldOut), nil)
	d.faults.Add(mailboxtest.Fault{Op: "resolve", Err: mailbox.ErrUnavailable})
	_ = mailbox.Reply(t.Context(), d.ask(t, "a"), 1)
	wantEqual(t, "events", len(events), 2)
	wantEqual(t, "failure", events[0].Failure.Kind, errSoldOut)
	wantEqual(t, "message", events[0].MessageID, request.ID)
	wantEqual(t, "queue", events[0].Queue, "requests")
	wantError(t, events[1].Err, mailbox.ErrUnavailable)
}
