package mailboxv1_test

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
)

// A visibility that is not said is another thing than one of 0, so it is a
// pointer.
func ExampleRecvRequest() {
	request := &mailboxv1.RecvRequest{Topic: "orders", MaxMessages: proto.Int32(10), WaitMs: 20_000}
	fmt.Println(request.VisibilityMs == nil, request.GetMaxMessages())
	// Output: true 10
}
