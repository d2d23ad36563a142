package tidy

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// semanticsFile states the promises; its third-level headings are the rules.
const semanticsFile = "docs/semantics.md"

// A Rule is one promise of docs/semantics.md.
type Rule struct {
	ID    string
	Title string
	// Places says who keeps it: backend, library, worker, daemon, wire.
	Places []string
	// Tests are those that the rule names itself.
	Tests []string
}

// Backend reports whether every backend has to keep the rule.
func (r Rule) Backend() bool { return slices.Contains(r.Places, "backend") }

var (
	ruleTitle = regexp.MustCompile(`^([A-Z]+-\d+) (.+)$`)
	// The line below a rule's title:
	//	*Lives in: backend, library. Shown by: TestOne, TestTwo.*
	ruleLine  = regexp.MustCompile(`^\*Lives in: ([a-z, ]+)\.(?: Shown by: ([A-Za-z0-9_, ]+)\.)?\*$`)
	ruleCount = regexp.MustCompile(`There are \d+ rules\.`)
	places    = []string{"backend", "library", "worker", "daemon", "wire"}
)

// Rules reads the rules, and says what it could not read.
func Rules(text string) (rules []Rule, wrong []string) {
	prose := proseLines(text)
	seen := make(map[string]bool)
	for _, h := range headings(text) {
		if h.level != 3 {
			continue
		}
		title := ruleTitle.FindStringSubmatch(h.text)
		if title == nil {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %q is not a rule: a third-level heading starts with an id like VIS-2", semanticsFile, h.line, h.text))
			continue
		}
		line := ruleLine.FindStringSubmatch(strings.TrimSpace(prose[h.line+2]))
		if line == nil {
			wrong = append(wrong, fmt.Sprintf("%s:%d: two lines below rule %s stands where it lives: *Lives in: backend.*", semanticsFile, h.line, title[1]))
			continue
		}
		if seen[title[1]] {
			wrong = append(wrong, fmt.Sprintf("%s:%d: rule %s is stated twice", semanticsFile, h.line, title[1]))
		}
		seen[title[1]] = true
		rule := Rule{ID: title[1], Title: title[2], Places: strings.Split(line[1], ", ")}
		if line[2] != "" {
			rule.Tests = strings.Split(line[2], ", ")
		}
		rules = append(rules, rule)
	}
	return rules, wrong
}

// Promises checks that every rule is shown to hold: by a
// conformance case if backends keep it, and otherwise, or where no suite can
// reach, by a named test. cases are the ids of the suite's cases, with
// repetitions.
func Promises(t *Tree, cases []string) []string {
	rules, wrong := Rules(t.Texts[semanticsFile])
	tests := testNames(t)
	known := make(map[string]bool)
	for _, rule := range rules {
		known[rule.ID] = true
		hasCase := slices.Contains(cases, rule.ID)
		for _, place := range rule.Places {
			if !slices.Contains(places, place) {
				wrong = append(wrong, fmt.Sprintf("rule %s lives in %q, which is none of %v", rule.ID, place, places))
			}
		}
		for _, name := range rule.Tests {
			if !tests[name] {
				wrong = append(wrong, fmt.Sprintf("rule %s is said to be shown by %s, which does not exist", rule.ID, name))
			}
		}
		switch {
		case rule.Backend() && !hasCase && len(rule.Tests) == 0:
			wrong = append(wrong, fmt.Sprintf("rule %s lives in backends and no conformance case has its id: write one", rule.ID))
		case !rule.Backend() && len(rule.Tests) == 0:
			wrong = append(wrong, fmt.Sprintf("rule %s names no test: add *Shown by:*", rule.ID))
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(cases))) {
		if !known[id] {
			wrong = append(wrong, fmt.Sprintf("the suite has cases for %s, and %s has no such rule", id, semanticsFile))
		}
	}
	want := fmt.Sprintf("There are %d rules.", len(rules))
	if said := ruleCount.FindString(strings.Join(strings.Fields(t.Texts[semanticsFile]), " ")); said != want {
		wrong = append(wrong, fmt.Sprintf("%s says %q, and should say %q", semanticsFile, said, want))
	}
	return wrong
}

// testNames are the tests, fuzz targets, benchmarks and examples of the tree.
func testNames(t *Tree) map[string]bool {
	names := make(map[string]bool)
	for _, f := range t.Go {
		if !f.Test {
			continue
		}
		for _, declaration := range f.Syntax.Decls {
			fn, ok := declaration.(*ast.FuncDecl)
			if !ok || fn.Recv != nil {
				continue
			}
			for _, kind := range []string{"Test", "Fuzz", "Benchmark", "Example"} {
				if strings.HasPrefix(fn.Name.Name, kind) {
					names[fn.Name.Name] = true
				}
			}
		}
	}
	return names
}
