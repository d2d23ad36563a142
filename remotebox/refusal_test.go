package remotebox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

func TestRefusedTokenIsToldWhy(t *testing.T) {
	daemon, stop, err := startDaemon()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	narrowed := func(caveats ...capability.Caveat) string {
		token, err := daemon.OperatorToken().Narrow(caveats...)
		if err != nil {
			t.Fatal(err)
		}
		return token.Reveal()
	}
	foreign, err := keyring.New(keyring.NewKey()).Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		token string
		code  driver.Code
		words string
	}{
		"operation": {narrowed(capability.Operations(capability.OpSend)), driver.ErrForbidden, `token does not allow "recv" on queue "jobs"; it allows send on all queues`},
		"expired":   {narrowed(capability.ExpiresAt(time.Unix(1e9, 0))), driver.ErrUnauthenticated, "token expired at 2001-09-09T01:46:40Z; ask for a new one"},
		"foreign":   {foreign.Reveal(), driver.ErrUnauthenticated, "token was not made with the keys of this daemon, or was changed; use a token of this daemon"},
		"empty":     {"", driver.ErrUnauthenticated, "there is no token; mint one"},
		"garbage":   {"garbage", driver.ErrUnauthenticated, "not a token; copy all of it"},
	} {
		t.Run(name, func(t *testing.T) {
			backend := remotebox.New([]string{daemon.Address(server.OAP)}, test.token, nil)
			defer backend.Close()
			queue, err := backend.OpenQueue(t.Context(), "jobs")
			if err == nil {
				if _, err = queue.Send(t.Context(), []driver.Outgoing{{}}); err == nil {
					_, err = queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Second})
				}
			}
			if !errors.Is(err, test.code) || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got  %v\nwant %s", err, test.words)
			}
		})
	}
}
