package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/internal/replyslot"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestReceivedMessageHasItsSealedEnvelope(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("acme")
	message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("payload"), DedupKey: "key", Attributes: map[string]string{"k": "v", replyslot.AttributeError: "failed"}}}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
		t.Fatal(err)
	}
	got := b.receive(c, "orders", 1)[0]
	e := got.Envelope()
	if err := e.Verify([]byte("payload")); err != nil {
		t.Errorf("the envelope does not verify: %v", err)
	}
	if e.Queue != "orders" || e.DedupKey != "key" || e.CorrelationID != "corr-1" || e.Attempt != 1 || !maps.Equal(e.Attributes, message.Attributes) {
		t.Errorf("envelope: %+v", e)
	}
}

func TestClientCannotSendSeal(t *testing.T) {
	b := memory(t, broker.Limits{})
	forged := broker.Outgoing{Outgoing: driver.Outgoing{Attributes: map[string]string{broker.AttributeSeal: "x"}}}
	_, err := b.as("").Send(t.Context(), "orders", []broker.Outgoing{forged, {}})
	expectCode(t, driver.At(err, 0), driver.ErrInvalid, "send with the daemon's own attribute")
	if err := driver.At(err, 1); err != nil {
		t.Errorf("the other message of the batch: %v", err)
	}
}

func TestSignatureIsDeliveredUnchanged(t *testing.T) {
	b := memory(t, broker.Limits{})
	sent := time.UnixMilli(1767323045678).UTC()
	signature := envelope.Signature{1, 2, 3}
	message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("a")}, SentAt: sent, Signature: signature}
	if _, err := b.as("").Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
		t.Fatal(err)
	}
	if got := b.receive(b.as(""), "orders", 1)[0]; got.Seal.Signature != signature || !got.Seal.SentAt.Equal(sent) {
		t.Errorf("got %v at %v", got.Seal.Signature, got.Seal.SentAt)
	}
}

// flipper is a backend that damages messages: flip changes them when they are received, as
// a disk may.
type flipper struct {
	driver.Opener
	flip    func(m *driver.Message)
	noSeals bool // the backend keeps no seals
}

type flippedQueue struct {
	driver.Queue
	*flipper
}

func (f *flipper) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := f.Opener.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &flippedQueue{q, f}, nil
}

func (q *flippedQueue) Traits() driver.Traits {
	traits := q.Queue.Traits()
	traits.Seals = traits.Seals && !q.noSeals
	return traits
}

func (q *flippedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		got[i].Body = bytes.Clone(got[i].Body)
		got[i].Attributes = maps.Clone(got[i].Attributes)
		got[i].Seal = bytes.Clone(got[i].Seal)
		got[i].Resident = false
		q.flip(&got[i].Message)
	}
	return got, err
}

// TestMessageWithFlippedBitIsNeverDelivered is gate G-7: every single bit of a payload, an
// attribute and the seal is flipped, and each time the message becomes a dead
// letter with reason integrity.
func TestMessageWithFlippedBitIsNeverDelivered(t *testing.T) {
	volume.InFull(t)
	t.Run("seal in an attribute", func(t *testing.T) { flipEveryBit(t, true) })
	t.Run("seal beside the message", func(t *testing.T) { flipEveryBit(t, false) })
}

