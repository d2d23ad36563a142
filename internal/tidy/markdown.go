package tidy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// A heading is one title of a Markdown file.
type heading struct {
	level int
	text  string
	line  int
}

// proseLines yields the lines of a Markdown text that are not inside a fenced
// code block, numbered from 1.
func proseLines(text string) map[int]string {
	prose := make(map[int]string)
	fence := ""
	number := 0
	for line := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && (strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")):
			fence = trimmed[:3]
		case fence != "" && strings.HasPrefix(trimmed, fence):
			fence = ""
		case fence == "":
			prose[number] = strings.TrimRight(line, "\r\n")
		}
	}
	return prose
}

// headings returns the titles of a Markdown text in order.
func headings(text string) []heading {
	prose := proseLines(text)
	var found []heading
	for number := range strings.Count(text, "\n") + 1 {
		line := prose[number+1]
		title := strings.TrimLeft(line, "#")
		if level := len(line) - len(title); level > 0 && strings.HasPrefix(title, " ") {
			found = append(found, heading{level, strings.TrimSpace(title), number + 1})
		}
	}
	return found
}

// anchor is the fragment that a heading gets when the file is shown as a page:
// lower case, blanks as dashes, without punctuation.
func anchor(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

var inlineLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// Markdown checks that each document has one title and that links between
// files of the repository lead somewhere.
func Markdown(t *Tree) []string {
	var wrong []string
	for _, name := range t.paths(".md") {
		titles := 0
		for _, h := range headings(t.Texts[name]) {
			if h.level == 1 {
				titles++
			}
		}
		if titles != 1 {
			wrong = append(wrong, fmt.Sprintf("%s has %d titles (lines that start with one #), one is right", name, titles))
		}
		for number, line := range proseLines(t.Texts[name]) {
			for _, link := range inlineLink.FindAllStringSubmatch(line, -1) {
				if problem := t.followLink(name, link[1]); problem != "" {
					wrong = append(wrong, fmt.Sprintf("%s:%d links to %s, %s", name, number, link[1], problem))
				}
			}
		}
	}
	return wrong
}

// followLink says what is wrong with a link, and nothing if it is fine or
// leads out of the repository.
func (t *Tree) followLink(from, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return ""
	}
	target, fragment, _ := strings.Cut(link, "#")
	file := from
	if target != "" {
		file = path.Join(path.Dir(from), target)
	}
	text, exists := t.Texts[file]
	if !exists {
		if t.Pictures[file] || t.isFolder(file) {
			return ""
		}
		return "which does not exist"
	}
	if fragment == "" {
		return ""
	}
	for _, h := range headings(text) {
		if anchor(h.text) == fragment {
			return ""
		}
	}
	return "which has no such heading"
}

func (t *Tree) isFolder(name string) bool {
	for file := range t.Texts {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return name == "."
}

// Shown checks that the Go code of the README and of the pages in docs and docs/from is part of a
// program under examples/ or of an example of a package, word for word but for its indentation, and
// so compiles.
func Shown(t *Tree) []string {
	var wrong []string
	for _, name := range t.paths(".md") {
		if folder := path.Dir(name); name != "README.md" && folder != "docs" && folder != "docs/from" {
			continue
		}
		for i, part := range strings.Split("\n"+t.Texts[name], "\n```go\n") {
			if i == 0 {
				continue
			}
			block, _, _ := strings.Cut(part, "\n```")
			if !t.inExample(block) {
				first, _, _ := strings.Cut(block, "\n")
				wrong = append(wrong, fmt.Sprintf("the Go code of %s that begins with %q is not in any program under examples/, and in no example", name, first))
			}
		}
	}
	return wrong
}

var indentation = regexp.MustCompile(`(?m)^\t+`)

func (t *Tree) inExample(block string) bool {
	block = indentation.ReplaceAllString(block, "")
	for _, f := range t.Go {
		example := strings.HasPrefix(f.Path, "examples/") || strings.HasPrefix(path.Base(f.Path), "example") && strings.HasSuffix(f.Path, "_test.go")
		if example && strings.Contains(indentation.ReplaceAllString(t.Texts[f.Path], ""), block) {
			return true
		}
	}
	return false
}
