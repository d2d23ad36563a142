package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// A Package is what the go command says about one package of the module.
type Package struct {
	// Rel is the import path without the module's, "." for the root.
	Rel  string
	Name string
	Doc  string
	// Imports are those of the package's own files, tests apart; Deps adds
	// everything they reach.
	Imports []string
	Deps    []string
}

// Public reports whether users can import the package.
func (p Package) Public() bool {
	return p.Name != "main" && !strings.Contains("/"+p.Rel+"/", "/internal/") && !strings.HasPrefix(p.Rel, "examples/")
}

// TestOnly reports whether the package exists to be used from tests: its own
// name, or that of a folder above it, ends in "test", or it is below internal/testing.
func (p Package) TestOnly() bool {
	for part := range strings.SplitSeq(p.Rel, "/") {
		if strings.HasSuffix(part, "test") || part == "testing" {
			return true
		}
	}
	return false
}

// module is the import path of the root package.
const module = "github.com/mailboxmq/mailbox"

// full is the import path of the package at rel.
func full(rel string) string {
	if rel == "." {
		return module
	}
	return module + "/" + rel
}

// relative is the inverse of full; ok is false for packages of other modules.
func relative(importPath string) (rel string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// standard reports whether the package comes with Go: only those have no dot
// in the first part of their path.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func listPackages(root string) ([]Package, error) {
	// -e, because a package that does not compile has its own, better message.
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Doc,Imports,Deps", "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			return nil, fmt.Errorf("tidy: go list: %w: %s", err, failed.Stderr)
		}
		return nil, fmt.Errorf("tidy: go list: %w", err)
	}
	var packages []Package
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed struct {
			ImportPath, Name, Doc string
			Imports, Deps         []string
		}
		if err := decoder.Decode(&listed); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("tidy: go list: %w", err)
		}
		rel, ok := relative(listed.ImportPath)
		if !ok {
			return nil, fmt.Errorf("tidy: go list names %s, which is not of module %s", listed.ImportPath, module)
		}
		packages = append(packages, Package{
			Rel: rel, Name: listed.Name, Doc: listed.Doc, Imports: listed.Imports, Deps: listed.Deps,
		})
	}
}
