package capability

import "testing"

func TestWildcardExcludesBackupAndAudit(t *testing.T) {
	ring := NewKeyRing(NewKey())
	v := NewVerifier(ring, nil)
	star := mustMint(t, ring, "", AllOperations(), Queues(AnyQueue()), inAnHour())
	every := mustMint(t, ring, "", EveryOperation(), Queues(AnyQueue()), inAnHour())
	for _, o := range []Operation{OpBackup, OpAudit} {
		wantRefused(t, v, star, Request{Operation: o}, ReasonOperation)
		wantRefused(t, v, mustNarrow(t, star, Operations(o)), Request{Operation: o}, ReasonOperation)
		wantRefused(t, v, mustNarrow(t, every, AllOperations()), Request{Operation: o}, ReasonOperation)
		wantAllowed(t, v, every, Request{Operation: o})
	}
	for o := OpSend; o <= OpAdmin; o++ {
		for _, token := range []Token{star, every} {
			request := Request{Operation: o, Queue: "orders"}
			if o == OpSend {
				request.Load = Load{Messages: 1, Bytes: 1, LargestBody: 1}
			}
			wantAllowed(t, v, token, request)
		}
	}
}
