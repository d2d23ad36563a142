// Package sabotage checks that the suite sees faults of a backend through the wires of a daemon.
package sabotage

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Fault breaks rules in the backend of a daemon.
type Fault struct {
	Name   string
	Breaks []string // the rules, as in docs/semantics.md, whose cases may notice it
	Hidden string   // why no case notices it through the wire; empty if one must
}

// Has reports whether a case belongs to one of the rules.
func (f *Fault) Has(name string) bool {
	rule, _, _ := strings.Cut(name, "/")
	return slices.Contains(f.Breaks, rule)
}

// Backend has the methods of backends that daemons use.
type Backend interface {
	driver.Opener
	driver.Admin
	Close() error
}

// variable tells a child process the rules whose faults it tests.
const variable = "MAILBOX_WIRE_SABOTEURS"

// failedCase finds the fault and the case in the failure of a subtest FAULT/wire/RULE/title.
var failedCase = regexp.MustCompile(`--- FAIL: [^/\s]+/([^/\s]+)/wire/([A-Z]+-\d+/\S+) `)

// ExpectCaught runs the calling test again, in a child process for all faults of a rule, and checks
// that each fails there in a case of its rules, and that hidden ones do not. The child calls suite,
// which runs the cases of the rules on a backend with the fault, in a subtest "wire" of t.
func ExpectCaught(t *testing.T, faults []Fault, suite func(t *testing.T, fault int)) {
	t.Helper()
	if rules, isChild := os.LookupEnv(variable); isChild {
		for i, fault := range faults {
			if strings.Join(fault.Breaks, " ") == rules {
				t.Run(fault.Name, func(t *testing.T) { suite(t, i) })
			}
		}
		return
	}
	caughtBy := make(map[string][]string)
	var tested []string
	for _, fault := range faults {
		if rules := strings.Join(fault.Breaks, " "); !slices.Contains(tested, rules) {
			tested = append(tested, rules)
			for _, failed := range failedCase.FindAllStringSubmatch(runChild(t, rules), -1) {
				caughtBy[failed[1]] = append(caughtBy[failed[1]], failed[2])
			}
		}
	}
	for _, fault := range faults {
		switch by := caughtBy[fault.Name]; {
		case fault.Hidden != "" && len(by) > 0:
			t.Errorf("%s: %s, it is said, but %s caught it", fault.Name, fault.Hidden, by[0])
		case fault.Hidden == "" && len(by) == 0:
			t.Errorf("%s: nothing of %v caught it", fault.Name, fault.Breaks)
		case fault.Hidden == "":
			t.Logf("%s: caught by %s", fault.Name, by[0])
		}
	}
}

// runChild runs the faults of rules in a child process, and returns its output.
func runChild(t *testing.T, rules string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	test := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	child := exec.CommandContext(ctx, os.Args[0], "-test.run="+test)
	child.Env = append(os.Environ(), variable+"="+rules)
	output, err := child.CombinedOutput()
	text := string(output)
	if ctx.Err() != nil || strings.Contains(text, "panic: ") || strings.Contains(text, "WARNING: DATA RACE") || err != nil && !strings.HasSuffix(text, "\nFAIL\n") {
		t.Fatalf("the suite of %s hangs, panics, or has a data race: %v\n%s", rules, err, text)
	}
	return text
}
