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

// linked returns the modules of the programs, as they are built for Linux.
func linked() ([]module, error) {
	list := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/mailboxd", "./cmd/mailbox")
	list.Dir, list.Stderr = root(), os.Stderr
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	seen := make(map[string]module)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var found struct {
			Module *struct {
				module
				Main bool
			}
		}
		if err := decoder.Decode(&found); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if m := found.Module; m != nil && !m.Main {
			seen[m.Path] = m.module
		}
	}
	modules := make([]module, 0, len(seen))
	for _, m := range seen {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	return modules, nil
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
