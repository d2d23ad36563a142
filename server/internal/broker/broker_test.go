package broker_test

import (
	"bytes"
	"errors"
	"iter"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// bench is a broker with its backend, keys, log and metrics.
type bench struct {
	*broker.Broker
	t       testing.TB
	ring    *keyring.Ring
	revoked *revocation.Memory
	log     *lockedBuffer
}

// lockedBuffer is a log for concurrent writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newBench(t testing.TB, backend driver.Opener, limits broker.Limits) *bench {
	t.Helper()
	b := &bench{t: t, ring: keyring.New(keyring.NewKey()), revoked: new(revocation.Memory), log: new(lockedBuffer)}
	var err error
	b.Broker, err = broker.New(broker.Options{
		Opener: backend, Ring: b.ring, Revocations: b.revoked, Limits: limits,
		Verifier: verify.New(b.ring, &verify.Options{Revocations: b.revoked}),
		Logger:   slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func memory(t testing.TB, limits broker.Limits) *bench {
	backend := membox.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	return newBench(t, backend, limits)
}

// as returns a caller with a token for a tenant.
func (b *bench) as(tenant string, caveats ...capability.Caveat) broker.Caller {
	return b.Caller(mint(b.t, b.ring, tenant, caveats...), broker.Origin{CorrelationID: "corr-1"})
}

func say(body string) []broker.Outgoing {
	return []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte(body)}}}
}

func (b *bench) send(c broker.Caller, queue, body string) string {
	b.t.Helper()
	sent, err := c.Send(b.t.Context(), queue, say(body))
	if err != nil {
		b.t.Fatalf("send: %v", err)
	}
	return sent[0].ID
}

func (b *bench) receive(c broker.Caller, queue string, most int) []broker.Delivery {
	b.t.Helper()
	got, err := c.Receive(b.t.Context(), queue, driver.ReceiveRequest{Max: most, Visibility: time.Minute})
	if err != nil {
		b.t.Fatalf("receive: %v", err)
	}
	return got
}

func expectCode(t testing.TB, err error, want driver.Code, what string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %q", what, err, want)
	}
}

