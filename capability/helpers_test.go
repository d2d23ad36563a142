package capability

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inAnHour is the expiry of tokens in most tests.
func inAnHour() Caveat { return ExpiresAt(time.Now().Add(time.Hour)) }

// ordersToken allows sending to orders for an hour.
func ordersToken(t testing.TB) Token {
	return mint(t, Operations(OpSend), Queues(Queue("orders")), inAnHour())
}

// mint makes a token as a daemon does.
func mint(t testing.TB, caveats ...Caveat) Token {
	t.Helper()
	body, chain := macaroon.Begin(macaroon.RootKey(bytes.Repeat([]byte{1}, macaroon.KeyBytes), ""), macaroon.Identifier{Key: 1, Token: macaroon.NewTokenID(time.Now())})
	token, err := extend(body, 0, &chain, caveats)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func wantCode(t testing.TB, what string, err error, code driver.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: %v, want %v", what, err, code)
	}
}
