package envelope

import (
	"crypto/ed25519"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

var (
	sentAt  = time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	payload = []byte("two of those, please")
)

// sealed returns an envelope with every field set, sealed for payload.
func sealed(t testing.TB) Envelope {
	t.Helper()
	e := Envelope{
		ID: "01KE0000000000000000000000", Queue: "user:42:inbox", SentAt: sentAt, DedupKey: "order-7",
		Attributes:    map[string]string{"kind": "order", "lang": "de", "note": "ä\n\"quoted\""},
		CorrelationID: "019b7b1e-0000-7000-8000-000000000000", Shard: 3, Attempt: 1,
	}
	if err := e.Seal(payload); err != nil {
		t.Fatal(err)
	}
	return e
}

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
}

func public(private ed25519.PrivateKey) ed25519.PublicKey {
	return private.Public().(ed25519.PublicKey)
}

// wantIntegrity checks that err is ErrIntegrity about this field.
func wantIntegrity(t *testing.T, what string, err error, field string) {
	t.Helper()
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Code != driver.ErrIntegrity || e.Field != field || e.Queue == "" || e.MessageID == "" {
		t.Errorf("%s: %v, want ErrIntegrity about %s that names the message", what, err, field)
	}
}

func TestWhatWasSealedVerifies(t *testing.T) {
	e := sealed(t)
	if err := e.Verify(payload); err != nil {
		t.Fatal(err)
	}
	// Fields that the queue changes later are not covered.
	e.ID, e.Attempt, e.Shard, e.CorrelationID = "another", 9, 1, ""
	if err := e.Verify(payload); err != nil {
		t.Errorf("after changes of the queue: %v", err)
	}
}

