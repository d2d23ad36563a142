package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// The tests in this file are about callers that mean no good, or have bad luck.

func TestANackWithALongCauseThatIsNoTextDoesNotPanic(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "orders", "x")
	got := b.receive(c, "orders", 1)
	nack := broker.Nack{Receipt: got[0].Receipt, Cause: strings.Repeat("\xff", driver.MaxCauseBytes+1)}
	if err := c.Nack(t.Context(), "orders", []broker.Nack{nack}); err != nil {
		t.Error(err)
	}
}

func TestAMintedTokenIsNoWiderThanTheOneThatMinted(t *testing.T) {
	b := memory(t, broker.Limits{})
	narrow := mint(t, b.ring, "", capability.Operations(capability.OpAdmin), capability.Networks(netip.MustParsePrefix("10.0.0.0/8")))
	inside := b.Caller(narrow, broker.Origin{Client: netip.MustParseAddr("10.1.2.3")})
	if _, err := inside.Send(t.Context(), "orders", say("x")); !errors.Is(err, driver.ErrForbidden) {
		t.Fatalf("setup: the narrow token can send: %v", err)
	}
	made, err := inside.Mint(t.Context(), "", []capability.Caveat{capability.AllOperations(), capability.Topics(capability.AnyTopic())})
	if err != nil {
		t.Fatal(err)
	}
	outside := b.Caller(made, broker.Origin{Client: netip.MustParseAddr("192.0.2.1")})
	if _, err := outside.Send(t.Context(), "orders", say("x")); err == nil {
		t.Error("a token for op=admin net=10/8 made itself one that sends, from anywhere")
	}
}

func TestAMessageWithFullAttributesAndADeadSourceIsDelivered(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	attributes := map[string]string{driver.AttributeDeadSource: "elsewhere"}
	for i := len(attributes); i < driver.MaxAttributes; i++ {
		attributes[fmt.Sprintf("k%d", i)] = "v"
	}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte("x"), Attributes: attributes}}}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if len(got) != 1 {
		t.Errorf("accepted, and then: %v", err)
	}
}

// slowOpener's queues pause between having leased messages and saying so.
type slowOpener struct {
	*membox.Backend
	leased, goOn chan struct{}
}

type slowQueue struct {
	driver.Queue
	o *slowOpener
}

func (o *slowOpener) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := o.Backend.OpenQueue(ctx, name)
	return &slowQueue{q, o}, err
}

func (q *slowQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	q.o.leased <- struct{}{}
	<-q.o.goOn
	return got, err
}

func TestDeletingATopicWhileAReceiveReturnsLeavesNoLeaseCounted(t *testing.T) {
	o := &slowOpener{membox.New(nil), make(chan struct{}), make(chan struct{})}
	defer o.Backend.Close()
	b := newBench(t, o, broker.Limits{MaxInFlight: 1}, driver.Config{})
	c := b.as("")
	b.send(c, "orders", "x")
	done := make(chan error)
	go func() {
		_, err := c.Receive(context.Background(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		done <- err
	}()
	<-o.leased
	if err := c.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	o.goOn <- struct{}{}
	if err := <-done; err != nil {
		t.Log(err)
	}
	if n := b.InFlight(); n != 0 {
		t.Errorf("%d messages are counted as out, for ever", n)
	}
}

func TestAQuotaCountsWhatLifeShows(t *testing.T) {
	b := memory(t, broker.Limits{})
	id := b.send(b.as(""), "orders", "x")
	c := b.as("", capability.MessagesPerSecond(1))
	for range 200 {
		if _, err := c.Life(t.Context(), "orders", id); errors.Is(err, driver.ErrFull) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a token for 1 message per second read 200 payloads at once")
}
