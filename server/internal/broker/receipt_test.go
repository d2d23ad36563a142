package broker_test

import (
	"encoding/base64"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestReceiptWorksAtDaemonWithSameKeys(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	first := newBench(t, backend, broker.Limits{})
	second := newBench(t, backend, broker.Limits{})
	second.ring = first.ring
	var err error
	second.Broker, err = broker.New(broker.Options{Opener: backend, Ring: first.ring, Verifier: verify.New(first.ring, nil)})
	if err != nil {
		t.Fatal(err)
	}
	token := mint(t, first.ring, "")
	first.send(first.Caller(token, broker.Origin{}), "orders", "a")
	held := first.receive(first.Caller(token, broker.Origin{}), "orders", 1)
	if err := second.Caller(token, broker.Origin{}).Ack(t.Context(), "orders", []string{held[0].Receipt}); err != nil {
		t.Errorf("ack at the other daemon: %v", err)
	}
	// A daemon with other keys accepts none of these receipts.
	third := newBench(t, backend, broker.Limits{})
	third.send(third.as(""), "orders", "b")
	held = third.receive(third.as(""), "orders", 1)
	expectCode(t, first.Caller(token, broker.Origin{}).Ack(t.Context(), "orders", []string{held[0].Receipt}), driver.ErrReceiptExpired, "ack with a receipt under another key")
}

// TestSharedBackendGetsReceiptsThatEarlierVersionsOpen runs a daemon on a backend of its own
// and one on a shared backend, where an earlier version may get its receipts.
func TestSharedBackendGetsReceiptsThatEarlierVersionsOpen(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	ring := keyring.New(keyring.NewKey())
	token := mint(t, ring, "")
	as := func(shared bool) *bench {
		b := &bench{t: t, ring: ring}
		var err error
		b.Broker, err = broker.New(broker.Options{Opener: backend, Shared: shared, Ring: ring, Verifier: verify.New(ring, nil)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for shared, version := range map[bool]byte{true: 1, false: 2} {
		b := as(shared)
		b.send(b.Caller(token, broker.Origin{}), "orders", "a")
		receipt := b.receive(b.Caller(token, broker.Origin{}), "orders", 1)[0].Receipt
		if head, err := base64.RawURLEncoding.DecodeString(receipt[:4]); err != nil || head[0] != version {
			t.Errorf("shared is %v: the receipt is of version %v, %v; want %d", shared, head, err, version)
		}
		if err := as(!shared).Caller(token, broker.Origin{}).Ack(t.Context(), "orders", []string{receipt}); err != nil {
			t.Errorf("shared is %v: ack at the other daemon: %v", shared, err)
		}
	}
}

func TestReceiptsSurviveKeyRotation(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "orders", "a")
	held := b.receive(c, "orders", 1)
	if err := b.ring.Rotate(keyring.NewKey()); err != nil {
		t.Fatal(err)
	}
	if err := c.Ack(t.Context(), "orders", []string{held[0].Receipt}); err != nil {
		t.Errorf("ack after a rotation: %v", err)
	}
}

func TestChangedReceiptIsRefused(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "orders", "a")
	receipt := b.receive(c, "orders", 1)[0].Receipt
	for i := range len(receipt) {
		for _, flip := range []byte{1, 2, 4, 8, 16, 32, 64} {
			changed := []byte(receipt)
			changed[i] ^= flip
			expectCode(t, c.Ack(t.Context(), "orders", []string{string(changed)}), driver.ErrReceiptExpired, "ack with a changed receipt")
		}
		expectCode(t, c.Ack(t.Context(), "orders", []string{receipt[:i]}), driver.ErrReceiptExpired, "ack with a cut receipt")
	}
	if stats, err := c.Stats(t.Context(), "orders"); err != nil || stats.InFlight != 1 {
		t.Fatalf("the delivery did not stay: %+v, %v", stats, err)
	}
	if err := c.Ack(t.Context(), "orders", []string{receipt}); err != nil {
		t.Error(err)
	}
}

func TestTokenForReceiptSettlesOnlyThatDelivery(t *testing.T) {
	b := memory(t, broker.Limits{})
	b.send(b.as(""), "orders", "a")
	b.send(b.as(""), "orders", "b")
	held := b.receive(b.as(""), "orders", 2)
	helper := b.as("", capability.ForReceipt(held[0].Receipt))
	err := helper.Ack(t.Context(), "orders", []string{held[1].Receipt, held[0].Receipt})
	expectCode(t, driver.At(err, 0), driver.ErrForbidden, "ack of another delivery")
	if err := driver.At(err, 1); err != nil {
		t.Errorf("ack of its delivery: %v", err)
	}
}

func TestSettlingByIDNeedsTakingToken(t *testing.T) {
	b := memory(t, broker.Limits{})
	taker, other := b.as(""), b.as("")
	id := b.send(taker, "orders", "a")
	b.receive(taker, "orders", 1)
	for _, target := range []broker.Target{{ID: id}, {Queue: "orders", ID: id}} {
		expectCode(t, other.AckOne(t.Context(), target), driver.ErrNotFound, "ack of another's delivery by id")
		expectCode(t, other.NackOne(t.Context(), target, broker.Nack{}), driver.ErrNotFound, "nack of another's delivery by id")
	}
	for range 3 {
		if err := taker.AckOne(t.Context(), broker.Target{ID: id}); err != nil {
			t.Errorf("ack, and ack again: %v", err)
		}
	}
	expectCode(t, other.AckOne(t.Context(), broker.Target{ID: id}), driver.ErrNotFound, "repeated ack by another token")
	expectCode(t, taker.AckOne(t.Context(), broker.Target{ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}), driver.ErrNotFound, "ack of nothing")
}
