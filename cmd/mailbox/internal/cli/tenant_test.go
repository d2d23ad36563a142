package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestOperatorSeesTenantsQueues(t *testing.T) {
	d := start(t, inMemory())
	dir := t.TempDir()
	token := func(tenant string) string {
		file := filepath.Join(dir, tenant+".token")
		d.must(t, "cap", "mint", "--tenant", tenant, "--op", "*", "--queue", "*", "--expires", "1h", "--out", file)
		return file
	}
	acme, other := token("acme"), token("other")
	d.must(t, "send", "own", "x")
	d.must(t, "send", "orders", "of acme", "--token-file", acme)
	d.must(t, "send", "orders", "of other", "--token-file", other)
	all := strings.Split(d.must(t, "queues", "ls", "--all-tenants", "--json"), "\n")
	if len(all) != 3 || !strings.Contains(strings.Join(all, ""), `{"tenant":"acme","queue":"orders"}`) {
		t.Errorf("all queues are\n%s", strings.Join(all, "\n"))
	}
	if got := d.must(t, "queues", "ls", "--tenant", "acme"); got != "orders" {
		t.Errorf("the queues of acme are %q", got)
	}
	if got := d.must(t, "peek", "orders", "--tenant", "acme"); !strings.Contains(got, "of acme") || strings.Contains(got, "of other") {
		t.Errorf("the operator sees\n%s", got)
	}
	if got := d.must(t, "stats", "--tenant", "other", "--json"); got != `{"queue":"orders","ready":1,"delayed":0,"in_flight":0,"dead":0,"paused":false}` {
		t.Errorf("the counts of other are %s", got)
	}
	for _, words := range [][]string{
		{"queues", "ls", "--all-tenants"}, {"queues", "ls", "--tenant", "other"}, {"stats", "--tenant", "other", "orders"}, {"peek", "orders", "--tenant", "other"},
	} {
		d.mailbox(t, append(words, "--token-file", acme)...).wantCode(t, 4, "tenant")
	}
	d.mailbox(t, "stats", "--tenant", "a~b").wantCode(t, 2, "tenant")
}
