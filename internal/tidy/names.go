package tidy

import (
	"fmt"
	"go/ast"
	"strings"
)

// namesFile leads from the names of the source documents to ours.
const namesFile = "docs/names.md"

// Names checks that every Go name in the second column of the tables of
// docs/names.md is declared: a package and a declaration, or a package, a type
// and one of its fields or methods. Tables about something else are passed over.
func Names(t *Tree) []string {
	declared := declarations(t)
	var wrong []string
	inTable := false
	number := 0
	for line := range strings.Lines(t.Texts[namesFile]) {
		number++
		cells := strings.Split(strings.TrimSpace(line), " | ")
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case cells[0] == "| source document":
			inTable = true
		}
		if !inTable || len(cells) < 3 {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if !declared[name[1]] {
				wrong = append(wrong, fmt.Sprintf("%s:%d: %s is not declared in this repository", namesFile, number, name[1]))
			}
		}
	}
	return wrong
}

// declarations are the exported names of the tree's packages, such as
// driver.Queue, with the fields and methods of types, such as driver.Queue.Send.
func declarations(t *Tree) map[string]bool {
	declared := make(map[string]bool)
	for _, f := range t.Go {
		if f.Test || f.Nested || f.Generated {
			continue
		}
		pkg := f.Syntax.Name.Name
		for _, declaration := range f.Syntax.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				declared[pkg+"."+funcName(d)] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					declareSpec(declared, pkg, spec)
				}
			}
		}
	}
	return declared
}

func declareSpec(declared map[string]bool, pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			declared[pkg+"."+name.Name] = true
		}
	case *ast.TypeSpec:
		typeName := pkg + "." + s.Name.Name
		declared[typeName] = true
		var fields *ast.FieldList
		switch kind := s.Type.(type) {
		case *ast.StructType:
			fields = kind.Fields
		case *ast.InterfaceType:
			fields = kind.Methods
		default:
			return
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				declared[typeName+"."+name.Name] = true
			}
		}
	}
}
