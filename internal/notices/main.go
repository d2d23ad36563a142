// Command notices writes the licences of everything that is linked into mailboxd and
// mailbox, for the file THIRD_PARTY_NOTICES:
//
//	go run ./internal/notices > THIRD_PARTY_NOTICES
//
// It reads the module cache and nothing else, so it needs no network once the modules
// are there, and writes the same for the same go.mod. A module without a licence is an
// error.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// A module is one that is linked into a program.
type module struct{ Path, Version, Dir string }

// write writes the notices of all modules, in the order of their paths.
func write(w io.Writer) error {
	modules, err := linked()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString("Licences of the modules that are linked into mailboxd and mailbox.\nWritten by make notices; do not edit.\n")
	for _, m := range modules {
		files, err := licences(m.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
		fmt.Fprintf(&b, "\n%s\n%s %s\n", strings.Repeat("=", 80), m.Path, m.Version)
		for _, name := range files {
			text, err := os.ReadFile(filepath.Join(m.Dir, name))
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "\n--- %s\n\n%s\n", name, normal(text))
		}
	}
	_, err = w.Write(b.Bytes())
	return err
}

// linked returns the modules of the programs, on all systems of a release.
func linked() ([]module, error) {
	seen := make(map[string]module)
	for _, system := range []string{"linux", "darwin", "windows"} {
		if err := link(system, seen); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(seen), func(a, b module) int { return cmp.Compare(a.Path, b.Path) }), nil
}

// link adds the modules of the programs on a system.
func link(system string, seen map[string]module) error {
	list := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/mailboxd", "./cmd/mailbox")
	list.Dir, list.Stderr = root(), os.Stderr
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var found struct {
			Module *struct {
				module
				Main bool
			}
		}
		if err := decoder.Decode(&found); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m := found.Module; m != nil && !m.Main {
			seen[m.Path] = m.module
		}
	}
}

// root is the directory of go.mod.
func root() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return "."
}

// licences returns the names of the files with a module's licences and notices.
func licences(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	licensed := false
	for _, entry := range entries {
		upper := strings.ToUpper(entry.Name())
		isLicence := strings.HasPrefix(upper, "LICENSE") || strings.HasPrefix(upper, "LICENCE") || strings.HasPrefix(upper, "COPYING")
		if entry.IsDir() || strings.HasSuffix(upper, ".GO") || !(isLicence || strings.HasPrefix(upper, "NOTICE") || upper == "PATENTS") {
			continue
		}
		licensed = licensed || isLicence
		names = append(names, entry.Name())
	}
	if !licensed {
		return nil, errors.New("there is no licence file")
	}
	return names, nil
}

// normal is a text with plain line ends and nothing behind its lines.
func normal(text []byte) string {
	lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\f")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}
