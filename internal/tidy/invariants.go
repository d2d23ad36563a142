package tidy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// invariantsFile lists the invariants and gates of the service with what shows
// that they hold.
const invariantsFile = "docs/invariants.md"

// How many there are: I-1 to I-17 and G-1 to G-10.
const (
	invariants = 17
	gates      = 10
)

var (
	invariantRow = regexp.MustCompile(`^\| ([IG]-\d+) \|.*\| ([^|]+) \|$`)
	quoted       = regexp.MustCompile("`([^`]+)`")
	ruleID       = regexp.MustCompile(`^[A-Z]+-\d+$`)
)

// Invariants checks that each invariant and each gate has a line in
// docs/invariants.md whose last column names tests or conformance cases that
// exist.
func Invariants(t *Tree, cases []string) []string {
	var wrong []string
	evidence := make(map[string]string)
	for line := range strings.Lines(t.Texts[invariantsFile]) {
		row := invariantRow.FindStringSubmatch(strings.TrimSpace(line))
		if row == nil {
			continue
		}
		if _, again := evidence[row[1]]; again {
			wrong = append(wrong, fmt.Sprintf("%s lists %s twice", invariantsFile, row[1]))
		}
		evidence[row[1]] = row[2]
	}
	tests := testNames(t)
	for _, id := range invariantIDs() {
		shown, listed := evidence[id]
		if !listed {
			wrong = append(wrong, fmt.Sprintf("%s has no line for %s", invariantsFile, id))
			continue
		}
		names := quoted.FindAllStringSubmatch(shown, -1)
		if len(names) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s names no test for %s", invariantsFile, id))
		}
		for _, name := range names {
			if ruleID.MatchString(name[1]) && !slices.Contains(cases, name[1]) {
				wrong = append(wrong, fmt.Sprintf("%s rests %s on case %s, which the suite does not have", invariantsFile, id, name[1]))
			}
			if !ruleID.MatchString(name[1]) && !tests[name[1]] {
				wrong = append(wrong, fmt.Sprintf("%s rests %s on %s, which is not a test", invariantsFile, id, name[1]))
			}
		}
	}
	return wrong
}

func invariantIDs() []string {
	var ids []string
	for n := range invariants {
		ids = append(ids, fmt.Sprintf("I-%d", n+1))
	}
	for n := range gates {
		ids = append(ids, fmt.Sprintf("G-%d", n+1))
	}
	return ids
}
