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

// fixedKey returns a key that is the same in every run.
func fixedKey(t testing.TB, id KeyID) Key {
	t.Helper()
	key, err := KeyFrom(id, bytes.Repeat([]byte{byte(id)}, macaroon.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// inAnHour is the expiry of tokens in most tests.
func inAnHour() Caveat { return ExpiresAt(time.Now().Add(time.Hour)) }

// ordersToken allows sending to orders for an hour.
func ordersToken(t testing.TB, ring *KeyRing) Token {
	t.Helper()
	token, err := ring.Mint("", Operations(OpSend), Queues(Queue("orders")), inAnHour())
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
