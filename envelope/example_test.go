package envelope_test

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/envelope"
)

// A sender seals a message; a receiver checks that it is unchanged.
func Example() {
	payload := []byte("Hi")
	sent := envelope.Envelope{
		ID:         "01KE0000000000000000000000",
		Queue:      "user:42:inbox",
		SentAt:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		DedupKey:   "k-1",
		Attributes: map[string]string{"lang": "en"},
	}
	if err := sent.Seal(payload); err != nil {
		panic(err)
	}
	fmt.Println(sent.BodyHash)

	wire, err := sent.AppendJSON(nil)
	if err != nil {
		panic(err)
	}
	received, err := envelope.Parse(wire)
	if err != nil {
		panic(err)
	}
	fmt.Println(received.Verify(payload))
	fmt.Println(received.Verify([]byte("Ho")))

	received.Attributes["lang"] = "fr"
	fmt.Println(received.Verify(payload))
	// Output:
	// b3:714bcf6b6c94fcc1059eec24ca94083da1caa75326ea1c0a4a5e82b1c146f688
	// <nil>
	// mailbox: verify user:42:inbox/01KE0000000000000000000000: integrity: payload_hash: the body is not the one that was sent
	// mailbox: verify user:42:inbox/01KE0000000000000000000000: integrity: hash_chain: topic, ts, idem_key, payload_hash or attrs was changed
}

// An attacker that can change a message can also hash it again. A signature prevents that.
func ExampleEnvelope_Sign() {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	e := envelope.Envelope{ID: "01KE0000000000000000000000", Queue: "orders", SentAt: time.Now(), DedupKey: "order-7"}
	if err := e.Seal([]byte("one")); err != nil {
		panic(err)
	}
	if err := e.Sign(private); err != nil {
		panic(err)
	}
	fmt.Println("as sent:", e.Verify([]byte("one"), public))

	// Seal drops the signature; the attacker cannot make another.
	if err := e.Seal([]byte("two")); err != nil {
		panic(err)
	}
	fmt.Println("without keys:", e.Verify([]byte("two")))
	fmt.Println(e.Verify([]byte("two"), public))
	// Output:
	// as sent: <nil>
	// without keys: <nil>
	// mailbox: verify orders/01KE0000000000000000000000: integrity: sig: there is no signature, and one is required
}
