package console_test

import (
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestMessageShowsVerdictOfItsEnvelope is CON-2: hash chain, signature, and whether they fit.
func TestMessageShowsVerdictOfItsEnvelope(t *testing.T) {
	backend := membox.New(nil)
	d := openOn(t, backend)
	attributed := func(out *driver.Outgoing) {
		out.Attributes = map[string]string{"a": "1", driver.AttributeDeadReason: "the sender's own"}
	}
	id := d.send("", "orders", "x", attributed)
	b := d.logIn(d.mint("", nil))
	var chain string
	var seal []byte
	queue, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	for m, err := range d.caller("").Peek(t.Context(), "orders", driver.Query{ID: id}) {
		if err != nil {
			t.Fatal(err)
		}
		chain = m.Seal.HashChain.String()
	}
	for m := range queue.Peek(t.Context(), driver.Query{ID: id}) {
		seal = m.Seal
	}
	b.expect(b.get("message?queue=orders&id="+id), 200, "as it was sent: the hash chain fits", chain, "none: the sender did not sign it", "Copy the Go code")
	signed := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("x")}, Signature: envelope.Signature{1, 2, 3}}
	sent, err := d.caller("").Send(t.Context(), "orders", []broker.Outgoing{signed})
	if err != nil {
		t.Fatal(err)
	}
	b.expect(b.get("message?queue=orders&id="+sent[0].ID), 200, signed.Signature.String(), "Receivers verify it")
	other, err := queue.Send(t.Context(), []driver.Outgoing{{Body: []byte("by another program")}, {Body: []byte("changed"), Seal: seal}})
	if err != nil {
		t.Fatal(err)
	}
	b.expect(b.get("message?queue=orders&id="+other[0].ID), 200, "unknown: another program put it into the backend")
	a := b.get("message?queue=orders&id=" + other[1].ID)
	b.expect(a, 200, "changed outside the daemon: the hash chain does not fit")
	b.lacks(a, "as it was sent")
	d.send("", "later", "x")
	if _, err := d.caller("").Move(t.Context(), "orders", "later", 1); err != nil {
		t.Fatal(err)
	}
	b.expect(b.get("message?queue=later&id="+id), 200, "the hash chain fitted, and was made again when the message was moved")
}
