package sqsapi_test

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestWorkersOfSQSAreListedByTheirProgram is CON-2 over SQS.
func TestWorkersOfSQSAreListedByTheirProgram(t *testing.T) {
	for name, s := range map[string]setup{"signed": {}, "plain": {plain: true}} {
		t.Run(name, with(s, func(t *testing.T, c *client) {
			queue := c.create("orders")
			c.send(queue, "x")
			c.one(queue)
			workers, err := c.d.broker.Caller(c.d.mint(""), broker.Origin{}).Workers(t.Context(), "orders")
			if err != nil || len(workers) != 1 {
				t.Fatalf("%+v, %v", workers, err)
			}
			if w := workers[0]; !strings.HasPrefix(w.Name, "aws-sdk-go-v2/") || w.Protocol != "sqs" || w.InFlight != 1 || w.Token.IsZero() {
				t.Errorf("%+v", w)
			}
		}))
	}
}
