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

// caller is a caller of the broker itself.
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
		if e := seen[0]; e.ID != sent[0].ID || e.Queue != "orders" || e.DedupKey != "k" || e.CorrelationID != "c" || e.BodyHash != envelope.HashBody([]byte("one")) || e.Attempt != 1 {
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
				for letter, err := range plain.DeadLetters(t.Context()) {
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
		e := envelope.Envelope{Queue: "orders", SentAt: time.Now()}
		if err := e.Seal([]byte("signed")); err != nil {
			t.Fatal(err)
		}
		signV1(&e, private)
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

// signV1 signs an envelope as senders did before version 2.
func signV1(e *envelope.Envelope, key ed25519.PrivateKey) {
	e.Signature = envelope.Signature(ed25519.Sign(key, append([]byte("mailbox envelope signature v1\n"), e.HashChain[:]...)))
}

// signed returns a message with a signature of version 2.
func signed(t *testing.T, key ed25519.PrivateKey, at time.Time, m driver.Outgoing) broker.Outgoing {
	t.Helper()
	e := envelope.Envelope{
		Queue: "orders", SentAt: at, DedupKey: m.DedupKey, Attributes: m.Attributes,
		ReplyTo: m.ReplyTo, Group: m.Group, CorrelationID: m.CorrelationID,
	}
	if err := e.Seal(m.Body); err != nil {
		t.Fatal(err)
	}
	if err := e.Sign(key); err != nil {
		t.Fatal(err)
	}
	return broker.Outgoing{Outgoing: m, SentAt: e.SentAt, Signature: e.Signature}
}

// TestSignedMessageCannotBeReplayed sends a message that was signed by another sender
// again: within the dedup window, after it, and with changes.
func TestSignedMessageCannotBeReplayed(t *testing.T) {
	inBubble(t, oapapi.Options{}, func(t *testing.T, d *daemon) {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		version := 0
		client := d.verifying(&remotebox.Verification{
			Trusted: []ed25519.PublicKey{public}, MinSignature: envelope.SignatureV2,
			SeenSigned: func(_ envelope.Envelope, v int) { version = v },
		}, "x", "x")
		defer client.Close()
		q, err := client.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		window := 300 * time.Second
		if err := d.caller(t).Configure(t.Context(), "orders", driver.Config{DedupWindow: window}); err != nil {
			t.Fatal(err)
		}
		try := func(what string, m broker.Outgoing, delivered bool) {
			t.Helper()
			if _, err := d.caller(t).Send(t.Context(), "orders", []broker.Outgoing{m}); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
			if (len(got) == 1) != delivered || err != nil && !errors.Is(err, driver.ErrIntegrity) {
				t.Errorf("%s: %d messages, %v", what, len(got), err)
			}
			for i := range got {
				if err := q.Ack(t.Context(), []driver.Receipt{got[i].Receipt}); err != nil {
					t.Fatal(err)
				}
			}
		}
		m := driver.Outgoing{
			Body: []byte("pay"), DedupKey: "order-7", ReplyTo: "answers", Group: "g", CorrelationID: "c", Attributes: map[string]string{"a": "b"},
		}
		genuine := signed(t, private, time.Now(), m)
		try("the message", genuine, true)
		if version != envelope.SignatureV2 {
			t.Errorf("the signature is of version %d", version)
		}
		try("the same again", genuine, false)
		<-time.After(window + time.Second)
		try("the same after the dedup window", genuine, false)
		for what, change := range map[string]func(*driver.Outgoing){
			"reply address":  func(m *driver.Outgoing) { m.ReplyTo = "evil" },
			"group":          func(m *driver.Outgoing) { m.Group = "evil" },
			"correlation id": func(m *driver.Outgoing) { m.CorrelationID = "evil" },
			"no reply":       func(m *driver.Outgoing) { m.ReplyTo = "" },
			"attributes":     func(m *driver.Outgoing) { m.Attributes = nil },
			"dedup key":      func(m *driver.Outgoing) { m.DedupKey = "another" },
		} {
			m.DedupKey = what
			changed := signed(t, private, time.Now(), m)
			change(&changed.Outgoing)
			try(what, changed, false)
		}
		m.DedupKey, m.Attributes = "expired", map[string]string{envelope.AttributeExpires: "2000-01-01T00:00:00.000Z"}
		try("a message whose expiry is over", signed(t, private, time.Now(), m), false)
		old := envelope.Envelope{Queue: "orders", SentAt: time.Now(), DedupKey: "old"}
		if err := old.Seal(m.Body); err != nil {
			t.Fatal(err)
		}
		signV1(&old, private)
		try("a signature of version 1", broker.Outgoing{Outgoing: driver.Outgoing{Body: m.Body, DedupKey: "old"}, SentAt: old.SentAt, Signature: old.Signature}, false)
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
