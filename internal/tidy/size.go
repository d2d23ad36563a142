package tidy

import (
	"fmt"
	"go/ast"
	"strconv"
	"strings"
)

// The sizes that still read well. Tests are lists of cases and may be longer.
const (
	maxFileLines     = 500
	maxTestFileLines = 800
	maxFuncLines     = 70
	maxTestFuncLines = 120
)

// ratchetFile lists what is too long all the same, one thing a line:
//
//	file internal/engine/shard.go 512
//	func internal/engine/shard.go Shard.Receive 84
const ratchetFile = "internal/tidy/ratchet.txt"

// Sizes checks that files and functions fit in a reader's head. What is longer
// has to be listed in ratchet.txt with exactly its length, so that the list
// follows when it gets shorter and objects when it gets longer.
func Sizes(t *Tree) []string {
	allowed, wrong := readRatchet(t.Texts[ratchetFile])
	check := func(what string, lines, limit int) {
		listed, isListed := allowed[what]
		delete(allowed, what)
		switch {
		case !isListed && lines > limit:
			wrong = append(wrong, fmt.Sprintf("%s has %d lines, at most %d are allowed: split it", what, lines, limit))
		case isListed && lines <= limit:
			wrong = append(wrong, fmt.Sprintf("%s has %d lines now: take its line out of %s", what, lines, ratchetFile))
		case isListed && lines > listed:
			wrong = append(wrong, fmt.Sprintf("%s grew from %d to %d lines: %s may only shrink", what, listed, lines, ratchetFile))
		case isListed && lines < listed:
			wrong = append(wrong, fmt.Sprintf("%s shrank from %d to %d lines: write that into %s", what, listed, lines, ratchetFile))
		}
	}
	for _, f := range t.Go {
		if f.Generated {
			continue
		}
		fileLimit, funcLimit := maxFileLines, maxFuncLines
		if f.Test {
			fileLimit, funcLimit = maxTestFileLines, maxTestFuncLines
		}
		check("file "+f.Path, f.Lines, fileLimit)
		for _, declaration := range f.Syntax.Decls {
			if fn, ok := declaration.(*ast.FuncDecl); ok {
				lines := f.line(fn.End()) - f.line(fn.Pos()) + 1
				check("func "+f.Path+" "+funcName(fn), lines, funcLimit)
			}
		}
	}
	for what := range allowed {
		wrong = append(wrong, fmt.Sprintf("%s does not exist any more: take its line out of %s", what, ratchetFile))
	}
	return wrong
}

func readRatchet(text string) (allowed map[string]int, wrong []string) {
	allowed = make(map[string]int)
	for _, line := range entries(text) {
		cut := strings.LastIndexByte(line, ' ')
		lines, err := strconv.Atoi(line[cut+1:])
		if cut < 0 || err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %q does not end in a number of lines", ratchetFile, line))
			continue
		}
		allowed[line[:cut]] = lines
	}
	return allowed, wrong
}

// funcName is Type.Method for methods and the name alone for functions.
func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
		case *ast.IndexExpr:
			receiver = r.X
		case *ast.IndexListExpr:
			receiver = r.X
		case *ast.Ident:
			return r.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// entries returns the lines of a list file that are neither empty nor comments.
func entries(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			found = append(found, line)
		}
	}
	return found
}
