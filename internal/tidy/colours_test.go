package tidy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A designToken is a design token of the console, with its values for light and dark.
type designToken [2]string

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tokensOf reads the design tokens of a style sheet.
func tokensOf(sheet string) map[string]designToken {
	_, root, _ := strings.Cut(sheet, ":root {")
	root, _, _ = strings.Cut(root, "}")
	all := make(map[string]designToken)
	for _, m := range regexp.MustCompile(`(--[a-z-]+): (?:light-dark\((\S+), (\S+)\)|(.+));`).FindAllStringSubmatch(root, -1) {
		all[m[1]] = designToken{m[2] + m[4], m[3] + m[4]}
	}
	return all
}

// tokensIn reads the table of design tokens of a page.
func tokensIn(page string) map[string]designToken {
	quoted := regexp.MustCompile("`([^`]+)`")
	all := make(map[string]designToken)
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.HasPrefix(cells[1], " `--") {
			continue
		}
		light, dark := quoted.FindAllStringSubmatch(cells[3], -1), quoted.FindAllStringSubmatch(cells[4], -1)
		if strings.Contains(cells[4], "the same") {
			dark = light
		}
		for i, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if i < len(light) && i < len(dark) {
				all[name[1]] = designToken{light[i][1], dark[i][1]}
			}
		}
	}
	return all
}

// TestColoursOfConsoleHaveOneTable compares the style sheet of the console with the table of docs/console.md, and with the
// colours of mailbox top.
func TestColoursOfConsoleHaveOneTable(t *testing.T) {
	css := readText(t, "server/internal/console/assets/console.css")
	sheet, page := tokensOf(css), tokensIn(readText(t, "docs/console.md"))
	if len(sheet) < 15 {
		t.Fatalf("the style sheet has the tokens %v", sheet)
	}
	for name := range sheet {
		if sheet[name] != page[name] {
			t.Errorf("%s is %q in console.css, and %q in docs/console.md", name, sheet[name], page[name])
		}
	}
	for name := range page {
		if _, known := sheet[name]; !known {
			t.Errorf("docs/console.md has %s, which console.css has not", name)
		}
	}
	for class, name := range map[string]string{"ready": "--ready", "delayed": "--delayed", "in_flight": "--in-flight", "dead": "--dead", "done": "--good", "answered": "--good"} {
		if !regexp.MustCompile(`(?m)^(?:.*, )?\.` + class + `(?:, .*)? \{ --state: var\(` + name + `\); \}`).MatchString(css) {
			t.Errorf("the class %s has not the colour %s in console.css", class, name)
		}
	}
	inks := regexp.MustCompile(`(?m)^\t(?:string\(driver\.State(\w+)\)|"(\w+)"): +\{"(#\w+)", "(#\w+)"\},`).FindAllStringSubmatch(readText(t, "cmd/mailbox/internal/cli/topdraw.go"), -1)
	if len(inks) < 6 {
		t.Fatalf("mailbox top has the colours %q", inks)
	}
	for _, ink := range inks {
		name := "--" + strings.ReplaceAll(strings.ToLower(ink[1]), "inflight", "in-flight") + ink[2]
		if (sheet[name] != designToken{ink[3], ink[4]}) {
			t.Errorf("%s is %q in console.css, and %q in mailbox top", name, sheet[name], ink[3:])
		}
	}
}
