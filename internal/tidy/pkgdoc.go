package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// Explained checks that every package says what it is, and that every public
// one shows how it is used.
func Explained(t *Tree) []string {
	examples := make(map[string]bool)
	for _, f := range t.Go {
		for _, declaration := range f.Syntax.Decls {
			if fn, ok := declaration.(*ast.FuncDecl); ok && f.Test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Example") {
				examples[path.Dir(f.Path)] = true
			}
		}
	}
	var wrong []string
	for _, p := range t.Packages {
		if p.Doc == "" && p.Name != "" {
			wrong = append(wrong, fmt.Sprintf("%s has no package comment: say what it is for, and for whom", full(p.Rel)))
		}
		if p.Public() && !examples[p.Rel] {
			wrong = append(wrong, fmt.Sprintf("%s has no Example function: show its first use in a _test.go file", full(p.Rel)))
		}
	}
	return wrong
}

// emptyNames are package names that say nothing about what is inside.
var emptyNames = []string{"util", "utils", "common", "types", "base", "helper", "helpers", "manager", "core", "misc", "shared"}

// Named checks that package names say something.
func Named(t *Tree) []string {
	var wrong []string
	for _, f := range t.Go {
		if name := strings.TrimSuffix(f.Syntax.Name.Name, "_test"); slices.Contains(emptyNames, name) {
			wrong = append(wrong, fmt.Sprintf("%s: package name %q says nothing: name it after what it holds", f.Path, name))
		}
	}
	return wrong
}
