package gates_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A daemon is mailboxd in a process of its own.
type daemon struct {
	t       testing.TB
	dir     string
	http    string // host:port
	oap     string // host:port
	metrics string // host:port, of the listener for figures alone
	token   string // the operator's
	stdout  output
	stderr  output
	command *exec.Cmd
	ended   chan struct{} // closed when the process is gone
	err     error         // what it ended with; set before ended is closed
}

// An output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Arguments that make a daemon of each kind.
var (
	inMemory = []string{"--profile=micronode"}
	onDisk   = []string{"--profile=macronode"}
)

// start runs a daemon on free ports until the test ends.
func start(t testing.TB, args ...string) *daemon {
	t.Helper()
	return startIn(t, t.TempDir(), nil, args...)
}

// startIn is start with the daemon's own directory, and with a command that runs it.
func startIn(t testing.TB, dir string, under []string, args ...string) *daemon {
	t.Helper()
	d, err := tryStart(t, dir, under, args...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tryStart is startIn for daemons that may have a reason not to start.
func tryStart(t testing.TB, dir string, under []string, args ...string) (*daemon, error) {
	t.Helper()
	line := append(append([]string(nil), under...), program(t),
		"--data-dir="+dir, "--listen=127.0.0.1:0", "--listen-oap=127.0.0.1:0", "--log-level=debug")
	line = append(line, args...)
	d := &daemon{t: t, dir: dir, command: exec.Command(line[0], line[1:]...), ended: make(chan struct{})}
	d.command.Dir = dir
	d.command.Env = environment()
	d.command.Stdout, d.command.Stderr = &d.stdout, &d.stderr
	d.command.SysProcAttr = dieWithParent()
	if err := d.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		d.err = d.command.Wait()
		close(d.ended)
	}()
	t.Cleanup(func() {
		_ = d.command.Process.Kill() // it may have ended
		<-d.ended
	})
	return d, d.await(args)
}

// environment is that of this process without settings of a daemon.
func environment() []string {
	var list []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "MAILBOXD_") {
			list = append(list, variable)
		}
	}
	return list
}

// await waits until the daemon has said where it listens, or has ended.
func (d *daemon) await(args []string) (err error) {
	d.t.Helper()
	eventually(d.t, 30*time.Second, "started", func() bool {
		select {
		case <-d.ended:
			err = fmt.Errorf("mailboxd %s ended: %w\n%s", strings.Join(args, " "), d.err, d.stderr.String())
			return true
		default:
		}
		for _, line := range d.log() {
			if line["msg"] == "started" {
				d.http, _ = line["http"].(string)
				d.oap, _ = line["oap"].(string)
				d.metrics, _ = line["metrics"].(string)
			}
		}
		d.readToken()
		return d.token != "" && d.http+d.oap != ""
	})
	return err
}

// readToken reads the operator's token from where a daemon of this kind has it.
func (d *daemon) readToken() {
	if slices.Contains(d.command.Args, inMemory[0]) {
		_, rest, _ := strings.Cut(d.stdout.String(), "read again:\n\n  ")
		if token, _, whole := strings.Cut(rest, "\n"); whole {
			d.token = token
		}
	} else if text, err := os.ReadFile(filepath.Join(d.dir, "operator.token")); err == nil {
		d.token = strings.TrimSpace(string(text))
	}
}

// log returns the lines of the log.
func (d *daemon) log() []map[string]any {
	var lines []map[string]any
	for text := range strings.Lines(d.stderr.String()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

// kill is kill -9, and waits until the process is gone.
func (d *daemon) kill() {
	_ = d.command.Process.Signal(syscall.SIGKILL) // it may be gone
	<-d.ended
}

// stop tells the daemon to stop, and waits until it has.
func (d *daemon) stop() {
	d.t.Helper()
	if err := d.command.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	select {
	case <-d.ended:
	case <-time.After(30 * time.Second):
		d.t.Fatal("the daemon does not stop")
	}
	if d.err != nil {
		d.t.Errorf("an orderly stop: %v\n%s", d.err, d.stderr.String())
	}
}

// again starts a daemon that has ended in its old place, on its old ports.
func (d *daemon) again(args ...string) *daemon {
	d.t.Helper()
	return startIn(d.t, d.dir, nil, append(args, "--listen="+d.http, "--listen-oap="+d.oap)...)
}

// dial connects to an address of a daemon until the test ends.
func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
