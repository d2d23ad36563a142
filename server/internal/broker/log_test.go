package broker_test

import (
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func TestLogLinesOfCallersNameTheQueue(t *testing.T) {
	b := memory(t, broker.Limits{})
	receiver := b.as("", capability.Operations(capability.OpRecv), capability.Queues(capability.AnyQueue()))
	_, err := receiver.Send(t.Context(), "orders", say("x"))
	expectCode(t, err, driver.ErrForbidden, "send with a token to receive")
	b.as("").SentKeyless(t.Context(), "orders", 1)
	for _, message := range []string{"auth.denied", "send.keyless"} {
		b.expectLine(message, map[string]any{"queue": "orders", "topic": nil})
	}
}
