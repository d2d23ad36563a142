package broker_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/envelope"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// bench is a broker with everything around it.
type bench struct {
	*broker.Broker
	t       testing.TB
	ring    *capability.KeyRing
	revoked *capability.MemoryRevocations
	log     *lockedBuffer
}

// lockedBuffer is a log that many may write to.
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

func newBench(t testing.TB, backend driver.Opener, limits broker.Limits, defaults driver.Config) *bench {
	t.Helper()
	b := &bench{t: t, ring: capability.NewKeyRing(capability.NewKey()), revoked: new(capability.MemoryRevocations), log: new(lockedBuffer)}
	var err error
	b.Broker, err = broker.New(broker.Options{
		Opener: backend, Ring: b.ring, Revocations: b.revoked, Limits: limits, Defaults: defaults,
		Verifier: capability.NewVerifier(b.ring, &capability.VerifierOptions{Revocations: b.revoked}),
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
	return newBench(t, backend, limits, driver.Config{})
}

// as returns a caller with a token for a tenant.
func (b *bench) as(tenant string, caveats ...capability.Caveat) broker.Caller {
	return b.Caller(mint(b.t, b.ring, tenant, caveats...), broker.Origin{CorrelationID: "corr-1"})
}

func say(body string) []broker.Outgoing {
	return []broker.Outgoing{{Outgoing: driver.Outgoing{Body: []byte(body)}}}
}

func (b *bench) send(c broker.Caller, topic, body string) string {
	b.t.Helper()
	sent, err := c.Send(b.t.Context(), topic, say(body))
	if err != nil {
		b.t.Fatalf("send: %v", err)
	}
	return sent[0].ID
}

func (b *bench) receive(c broker.Caller, topic string, most int) []broker.Delivery {
	b.t.Helper()
	got, err := c.Receive(b.t.Context(), topic, driver.ReceiveRequest{Max: most, Visibility: time.Minute})
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

func TestTenantsCannotNameTheirWayOut(t *testing.T) {
	b := memory(t, broker.Limits{})
	acme, other, nobody := b.as("acme"), b.as("other"), b.as("")
	b.send(acme, "orders", "of acme")
	for _, spelled := range []string{"orders", "~acme~orders", "acme/orders", "~~acme~orders", "~other~~acme~orders", "../acme/orders"} {
		for name, c := range map[string]broker.Caller{"another tenant": other, "no tenant": nobody} {
			if got := b.receive(c, spelled, 1); len(got) > 0 {
				t.Errorf("%s got a message of acme from %q", name, spelled)
			}
		}
	}
	if got := b.receive(acme, "orders", 1); len(got) != 1 || string(got[0].Body) != "of acme" || got[0].Topic != "orders" {
		t.Errorf("acme got %v", got)
	}
	for topic, err := range acme.Topics(t.Context()) {
		if err != nil || topic != "orders" {
			t.Errorf("acme sees %q, %v", topic, err)
		}
	}
}

func TestTenantsErrorsNameTheirOwnTopics(t *testing.T) {
	b := memory(t, broker.Limits{})
	_, err := b.as("acme").Stats(t.Context(), "nowhere")
	if e, ok := errors.AsType[*driver.Error](err); !ok || e.Code != driver.ErrNotFound || e.Queue != "nowhere" {
		t.Errorf("got %v, want not found, and the tenant's own name", err)
	}
}

func TestATenantCaveatDoesNotOpenTheTenantsTopics(t *testing.T) {
	b := memory(t, broker.Limits{})
	b.send(b.as("acme"), "orders", "of acme")
	narrowed, err := mint(t, b.ring, "").Attenuate(capability.Tenant("acme"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Caller(narrowed, broker.Origin{}).Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	expectCode(t, err, driver.ErrForbidden, "receive with a token of no tenant that was narrowed to one")
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
		capability.OpAck: func(c broker.Caller) error { return c.AckOne(ctx, broker.Target{Topic: "orders", ID: id}) },
		capability.OpNack: func(c broker.Caller) error {
			return c.NackOne(ctx, broker.Target{Topic: "orders", ID: id}, broker.Nack{})
		},
		capability.OpExtend: func(c broker.Caller) error {
			return c.ExtendOne(ctx, broker.Target{Topic: "orders", ID: id}, time.Minute)
		},
		capability.OpStats: func(c broker.Caller) error { _, err := c.Stats(ctx, "orders"); return err },
		capability.OpPeek:  func(c broker.Caller) error { return drain(c.Peek(ctx, "orders", driver.Query{})) },
		capability.OpPurge: func(c broker.Caller) error { _, err := c.Purge(ctx, "orders"); return err },
		capability.OpDLQ:   func(c broker.Caller) error { return drain(c.DeadLetters(ctx, "orders")) },
		capability.OpAdmin: func(c broker.Caller) error { _, err := c.Config(ctx, "orders"); return err },
	}
	for allowed := range operations {
		token, err := b.ring.Mint("", capability.Operations(allowed), capability.Topics(capability.AnyTopic()), capability.ExpiresAt(time.Now().Add(time.Hour)))
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

func drain(messages iter.Seq2[broker.Looked, error]) error {
	for _, err := range messages {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestCallersAreHeldToTheirNetworkAndCertificate(t *testing.T) {
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

func TestReceiptsOfOneDaemonWorkAtAnotherWithTheSameKeys(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	first := newBench(t, backend, broker.Limits{}, driver.Config{})
	second := newBench(t, backend, broker.Limits{}, driver.Config{})
	second.ring = first.ring
	var err error
	second.Broker, err = broker.New(broker.Options{Opener: backend, Ring: first.ring, Verifier: capability.NewVerifier(first.ring, nil)})
	if err != nil {
		t.Fatal(err)
	}
	token := mint(t, first.ring, "")
	first.send(first.Caller(token, broker.Origin{}), "orders", "a")
	held := first.receive(first.Caller(token, broker.Origin{}), "orders", 1)
	if err := second.Caller(token, broker.Origin{}).Ack(t.Context(), "orders", []string{held[0].Receipt}); err != nil {
		t.Errorf("ack at the other daemon: %v", err)
	}
	// A daemon with other keys knows nobody's receipts.
	third := newBench(t, backend, broker.Limits{}, driver.Config{})
	third.send(third.as(""), "orders", "b")
	held = third.receive(third.as(""), "orders", 1)
	expectCode(t, first.Caller(token, broker.Origin{}).Ack(t.Context(), "orders", []string{held[0].Receipt}), driver.ErrReceiptExpired, "ack with a receipt under another key")
}

func TestReceiptsOutliveTheRotationOfKeys(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.send(c, "orders", "a")
	held := b.receive(c, "orders", 1)
	if err := b.ring.Rotate(capability.NewKey()); err != nil {
		t.Fatal(err)
	}
	if err := c.Ack(t.Context(), "orders", []string{held[0].Receipt}); err != nil {
		t.Errorf("ack after a rotation: %v", err)
	}
}

func TestAnyChangedReceiptIsWorthNothing(t *testing.T) {
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

func TestWhatIsReceivedCarriesTheEnvelopeThatWasSealed(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("acme")
	message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("payload"), DedupKey: "key", Attributes: map[string]string{"k": "v", driver.AttributeReplyError: "failed"}}}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
		t.Fatal(err)
	}
	got := b.receive(c, "orders", 1)[0]
	e := got.Envelope()
	if err := e.Verify([]byte("payload")); err != nil {
		t.Errorf("the envelope does not verify: %v", err)
	}
	if e.Topic != "orders" || e.IdemKey != "key" || e.CorrelationID != "corr-1" || e.Attempt != 1 || !maps.Equal(e.Attributes, message.Attributes) {
		t.Errorf("envelope: %+v", e)
	}
}

func TestTheSealCannotBeSentFromOutside(t *testing.T) {
	b := memory(t, broker.Limits{})
	forged := broker.Outgoing{Outgoing: driver.Outgoing{Attributes: map[string]string{broker.AttributeSeal: "x"}}}
	_, err := b.as("").Send(t.Context(), "orders", []broker.Outgoing{forged, {}})
	expectCode(t, driver.At(err, 0), driver.ErrInvalid, "send with the daemon's own attribute")
	if err := driver.At(err, 1); err != nil {
		t.Errorf("the other message of the batch: %v", err)
	}
}

func TestSignaturesArriveAsTheyWereSent(t *testing.T) {
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

// TestRevocationDrill is gate G-10 without a wire: while messages flow, the token
// is revoked; what it had taken can be acked, nothing else can be done with it,
// and with a new token everything goes on.
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
		if err := b.as("").Revoke(t.Context(), capability.Revocation{Token: token.ID()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(capability.DefaultCacheTTL)
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

func TestATokenForOneReceiptSettlesThatDeliveryAlone(t *testing.T) {
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

// flipper is a backend whose messages rot: flip changes them when they are
// received.
type flipper struct {
	driver.Opener
	flip func(m *driver.Message)
}

type flippedQueue struct {
	driver.Queue
	driver.DeadLetterer
	flip func(m *driver.Message)
}

func (f *flipper) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := f.Opener.OpenQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return &flippedQueue{q, q.(driver.DeadLetterer), f.flip}, nil
}

func (q *flippedQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	got, err := q.Queue.Receive(ctx, req)
	for i := range got {
		got[i].Body = bytes.Clone(got[i].Body)
		got[i].Attributes = maps.Clone(got[i].Attributes)
		q.flip(&got[i].Message)
	}
	return got, err
}

// TestAFlippedBitIsNeverDelivered is gate G-7: every single bit of a payload, an
// attribute and the seal is flipped, and each time the message becomes a dead
// letter with reason integrity.
func TestAFlippedBitIsNeverDelivered(t *testing.T) {
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
	for bit := range len("payload") * 8 {
		flips["payload bit "+time.Duration(bit).String()] = func(m *driver.Message) { m.Body[bit/8] ^= 1 << (bit % 8) }
	}
	for bit := range len("blue") * 8 {
		flips["attribute bit "+time.Duration(bit).String()] = flipIn("colour", bit)
	}
	for bit := range 100 * 8 { // it has about 90 bytes
		flips["seal bit "+time.Duration(bit).String()] = flipIn(broker.AttributeSeal, bit)
	}
	for name, flip := range flips {
		backend := membox.New(nil)
		b := newBench(t, &flipper{Opener: backend, flip: flip}, broker.Limits{}, driver.Config{})
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

func TestDamageCostsNothingElseOfTheBatch(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	b := newBench(t, &flipper{Opener: backend, flip: func(m *driver.Message) {
		if string(m.Body) == "b" {
			m.Body[0] = 'x'
		}
	}}, broker.Limits{}, driver.Config{})
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

func TestMessagesFromOutsideTheDaemonAreSealedWhenHandedOut(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	q, err := backend.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), []driver.Outgoing{{Body: []byte("a"), Attributes: map[string]string{"k": "v"}}}); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, backend, broker.Limits{}, driver.Config{})
	e := b.receive(b.as(""), "orders", 1)[0].Envelope()
	if err := e.Verify([]byte("a")); err != nil {
		t.Error(err)
	}
}

func TestForwardedDeadLettersStayWhole(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("acme")
	if err := c.Configure(t.Context(), "orders", driver.Config{DeadLetterTo: "dead"}); err != nil {
		t.Fatal(err)
	}
	err := c.Configure(t.Context(), "dead", driver.Config{DeadLetterTo: "deader"})
	if err == nil || strings.Contains(err.Error(), "~") {
		t.Errorf("a chain of dead letters: %v; want a refusal that names the tenant's own topics", err)
	}
	if config, err := c.Config(t.Context(), "orders"); err != nil || config.DeadLetterTo != "dead" {
		t.Errorf("the configuration says %q, %v", config.DeadLetterTo, err)
	}
	b.send(c, "orders", "a")
	held := b.receive(c, "orders", 1)
	if err := c.Bury(t.Context(), "orders", []broker.Burial{{Receipt: held[0].Receipt, Reason: driver.ReasonFatal}}); err != nil {
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

func TestTheLifeOfAMessageIsOneAnswer(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	id := b.send(c, "orders", "a")
	if err := c.NackOne(t.Context(), broker.Target{ID: b.receive(c, "orders", 1)[0].ID}, broker.Nack{Cause: "no ink"}); err != nil {
		t.Fatal(err)
	}
	held := b.receive(c, "orders", 1)[0]
	if err := c.Extend(t.Context(), "orders", []broker.Extension{{Receipt: held.Receipt, Visibility: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Bury(t.Context(), "orders", []broker.Burial{{Receipt: held.Receipt, Reason: driver.ReasonFatal}}); err != nil {
		t.Fatal(err)
	}
	life, err := c.Life(t.Context(), "orders", id)
	if err != nil || life.Message == nil || life.Message.State != driver.StateDead {
		t.Fatalf("life: %+v, %v", life, err)
	}
	if _, err := c.Redrive(t.Context(), "orders", []string{id}, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.AckOne(t.Context(), broker.Target{ID: b.receive(c, "orders", 1)[0].ID}); err != nil {
		t.Fatal(err)
	}
	if life, err = c.Life(t.Context(), "orders", id); err != nil || life.Message != nil {
		t.Fatalf("life: %+v, %v", life, err)
	}
	var kinds []string
	for _, e := range life.Events {
		kinds = append(kinds, string(e.Kind))
	}
	if got, want := strings.Join(kinds, " "), "sent delivered failed delivered extended dead-lettered redriven delivered acked"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if life.Events[2].Note != "no ink" {
		t.Errorf("the failure says %q", life.Events[2].Note)
	}
}

func TestSettlingByIDIsForWhoTookTheDelivery(t *testing.T) {
	b := memory(t, broker.Limits{})
	taker, other := b.as(""), b.as("")
	id := b.send(taker, "orders", "a")
	b.receive(taker, "orders", 1)
	for _, target := range []broker.Target{{ID: id}, {Topic: "orders", ID: id}} {
		expectCode(t, other.AckOne(t.Context(), target), driver.ErrNotFound, "ack of another's delivery by id")
		expectCode(t, other.NackOne(t.Context(), target, broker.Nack{}), driver.ErrNotFound, "nack of another's delivery by id")
	}
	for range 3 {
		if err := taker.AckOne(t.Context(), broker.Target{ID: id}); err != nil {
			t.Errorf("ack, and ack again: %v", err)
		}
	}
	expectCode(t, other.AckOne(t.Context(), broker.Target{ID: id}), driver.ErrNotFound, "repeated ack by somebody else")
	expectCode(t, taker.AckOne(t.Context(), broker.Target{ID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}), driver.ErrNotFound, "ack of nothing")
}

func TestTheCeilingOfMessagesInFlightHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxInFlight: 5})
		c := b.as("")
		for range 10 {
			b.send(c, "orders", "a")
			b.send(c, "invoices", "b")
		}
		held := append(b.receive(c, "orders", 4), b.receive(c, "invoices", 4)...)
		if len(held) != 5 || b.InFlight() != 5 {
			t.Fatalf("%d messages were handed out and %d count, want 5", len(held), b.InFlight())
		}
		_, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		expectCode(t, err, driver.ErrFull, "receive at the ceiling")
		if driver.RetryAfter(err) <= 0 {
			t.Error("it does not say when to come back")
		}
		if err := c.Ack(t.Context(), "orders", []string{held[0].Receipt}); err != nil {
			t.Fatal(err)
		}
		if got := b.receive(c, "invoices", 9); len(got) != 1 {
			t.Errorf("after one ack: got %d messages, want 1", len(got))
		}
		time.Sleep(time.Minute) // all leases end
		if got := b.receive(c, "orders", 9); len(got) != 5 {
			t.Errorf("after all leases ended: got %d messages, want 5", len(got))
		}
	})
}

func TestWaitingReceiversLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{MaxInFlight: 64})
		c := b.as("")
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				_, _ = c.Receive(ctx, "empty", driver.ReceiveRequest{Max: 10, Visibility: time.Minute, Wait: time.Hour})
			})
		}
		synctest.Wait()
		b.send(c, "orders", "a")
		if got := b.receive(c, "orders", 1); len(got) != 1 {
			t.Error("those who wait have taken all the room")
		}
		cancel()
		waiting.Wait()
		if n := b.InFlight(); n != 1 {
			t.Errorf("%d messages count as out, want 1", n)
		}
	})
}

func TestTopicsAreBounded(t *testing.T) {
	b := memory(t, broker.Limits{MaxTopics: 3})
	c := b.as("")
	for _, topic := range []string{"a", "b", "c"} {
		b.send(c, topic, "x")
		b.receive(c, topic, 1)
	}
	_, err := c.Send(t.Context(), "d", say("x"))
	expectCode(t, err, driver.ErrFull, "a fourth topic while all others are in use")
	if _, err := c.Purge(t.Context(), "a"); err != nil { // now it rests
		t.Fatal(err)
	}
	b.send(c, "d", "x")
}

func TestDrainingRefusesWritesBeforeReadsAndSettlingLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.send(c, "orders", "a")
		b.send(c, "orders", "b")
		first := b.receive(c, "orders", 1)
		ended := make(chan error, 1)
		go func() {
			_, err := c.Receive(t.Context(), "empty", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			ended <- err
		}()
		synctest.Wait()
		b.SetState(broker.StateReadOnly)
		_, err := c.Send(t.Context(), "orders", say("c"))
		expectCode(t, err, driver.ErrUnavailable, "send while draining")
		if driver.RetryAfter(err) <= 0 {
			t.Error("it does not say when to come back")
		}
		second := b.receive(c, "orders", 1)
		b.SetState(broker.StateSettling)
		if err := <-ended; err != nil {
			t.Errorf("a receive that waited: %v", err)
		}
		_, err = c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
		expectCode(t, err, driver.ErrUnavailable, "receive when only settling is left")
		if err := c.Ack(t.Context(), "orders", []string{first[0].Receipt, second[0].Receipt}); err != nil {
			t.Errorf("settling to the end: %v", err)
		}
	})
}

func TestNothingIsWithoutBounds(t *testing.T) {
	defaults := driver.Config{MaxDeliveries: 5, RetainReady: driver.Retention{Age: time.Hour}, RetainDead: driver.Retention{Age: time.Hour}, MaxMessages: 10}
	backend := membox.New(&membox.Options{Defaults: defaults})
	defer backend.Close()
	b := newBench(t, backend, broker.Limits{}, defaults)
	c := b.as("")
	b.send(c, "used", "a")
	if err := c.Configure(t.Context(), "configured", driver.Config{MaxDeliveries: 2}); err != nil {
		t.Fatal(err)
	}
	for topic, attempts := range map[string]int{"used": 5, "configured": 2} {
		config, err := c.Config(t.Context(), topic)
		if err != nil || config.MaxDeliveries != attempts || config.RetainReady.Age != time.Hour || config.MaxMessages != 10 {
			t.Errorf("%s: %+v, %v", topic, config, err)
		}
	}
}

func TestNacksBackOffWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{BackoffBase: time.Second, BackoffMax: 4 * time.Second})
		c := b.as("")
		id := b.send(c, "orders", "a")
		for attempt := 1; attempt <= 6; attempt++ {
			got, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour})
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			began := time.Now()
			if err := c.NackOne(t.Context(), broker.Target{ID: id}, broker.Nack{Backoff: true}); err != nil {
				t.Fatal(err)
			}
			for looked, err := range c.Peek(t.Context(), "orders", driver.Query{ID: id}) {
				if err != nil {
					t.Fatal(err)
				}
				bound := min(4*time.Second, time.Second<<attempt)
				if looked.State == driver.StateDelayed && looked.DueAt.Sub(began) > bound+time.Millisecond {
					t.Errorf("attempt %d is due after %v, want at most %v", attempt, looked.DueAt.Sub(began), bound)
				}
			}
		}
	})
}

// TestNoSecretReachesTheLog sends canaries through everything that is logged.
func TestNoSecretReachesTheLog(t *testing.T) {
	backend := membox.New(nil)
	defer backend.Close()
	b := newBench(t, &flipper{Opener: backend, flip: func(m *driver.Message) { m.Body[0] ^= 1 }}, broker.Limits{}, driver.Config{})
	token := mint(t, b.ring, "")
	c := b.Caller(token, broker.Origin{CorrelationID: "corr-7"})
	message := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("canary-payload"), Attributes: map[string]string{"k": "canary-attribute"}}}
	if _, err := c.Send(t.Context(), "orders", []broker.Outgoing{message}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Receive(t.Context(), "orders", driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
	expectCode(t, err, driver.ErrIntegrity, "receive of a damaged message")
	narrowed, err := token.Attenuate(capability.Operations(capability.OpStats))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Caller(narrowed, broker.Origin{}).Send(t.Context(), "orders", []broker.Outgoing{message})
	expectCode(t, err, driver.ErrForbidden, "send with a narrowed token")
	if _, err := c.Mint(t.Context(), "", []capability.Caveat{capability.AllOperations(), capability.Topics(capability.AnyTopic())}); err != nil {
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
