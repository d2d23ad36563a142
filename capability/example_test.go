package capability_test

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/capability"
)

// check ends an example on an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A service mints a token, and its holder narrows it for another client.
func ExampleToken_Narrow() {
	ring := capability.NewKeyRing(capability.NewKey())
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

	allowed := sendOnly.Inspect()
	fmt.Println(allowed.Operations, allowed.Queues)
	// Output:
	// [send] [user:42:*]
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
