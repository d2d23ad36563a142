package broker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestEditNeedsAdmin(t *testing.T) {
	b := memory(t, broker.Limits{})
	id := b.send(b.as(""), "orders", "a")
	without := b.as("", capability.Operations(capability.OpSend, capability.OpRecv, capability.OpAck, capability.OpPurge, capability.OpDLQ, capability.OpPeek))
	for _, edit := range []driver.Edit{{Remove: true}, {Ready: true}, {DeliverAt: time.Now().Add(time.Hour)}} {
		_, err := without.Edit(t.Context(), "orders", id, edit)
		expectCode(t, err, driver.ErrForbidden, "an edit with a token that lacks admin")
	}
	with := b.as("", capability.Operations(capability.OpAdmin))
	if was, err := with.Edit(t.Context(), "orders", id, driver.Edit{Remove: true}); was != driver.StateReady || err != nil {
		t.Errorf("an edit with a token for admin: %q, %v", was, err)
	}
}

// noEdits is a backend that lacks the trait.
type noEdits struct{ *membox.Backend }

type queueWithoutEdits struct{ driver.Queue }

func (b noEdits) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.Backend.OpenQueue(ctx, name)
	return queueWithoutEdits{q}, err
}

func (q queueWithoutEdits) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.Edit = false
	return traits
}

func TestEditIsRefusedByTrait(t *testing.T) {
	backend := membox.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	b := newBench(t, noEdits{backend}, broker.Limits{})
	c := b.as("")
	id := b.send(c, "orders", "a")
	_, err := c.Edit(t.Context(), "orders", id, driver.Edit{Remove: true})
	expectCode(t, err, driver.ErrUnsupported, "an edit on a backend that cannot")
	if got := b.receive(c, "orders", 1); got[0].ID != id {
		t.Errorf("received %s, want %s", got[0].ID, id)
	}
}

func TestEditIsTracedAndCounted(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	id := b.send(c, "orders", "a")
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, edit := range []driver.Edit{{DeliverAt: due}, {Ready: true}, {Remove: true}} {
		if _, err := c.Edit(t.Context(), "orders", id, edit); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Edit(t.Context(), "orders", id, driver.Edit{Remove: true})
	expectCode(t, err, driver.ErrNotFound, "a second removal")
	_, err = c.Edit(t.Context(), "orders", strings.Repeat("x", 1<<20), driver.Edit{Remove: true})
	if expectCode(t, err, driver.ErrNotFound, "an id that cannot be"); len(err.Error()) > 1000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	trace, err := c.Trace(t.Context(), "orders", id)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, event := range trace.Events {
		told = append(told, strings.TrimSpace(event.Kind.String()+" "+event.Note))
	}
	if want := []string{"sent", "edited due " + due.UTC().Format(time.RFC3339), "edited ready", "removed"}; !slices.Equal(told, want) {
		t.Errorf("the trace has %q, want %q", told, want)
	}
	for _, change := range []string{"remove", "ready", "due"} {
		if n := b.figure("mailbox_edited_total", "change="+change, "queue=orders"); n != 1 {
			t.Errorf("mailbox_edited_total with change %s is %v, want 1", change, n)
		}
	}
}

func TestReplacingIsTracedAndCounted(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	send := func(body string, replace bool) driver.Sent {
		t.Helper()
		sent, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte(body), UniqueKey: "k", Replace: replace}}})
		if err != nil {
			t.Fatal(err)
		}
		return sent[0]
	}
	first := send("first", false)
	if sent := send("second", true); sent.ID != first.ID || !sent.Replaced {
		t.Errorf("got %+v, want %s replaced", sent, first.ID)
	}
	if got := b.receive(c, "orders", 1)[0]; string(got.Body) != "second" { // its hash chain is verified
		t.Errorf("received %q, want the body of the last send", got.Body)
	}
	trace, err := c.Trace(t.Context(), "orders", first.ID)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, event := range trace.Events {
		told = append(told, event.Kind.String())
	}
	if want := []string{"sent", "replaced", "delivered"}; !slices.Equal(told, want) {
		t.Errorf("the trace has %q, want %q", told, want)
	}
	if n := b.figure("mailbox_edited_total", "change=replace", "queue=orders"); n != 1 {
		t.Errorf("mailbox_edited_total with change replace is %v, want 1", n)
	}
}
