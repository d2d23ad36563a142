package cli_test

import (
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// TestRevokedOperatorTokenComesBackAfterReload is "The operator's token has leaked" of
// docs/operating.md.
func TestRevokedOperatorTokenComesBackAfterReload(t *testing.T) {
	config := server.Config{Backend: "memory:", DataDir: t.TempDir()}
	d := start(t, config)
	worker := d.minted(t, "--op", "send", "--queue", "jobs", "--expires", "1h")
	d.must(t, "cap", "revoke", "--file", d.tokenFile(), "--yes")
	advice := "this is the operator's token: send the daemon a SIGHUP or restart it, and it writes another to " + d.tokenFile()
	d.mailbox(t, "queues", "ls").wantCode(t, 4, "revoked", advice)
	d.mailbox(t, "send", "jobs", "x").wantCode(t, 4, "revoked", advice)
	if r := d.mailbox(t, "doctor"); r.code != 1 || !strings.Contains(r.stdout, advice) {
		t.Errorf("doctor: exit code %d\n%s", r.code, r.stdout)
	}
	if err := d.Reload(d.Config()); err != nil {
		t.Fatal(err)
	}
	d.must(t, "send", "jobs", "x")
	r := mailbox(t, d.with(worker), "send", "jobs", "x")
	r.wantCode(t, 4, "revoked", "ask the operator for another")
}

func TestMintBeyondExpiryOfMinterIsNoted(t *testing.T) {
	d := start(t, inMemory())
	mint := func(expires string) string {
		r := d.mailbox(t, "cap", "mint", "--op", "send", "--queue", "jobs", "--expires", expires)
		if r.code != 0 || r.stdout == "" {
			t.Errorf("exit code %d, %s", r.code, r.stderr)
		}
		return r.stderr
	}
	if got := mint("8000h"); got != "" {
		t.Errorf("a token that expires before its minter: %s", got)
	}
	if got := mint("90000h"); !strings.HasPrefix(got, "mailbox: note: the token expires at 20") || !strings.HasSuffix(got, "Z, with the token that it is minted with.\n") {
		t.Errorf("a token that would outlive its minter: %q", got)
	}
}
