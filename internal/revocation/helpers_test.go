package revocation

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ordersToken returns a token for all operations on the queue orders, for an hour.
func ordersToken(t testing.TB, ring *keyring.Ring) capability.Token {
	t.Helper()
	token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.Queue("orders")), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func mustNarrow(t testing.TB, token capability.Token, caveats ...capability.Caveat) capability.Token {
	t.Helper()
	narrowed, err := token.Narrow(caveats...)
	if err != nil {
		t.Fatal(err)
	}
	return narrowed
}

func sendToOrders() verify.Request {
	return verify.Request{Operation: capability.OpSend, Queue: "orders", Load: verify.Load{Messages: 1}}
}

func wantAllowed(t testing.TB, v *verify.Verifier, token capability.Token, r verify.Request) {
	t.Helper()
	if _, err := v.Authorize(t.Context(), token, r); err != nil {
		t.Fatalf("refused: %v", err)
	}
}

func wantRefused(t testing.TB, v *verify.Verifier, token capability.Token, r verify.Request, reason capability.Reason) {
	t.Helper()
	if _, err := v.Authorize(t.Context(), token, r); capability.ReasonOf(err) != reason {
		t.Fatalf("error is %v, want reason %s", err, reason)
	}
}

func wantCode(t testing.TB, what string, err error, code driver.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: %v, want %v", what, err, code)
	}
}
