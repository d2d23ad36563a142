package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// ReadAxe returns the script of axe-core, which checks accessibility. make setup installs it;
// without it tests skip, or fail under make.
func ReadAxe(t testing.TB) string {
	t.Helper()
	folder, err := proctest.Cache("axe")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(folder, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		proctest.End(t, &proctest.MissingError{Program: "axe-core", Err: err})
	}
	return string(script)
}

// Violations checks the accessibility of the page with the script of ReadAxe, and returns
// what is wrong.
func (b *Browser) Violations(axe string) []string {
	b.t.Helper()
	var loaded bool
	b.Eval("typeof axe === 'object'", &loaded)
	if !loaded {
		b.Eval(axe+"\n;0", nil)
	}
	var found []struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	b.Eval(`axe.run().then((result) => result.violations)`, &found)
	var violations []string
	for _, v := range found {
		for _, node := range v.Nodes {
			violations = append(violations, fmt.Sprintf("%s: %s: %.200s: %s", v.ID, v.Help, node.HTML, node.FailureSummary))
		}
	}
	return violations
}
