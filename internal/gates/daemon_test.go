package gates_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// A daemon is mailboxd in a separate process.
type daemon struct {
	*proctest.Process
	t       testing.TB
	dir     string
	http    string // host:port
	oap     string // host:port
	metrics string // host:port, of the listener for figures alone
	token   string // the operator's
}

// Arguments that make a daemon of each kind.
var (
	inMemory = []string{"--profile=micronode", "--token-out=1"} // standard output, which it does not choose
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

// tryStart is startIn for daemons that may fail to start.
func tryStart(t testing.TB, dir string, under []string, args ...string) (*daemon, error) {
	t.Helper()
	line := append(append([]string(nil), under...), program(t),
		"--data-dir="+dir, "--listen=127.0.0.1:0", "--listen-oap=127.0.0.1:0", "--log-level=debug")
	line = append(line, args...)
	command := exec.Command(line[0], line[1:]...)
	command.Dir, command.Env = dir, environment()
	d := &daemon{Process: proctest.Start(t, command), t: t, dir: dir}
	return d, d.await(args)
}

// environment returns the environment of this process without settings of a daemon.
func environment() []string {
	var list []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "MAILBOXD_") {
			list = append(list, variable)
		}
	}
	return list
}

// await waits until the daemon has printed its addresses, or has ended.
func (d *daemon) await(args []string) error {
	d.t.Helper()
	line := d.AwaitLog(d.t, "started")
	if line == nil {
		return fmt.Errorf("mailboxd %s ended: %w\n%s", strings.Join(args, " "), d.Err(), d.Stderr.String())
	}
	d.http, _ = line["http"].(string)
	d.oap, _ = line["oap"].(string)
	d.metrics, _ = line["metrics"].(string)
	proctest.Eventually(d.t, time.Minute, "the operator's token", d.readToken)
	return nil
}

// readToken reads the operator's token from standard output or the token file, and
// reports whether it was there.
func (d *daemon) readToken() bool {
	if slices.Contains(d.Args(), inMemory[0]) {
		if token, _, whole := strings.Cut(d.Stdout.String(), "\n"); whole {
			d.token = token
		}
	} else if text, err := os.ReadFile(filepath.Join(d.dir, "operator.token")); err == nil {
		d.token = strings.TrimSpace(string(text))
	}
	return d.token != ""
}

// again restarts a daemon that has ended, with the same directory and ports.
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
