package sqsbox

import (
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/sqsbox/internal/owned"
)

// OwnBodies is an option for clients of the SDK, as in sqs.NewFromConfig(settings,
// sqsbox.OwnBodies). A Backend applies it to every call of its client; it is for programs
// that use a client themselves as well.
//
// Without it the SDK takes the body of a request back as soon as the answer begins. If
// net/http has not finished with that body, it closes the connection, with the rest of
// the answer: a receive fails with "use of closed network connection" although the server
// has done it, and its messages stay hidden until their visibility ends. That needs a busy
// machine, HTTP/1.1, and an answer of more than a few kilobytes. No server can prevent it.
func OwnBodies(o *sqs.Options) { o.HTTPClient = owned.Bodies(o.HTTPClient) }