func TestTimeIsWrittenAsItsLayoutSays(t *testing.T) {
	times := []time.Time{
		sentAt, {}, time.UnixMilli(0), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		time.Date(2024, 2, 29, 0, 0, 0, 0, time.FixedZone("", 3600)), time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for i := range 1000 {
		times = append(times, time.UnixMilli(int64(i)*249_999_991_367))
	}
	for _, at := range times {
		if got, want := string(appendTime(nil, at)), at.UTC().Format(timeLayout); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestEveryFlippedBitOfThePayloadIsFound(t *testing.T) {
	e := sealed(t)
	for bit := range 8 * len(payload) {
		flipped := append([]byte(nil), payload...)
		flipped[bit/8] ^= 1 << (bit % 8)
		wantIntegrity(t, "flipped payload", e.Verify(flipped), "payload_hash")
	}
	wantIntegrity(t, "cut payload", e.Verify(payload[:len(payload)-1]), "payload_hash")
	wantIntegrity(t, "longer payload", e.Verify(append(payload[:len(payload):len(payload)], 0)), "payload_hash")
	wantIntegrity(t, "no payload", e.Verify(nil), "payload_hash")
}

// TestEveryChangeOfACoveredFieldIsFound flips each bit of each covered text, and
// moves attributes around.
func TestEveryChangeOfACoveredFieldIsFound(t *testing.T) {
	flips := func(text string) (all []string) {
		for bit := range 8 * len(text) {
			b := []byte(text)
			b[bit/8] ^= 1 << (bit % 8)
			all = append(all, string(b))
		}
		return append(all, "", text+"x")
	}
	check := func(what string, change func(*Envelope)) {
		t.Helper()
		e := sealed(t)
		e.Attributes = maps.Clone(e.Attributes)
		change(&e)
		wantIntegrity(t, what, e.Verify(payload), "hash_chain")
	}
	original := sealed(t)
	for _, queue := range flips(original.Queue)[:8*len(original.Queue)] {
		check("topic", func(e *Envelope) { e.Queue = queue })
	}
	for _, key := range flips(original.DedupKey) {
		check("idem_key", func(e *Envelope) { e.DedupKey = key })
	}
	for name, value := range original.Attributes {
		for _, other := range flips(value) {
			check("value of "+name, func(e *Envelope) { e.Attributes[name] = other })
		}
		for _, other := range flips(name) {
			check("name "+name, func(e *Envelope) { delete(e.Attributes, name); e.Attributes[other] = value })
		}
		check("missing "+name, func(e *Envelope) { delete(e.Attributes, name) })
	}
	check("one more attribute", func(e *Envelope) { e.Attributes[""] = "" })
	check("swapped values", func(e *Envelope) {
		e.Attributes["kind"], e.Attributes["lang"] = e.Attributes["lang"], e.Attributes["kind"]
	})
	check("border between name and value", func(e *Envelope) { delete(e.Attributes, "kind"); e.Attributes["kindo"] = "rder" })
	check("border between queue and key", func(e *Envelope) { e.Queue, e.DedupKey = e.Queue+e.DedupKey[:1], e.DedupKey[1:] })
	check("a millisecond later", func(e *Envelope) { e.SentAt = e.SentAt.Add(time.Millisecond) })
	check("a year earlier", func(e *Envelope) { e.SentAt = e.SentAt.AddDate(-1, 0, 0) })
	for bit := range 256 {
		check("chain", func(e *Envelope) { e.HashChain[bit/8] ^= 1 << (bit % 8) })
	}
	// The hash of another body does not match the chain.
	other := []byte("three of those, please")
	forged := sealed(t)
	forged.BodyHash = HashBody(other)
	wantIntegrity(t, "other payload with its own hash", forged.Verify(other), "hash_chain")
}

func TestSignatureIsDemandedExactlyWhenKeysAreGiven(t *testing.T) {
	alice, bob := key('a'), key('b')
	unsigned := sealed(t)
	wantIntegrity(t, "unsigned", unsigned.Verify(payload, public(alice)), "sig")

	e := sealed(t)
	if err := e.Sign(alice); err != nil {
		t.Fatal(err)
	}
	for _, trusted := range [][]ed25519.PublicKey{nil, {public(alice)}, {public(bob), public(alice)}, {nil, public(alice)}} {
		if err := e.Verify(payload, trusted...); err != nil {
			t.Errorf("%d keys: %v", len(trusted), err)
		}
	}
	wantIntegrity(t, "by another", e.Verify(payload, public(bob)), "sig")
	wantIntegrity(t, "by a key of no length", e.Verify(payload, nil, ed25519.PublicKey{1}), "sig")
	for bit := range 8 * len(e.Signature) {
		flipped := e
		flipped.Signature[bit/8] ^= 1 << (bit % 8)
		wantIntegrity(t, "flipped signature", flipped.Verify(payload, public(alice)), "sig")
	}
	// A signature of one envelope is not valid for another, even if that is
	// sealed.
	other := e
	other.Queue = "user:43:inbox"
	signature := other.Signature
	if err := other.Seal(payload); err != nil {
		t.Fatal(err)
	}
	if !other.Signature.IsZero() {
		t.Error("sealing kept an invalid signature")
	}
	other.Signature = signature
	wantIntegrity(t, "signature of another envelope", other.Verify(payload, public(alice)), "sig")
	// It is not valid for fields that were changed together with the chain.
	stale := e
	stale.Queue = "user:43:inbox"
	wantIntegrity(t, "changed field under a good signature", stale.Verify(payload, public(alice)), "hash_chain")
}

func TestSigningNeedsAKeyAndASeal(t *testing.T) {
	e := sealed(t)
	if err := e.Sign(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
	if err := new(Envelope).Sign(key('a')); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no seal: %v", err)
	}
	keyless := Envelope{Queue: "t", SentAt: sentAt}
	if err := keyless.Seal(payload); err != nil {
		t.Fatal(err)
	}
	if err := keyless.Sign(key('a')); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no dedup key: %v", err)
	}
}

func TestSealingRefusesWhatCannotTravel(t *testing.T) {
	for field, change := range map[string]func(*Envelope){
		"topic":    func(e *Envelope) { e.Queue = "" },
		"idem_key": func(e *Envelope) { e.DedupKey = strings.Repeat("k", driver.MaxDedupKeyBytes+1) },
		"attrs":    func(e *Envelope) { e.Attributes = map[string]string{"a": "\xff"} },
		"corr_id":  func(e *Envelope) { e.CorrelationID = "\xc3" },
		"ts":       func(e *Envelope) { e.SentAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		e := sealed(t)
		change(&e)
		before := e.HashChain
		err := e.Seal(payload)
		if got, ok := errors.AsType[*driver.Error](err); !ok || got.Code != driver.ErrInvalid || got.Field != field {
			t.Errorf("%v, want ErrInvalid about %s", err, field)
		}
		if e.HashChain != before {
			t.Errorf("%s: a refused envelope was changed", field)
		}
	}
	if err := (&Envelope{Queue: "a", SentAt: time.Time{}}).Seal(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("without a time: %v", err)
	}
}

func TestTimeIsKeptToTheMillisecondInUTC(t *testing.T) {
	e := Envelope{Queue: "a", SentAt: sentAt.Add(999_999).In(time.FixedZone("somewhere", 3600))}
	if err := e.Seal(nil); err != nil {
		t.Fatal(err)
	}
	if e.SentAt != sentAt {
		t.Errorf("sealed at %v, want %v", e.SentAt, sentAt)
	}
}

// envelopes draws envelopes from few values, so that two of them are often
// equal.
func envelopes() *rapid.Generator[Envelope] {
	text := rapid.StringMatching(`[ab:]{0,3}`)
	return rapid.Custom(func(t *rapid.T) Envelope {
		return Envelope{
			Queue:      text.Draw(t, "topic"),
			SentAt:     sentAt.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "ms")) * time.Millisecond),
			DedupKey:   text.Draw(t, "key"),
			BodyHash:   HashBody([]byte(text.Draw(t, "payload"))),
			Attributes: rapid.MapOfN(text, text, 0, 3).Draw(t, "attrs"),
		}
	})
}

// TestDifferentEnvelopesHashDifferentBytes: equal input of the hash means
// equal envelopes, so that only a collision of BLAKE3 could hide a change.
func TestDifferentEnvelopesHashDifferentBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := envelopes().Draw(t, "a"), envelopes().Draw(t, "b")
		same := a.Queue == b.Queue && a.SentAt.Equal(b.SentAt) && a.DedupKey == b.DedupKey &&
			a.BodyHash == b.BodyHash && maps.Equal(a.Attributes, b.Attributes)
		if hashedSame := string(a.appendChained(nil)) == string(b.appendChained(nil)); hashedSame != same {
			t.Fatalf("same envelope: %t, same bytes: %t", same, hashedSame)
		}
	})
}

func TestVerifyingDoesNotAllocate(t *testing.T) {
	volume.Measures(t)
	e := sealed(t)
	large := make([]byte, 64<<10)
	if n := testing.AllocsPerRun(100, func() { _ = HashBody(large) }); n != 0 {
		t.Errorf("HashBody allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = e.Verify(payload) }); n != 0 {
		t.Errorf("Verify allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _ = e.Seal(payload) }); n != 0 {
		t.Errorf("Seal allocates %v times", n)
	}
	buffer := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { _, _ = e.AppendJSON(buffer) }); n != 0 {
		t.Errorf("AppendJSON allocates %v times", n)
	}
}
