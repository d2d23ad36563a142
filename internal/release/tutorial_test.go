//go:build linux

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/browsertest"
	"github.com/mailboxmq/mailbox/internal/testing/doctest"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// A stranger has unpacked the archive of the release, and has no file else.
type stranger struct {
	t       *testing.T
	environ []string
	folder  string // with the programs
	daemon  *exec.Cmd
}

// newStranger unpacks the archive. Other tests run on this machine, so the daemon's ports are others
// than those of the page.
func newStranger(t *testing.T) (s *stranger, addresses map[string]string) {
	t.Helper()
	dir, home, opened := t.TempDir(), t.TempDir(), t.TempDir()
	unpack(t, part(t, ".tar.gz"), dir)
	// What would open a browser leaves the address to the test.
	script := "#!/bin/sh\necho \"$1\" > \"$HOME/opened\"\n"
	if err := os.WriteFile(filepath.Join(opened, "xdg-open"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	s = &stranger{t: t, folder: filepath.Join(dir, "mailbox_"+version()+"_"+runtime.GOOS+"_"+runtime.GOARCH)}
	http, oap := "127.0.0.1:"+proctest.FreePort(t), "127.0.0.1:"+proctest.FreePort(t)
	s.environ = []string{
		"HOME=" + home, "PATH=" + s.folder + ":" + opened + ":/usr/bin:/bin",
		"MAILBOXD_LISTEN=" + http, "MAILBOXD_LISTEN_OAP=" + oap, "MAILBOX_ADDR=" + http, "MAILBOX_OAP_ADDR=" + oap,
	}
	return s, map[string]string{"127.0.0.1:9410": http, "127.0.0.1:9411": oap}
}

// start starts mailboxd.
func (s *stranger) start() {
	s.t.Helper()
	s.daemon = exec.Command(filepath.Join(s.folder, "mailboxd"))
	s.daemon.Env = s.environ
	begin(s.t, s.daemon)
}

// run runs a command, and returns its output.
func (s *stranger) run(line string) string {
	s.t.Helper()
	command := exec.Command("sh", "-c", line)
	command.Env = s.environ
	output, err := command.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v: %s", line, err, output)
	}
	return string(output)
}

// look opens the address that mailbox console gave to the browser of the machine.
func (s *stranger) look() {
	s.t.Helper()
	browser := browsertest.Start(s.t)
	browser.Open(strings.TrimSpace(s.run(`cat "$HOME/opened"`)))
	browser.WaitFor(`document.title.startsWith("Overview") && document.body.innerText.includes("payments")`)
	if problems := browser.Problems(); len(problems) > 0 {
		s.t.Errorf("the console has problems: %v", problems)
	}
}

// deploy does what systemd does with the unit that the tutorial shows, which it also lets systemd check:
// it starts the worker. What is sent then is made, by a process that ends well when it is stopped.
func (s *stranger) deploy(dir string) {
	s.t.Helper()
	made := filepath.Join(dir, "made")
	file := filepath.Join(dir, "orders-worker.service")
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	unit := strings.NewReplacer("/usr/bin/mailbox ", filepath.Join(s.folder, "mailbox")+" ", "%d/token", filepath.Join(dir, "worker.token"), "/var/lib/orders/made", made).Replace(string(text))
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		if output, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput(); err != nil {
			s.t.Errorf("systemd-analyze verify: %v: %s", err, output)
		}
	}
	_, line, _ := strings.Cut(unit, "ExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	worker := exec.Command("sh", "-c", "exec "+line)
	worker.Env = s.environ
	if err := worker.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = worker.Process.Kill() })
	s.run(`mailbox send orders chai --quiet`)
	s.run("timeout 60 sh -c 'until grep -qs chai " + made + "; do sleep 0.1; done'")
	end(s.t, worker)
}

// TestTutorialWorksOnEmptyMachine follows the tutorial with the programs of the release, from the first
// start to a worker under a service manager and the console, and starts the daemon a second time.
func TestTutorialWorksOnEmptyMachine(t *testing.T) {
	volume.InFull(t)
	s, addresses := newStranger(t)
	seen := make(map[string]bool)
	dir := t.TempDir()
	page := doctest.Page{
		Path: filepath.Join(repository, "docs/tutorial.md"), Dir: dir, Environ: s.environ, Addresses: addresses,
		Other: func(line string) {
			seen[line] = true
			switch line {
			case "mailboxd":
				s.start()
			case "mailbox console --open":
				s.run(line)
				s.look()
			case "sudo install -D -m 600 worker.token /etc/orders/worker.token":
			case "sudo systemctl enable --now orders-worker":
				s.deploy(dir)
			default:
				t.Errorf("the test does not know %q", line)
			}
		},
	}
	page.Run(t)
	if !seen["mailboxd"] || !seen["mailbox console --open"] {
		t.Errorf("the tutorial has other commands than the test knows: %v", seen)
	}
	before := s.run("mailbox stats")
	end(t, s.daemon)
	s.start()
	if after := s.run("mailbox stats"); after != before || !strings.Contains(before, "orders") {
		t.Errorf("after a restart the queues are\n%s, they were\n%s", after, before)
	}
	s.run("mailbox doctor")
	end(t, s.daemon)
}
