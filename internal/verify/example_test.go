package verify_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/verify"
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
	ring := keyring.New(keyring.NewKey())
	verifier := verify.New(ring, nil)

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

	for _, request := range []verify.Request{
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

// Keys rotate while tokens of the previous key are still valid.
func Example_rotate() {
	ctx := context.Background()
	ring := keyring.New(keyring.NewKey())
	verifier := verify.New(ring, nil)
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().Add(time.Hour)))
	check(err)
	old := ring.Current().ID()
	request := verify.Request{Operation: capability.OpStats, Queue: "orders"}

	check(ring.Rotate(keyring.NewKey()))
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
func ExampleVerifier_TokenSigned() {
	ring := keyring.New(keyring.NewKey())
	verifier := verify.New(ring, nil)
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()),
		capability.ExpiresAt(time.Now().Add(time.Hour)))
	check(err)
	client := macaroon.CredentialsOf(token.RevealBinary(nil)) // AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN

	signed := func(secret macaroon.Secret) bool {
		// A real service derives the signing key from the secret and compares the
		// signature of the request.
		return secret.Equal(client.SecretAccessKey)
	}
	shown, err := verifier.TokenSigned(context.Background(), client.AccessKeyID, client.SessionToken, signed)
	fmt.Println(shown.Equal(token), err)
	// Output:
	// true <nil>
}
