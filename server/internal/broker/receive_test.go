package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestWaitingReceiveReturnsNothingToEndedToken revokes a token, and lets another one
// expire, while a receive waits for a message.
func TestWaitingReceiveReturnsNothingToEndedToken(t *testing.T) {
	for name, sentAfter := range map[string]time.Duration{"revoked": time.Second, "expired": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory(t, broker.Limits{})
				token := mint(t, b.ring, "", capability.ExpiresAt(time.Now().Add(time.Minute)))
				b.make(b.as(""), "orders")
				waited := make(chan error, 1)
				go func() {
					got, err := b.Caller(token, broker.Origin{}).Receive(t.Context(), "orders", driver.ReceiveRequest{
						Max: 1, Visibility: time.Hour, Wait: 10 * time.Minute,
					})
					if len(got) > 0 {
						t.Errorf("it got %q", got[0].Body)
					}
					waited <- err
				}()
				time.Sleep(time.Second)
				if name == "revoked" {
					if err := b.revoked.Revoke(t.Context(), revocation.Revocation{Token: token.ID(), At: time.Now()}); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(sentAfter)
				other := b.as("")
				b.send(other, "orders", "secret")
				expectCode(t, <-waited, driver.ErrUnauthenticated, "the receive that waited")
				got := b.receive(other, "orders", 1)
				if len(got) != 1 || string(got[0].Body) != "secret" {
					t.Fatalf("others get %v", got)
				}
				if got[0].Deliveries != 1 { // FLOW-4
					t.Errorf("got Deliveries %d, want 1: no client got the message before", got[0].Deliveries)
				}
			})
		})
	}
}

// TestReturningCallerSettlesWithAnyToken gives deliveries back with a token that allows
// only receiving, and was revoked.
func TestReturningCallerSettlesWithAnyToken(t *testing.T) {
	b := memory(t, broker.Limits{})
	c, other := b.as("", capability.Operations(capability.OpRecv)), b.as("")
	b.send(other, "orders", "x")
	got := b.receive(c, "orders", 1)
	if err := b.revoked.Revoke(t.Context(), revocation.Revocation{Token: c.TokenID(), At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	back := []broker.Extension{{Receipt: got[0].Receipt}}
	if _, err := c.Extend(t.Context(), "orders", back); err == nil {
		t.Error("the client itself can end the lease")
	}
	if err := c.GiveBack(t.Context(), "orders", got); err != nil {
		t.Error(err)
	}
	if got := b.receive(other, "orders", 1); len(got) != 1 || got[0].Deliveries != 1 {
		t.Errorf("got %+v; want the message, and that its delivery does not count", got)
	}
}
