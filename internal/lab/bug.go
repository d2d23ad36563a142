package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A bug is a seeded defect: a patch without line numbers, so that code above it can change.
type bug struct {
	ID    string
	Rule  string   // the rule of docs/semantics.md that it breaks
	What  string   // one sentence
	Tests []string // patterns of the packages whose tests must catch it
	Edits []edit
}

// An edit replaces whole lines of a file.
type edit struct{ File, Old, New string }

var (
	bugID  = regexp.MustCompile(`^[a-z0-9-]+$`)
	ruleID = regexp.MustCompile(`^[A-Z]+-[0-9]+$`)
)

// readBugs reads all files of a folder, in the order of their names.
func readBugs(folder string) ([]bug, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	var bugs []bug
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		more, err := parseBugs(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		bugs = append(bugs, more...)
	}
	for i, b := range bugs {
		if slices.ContainsFunc(bugs[:i], func(other bug) bool { return other.ID == b.ID }) {
			return nil, fmt.Errorf("bug %s is there twice", b.ID)
		}
	}
	return bugs, nil
}

// parseBugs reads bugs: lines of "name: value", and below each file the lines of a patch, which
// begin with a space, a minus or a plus. Lines that begin with # are comments.
func parseBugs(text []byte) (bugs []bug, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.IndexByte(" -+", line[0]) < 0 {
			name, value, _ := strings.Cut(line, ": ")
			if name == "bug" {
				bugs = append(bugs, bug{ID: value})
			}
			if len(bugs) == 0 || !bugs[len(bugs)-1].set(name, value) {
				return nil, fmt.Errorf("line %d: unknown field %q", number, name)
			}
			continue
		}
		if len(bugs) == 0 || len(bugs[len(bugs)-1].Edits) == 0 {
			return nil, fmt.Errorf("line %d: a line of a patch before its file", number)
		}
		edits := bugs[len(bugs)-1].Edits
		edits[len(edits)-1].add(line)
	}
	for i := range bugs {
		if err := bugs[i].check(); err != nil {
			return nil, err
		}
	}
	return bugs, lines.Err()
}

// set sets a field, and reports whether the bug has one of this name.
func (b *bug) set(name, value string) bool {
	switch name {
	case "bug":
	case "rule":
		b.Rule = value
	case "what":
		b.What = value
	case "tests":
		b.Tests = strings.Fields(value)
	case "file":
		b.Edits = append(b.Edits, edit{File: value})
	default:
		return false
	}
	return true
}

func (e *edit) add(line string) {
	if line[0] != '+' {
		e.Old += line[1:] + "\n"
	}
	if line[0] != '-' {
		e.New += line[1:] + "\n"
	}
}

func (b *bug) check() error {
	if !bugID.MatchString(b.ID) || !ruleID.MatchString(b.Rule) || b.What == "" || len(b.Tests) == 0 || len(b.Edits) == 0 {
		return fmt.Errorf("bug %q: want an id, a rule, what it is, tests and a file", b.ID)
	}
	return nil
}

// apply returns the files of a tree as the bug changes them. Old lines that are not in their file
// exactly once are an error: the bug must follow the code.
func (b *bug) apply(root string) (map[string][]byte, error) {
	changed := make(map[string][]byte)
	for _, e := range b.Edits {
		text, ok := changed[e.File]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, e.File)); err != nil {
				return nil, fmt.Errorf("bug %s: %w", b.ID, err)
			}
		}
		// At the beginning of a line, where a shorter line could be the end of another.
		text, old := append([]byte("\n"), text...), []byte("\n"+e.Old)
		if n := bytes.Count(text, old); n != 1 || e.Old == e.New {
			return nil, fmt.Errorf("bug %s: its lines are %d times in %s, want once, and others after it", b.ID, n, e.File)
		}
		changed[e.File] = bytes.Replace(text, old, []byte("\n"+e.New), 1)[1:]
	}
	return changed, nil
}
