package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A place is where and when something was measured.
type place struct {
	Commit  string // with a plus if files were changed since
	Machine string
	Date    string
}

// here returns the place of what runs now.
func here() (place, error) {
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return place{}, fmt.Errorf("git rev-parse: %w", err)
	}
	// Results and the page are written by the lab itself.
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!internal/lab", ":!docs/evidence.md").Output()
	if err != nil {
		return place{}, fmt.Errorf("git status: %w", err)
	}
	p := place{Commit: strings.TrimSpace(string(commit)), Machine: machine(), Date: time.Now().UTC().Format(time.DateOnly)}
	if len(bytes.TrimSpace(changed)) > 0 {
		p.Commit += "+"
	}
	return p, nil
}

// machine describes the machine in words.
func machine() string {
	model := "processor unknown"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	memory := ""
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int
		if n, _ := fmt.Sscanf(string(info), "MemTotal: %d kB", &kib); n == 1 {
			memory = fmt.Sprintf(", %d GiB of memory", (kib+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%d cores (%s)%s, %s/%s, %s", runtime.NumCPU(), model, memory, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// readResults reads a file of results; one that does not exist is empty.
func readResults[T any](name string) (results []T, err error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &results)
	}
	return results, err
}

// writeResults writes a file of results, one line for each.
func writeResults[T any](name string, results []T) error {
	var b bytes.Buffer
	b.WriteString("[\n")
	for i := range results {
		line, err := json.Marshal(results[i])
		if err != nil {
			return err
		}
		b.Write(line)
		if i < len(results)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a folder of the repository
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644) //nolint:gosec // a file of the repository
}
