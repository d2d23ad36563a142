package capability_test

import (
	"fmt"
	"time"

	"github.com/mailboxmq/mailbox/capability"
)

// text is a token of the tenant acme that a daemon has minted, for all queues until 2030.
const text = "AgIZAQAAAAcBoepUIwAuQlh2lue4dXU8YWNtZQACCG1ieDpvcD0qAAILbWJ4OnRvcGljPSoAAhxtYng6ZXhwPTIwMzAtMDEtMDJUMDM6MDQ6MDVaAAAGIJZC36FXgGDC77cCupEHWmXeTPFW3LxiaVwFud3Awg_2"

// check ends an example on an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The holder of a token narrows it for another client, without a key.
func ExampleToken_Narrow() {
	token, err := capability.Parse(text)
	check(err)
	sendOnly, err := token.Narrow(
		capability.Operations(capability.OpSend),
		capability.Queues(capability.QueuesUnder("user:42:")),
		capability.ExpiresAt(time.Now().Add(10*time.Minute)))
	check(err)

	allowed := sendOnly.Inspect()
	fmt.Println(allowed.Operations, allowed.Queues)
	// Output:
	// [send] [user:42:*]
}

// Tokens travel as text, and do not print themselves.
func ExampleToken_Reveal() {
	token, err := capability.Parse(text)
	check(err)
	fmt.Println(token.Reveal() == text)
	fmt.Println(token)
	// Output:
	// true
	// [capability 00000007/01M7N588R05S15GXMPWYW7AX9W]
}

// The holder of a token can read what it allows.
func ExampleToken_Inspect() {
	token, err := capability.Parse(text)
	check(err)
	token, err = token.Narrow(capability.MessagesPerSecond(100))
	check(err)
	for _, words := range token.Inspect().Words()[1:] {
		fmt.Println(words)
	}
	// Output:
	// for tenant acme
	// may *
	// on queues *
	// until 2030-01-02T03:04:05Z
	// at most 100 messages per second
}
