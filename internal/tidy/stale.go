package tidy

import (
	"fmt"
	"slices"
	"strings"
)

// unbuilt are phrases that say something is missing. They stay in a document
// long after it was built, so a test has to hold them true.
var unbuilt = []string{"not yet", "does not exist", "still to come"}

// decisionsFolder holds records of a moment, which stay as they were written.
const decisionsFolder = "docs/decisions/"

// Stale checks that documents state today: a paragraph that says something is
// missing names a test, in backquotes, that asserts it. Package comments count
// as documents.
func Stale(t *Tree) []string {
	tests := testNames(t)
	var wrong []string
	check := func(place, paragraph string) {
		text := strings.ToLower(strings.Join(strings.Fields(paragraph), " "))
		for _, phrase := range unbuilt {
			if strings.Contains(text, phrase) && !namesTest(paragraph, tests) {
				wrong = append(wrong, fmt.Sprintf("%s says %q: state what is true today, or name the test that asserts it", place, phrase))
			}
		}
	}
	for _, name := range t.paths(".md") {
		if strings.HasPrefix(name, decisionsFolder) {
			continue
		}
		for line, paragraph := range paragraphs(t.Texts[name]) {
			check(fmt.Sprintf("%s:%d", name, line), paragraph)
		}
	}
	for _, f := range t.Go {
		if f.Syntax.Doc != nil && !f.Generated {
			check(f.at(f.Syntax.Doc.Pos()), f.Syntax.Doc.Text())
		}
	}
	slices.Sort(wrong)
	return wrong
}

// paragraphs returns the paragraphs of a Markdown text outside code blocks, by
// the line they begin on. Rows of a table are paragraphs of their own.
func paragraphs(text string) map[int]string {
	found := make(map[int]string)
	prose := proseLines(text)
	first := 0
	for number := range strings.Count(text, "\n") + 1 {
		line, ok := prose[number+1]
		switch {
		case !ok || strings.TrimSpace(line) == "":
			first = 0
		case first == 0 || strings.HasPrefix(line, "|"):
			first = number + 1
			found[first] = line
		default:
			found[first] += "\n" + line
		}
	}
	return found
}

func namesTest(paragraph string, tests map[string]bool) bool {
	return slices.ContainsFunc(quoted.FindAllStringSubmatch(paragraph, -1), func(name []string) bool { return tests[name[1]] })
}
