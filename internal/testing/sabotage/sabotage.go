// Package sabotage checks that the suite sees faults of a backend through the wires of a daemon.
package sabotage

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// A Fault breaks one rule in the backend of a daemon.
type Fault struct {
	Name   string
	Breaks string // the rule, as in docs/semantics.md
}

// Backend has the methods of backends that daemons use.
type Backend interface {
	driver.Opener
	driver.Admin
	Close() error
}

// variable tells a child process which fault to test.
const variable = "MAILBOX_WIRE_SABOTEUR"

var failedCase = regexp.MustCompile(`--- FAIL: \S+/([A-Z]+-\S+) `)

// ExpectCaught runs the calling test again for each fault, in a child process, and checks that it
// fails there in a case of the rule. The child calls suite, which runs the suite on a backend with the fault.
func ExpectCaught(t *testing.T, faults []Fault, suite func(fault int)) {
	t.Helper()
	if name, isChild := os.LookupEnv(variable); isChild {
		for i, fault := range faults {
			if fault.Name == name {
				suite(i)
			}
		}
		return
	}
	test := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	for _, fault := range faults {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		child := exec.CommandContext(ctx, os.Args[0], "-test.run="+test+"/^"+fault.Breaks+"$", "-test.v")
		child.Env = append(os.Environ(), variable+"="+fault.Name)
		output, err := child.CombinedOutput()
		cancel()
		by := failedCase.FindAllStringSubmatch(string(output), -1)
		switch {
		case strings.Contains(string(output), "\npanic: "), strings.Contains(string(output), "WARNING: DATA RACE"):
			t.Errorf("%s: the suite panics or has a data race:\n%s", fault.Name, output)
		case err == nil || len(by) == 0:
			t.Errorf("%s: nothing of %s caught it: %v\n%s", fault.Name, fault.Breaks, err, output)
		default:
			t.Logf("%s: caught by %d cases, such as %s", fault.Name, len(by), by[0][1])
		}
	}
}
