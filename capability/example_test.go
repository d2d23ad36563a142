package capability_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// check ends an example on an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A service mints a token, its holder narrows it for another client, and the
// service verifies the narrowed token.
func Example() {
	ctx := context.Background()
	ring := capability.NewKeyRing(capability.NewKey())
	verifier := capability.NewVerifier(ring, nil)

	token, err := ring.Mint("",
		capability.Operations(capability.OpSend, capability.OpRecv, capability.OpAck),
		capability.Queues(capability.QueuesUnder("user:42:")),
		capability.ExpiresAt(time.Now().Add(24*time.Hour)))
	check(err)

	// Narrowing needs no key.
	sendOnly, err := token.Narrow(
		capability.Operations(capability.OpSend),
		capability.ExpiresAt(time.Now().Add(10*time.Minute)))
	check(err)

	for _, request := range []capability.Request{
		{Operation: capability.OpSend, Queue: "user:42:inbox"},
		{Operation: capability.OpRecv, Queue: "user:42:inbox"},
		{Operation: capability.OpSend, Queue: "user:43:inbox"},
	} {
		_, err := verifier.Authorize(ctx, sendOnly, request)
		fmt.Printf("%s %s: %q\n", request.Operation, request.Queue, capability.ReasonOf(err))
	}
	// Output:
	// send user:42:inbox: ""
	// recv user:42:inbox: "operation"
	// send user:43:inbox: "topic"
}

// Tokens travel as text, and do not print themselves.
func ExampleToken_Reveal() {
	ring := capability.NewKeyRing(capability.NewKey())
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().Add(time.Hour)))
	check(err)

	header := "Bearer " + token.Reveal()
	again, err := capability.Parse(header[len("Bearer "):])
	check(err)

	fmt.Println(again.Equal(token))
	fmt.Println(again.String() == fmt.Sprintf("[capability %s/%s]", ring.Current().ID(), token.ID()))
	// Output:
	// true
	// true
}

// The holder of a token can read what it allows.
func ExampleToken_Inspect() {
	ring := capability.NewKeyRing(capability.NewKey())
	token, err := ring.Mint("acme",
		capability.Operations(capability.OpSend),
		capability.Queues(capability.Queue("orders"), capability.QueuesUnder("user:42:")),
		capability.ExpiresAt(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)),
		capability.MessagesPerSecond(100))
	check(err)
	for _, words := range token.Inspect().Words()[1:] {
		fmt.Println(words)
	}
	// Output:
	// for tenant acme
	// may send
	// on queues orders,user:42:*
	// until 2030-01-02T03:04:05Z
	// at most 100 messages per second
}

// Keys rotate while tokens of the previous key are still valid.
func ExampleKeyRing_Rotate() {
	ctx := context.Background()
	ring := capability.NewKeyRing(capability.NewKey())
	verifier := capability.NewVerifier(ring, nil)
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().Add(time.Hour)))
	check(err)
	old := ring.Current().ID()
	request := capability.Request{Operation: capability.OpStats, Queue: "orders"}

	check(ring.Rotate(capability.NewKey()))
	_, err = verifier.Authorize(ctx, token, request)
	fmt.Println("rotated:", err)

	check(ring.Retire(old, time.Now()))
	_, err = verifier.Authorize(ctx, token, request)
	fmt.Println("retired:", errors.Is(err, driver.ErrUnauthenticated), capability.ReasonOf(err))
	// Output:
	// rotated: <nil>
	// retired: true key_retired
}

// A client of AWS signs with a secret that the service computes and does not
// store.
func ExampleVerifier_AuthorizeSigned() {
	ring := capability.NewKeyRing(capability.NewKey())
	verifier := capability.NewVerifier(ring, nil)
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().Add(time.Hour)))
	check(err)
	client := token.Credentials() // AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN

	signed := func(secret capability.Secret) bool {
		// A real service derives the signing key from the secret and compares the
		// signature of the request.
		return secret.Equal(client.SecretAccessKey)
	}
	_, err = verifier.AuthorizeSigned(context.Background(), client.AccessKeyID, client.SessionToken, signed,
		capability.Request{Operation: capability.OpRecv, Queue: "orders"})
	fmt.Println(err)
	// Output:
	// <nil>
}
