package tidy

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

// volumePath is the package whose calls mark tests.
const volumePath = "internal/testing/volume"

// Marks checks the calls of package volume, by which make test chooses what it runs how:
// tools/marked.awk finds them only as the first statement of a test; the names of tests that
// are left out elsewhere belong to one test; a test that does a part of its volume under
// the race detector, itself or in a function of its package, also runs without it; and no
// other test does, which go test -run would choose for its name.
func Marks(t *Tree) []string {
	var wrong []string
	named := make(map[string][]string)    // where tests of a name are
	leftOut := make(map[string]string)    // where a test is marked Alone or Measures, by name
	repeated := make(map[string]bool)     // names of tests marked Repeats or InFull, and folders that have some
	parts := make(map[string]*partOfTest) // by folder
	for _, f := range t.Go {
		if !f.Test || f.Nested || path.Dir(f.Path) == volumePath {
			continue
		}
		folder := path.Dir(f.Path)
		if parts[folder] == nil {
			parts[folder] = &partOfTest{uses: map[string]map[string]bool{}, marked: map[string]bool{}}
		}
		parts[folder].add(f)
		first := firstCalls(f, named)
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
			switch used.name {
			case "Repeats", "InFull":
				parts[folder].marked[test] = true
				repeated[test], repeated[folder] = true, true
				if used.name == "InFull" {
					continue // it may mark a part of a test
				}
			case "OnlyAtLength":
				parts[folder].marked[test] = true
				continue
			case "Alone", "Measures":
				parts[folder].marked[test] = true
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
	for name := range repeated {
		for _, at := range named[name] {
			if folder := path.Dir(at); repeated[folder] && !parts[folder].marked[name] {
				wrong = append(wrong, fmt.Sprintf("%s: make test runs %s in both steps, because a marked test has its name: mark it too, or give it another name", at, name))
			}
		}
	}
	for folder, p := range parts {
		for _, test := range p.unmarked() {
			wrong = append(wrong, fmt.Sprintf("%s: %s does a part under the race detector, and make test does not run the whole: mark it with volume.Repeats", folder, test))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// firstCalls returns the test that begins with a call, by what is called, and adds the tests of a file to
// named.
func firstCalls(f *GoFile, named map[string][]string) map[ast.Node]string {
	first := make(map[ast.Node]string)
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
	return first
}

// partOfTest finds the tests of a package that do a part of their volume under the race detector.
type partOfTest struct {
	uses   map[string]map[string]bool // the names that a declaration uses; methods of one name are one
	marked map[string]bool            // tests
}

// partial stands for the functions of package volume that return a part.
const partial = "volume.Part"

// add adds the declarations of a file.
func (p *partOfTest) add(f *GoFile) {
	for _, declaration := range f.Syntax.Decls {
		names := make(map[string]bool)
		for node := range ast.Preorder(declaration) {
			switch node := node.(type) {
			case *ast.Ident:
				names[node.Name] = true
			case *ast.SelectorExpr:
				if left, ok := node.X.(*ast.Ident); ok && f.imports[left.Name] == full(volumePath) && slices.Contains([]string{"Of", "Part", "Stride"}, node.Sel.Name) {
					names[partial] = true
				}
			}
		}
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			p.declare(declaration.Name.Name, names)
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				if value, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range value.Names {
						p.declare(name.Name, names)
					}
				}
			}
		}
	}
}

func (p *partOfTest) declare(name string, uses map[string]bool) {
	if p.uses[name] == nil {
		p.uses[name] = make(map[string]bool)
	}
	maps.Copy(p.uses[name], uses)
}

// unmarked returns the tests that do a part and are not marked.
func (p *partOfTest) unmarked() []string {
	reached := map[string]bool{partial: true}
	for grown := true; grown; {
		grown = false
		for name, uses := range p.uses {
			for used := range uses {
				if reached[used] && !reached[name] {
					reached[name], grown = true, true
				}
			}
		}
	}
	var tests []string
	for name := range p.uses {
		if reached[name] && strings.HasPrefix(name, "Test") && name != "TestMain" && !p.marked[name] {
			tests = append(tests, name)
		}
	}
	return tests
}
