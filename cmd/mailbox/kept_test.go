package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/computer"
	"github.com/mailboxmq/mailbox/remotebox"
)

// keep names the release whose data the test keeps, from the programs of this tree.
var keep = flag.String("keep", "", "keep a data directory and a backup of this `release` in testdata")

// A home is where a daemon has its data, and a command line its surroundings.
type home struct {
	t       *testing.T
	dir     string // with data and what else is kept
	mailbox string
	daemon  *process
}

// startHome starts a daemon that keeps messages without end.
func startHome(t *testing.T, dir, data string) *home {
	t.Helper()
	mailbox, mailboxd := programs(t)
	d := startDaemon(t, mailboxd, "--data-dir", data, "--retain-ready", "0", "--retain-dead", "0")
	d.environ = append(d.environ, "MAILBOXD_DATA_DIR="+data)
	return &home{t: t, dir: dir, mailbox: mailbox, daemon: d}
}

// run runs the command line, in the folder of what is kept.
func (h *home) run(args ...string) string {
	h.t.Helper()
	command := exec.Command(h.mailbox, args...)
	command.Env, command.Dir = h.daemon.environ, h.dir
	text, err := command.CombinedOutput()
	if err != nil {
		h.t.Errorf("mailbox %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(text))
}

// replies returns the slots of the daemon.
func (h *home) replies(data string) driver.ReplyStore {
	h.t.Helper()
	token, err := os.ReadFile(filepath.Join(data, "operator.token"))
	if err != nil {
		h.t.Fatal(err)
	}
	backend := remotebox.New([]string{h.daemon.oap}, strings.TrimSpace(string(token)), nil)
	h.t.Cleanup(func() { _ = backend.Close() })
	return backend.Replies()
}

// makeKept fills a daemon with something of everything that it keeps, and packs its directory.
func makeKept(t *testing.T, archive string) {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	h := startHome(t, dir, data)
	for _, args := range [][]string{
		{"queues", "create", "orders"}, {"queues", "create", "reports"}, {"send", "orders", "dead"},
	} {
		h.run(args...)
	}
	id, _, _ := strings.Cut(h.run("recv", "orders"), "\t")
	h.run("nack", id, "--dead", "--cause", "no such customer")
	for _, args := range [][]string{
		{"send", "orders", "first"}, {"send", "orders", "second", "--group", "g", "--attr", "colour=red"}, {"send", "orders", "later", "--delay", "24h"},
		{"schedules", "add", "reports", "yearly", "report", "--every", "8760h", "--catch-up", "none"}, {"schedules", "pause", "reports", "yearly"},
		{"cap", "mint", "--op", "send", "--queue", "orders", "--expires", "876000h", "--out", "good.token"},
		{"cap", "mint", "--op", "send", "--queue", "orders", "--expires", "876000h", "--out", "revoked.token"},
		{"cap", "revoke", "--file", "revoked.token", "--yes"},
	} {
		h.run(args...)
	}
	slots := h.replies(data)
	if err := errors.Join(slots.Create(t.Context(), "question", driver.MaxSlotTTL), slots.Resolve(t.Context(), "question", driver.Answer{Body: []byte("answer")})); err != nil {
		t.Fatal(err)
	}
	h.run("backup", "backup.tar", "--keys")
	if err := h.daemon.Process.Kill(); err != nil { // as a release that ended without a word
		t.Fatal(err)
	}
	_ = h.daemon.Wait()
	if err := os.Remove(filepath.Join(data, "queues", "BALLAST")); err != nil { // 16 MiB for a full disk, made again by any start
		t.Fatal(err)
	}
	if !t.Failed() {
		pack(t, dir, archive)
	}
}

// TestDataOfReleasesIsReadByThisVersion opens the data directory that a daemon of each release left when it was
// killed, drains it, and restores its backup.
func TestDataOfReleasesIsReadByThisVersion(t *testing.T) {
	if *keep != "" {
		makeKept(t, filepath.Join("testdata", "release-"+*keep+".tar.gz"))
	}
	archives, err := filepath.Glob("testdata/release-*.tar.gz")
	if err != nil || len(archives) == 0 {
		t.Fatalf("found %v, %v; CONTRIBUTING.md says how to keep data of a release", archives, err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			dir := t.TempDir()
			made := unpack(t, archive, dir)
			expectSlot(t, filepath.Join(dir, "data", "queues"), made)
			t.Run("restored", func(t *testing.T) {
				restored := filepath.Join(t.TempDir(), "restored")
				h := startHome(t, dir, t.TempDir()) // for its environment
				h.run("restore", "backup.tar", restored, "--revocations-from", filepath.Join(dir, "data"))
				expectKept(t, dir, restored)
			})
			t.Run("opened", func(t *testing.T) { expectKept(t, dir, filepath.Join(dir, "data")) })
		})
	}
}

// expectKept starts a daemon on a directory, and compares it with what makeKept has done.
func expectKept(t *testing.T, dir, data string) {
	t.Helper()
	h := startHome(t, dir, data)
	for args, want := range map[string]string{
		"dlq ls orders":                           "no such customer",
		"schedules ls reports":                    "yearly",
		"audit --since 87600h":                    "revoke",
		"send orders new --token-file good.token": "",
	} {
		if got := h.run(strings.Fields(args)...); !strings.Contains(got, want) {
			t.Errorf("mailbox %s: %s\nwant %q", args, got, want)
		}
	}
	refused := exec.Command(h.mailbox, "send", "orders", "never", "--token-file", filepath.Join(dir, "revoked.token"))
	refused.Env = h.daemon.environ
	if text, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(text), "revoked") {
		t.Errorf("a send with a revoked token: %v, %s", err, text)
	}
	h.run("dlq", "redrive", "orders", "--all")
	got := make(map[string]int)
	for range 4 {
		_, body, _ := strings.Cut(h.run("recv", "orders", "--ack", "--wait", "10s"), "\t")
		got[body]++
	}
	for _, want := range []string{"first", "second", "dead", "new"} {
		if got[want] != 1 {
			t.Errorf("received %v, want %s once", got, want)
		}
	}
}

// expectSlot opens the queues of a directory by the clock of its time, when the answer in its slot was not
// forgotten.
func expectSlot(t *testing.T, dir string, made time.Time) {
	t.Helper()
	began := time.Now()
	ctx := computer.With(t.Context(), computer.Computer{
		FS: vfs.Default, Boot: func() string { return "later" },
		Uptime: func() time.Duration { return time.Since(began) }, Wall: func() time.Time { return made.Add(time.Since(began)) },
	})
	backend, err := diskbox.Open(ctx, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	slot, err := backend.Replies().Get(ctx, "question")
	if err != nil || slot.State != driver.SlotResolved || string(slot.Answer.Body) != "answer" {
		t.Errorf("the slot is %+v, %v", slot, err)
	}
}

// pack writes the files of a folder to an archive.
func pack(t *testing.T, dir, archive string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewWriter(packed)
	if err := errors.Join(files.AddFS(os.DirFS(dir)), files.Close(), packed.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// unpack returns the time at which the newest file was written.
func unpack(t *testing.T, archive, dir string) (made time.Time) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(packed); ; {
		header, err := files.Next()
		if err == io.EOF {
			return made
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if header.FileInfo().IsDir() {
			err = os.MkdirAll(name, 0o700)
		} else {
			var content []byte
			if content, err = io.ReadAll(files); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, content, 0o600))
			}
			if header.ModTime.After(made) {
				made = header.ModTime
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
