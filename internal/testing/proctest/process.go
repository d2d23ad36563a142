package proctest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An Output collects what a process writes. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write appends.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns everything written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Log returns the lines that are JSON objects, as in a log.
func (o *Output) Log() []map[string]any {
	var lines []map[string]any
	for text := range strings.Lines(o.String()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

// A Process is a running program.
type Process struct {
	Stdout, Stderr Output
	command        *exec.Cmd
	ended          chan struct{}
	err            error // of its end; set before ended is closed
}

// Start starts a program, which is killed when the test ends. Its output goes to Stdout and
// Stderr.
func Start(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	p, err := launch(command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// launch is Start without a test.
func launch(command *exec.Cmd) (*Process, error) {
	p := &Process{command: command, ended: make(chan struct{})}
	command.Stdout, command.Stderr = &p.Stdout, &p.Stderr
	command.SysProcAttr = DieWithParent()
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that created it, not to the process, so the
		// thread must live until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			p.err = command.Wait()
		}
		close(p.ended)
	}()
	return p, <-started
}

// PID returns the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Args returns the name and the arguments of the program.
func (p *Process) Args() []string { return p.command.Args }

// Signal sends a signal to the process. The test fails if the process is gone.
func (p *Process) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Ended returns a channel that is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns how the process ended, once Ended is closed.
func (p *Process) Err() error { return p.err }

// Kill sends SIGKILL and waits until the process is gone. A process that is already gone is
// fine.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // fails if it is gone
	<-p.ended
}

// Stop sends SIGTERM and waits until the process is gone. The test fails if the process returns
// an error.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not stop\n%s", p.command.Path, p.Stderr.String())
	}
	if p.err != nil {
		t.Errorf("process failed after SIGTERM: %v\n%s", p.err, p.Stderr.String())
	}
}

// AwaitLog waits for a log line on Stderr with the given message and returns it, or nil if the
// process ends without writing it.
func (p *Process) AwaitLog(t testing.TB, message string) (found map[string]any) {
	t.Helper()
	Eventually(t, time.Minute, message, func() bool {
		over := false
		select {
		case <-p.ended: // its output is complete
			over = true
		default:
		}
		for _, line := range p.Stderr.Log() {
			if line["msg"] == message {
				found = line
			}
		}
		return over || found != nil
	})
	return found
}
