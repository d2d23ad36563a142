package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// Banned checks that library code leaves decisions to its caller: it makes no
// contexts, ends no process, and writes to no terminal and no global log.
func Banned(t *Tree) []string {
	var wrong []string
	for _, f := range t.Go {
		if !f.Library() {
			continue
		}
		if slices.Contains(slices.Collect(maps.Values(f.imports)), "log") {
			wrong = append(wrong, fmt.Sprintf("%s imports log: take a *slog.Logger or a hook from the caller", f.Path))
		}
		reasoned := commentedLines(f)
		for use := range f.allUses() {
			switch {
			case use.path == "context" && (use.name == "Background" || use.name == "TODO") && !reasoned[f.line(use.pos)]:
				wrong = append(wrong, fmt.Sprintf("%s calls context.%s: the caller's context says when to stop, or say on that line why there is none", f.at(use.pos), use.name))
			case use.path == "fmt" && strings.HasPrefix(use.name, "Print"):
				wrong = append(wrong, fmt.Sprintf("%s calls fmt.%s: libraries do not write to the terminal", f.at(use.pos), use.name))
			case use.path == "os" && use.name == "Exit" && !reasoned[f.line(use.pos)]:
				wrong = append(wrong, fmt.Sprintf("%s calls os.Exit: leave that to main, or say on that line why nothing may run any more", f.at(use.pos)))
			}
		}
		wrong = append(wrong, panics(f, reasoned)...)
	}
	return wrong
}

// commentedLines are those with a comment on them: a place for a reason.
func commentedLines(f *GoFile) map[int]bool {
	lines := make(map[int]bool)
	for _, group := range f.Syntax.Comments {
		for _, comment := range group.List {
			lines[f.line(comment.Pos())] = true
		}
	}
	return lines
}

// panics finds calls of panic on lines without a comment that says why the
// program cannot go on.
func panics(f *GoFile, reasoned map[int]bool) []string {
	var wrong []string
	for node := range ast.Preorder(f.Syntax) {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			continue
		}
		if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "panic" && name.Obj == nil && !reasoned[f.line(call.Pos())] {
			wrong = append(wrong, fmt.Sprintf("%s panics: return an error, or say on that line why there is nothing left to return to", f.at(call.Pos())))
		}
	}
	return wrong
}

// sleepsFile lists the files and folders that may really wait, with the reason.
const sleepsFile = "internal/tidy/sleeps.txt"

// Sleeps checks that nothing waits by the clock: library code is woken, and
// tests live in the virtual time of a synctest bubble. Programs and examples
// are for people, who may have to wait.
func Sleeps(t *Tree) []string {
	var wrong []string
	allowed := make(map[string]bool)
	for _, line := range entries(t.Texts[sleepsFile]) {
		entry, reason, _ := strings.Cut(line, ":")
		if strings.TrimSpace(reason) == "" {
			wrong = append(wrong, fmt.Sprintf("%s: %q gives no reason", sleepsFile, line))
		}
		allowed[entry] = true
	}
	needed := make(map[string]bool)
	// listed finds the entry for a file: its own, or that of its folder, which
	// ends in a slash.
	listed := func(file string) (entry string, ok bool) {
		for _, entry := range []string{file, path.Dir(file) + "/"} {
			if allowed[entry] {
				return entry, true
			}
		}
		return "", false
	}
	for _, f := range t.Go {
		if f.Nested || f.Generated || !f.Test && !f.Library() {
			continue
		}
		bubbles := bubbles(f)
		for use := range f.allUses() {
			if use.path != "time" || use.name != "Sleep" || slices.ContainsFunc(bubbles, func(b span) bool { return b.holds(use.pos) }) {
				continue
			}
			if entry, ok := listed(f.Path); ok {
				needed[entry] = true
			} else {
				wrong = append(wrong, fmt.Sprintf("%s calls time.Sleep outside synctest.Test: wait for the event, use virtual time, or list the file with a reason in %s", f.at(use.pos), sleepsFile))
			}
		}
	}
	for entry := range allowed {
		if !needed[entry] {
			wrong = append(wrong, fmt.Sprintf("%s does not sleep outside a bubble: take its line out of %s", entry, sleepsFile))
		}
	}
	return wrong
}

// A span is a stretch of a file.
type span struct{ from, to token.Pos }

func (s span) holds(pos token.Pos) bool { return s.from <= pos && pos < s.to }

// bubbles returns the calls of synctest.Test, arguments included.
func bubbles(f *GoFile) []span {
	var found []span
	for node := range ast.Preorder(f.Syntax) {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			continue
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != "Test" {
			continue
		}
		if left, ok := selector.X.(*ast.Ident); ok && f.imports[left.Name] == "testing/synctest" {
			found = append(found, span{call.Pos(), call.End()})
		}
	}
	return found
}

// Skips checks that a test that does not run says why.
func Skips(t *Tree) []string {
	var wrong []string
	for _, f := range t.Go {
		if _, tests := f.imports["testing"]; !tests {
			continue
		}
		for node := range ast.Preorder(f.Syntax) {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				continue
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			name := selector.Sel.Name
			if name == "SkipNow" || (name == "Skip" || name == "Skipf") && !saysSomething(call.Args) {
				wrong = append(wrong, fmt.Sprintf("%s calls %s without a reason: say what is missing and how to get it", f.at(call.Pos()), name))
			}
		}
	}
	return wrong
}

// saysSomething reports whether the arguments are more than an empty string.
func saysSomething(args []ast.Expr) bool {
	if len(args) == 0 {
		return false
	}
	literal, ok := args[0].(*ast.BasicLit)
	return !ok || len(literal.Value) > len(`""`)
}
