// Package verify decides whether a token allows a request. A [Verifier] checks the
// signature of a token and caches the verdict, asks whether the token was revoked,
// holds its caveats against each request, and counts its quotas.
//
//	grant, err := verifier.Authorize(ctx, token, verify.Request{
//		Operation: capability.OpSend, Queue: "orders", Load: verify.LoadOf(body),
//	})
//
// A verifier belongs to the daemon. Package capability describes tokens and caveats.
package verify
