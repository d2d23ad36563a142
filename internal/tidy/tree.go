package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Tree is the repository: its files, its Go syntax and its packages.
type Tree struct {
	// Texts holds every tracked text file by its slash-separated path.
	Texts map[string]string
	// Pictures are the tracked files that are not text.
	Pictures map[string]bool
	// Go holds every Go file, those of nested modules included.
	Go []*GoFile
	// Packages are those of the root module; made-up trees may have none.
	Packages []Package
}

// A GoFile is one parsed Go file and what the rules ask about it.
type GoFile struct {
	Path   string
	Syntax *ast.File
	Lines  int
	// Test: the name ends in _test.go.
	Test bool
	// Generated: written by a tool, so the rules of style do not apply.
	Generated bool
	// Nested: it belongs to a module of its own, such as the benchmarks.
	Nested bool

	set     *token.FileSet
	imports map[string]string // local name to import path
}

// Library reports whether the file is code that users link: not a test, not a
// program, not an example, not generated.
func (f *GoFile) Library() bool {
	return !f.Test && !f.Generated && !f.Nested &&
		f.Syntax.Name.Name != "main" && !strings.HasPrefix(f.Path, "examples/")
}

// at renders a position as path:line.
func (f *GoFile) at(pos token.Pos) string {
	return f.Path + ":" + strconv.Itoa(f.line(pos))
}

func (f *GoFile) line(pos token.Pos) int { return f.set.Position(pos).Line }

// A use is a mention of a name of an imported package: path "time" and name
// "Sleep" for time.Sleep, however the import was renamed.
type use struct {
	path, name string
	pos        token.Pos
}

func (f *GoFile) allUses() iter.Seq[use] {
	return func(yield func(use) bool) {
		for node := range ast.Preorder(f.Syntax) {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				continue
			}
			// An identifier that the parser could resolve is a local variable
			// that hides the import.
			left, ok := selector.X.(*ast.Ident)
			if !ok || left.Obj != nil {
				continue
			}
			importPath, ok := f.imports[left.Name]
			if ok && !yield(use{importPath, selector.Sel.Name, selector.Pos()}) {
				return
			}
		}
	}
}

// Load reads the repository whose root directory is root.
func Load(root string) (*Tree, error) {
	paths, err := trackedFiles(root)
	if err != nil {
		return nil, err
	}
	texts, pictures := make(map[string]string, len(paths)), make(map[string]bool)
	for _, name := range paths {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if os.IsNotExist(err) {
			continue // deleted, and the deletion is not committed yet
		}
		if err != nil {
			return nil, err
		}
		if bytes.ContainsRune(content, 0) {
			pictures[name] = true
		} else {
			texts[name] = string(content)
		}
	}
	tree, err := Parse(texts)
	if err != nil {
		return nil, err
	}
	tree.Pictures = pictures
	tree.Packages, err = listPackages(root)
	return tree, err
}

// Parse makes a Tree of texts alone, without package information.
func Parse(texts map[string]string) (*Tree, error) {
	tree := &Tree{Texts: texts}
	var modules []string
	for name := range texts {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			modules = append(modules, path.Dir(name)+"/")
		}
	}
	for _, name := range tree.paths(".go") {
		file, err := parseGo(name, texts[name])
		if err != nil {
			return nil, err
		}
		for _, module := range modules {
			file.Nested = file.Nested || strings.HasPrefix(name, module)
		}
		tree.Go = append(tree.Go, file)
	}
	return tree, nil
}

func parseGo(name, text string) (*GoFile, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("tidy: %w", err)
	}
	file := &GoFile{
		Path:      name,
		Syntax:    syntax,
		Lines:     strings.Count(text, "\n"),
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(syntax) || strings.HasPrefix(name, "gen/"),
		set:       set,
		imports:   make(map[string]string),
	}
	for _, spec := range syntax.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("tidy: %s: %w", name, err)
		}
		local := path.Base(importPath)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		file.imports[local] = importPath
	}
	return file, nil
}

// paths lists the files with this ending, in order.
func (t *Tree) paths(ending string) []string {
	var found []string
	for name := range t.Texts {
		if strings.HasSuffix(name, ending) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// trackedFiles asks git, new files included, and walks the folder where there
// is no git: an unpacked release has to pass its own tests too.
func trackedFiles(root string) ([]string, error) {
	git := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	if out, err := git.Output(); err == nil {
		return slices.Compact(slices.Sorted(strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00"))), nil
	}
	var found []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); base == ".git" || base == ".cache" || base == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if entry.Type().IsRegular() {
			found = append(found, filepath.ToSlash(relative))
		}
		return nil
	})
	return found, err
}