func flipEveryBit(t *testing.T, noSeals bool) {
	flipIn := func(key string, bit int) func(*driver.Message) {
		return func(m *driver.Message) {
			value := []byte(m.Attributes[key])
			value[bit/8%len(value)] ^= 1 << (bit % 8)
			m.Attributes[key] = string(value)
		}
	}
	flips := map[string]func(*driver.Message){
		"a lost attribute": func(m *driver.Message) { delete(m.Attributes, "colour") },
		"a new attribute":  func(m *driver.Message) { m.Attributes["new"] = "" },
	}
	flipSeal := func(bit int) func(*driver.Message) {
		if noSeals {
			return flipIn(broker.AttributeSeal, bit)
		}
		return func(m *driver.Message) { m.Seal[bit/8%len(m.Seal)] ^= 1 << (bit % 8) }
	}
	for bit := range len("payload") * 8 {
		flips["payload bit "+time.Duration(bit).String()] = func(m *driver.Message) { m.Body[bit/8] ^= 1 << (bit % 8) }
	}
	for bit := range len("blue") * 8 {
		flips["attribute bit "+time.Duration(bit).String()] = flipIn("colour", bit)
	}
	for bit := range 100 * 8 { // it has about 90 bytes
		flips["seal bit "+time.Duration(bit).String()] = flipSeal(bit)
	}
	for name, flip := range flips {
		backend := membox.New(nil)
		b := newBench(t, &flipper{Opener: backend, flip: flip, noSeals: noSeals}, broker.Limits{})
		c := b.as("")
		message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("payload"), Attributes: map[string]string{"colour": "blue"}}}
		if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
			t.Fatal(err)
		}
		got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		if len(got) > 0 || !errors.Is(err, driver.ErrIntegrity) {
			t.Errorf("%s: received %v, %v; want an integrity error", name, got, err)
		}
		stats, err := c.Stats(t.Context(), "orders")
		if err != nil || stats != (driver.Stats{Dead: 1}) {
			t.Errorf("%s: %+v, %v; want one dead letter", name, stats, err)
		}
		for letter, err := range c.DeadLetters(t.Context(), "orders") {
			if err != nil || letter.Reason != driver.ReasonIntegrity {
				t.Errorf("%s: the letter died of %q, %v", name, letter.Reason, err)
			}
		}
		if b.InFlight() != 0 {
			t.Errorf("%s: %d messages count as out", name, b.InFlight())
		}
		_ = backend.Close()
	}
}

func TestDamagedMessageLeavesRestOfBatch(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	b := newBench(t, &flipper{Opener: backend, flip: func(m *driver.Message) {
		if string(m.Body) == "b" {
			m.Body[0] = 'x'
		}
	}}, broker.Limits{})
	c := b.as("")
	for _, body := range []string{"a", "b", "c"} {
		b.send(c, "orders", body)
	}
	got := b.receive(c, "orders", 3)
	if len(got) != 2 || string(got[0].Body) != "a" || string(got[1].Body) != "c" {
		t.Fatalf("got %v", got)
	}
	if err := c.Ack(t.Context(), "orders", []string{got[0].Receipt, got[1].Receipt}); err != nil {
		t.Errorf("the receipts of the others: %v", err)
	}
}

func TestUnsealedMessageIsSealedAtDelivery(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	q, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a"), Attributes: map[string]string{"k": "v"}}}); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, backend, broker.Limits{})
	e := b.receive(b.as(""), "orders", 1)[0].Envelope()
	if err := e.Verify([]byte("a")); err != nil {
		t.Error(err)
	}
}

