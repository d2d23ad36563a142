package audit_test

import (
	"testing"

	"github.com/mailboxmq/mailbox/internal/audit"
)

func by(tenant, token string, n int) audit.Record {
	r := record(n)
	r.Tenant, r.TokenID = tenant, token
	return r
}

func TestFloodOfTenantLeavesRecordsOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		log   *audit.Log
		flood int
	}{"file": {open(t, t.TempDir(), 32<<10), 700}, "memory": {audit.InMemory(), 5000}} {
		l := test.log
		for n := 1; n <= 20; n++ {
			for _, quiet := range []audit.Record{by("", "operator", n), by("acme", "one", n), by("evil", "other", n)} {
				if err := l.Append(quiet); err != nil {
					t.Fatal(err)
				}
			}
		}
		for n := range test.flood { // more than the log holds
			if err := l.Append(by("evil", "flood", n)); err != nil {
				t.Fatal(err)
			}
		}
		kept := make(map[string]int)
		latest := 0
		for _, r := range read(t, l, 0) {
			kept[r.Tenant+" "+r.TokenID]++
			latest = r.Count
		}
		for _, quiet := range []string{" operator", "acme one", "evil other"} {
			if kept[quiet] != 20 {
				t.Errorf("%s: %d of 20 records of %q are left", name, kept[quiet], quiet)
			}
		}
		if kept["evil flood"] < 50 || latest != test.flood-1 {
			t.Errorf("%s: %d records of the flood are left, the latest is %d", name, kept["evil flood"], latest)
		}
	}
}

func TestTenantsShareFullLogEqually(t *testing.T) {
	l := audit.InMemory()
	for n := range 5000 {
		for _, token := range []string{"one", "two", "three"} {
			_ = l.Append(by("evil", token, n))
		}
		_ = l.Append(by("mean", "four", n))
	}
	kept := make(map[string]int)
	for _, r := range read(t, l, 0) {
		kept[r.Tenant]++
	}
	if kept["mean"] < 1000 || kept["evil"] > 2*kept["mean"] {
		t.Errorf("kept %v", kept)
	}
}
