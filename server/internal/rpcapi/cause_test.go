package rpcapi_test

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// A worker that speaks OAP, or uses the backend directly, nacks with the text of
// an error text that is not valid UTF-8, which is allowed.
func TestMessageWithBinaryCauseCanBeReceived(t *testing.T) {
	d := newDaemon(t, membox.New(nil), broker.Limits{})
	token := d.mint(t, "")
	c := d.broker.Caller(token, broker.Origin{})
	for _, body := range []string{"one", "two", "three"} {
		if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte(body)}}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[0].Receipt, Cause: "cannot parse \xff"}}); err != nil {
		t.Fatal(err)
	}
	answer, err := d.rpc(token, connect.WithGRPC()).Recv(t.Context(), &mailboxv1.RecvRequest{Topic: "orders"})
	stats, _ := c.Stats(t.Context(), "orders")
	if err != nil {
		t.Errorf("recv: %v; %d messages stay leased", err, stats.InFlight)
	} else if len(answer.GetMessages()) != 3 {
		t.Error(len(answer.GetMessages()))
	}
}

func TestTraceOfMessageWithLongCauseIsReturned(t *testing.T) {
	d := newDaemon(t, membox.New(nil), broker.Limits{})
	token := d.mint(t, "")
	c := d.broker.Caller(token, broker.Origin{})
	sent, err := c.Send(t.Context(), "orders", []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte("x")}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Nack(t.Context(), "orders", []broker.Nack{{Receipt: got[0].Receipt, Cause: "x" + strings.Repeat("ü", 150)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.rpc(token, connect.WithGRPC()).Life(t.Context(), &mailboxv1.LifeRequest{Topic: "orders", MsgId: sent[0].ID}); err != nil {
		t.Errorf("life: %v", err)
	}
}
