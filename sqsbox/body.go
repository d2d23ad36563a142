package sqsbox

import (
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/sqsbox/internal/owned"
)

// OwnBodies is an option for clients of the SDK, as in sqs.NewFromConfig(settings,
// sqsbox.OwnBodies). A Backend applies it to every call of its client; use it in programs
// that also call the client themselves.
//
// Without it the SDK closes the body of a request as soon as the response begins. If
// net/http has not finished with that body, it closes the connection and loses the rest of
// the response: a receive fails with "use of closed network connection" although the server
// has carried it out, and its messages stay hidden until their visibility ends. That
// happens on a busy machine, with HTTP/1.1 and a response of more than a few kilobytes. No
// server can prevent it.
func OwnBodies(o *sqs.Options) { o.HTTPClient = owned.Bodies(o.HTTPClient) }
