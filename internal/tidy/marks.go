package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// volumePath is the package whose calls mark tests.
const volumePath = "internal/testing/volume"

// Marks checks the calls of package volume, by which make test chooses what it runs how:
// tools/marked.awk finds them only as the first statement of a test; the names of tests that
// are left out elsewhere belong to one test; and a package with tests that do a part of their
// volume under the race detector also runs without it.
func Marks(t *Tree) []string {
	var wrong []string
	named := make(map[string][]string)                       // where tests of a name are
	leftOut := make(map[string]string)                       // where a test is marked Alone or Measures, by name
	partly, inFull := map[string]string{}, map[string]bool{} // by folder
	for _, f := range t.Go {
		if !f.Test || f.Nested || path.Dir(f.Path) == volumePath {
			continue
		}
		first := make(map[ast.Node]string) // the test that begins with a call
		for _, declaration := range f.Syntax.Decls {
			test, ok := declaration.(*ast.FuncDecl)
			if !ok || test.Recv != nil || !strings.HasPrefix(test.Name.Name, "Test") {
				continue
			}
			named[test.Name.Name] = append(named[test.Name.Name], f.at(test.Pos()))
			if len(test.Body.List) > 0 && f.line(test.Body.List[0].Pos()) == f.line(test.Pos())+1 {
				if statement, ok := test.Body.List[0].(*ast.ExprStmt); ok {
					if call, ok := statement.X.(*ast.CallExpr); ok {
						first[call.Fun] = test.Name.Name
					}
				}
			}
		}
		for used := range f.allUses() {
			if used.path != full(volumePath) {
				continue
			}
			test := ""
			for call, name := range first {
				if call.Pos() == used.pos {
					test = name
				}
			}
			folder := path.Dir(f.Path)
			switch used.name {
			case "Of", "Part", "Stride":
				partly[folder] = f.at(used.pos)
				continue
			case "Repeats":
				inFull[folder] = true
			case "InFull":
				inFull[folder] = inFull[folder] || test != ""
				continue // it may mark a part of a test
			case "Alone", "Measures":
				leftOut[test] = f.at(used.pos)
			default:
				continue
			}
			if test == "" {
				wrong = append(wrong, fmt.Sprintf("%s calls volume.%s too late: it is the first statement of a test, on the line after the name", f.at(used.pos), used.name))
			}
		}
	}
	for name, at := range leftOut {
		if len(named[name]) > 1 {
			wrong = append(wrong, fmt.Sprintf("%s marks %s, and another test has this name: go test -skip would skip both", at, name))
		}
	}
	for folder, at := range partly {
		if !inFull[folder] {
			wrong = append(wrong, fmt.Sprintf("%s does a part under the race detector, and nothing does the whole: mark a test of the package with volume.Repeats", at))
		}
	}
	slices.Sort(wrong)
	return wrong
}
