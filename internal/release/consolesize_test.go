//go:build linux

package release

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// maxConsoleGrowth is how many bytes the console may add to mailboxd, stripped.
const maxConsoleGrowth = 2 << 20

// noConsole has what package server uses of the console, and does nothing.
const noConsole = `package console

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/guard"
)

type Options struct {
	Broker       *broker.Broker
	Logger       *slog.Logger
	WriteTimeout time.Duration
	Hosts        guard.Hosts
	Health       func(ctx context.Context) Health
	Settings     func() []Setting
	Version      string
}

type Health struct {
	Missing  []string
	Degraded bool
	Notes    map[string]string
}

type Setting struct{ Key, Value, Help string }

type Handler struct{}

func New(Options) *Handler { return new(Handler) }

func (*Handler) Shares() []share.Stats { return make([]share.Stats, 2) }

func (*Handler) Close() {}

func (*Handler) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
`

// withoutConsole writes an overlay for go build that puts noConsole in the place of the console, and returns its path.
func withoutConsole(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(filepath.Join(repository, "server/internal/console"))
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil || len(sources) < 20 {
		t.Fatalf("the console has the files %q, %v", sources, err)
	}
	replace := map[string]string{filepath.Join(root, "doc.go"): filepath.Join(dir, "console.go")}
	for _, path := range sources {
		if filepath.Base(path) != "doc.go" {
			replace[path] = "" // it is not there
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "console.go"), []byte(noConsole), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "overlay.json")
}

// daemonSize returns the bytes of mailboxd, built with further flags. It has no profile, so that it is linked from what the tests have compiled.
func daemonSize(t *testing.T, flags ...string) int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "mailboxd")
	build := exec.Command("go", append(append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out}, flags...), "./cmd/mailboxd")...)
	build.Dir = repository
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(build.Args, " "), err, output)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}

// TestConsoleAddsLittleToDaemon builds mailboxd with the console and without it (docs/decisions/0054).
func TestConsoleAddsLittleToDaemon(t *testing.T) {
	volume.OnlyAtLength(t, "it links the daemon twice")
	proctest.Find(t, "go")
	with, without := daemonSize(t), daemonSize(t, "-overlay="+withoutConsole(t))
	t.Logf("mailboxd has %d bytes, %d of them because of the console", with, with-without)
	if with-without > maxConsoleGrowth || with <= without {
		t.Errorf("the console adds %d bytes to mailboxd; want at most %d", with-without, maxConsoleGrowth)
	}
}
