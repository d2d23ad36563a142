package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// Snippets checks the Go code in comments of libraries: the names of our packages
// that it mentions exist, and functions get as many arguments as they take. Blocks
// that do not parse as Go are not code, or leave something out.
func Snippets(t *Tree) []string {
	symbols := make(map[string]map[string]*ast.FuncType) // by package and name; nil for other than functions
	for _, f := range t.Go {
		if f.Library() {
			addSymbols(symbols, f.Syntax)
		}
	}
	var wrong []string
	for _, f := range t.Go {
		if !f.Library() {
			continue
		}
		for _, group := range f.Syntax.Comments {
			for _, block := range codeBlocks(group.Text()) {
				for _, problem := range snippetProblems(block, symbols) {
					wrong = append(wrong, fmt.Sprintf("%s: the code in the comment does not compile: %s", f.at(group.Pos()), problem))
				}
			}
		}
	}
	return wrong
}

// addSymbols takes down the exported names of a file.
func addSymbols(symbols map[string]map[string]*ast.FuncType, file *ast.File) {
	names := symbols[file.Name.Name]
	if names == nil {
		names = make(map[string]*ast.FuncType)
		symbols[file.Name.Name] = names
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = d.Type
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = nil
				case *ast.ValueSpec:
					for _, name := range s.Names {
						names[name.Name] = nil
					}
				}
			}
		}
	}
}

// codeBlocks returns the indented parts of a comment.
func codeBlocks(comment string) []string {
	var blocks []string
	var block strings.Builder
	for line := range strings.Lines(comment + "\n.") {
		if strings.HasPrefix(line, "\t") || block.Len() > 0 && strings.TrimSpace(line) == "" {
			block.WriteString(line)
			continue
		}
		if block.Len() > 0 {
			blocks = append(blocks, block.String())
			block.Reset()
		}
	}
	return blocks
}

// snippetProblems returns what is wrong with a block of code.
func snippetProblems(block string, symbols map[string]map[string]*ast.FuncType) []string {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+block+"\n}", 0)
	if err != nil {
		file, err = parser.ParseFile(token.NewFileSet(), "", "package p\n"+block, 0)
	}
	if err != nil {
		return nil
	}
	var wrong []string
	calls := make(map[ast.Expr]*ast.CallExpr)
	for node := range ast.Preorder(file) {
		switch n := node.(type) {
		case *ast.CallExpr:
			calls[calledName(n.Fun)] = n
		case *ast.SelectorExpr:
			left, ok := n.X.(*ast.Ident)
			if !ok || left.Obj != nil || symbols[left.Name] == nil {
				continue
			}
			fn, exists := symbols[left.Name][n.Sel.Name]
			if !exists {
				wrong = append(wrong, fmt.Sprintf("%s has no %s", left.Name, n.Sel.Name))
			} else if call := calls[n]; fn != nil && call != nil && !takes(fn, call) {
				wrong = append(wrong, fmt.Sprintf("%s.%s gets %d arguments", left.Name, n.Sel.Name, len(call.Args)))
			}
		}
	}
	return slices.Compact(wrong)
}

// calledName returns the function of a call without its type arguments.
func calledName(fun ast.Expr) ast.Expr {
	switch f := fun.(type) {
	case *ast.IndexExpr:
		return f.X
	case *ast.IndexListExpr:
		return f.X
	}
	return fun
}

// takes reports whether a function can be called like this.
func takes(fn *ast.FuncType, call *ast.CallExpr) bool {
	if len(call.Args) == 1 {
		if _, nested := call.Args[0].(*ast.CallExpr); nested {
			return true // which may return several values
		}
	}
	if fn.Params.NumFields() == 0 {
		return len(call.Args) == 0
	}
	last := fn.Params.List[len(fn.Params.List)-1]
	if _, variadic := last.Type.(*ast.Ellipsis); variadic {
		return len(call.Args) >= fn.Params.NumFields()-1
	}
	return len(call.Args) == fn.Params.NumFields()
}