func TestForwardedDeadLetterVerifies(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("acme")
	if err := c.Configure(t.Context(), "orders", driver.Config{DeadLetterTo: "dead"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Configure(t.Context(), "dead", driver.Config{DeadLetterTo: "deader"}); err != nil {
		t.Fatal(err)
	}
	if config, err := c.Config(t.Context(), "orders"); err != nil || config.DeadLetterTo != "dead" {
		t.Errorf("the configuration says %q, %v", config.DeadLetterTo, err)
	}
	b.send(c, "orders", "a")
	held := b.receive(c, "orders", 1)
	if err := c.DeadLetter(t.Context(), "orders", []broker.DeadLetterRequest{{Receipt: held[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	got := b.receive(c, "dead", 1)
	if len(got) != 1 || string(got[0].Body) != "a" || got[0].Attributes[driver.AttributeDeadSource] != "orders" {
		t.Fatalf("got %+v", got)
	}
	e := got[0].Envelope()
	if err := e.Verify(got[0].Body); err != nil {
		t.Error(err)
	}
}

// full returns as many attributes as a caller may send.
func full() map[string]string {
	attributes := make(map[string]string)
	for i := range broker.MaxAttributes {
		attributes[fmt.Sprintf("k%d", i)] = "v"
	}
	return attributes
}

func TestForwardedDeadLetterKeepsFullAttributes(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	if err := c.Configure(t.Context(), "orders", driver.Config{DeadLetterTo: "dead"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte("a"), Attributes: full()}}}); err != nil {
		t.Fatal(err)
	}
	held := b.receive(c, "orders", 1)
	if err := c.DeadLetter(t.Context(), "orders", []broker.DeadLetterRequest{{Receipt: held[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	got := b.receive(c, "dead", 1)
	if len(got) != 1 || got[0].Attributes["k1"] != "v" || got[0].Attributes[driver.AttributeDeadSource] != "orders" {
		t.Fatalf("got %+v", got)
	}
}

// TestSealInCorrelationIDIsRead receives a message that an earlier daemon stored: those
// accepted 64 attributes, and put the seal into the correlation id.
func TestSealInCorrelationIDIsRead(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	q, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	attributes := full()
	attributes[fmt.Sprintf("k%d", len(attributes))] = "v"
	if _, err := q.Send(t.Context(), []driver.Outgoing{{
		Body: []byte("x"), Attributes: attributes, DedupKey: "key",
		CorrelationID: "mailbox.env:mAQQBi8_laADXziq4LQqMHkEPxkFhPdFqqa9nXQGB31By9jWCnxKpPwRjb3JyA2tleQAUfZmH",
	}}); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, backend, broker.Limits{})
	got := b.receive(b.as(""), "orders", 1)[0]
	if got.CorrelationID != "corr" || got.Seal.IdemKey != "key" || got.Seal.SentAt.UnixMilli() != 1_700_000_000_000 {
		t.Errorf("got correlation id %q, seal %+v", got.CorrelationID, got.Seal)
	}
}

func TestSealsOfBothKindsVerifyInOneQueue(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	earlier := newBench(t, &flipper{Opener: backend, noSeals: true}, broker.Limits{})
	b := newBench(t, &flipper{Opener: backend, flip: func(*driver.Message) {}}, broker.Limits{})
	earlier.send(earlier.as(""), "orders", "a")
	b.send(b.as(""), "orders", "b")
	got := b.receive(b.as(""), "orders", 2)
	if len(got) != 2 {
		t.Fatalf("got %d messages, want 2", len(got))
	}
	for i, want := range []string{"a", "b"} {
		e := got[i].Envelope()
		if err := e.Verify([]byte(want)); err != nil || len(got[i].Attributes) > 0 || got[i].Message.Seal != nil {
			t.Errorf("message %q: %v, attributes %v, seal %x", want, err, got[i].Attributes, got[i].Message.Seal)
		}
	}
}

// TestSealsStayWhereMessagesGo compares what a message is sealed with before and after it was
// peeked, dead-lettered, listed and redriven.
func TestSealsStayWhereMessagesGo(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("a"), DedupKey: "key"}, Signature: envelope.Signature{1}}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
		t.Fatal(err)
	}
	var seals []broker.Seal
	for peeked, err := range c.Peek(t.Context(), "orders", driver.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		seals = append(seals, peeked.Seal)
	}
	held := b.receive(c, "orders", 1)[0]
	seals = append(seals, held.Seal)
	if err := c.DeadLetter(t.Context(), "orders", []broker.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	for letter, err := range c.DeadLetters(t.Context(), "orders") {
		if err != nil {
			t.Fatal(err)
		}
		seals = append(seals, letter.Seal)
	}
	if moved, err := c.Redrive(t.Context(), "orders", nil, 0); err != nil || moved != 1 {
		t.Fatal(moved, err)
	}
	seals = append(seals, b.receive(c, "orders", 1)[0].Seal)
	if len(seals) != 4 {
		t.Fatalf("the message was seen %d times, want 4", len(seals))
	}
	for i, seal := range seals {
		if seal.IdemKey != "key" || seal.Signature != message.Signature || seal.HashChain != seals[0].HashChain || seal.HashChain.IsZero() {
			t.Errorf("sight %d: %+v, want %+v", i, seal, seals[0])
		}
	}
}