func TestEveryOperationNeedsItsCapability(t *testing.T) {
	b := memory(t, broker.Limits{})
	id := b.send(b.as(""), "orders", "a")
	ctx := t.Context()
	operations := map[capability.Operation]func(c broker.Caller) error{
		capability.OpSend: func(c broker.Caller) error { _, err := c.Send(ctx, "orders", say("x")); return err },
		capability.OpRecv: func(c broker.Caller) error {
			_, err := c.Receive(ctx, "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
			return err
		},
		capability.OpAck: func(c broker.Caller) error { return c.AckOne(ctx, broker.Target{Queue: "orders", ID: id}) },
		capability.OpNack: func(c broker.Caller) error {
			return c.NackOne(ctx, broker.Target{Queue: "orders", ID: id}, broker.Nack{})
		},
		capability.OpExtend: func(c broker.Caller) error {
			_, err := c.ExtendOne(ctx, broker.Target{Queue: "orders", ID: id}, broker.Extension{Visibility: time.Minute})
			return err
		},
		capability.OpStats: func(c broker.Caller) error { _, err := c.Stats(ctx, "orders"); return err },
		capability.OpPeek:  func(c broker.Caller) error { return drain(c.Peek(ctx, "orders", driver.Query{})) },
		capability.OpPurge: func(c broker.Caller) error { _, err := c.Purge(ctx, "orders"); return err },
		capability.OpDLQ:   func(c broker.Caller) error { return drain(c.DeadLetters(ctx, "orders")) },
		capability.OpAdmin: func(c broker.Caller) error { _, err := c.Config(ctx, "orders"); return err },
	}
	for allowed := range operations {
		token, err := b.ring.Mint("", capability.Operations(allowed), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		for asked, do := range operations {
			err := do(b.Caller(token, broker.Origin{}))
			if refused := capability.ReasonOf(err) == capability.ReasonOperation; refused != (asked != allowed) {
				t.Errorf("%v with a token for %v: %v", asked, allowed, err)
			}
			err = do(b.Caller(capability.Token{}, broker.Origin{}))
			expectCode(t, err, driver.ErrUnauthenticated, asked.String()+" without a token")
		}
	}
}

func drain(messages iter.Seq2[broker.Peeked, error]) error {
	for _, err := range messages {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestCallerNeedsNetworkAndCertificateOfToken(t *testing.T) {
	b := memory(t, broker.Limits{})
	token := mint(t, b.ring, "", capability.Networks(netip.MustParsePrefix("10.0.0.0/8")), capability.Peers("spiffe://example.org/w"))
	good := broker.Origin{Client: netip.MustParseAddr("10.1.2.3"), Peer: "spiffe://example.org/w"}
	if _, err := b.Caller(token, good).Send(t.Context(), "orders", say("a")); err != nil {
		t.Errorf("from the right place: %v", err)
	}
	elsewhere, unnamed := good, good
	elsewhere.Client, unnamed.Peer = netip.MustParseAddr("11.1.2.3"), ""
	for _, origin := range []broker.Origin{elsewhere, unnamed, {}} {
		_, err := b.Caller(token, origin).Send(t.Context(), "orders", say("a"))
		expectCode(t, err, driver.ErrForbidden, "from elsewhere")
	}
}

// TestRevocationDrill is gate G-10 without a wire: while messages flow, the token
// is revoked. It can still ack deliveries that it took, and nothing else; with a new
// token everything works again.
func TestRevocationDrill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		token := mint(t, b.ring, "")
		old := b.Caller(token, broker.Origin{})
		for range 3 {
			b.send(old, "orders", "a")
		}
		held := b.receive(old, "orders", 2)
		time.Sleep(time.Millisecond)
		if err := b.as("").Revoke(t.Context(), revocation.Revocation{Token: token.ID()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(verify.DefaultCacheTTL)
		_, err := old.Send(t.Context(), "orders", say("b"))
		expectCode(t, err, driver.ErrUnauthenticated, "send with a revoked token")
		if reason := capability.ReasonOf(err); reason != capability.ReasonRevoked {
			t.Errorf("the reason is %q", reason)
		}
		_, err = old.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		expectCode(t, err, driver.ErrUnauthenticated, "receive with a revoked token")
		expectCode(t, old.Nack(t.Context(), "orders", []broker.Nack{{Receipt: held[1].Receipt}}), driver.ErrUnauthenticated, "nack with a revoked token")
		if err := old.Ack(t.Context(), "orders", []string{held[0].Receipt}); err != nil {
			t.Errorf("ack of what was taken before: %v", err)
		}
		if err := old.AckOne(t.Context(), broker.Target{ID: held[1].ID}); err != nil {
			t.Errorf("ack, without a receipt, of what was taken before: %v", err)
		}
		fresh := b.as("")
		if got := b.receive(fresh, "orders", 10); len(got) != 1 {
			t.Errorf("with a new token: got %d messages, want the one that is left", len(got))
		}
	})
}

func TestTraceShowsWholeLifeOfMessage(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	id := b.send(c, "orders", "a")
	if err := c.NackOne(t.Context(), broker.Target{ID: b.receive(c, "orders", 1)[0].ID}, broker.Nack{Cause: "no ink"}); err != nil {
		t.Fatal(err)
	}
	held := b.receive(c, "orders", 1)[0]
	if _, err := c.Extend(t.Context(), "orders", []broker.Extension{{Receipt: held.Receipt, Visibility: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	if err := c.DeadLetter(t.Context(), "orders", []broker.DeadLetterRequest{{Receipt: held.Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	traces, err := c.Trace(t.Context(), "orders", id)
	if err != nil || traces.Message == nil || traces.Message.State != driver.StateDead {
		t.Fatalf("trace: %+v, %v", traces, err)
	}
	if _, err := c.Redrive(t.Context(), "orders", []string{id}, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.AckOne(t.Context(), broker.Target{ID: b.receive(c, "orders", 1)[0].ID}); err != nil {
		t.Fatal(err)
	}
	if traces, err = c.Trace(t.Context(), "orders", id); err != nil || traces.Message != nil {
		t.Fatalf("trace: %+v, %v", traces, err)
	}
	var kinds []string
	for _, e := range traces.Events {
		kinds = append(kinds, e.Kind.String())
	}
	if got, want := strings.Join(kinds, " "), "sent delivered failed delivered extended dead-lettered redriven delivered acked"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if traces.Events[2].Note != "no ink" {
		t.Errorf("the failure says %q", traces.Events[2].Note)
	}
}

// TestNoSecretReachesTheLog sends canaries through everything that is logged.
func TestNoSecretReachesTheLog(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	b := newBench(t, &flipper{Opener: backend, flip: func(m *driver.Message) { m.Body[0] ^= 1 }}, broker.Limits{})
	token := mint(t, b.ring, "")
	c := b.Caller(token, broker.Origin{CorrelationID: "corr-7"})
	message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("canary-payload"), Attributes: map[string]string{"k": "canary-attribute"}}}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	expectCode(t, err, driver.ErrIntegrity, "receive of a damaged message")
	narrowed, err := token.Narrow(capability.Operations(capability.OpStats))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Caller(narrowed, broker.Origin{}).Send(t.Context(), "orders", []broker.Outgoing{message})
	expectCode(t, err, driver.ErrForbidden, "send with a narrowed token")
	if _, err := c.Mint(t.Context(), "", []capability.Caveat{capability.AllOperations(), capability.Queues(capability.AnyQueue())}); err != nil {
		t.Fatal(err)
	}
	log := b.log.String()
	for _, line := range []string{"integrity.fail", "auth.denied", "auth.minted", "corr-7"} {
		if !strings.Contains(log, line) {
			t.Errorf("the log has no %s", line)
		}
	}
	for _, secret := range []string{"canary", token.Reveal(), narrowed.Reveal(), token.Reveal()[40:80]} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds a secret: %s", log)
		}
	}
}
