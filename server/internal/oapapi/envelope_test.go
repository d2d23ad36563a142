package oapapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/oapapi"
)

// caller is somebody at the broker itself.
func (d *daemon) caller(t *testing.T) broker.Caller {
	t.Helper()
	token, err := capability.Parse(d.token)
	if err != nil {
		t.Fatal(err)
	}
	return d.broker.Caller(token, broker.Origin{})
}

// crooked is a connection that changes what the daemon says.
type crooked struct {
	net.Conn
	from, to string
}

func (c *crooked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b[:n], bytes.ReplaceAll(b[:n], []byte(c.from), []byte(c.to)))
	return n, err
}

// verifying returns a client that verifies what it receives, over a connection that
// may be crooked.
func (d *daemon) verifying(verify *remotebox.Verification, from, to string) *remotebox.Backend {
	return remotebox.New([]string{"pipe"}, d.token, &remotebox.Options{Verify: verify, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		nc, err := d.pipe(ctx, address)
		return &crooked{nc, from, to}, err
	}})
}

func TestClientsOfFramesGetTheEnvelopeAndVerifyIt(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		var seen []envelope.Envelope
		client := d.verifying(&remotebox.Verification{Seen: func(e envelope.Envelope) { seen = append(seen, e) }}, "x", "x")
		defer client.Close()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		sent, err := q.Send(t.Context(), []driver.Outgoing{
			{Body: []byte("one"), DedupKey: "k", Attributes: map[string]string{"a": "b"}, CorrelationID: "c"}, {Body: []byte("two")},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: time.Hour})
		if err != nil || len(got) != 2 || len(seen) != 2 {
			t.Fatal(got, seen, err)
		}
		if len(got[0].Attributes) != 1 || got[0].Attributes["a"] != "b" || len(got[1].Attributes) != 0 {
			t.Errorf("the seal is left in the attributes: %v, %v", got[0].Attributes, got[1].Attributes)
		}
		if e := seen[0]; e.ID != sent[0].ID || e.Topic != "orders" || e.IdemKey != "k" || e.CorrelationID != "c" || e.PayloadHash != envelope.HashPayload([]byte("one")) || e.Attempt != 1 {
			t.Errorf("the envelope is %+v", e)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("three")}}); err != nil {
			t.Fatal(err)
		}
		for delivery, err := range q.(remotebox.Subscriber).Subscribe(t.Context(), time.Hour, 1) {
			if err != nil || string(delivery.Body) != "three" || len(delivery.Attributes) != 0 || len(seen) != 3 {
				t.Errorf("a subscriber got %v, %v, after %d envelopes", delivery, err, len(seen))
			}
			break
		}
	})
}

func TestWhatChangesOnTheWayIsNotHandedOut(t *testing.T) {
	for name, change := range map[string][2]string{
		"the payload": {"payload-1", "payload-2"}, "an attribute": {"value-1", "value-2"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
				client := d.verifying(new(remotebox.Verification), change[0], change[1])
				defer client.Close()
				q, err := client.OpenQueue(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := q.Send(t.Context(), []driver.Outgoing{
					{Body: []byte("payload-1"), Attributes: map[string]string{"a": "value-1"}}, {Body: []byte("fine")},
				}); err != nil {
					t.Fatal(err)
				}
				got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 2, Visibility: time.Hour})
				if err != nil || len(got) != 1 || string(got[0].Body) != "fine" {
					t.Errorf("got %v, %v", got, err)
				}
				honest := d.client()
				defer honest.Close()
				plain, err := honest.OpenQueue(t.Context(), "orders")
				if err != nil {
					t.Fatal(err)
				}
				found := 0
				for letter, err := range plain.(driver.DeadLetterer).DeadLetters(t.Context()) {
					if found++; err != nil || letter.Reason != driver.ReasonIntegrity {
						t.Errorf("%+v, %v", letter, err)
					}
				}
				if found != 1 {
					t.Errorf("%d dead letters", found)
				}
			})
		})
	}
}

func TestWhoTrustsSendersWantsTheirSignature(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		client := d.verifying(&remotebox.Verification{Trusted: []ed25519.PublicKey{public}}, "x", "x")
		defer client.Close()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("unsigned")}}); err != nil {
			t.Fatal(err)
		}
		if got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); !errors.Is(err, driver.ErrIntegrity) || len(got) > 0 {
			t.Errorf("a message without a signature: %v, %v", got, err)
		}
		e := envelope.Envelope{Topic: "orders", SentAt: time.Now()}
		if err := e.Seal([]byte("signed")); err != nil {
			t.Fatal(err)
		}
		if err := e.Sign(private); err != nil {
			t.Fatal(err)
		}
		if _, err := d.caller(t).Send(t.Context(), "orders", []broker.Outgoing{{
			Outgoing: driver.Outgoing{Body: []byte("signed")}, SentAt: e.SentAt, Signature: e.Signature,
		}}); err != nil {
			t.Fatal(err)
		}
		if got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err != nil || len(got) != 1 {
			t.Errorf("a message with one: %v, %v", got, err)
		}
	})
}

func TestEnvelopesAreAskedForBeforeAnythingElse(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		r := dialRaw(t, d)
		r.start()
		r.open("orders")
		r.send(oap.Header{Flags: oap.Event, Code: oap.EventEnvelopes, Protocol: oap.ProtocolMailbox}, nil, nil)
		if f := r.mustNext(); f.Code != oap.StatusInvalid || f.Flags&oap.End == 0 {
			t.Errorf("status %d, flags %#x", f.Code, uint16(f.Flags))
		}
	})
}
