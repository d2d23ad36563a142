package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/audit"
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

func TestAuditIsSharedByDaemonsOnOneRedis(t *testing.T) {
	redis := redistest.Standalone(t) // a kill loses what it holds
	auditIsShared(t, "redis://"+redis.Addr(), redis.Kill, func() error { return redis.Restart(t.Context()) })
}

func TestAuditIsSharedByDaemonsOnOnePostgreSQL(t *testing.T) {
	postgres := pgtest.Start(t, "fsync=on")
	auditIsShared(t, postgres.URL(), postgres.Kill, func() error { return postgres.Restart(t.Context()) })
}

// auditIsShared makes changes through two daemons, one of which has a log of before, while the backend is up,
// while it is down, and after it has come back.
func auditIsShared(t *testing.T, backend string, down func(), up func() error) {
	keys := filepath.Join(t.TempDir(), "keys")
	daemon := func(dir string) *running {
		return start(t, server.Config{Profile: server.Macronode, DataDir: dir, Backend: backend, KeyFile: keys})
	}
	dir := t.TempDir()
	before, err := audit.Open(dir, audit.DefaultLimit)
	if err == nil {
		err = before.Append(audit.Record{At: time.Unix(1, 0).UTC(), Operation: "purge", Queue: "before", Result: "ok"})
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = before.Close()
	first, second := daemon(dir), daemon(t.TempDir())
	want := []string{"purge"}
	mint := func(r *running) {
		t.Helper()
		began := time.Now()
		status, answer := r.post(r.OperatorToken(), "/v1/caps/mint", `{"caveats":[]}`)
		if status != http.StatusOK {
			t.Fatalf("mint: %d %v", status, answer)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("a change took %v", took)
		}
		token := parseToken(t, answer["token"])
		want = append(want, token.ID().String())
		time.Sleep(2 * time.Millisecond) // times of records have milliseconds
	}
	mint(first)
	mint(second)
	for _, r := range []*running{first, second} {
		if got := r.audited(); !slices.Equal(got, want) {
			t.Fatalf("%s shows %q, want %q", r.base, got, want)
		}
	}
	down()
	mint(first)
	mint(first)
	mint(second)
	if status, answer := first.post(first.OperatorToken(), "/v1/audit", `{}`); status != http.StatusServiceUnavailable {
		t.Errorf("reading while the backend is down: %d %v", status, answer)
	}
	if err := up(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{first, second} {
		for began := time.Now(); !slices.Equal(r.audited(), want); time.Sleep(100 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("after an outage %s shows %q, want %q", r.base, r.audited(), want)
			}
		}
	}
	mint(second)
	first.halt()
	for _, r := range []*running{second, daemon(dir), daemon(t.TempDir())} {
		if got := r.audited(); !slices.Equal(got, want) {
			t.Errorf("after a restart %s shows %q, want %q", r.base, got, want)
		}
	}
}

// audited returns what the daemon shows of its audit log: the subjects of records, or the operations of those
// that have none. It is nil while the backend is down.
func (r *running) audited() (subjects []string) {
	r.t.Helper()
	request, err := http.NewRequest(http.MethodPost, r.base+"/v1/audit", strings.NewReader(`{}`))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.OperatorToken().Reveal())
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if response.StatusCode == http.StatusServiceUnavailable {
		return nil
	}
	for line := range bytes.Lines(text) {
		var record audit.Record
		if err := json.Unmarshal(line, &record); err != nil || record.Daemon == "" || record.ID == "" {
			r.t.Fatalf("the audit log has %s, %v", line, err)
		}
		subjects = append(subjects, cmp.Or(record.Subject, record.Operation))
	}
	return subjects
}
