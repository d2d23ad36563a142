package drivertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
)

// backendRules are the rules that a backend keeps without the layers above. The others belong
// to these layers, or need more than one process.
var backendRules = []string{
	"SND-1", "SND-2", "SND-3", "SND-4", "SND-5", "SND-6",
	"DUP-1", "DUP-2", "DUP-3",
	"RCV-1", "RCV-2", "RCV-3",
	"VIS-1", "VIS-2", "VIS-3", "VIS-5", "VIS-6", "VIS-7",
	"ACK-1", "ACK-2", "ACK-3",
	"ORD-1", "ORD-2", "ORD-3", "ORD-4",
	"FAIR-1", "FAIR-2", "FAIR-3",
	"CNT-1", "CNT-2", "CNT-3",
	"FLOW-1", "FLOW-2", "FLOW-3", "FLOW-4", "FLOW-5", "FLOW-6", "TIME-0", "TIME-1",
	"DLQ-1", "DLQ-4", "DLQ-5", "DLQ-8", "DLQ-9",
	"RET-1", "RET-2", "TIME-2",
	"OBS-1",
	"SVC-1",
}

func TestEveryBackendRuleHasACase(t *testing.T) {
	covered := make(map[string]bool)
	for _, c := range Cases() {
		rule, title, _ := strings.Cut(c, "/")
		covered[rule] = true
		if !slices.Contains(backendRules, rule) {
			t.Errorf("case %q belongs to %s, which is not a rule for backends", title, rule)
		}
	}
	for _, rule := range backendRules {
		if !covered[rule] {
			t.Errorf("rule %s has no case", rule)
		}
	}
}

func TestCaseNamesAreDistinctAndCanBeSelected(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range Cases() {
		if seen[c] {
			t.Errorf("two cases are called %s", c)
		}
		seen[c] = true
		if id, title, _ := strings.Cut(c, "/"); title == "" || strings.ContainsAny(title, "/\"\t\n") {
			t.Errorf("%s: title %q cannot be a part of a subtest's name", id, title)
		}
	}
}

func TestEveryCaseCanRun(t *testing.T) {
	for _, c := range allCases() {
		if c.run == nil {
			t.Errorf("case %s/%s does nothing", c.id, c.title)
		}
		for i, need := range c.needs {
			if need.met == nil || need.refused == nil {
				t.Errorf("case %s/%s: need %d does not know both sides", c.id, c.title, i)
			}
		}
	}
}

func TestBackendSurvivesOnlyWhatItOffers(t *testing.T) {
	restart := func(_ testing.TB, old driver.Opener, _ Crash) driver.Opener { return old }
	for _, try := range []struct {
		backend Backend
		want    []Crash
	}{
		{Backend{}, nil},
		{Backend{Crashes: []Crash{CrashKill}}, nil},
		{Backend{Restart: restart}, []Crash{CrashClean}},
		{Backend{Restart: restart, Crashes: []Crash{CrashClean, CrashPower}}, []Crash{CrashClean, CrashPower}},
	} {
		var got []Crash
		for _, how := range []Crash{CrashClean, CrashKill, CrashPower} {
			if try.backend.survives(how) {
				got = append(got, how)
			}
		}
		if !slices.Equal(got, try.want) {
			t.Errorf("a backend with Restart %v and Crashes %v survives %v, want %v",
				try.backend.Restart != nil, try.backend.Crashes, got, try.want)
		}
	}
}
