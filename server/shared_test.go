package server_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/server"
)

// TestRevocationHoldsAtEveryDaemonOnOneRedis revokes a token at one of two daemons.
func TestRevocationHoldsAtEveryDaemonOnOneRedis(t *testing.T) {
	revocationHoldsEverywhere(t, "redis://"+redistest.Standalone(t).Addr())
}

func TestRevocationHoldsAtEveryDaemonOnOnePostgreSQL(t *testing.T) {
	revocationHoldsEverywhere(t, pgtest.Start(t).URL())
}

func revocationHoldsEverywhere(t *testing.T, backend string) {
	dir := t.TempDir()
	daemon := func(name string) *running {
		return start(t, server.Config{
			Profile: server.Macronode, DataDir: dir, Backend: backend,
			RevocationFile: filepath.Join(dir, "revocations."+name),
		})
	}
	first := daemon("first")
	second := daemon("second")
	status, answer := first.post(first.OperatorToken(), "/v1/caps/mint", `{"caveats":[]}`)
	if status != http.StatusOK {
		t.Fatalf("mint: %d %v", status, answer)
	}
	token := parseToken(t, answer["token"])
	if status, answer := second.post(token, "/v1/ping", `{}`); status != http.StatusOK {
		t.Fatalf("the second daemon does not know the token: %d %v", status, answer)
	}
	time.Sleep(2 * time.Millisecond) // times of revocations have milliseconds
	if status, answer := first.post(first.OperatorToken(), "/v1/caps/revoke", fmt.Sprintf(`{"token_id":%q}`, token.ID())); status != http.StatusOK {
		t.Fatalf("revoke: %d %v", status, answer)
	}
	began := time.Now()
	for {
		status, answer := second.post(token, "/v1/ping", `{}`)
		if status == http.StatusUnauthorized && answer["reason"] == "revoked" {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("after %v the second daemon answers %d %v", time.Since(began), status, answer)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("it took %v", time.Since(began).Round(100*time.Millisecond))
	second.halt()
	if status, answer := daemon("second").post(token, "/v1/ping", `{}`); status != http.StatusUnauthorized {
		t.Errorf("after a restart: %d %v", status, answer)
	}
	if status, answer := daemon("third").post(token, "/v1/ping", `{}`); status != http.StatusUnauthorized {
		t.Errorf("a daemon that starts later: %d %v", status, answer)
	}
}
