package cli_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

func TestAuditSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	d := start(t, server.Config{DataDir: dir})
	d.must(t, "queues", "create", "orders")
	d.must(t, "send", "orders", "a body that stays out of it")
	d.must(t, "queues", "purge", "orders", "--yes")
	d.must(t, "queues", "create", "other")
	d.stop()
	d = start(t, server.Config{DataDir: dir})
	lines := strings.Split(d.must(t, "audit", "--since", "1h", "--queue", "orders", "--json"), "\n")
	if len(lines) != 2 {
		t.Fatalf("the audit has %d lines, want 2:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	var purge struct {
		Operation, Queue, Result string
		TokenID                  string `json:"token_id"`
		Count                    int
	}
	if err := json.Unmarshal([]byte(lines[1]), &purge); err != nil || purge.Operation != "purge" || purge.Queue != "orders" || purge.Count != 1 || purge.Result != "ok" || purge.TokenID == "" {
		t.Errorf("the purge is recorded as %s, %v", lines[1], err)
	}
	if shown := d.must(t, "audit"); !strings.Contains(shown, "configure") || !strings.Contains(shown, "other") || strings.Contains(shown, "stays out") {
		t.Errorf("the audit shows\n%s", shown)
	}
	if shown := d.must(t, "audit", "--since", "2099-01-01T00:00:00Z"); shown != "" {
		t.Errorf("the audit of the future shows %s", shown)
	}
	d.mailbox(t, "audit", "--since", "yesterday").wantCode(t, 2, "--since")
}

func TestAuditNeedsTokenThatNamesIt(t *testing.T) {
	for name, config := range map[string]server.Config{"memory": inMemory(), "disk": onDisk()} {
		d := start(t, config)
		star := filepath.Join(t.TempDir(), "star.token")
		d.must(t, "cap", "mint", "--op", "*", "--queue", "*", "--expires", "1h", "--out", star)
		d.mailbox(t, "audit", "--token-file", star).wantCode(t, 4, `"audit"`)
		if shown := d.must(t, "audit"); !strings.Contains(shown, "mint token") { // with the operator's own
			t.Errorf("%s: the audit shows\n%s", name, shown)
		}
	}
}
