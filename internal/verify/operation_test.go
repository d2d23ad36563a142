package verify

import (
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
)

func TestWildcardExcludesLaterOperations(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	v := New(ring, nil)
	star := mustMint(t, ring, "", capability.AllOperations(), capability.Queues(capability.AnyQueue()), inAnHour())
	every := mustMint(t, ring, "", capability.EveryOperation(), capability.Queues(capability.AnyQueue()), inAnHour())
	for _, o := range []capability.Operation{capability.OpBackup, capability.OpAudit, capability.OpAsk, capability.OpAnswer} {
		wantRefused(t, v, star, Request{Operation: o}, capability.ReasonOperation)
		wantRefused(t, v, mustNarrow(t, star, capability.Operations(o)), Request{Operation: o}, capability.ReasonOperation)
		wantRefused(t, v, mustNarrow(t, every, capability.AllOperations()), Request{Operation: o}, capability.ReasonOperation)
		wantAllowed(t, v, every, Request{Operation: o})
	}
	for o := capability.OpSend; o <= capability.OpAdmin; o++ {
		for _, token := range []capability.Token{star, every} {
			request := Request{Operation: o, Queue: "orders"}
			if o == capability.OpSend {
				request.Load = Load{Messages: 1, Bytes: 1, LargestBody: 1}
			}
			wantAllowed(t, v, token, request)
		}
	}
}
