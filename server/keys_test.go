package server_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/server"
)

// keyIDs sends a request about keys, and returns the ids in the answer.
func (r *running) keyIDs(token capability.Token, path, body string) (ids []string, status int) {
	r.t.Helper()
	status, answer := r.post(token, path, body)
	list, _ := answer["keys"].([]any)
	for _, element := range list {
		ids = append(ids, element.(map[string]any)["key_id"].(string))
	}
	return ids, status
}

func TestKeysAreRotatedAndRetiredOverHTTP(t *testing.T) {
	dir := t.TempDir()
	config := server.Config{Profile: server.Macronode, DataDir: dir, Backend: "memory:"}
	r := start(t, config)
	operator := r.OperatorToken()
	first, status := r.keyIDs(operator, "/v1/keys/list", `{}`)
	if status != http.StatusOK || len(first) != 1 {
		t.Fatalf("list: %d %v", status, first)
	}
	rotated, status := r.keyIDs(operator, "/v1/keys/rotate", `{}`)
	if status != http.StatusOK || len(rotated) != 2 || rotated[1] != first[0] {
		t.Fatalf("rotate: %d %v", status, rotated)
	}
	status, answer := r.post(operator, "/v1/caps/mint", `{"caveats":[]}`)
	if status != http.StatusOK {
		t.Fatalf("mint: %d %v", status, answer)
	}
	next := parseToken(t, answer["token"])
	if next.Inspect().Key.String() != rotated[0] {
		t.Errorf("minted with %v", next.Inspect().Key)
	}
	if _, status := r.keyIDs(operator, "/v1/keys/retire", `{"key_id":"`+first[0]+`"}`); status != http.StatusConflict {
		t.Errorf("retiring the key of the token of the request: %d", status)
	}
	if _, status := r.keyIDs(next, "/v1/keys/retire", `{"key_id":"`+rotated[0]+`"}`); status != http.StatusConflict {
		t.Errorf("retiring the current key: %d", status)
	}
	if _, status := r.keyIDs(next, "/v1/keys/retire", `{"key_id":"`+first[0]+`"}`); status != http.StatusOK {
		t.Errorf("retiring the old key: %d", status)
	}
	if status, answer := r.post(operator, "/v1/ping", `{}`); status != http.StatusUnauthorized || answer["reason"] != "key_retired" {
		t.Errorf("a token of the retired key: %d %v", status, answer)
	}
	tenant, err := keyring.ReadFile(filepath.Join(dir, "keys"))
	if err != nil || len(tenant.Keys()) != 2 || tenant.Keys()[1].RetiredAt().IsZero() {
		t.Errorf("the key file: %v, %v", tenant, err)
	}
	r.halt()
	again := start(t, config)
	if ids, status := again.keyIDs(next, "/v1/keys/list", `{}`); status != http.StatusOK || len(ids) != 2 || ids[0] != rotated[0] {
		t.Errorf("after a restart: %d %v", status, ids)
	}
	status, answer = again.post(next, "/v1/caps/mint", `{"tenant":"acme","caveats":[]}`)
	if status != http.StatusOK {
		t.Fatalf("mint: %d %v", status, answer)
	}
	for _, path := range []string{"/v1/keys/list", "/v1/keys/rotate"} {
		if _, status := again.keyIDs(parseToken(t, answer["token"]), path, `{}`); status != http.StatusForbidden {
			t.Errorf("%s for a tenant: %d", path, status)
		}
	}
}

func TestReloadReplacesRevokedOperatorToken(t *testing.T) {
	config := server.Config{DataDir: t.TempDir(), Backend: "memory:"}
	r := start(t, config)
	leaked := r.OperatorToken()
	if status, answer := r.post(leaked, "/v1/caps/revoke", `{"token":"`+leaked.Reveal()+`"}`); status != http.StatusOK {
		t.Fatalf("revoke: %d %v", status, answer)
	}
	if status, answer := r.post(leaked, "/v1/ping", `{}`); status != http.StatusUnauthorized || answer["reason"] != "revoked" {
		t.Fatalf("the leaked token: %d %v", status, answer)
	}
	if err := r.Reload(config); err != nil {
		t.Fatal(err)
	}
	renewed, err := capability.ReadTokenFile(filepath.Join(config.DataDir, "operator.token"))
	if err != nil || renewed.Equal(leaked) || !renewed.Equal(r.OperatorToken()) {
		t.Fatalf("the file has %v, %v", renewed.ID(), err)
	}
	if status, answer := r.post(renewed, "/v1/caps/mint", `{"caveats":[]}`); status != http.StatusOK {
		t.Errorf("mint: %d %v", status, answer)
	}
	if status, answer := r.post(renewed, "/v1/audit", `{"limit":1}`); status != http.StatusOK {
		t.Errorf("audit: %d %v", status, answer)
	}
}
