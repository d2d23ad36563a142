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

// An Output is what a process has written so far. It is safe for concurrent use.
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

// String returns all that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Log returns the lines that are JSON objects, as logs have them.
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

// A Process is a program that runs.
type Process struct {
	Stdout, Stderr Output
	command        *exec.Cmd
	ended          chan struct{}
	err            error // what it ended with; set before ended is closed
}

// Start starts a program, which is killed when the test ends. Its output goes to
// Stdout and Stderr.
func Start(t testing.TB, command *exec.Cmd) *Process {
	t.Helper()
	p, err := launch(command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// launch is Start for who has no test.
func launch(command *exec.Cmd) (*Process, error) {
	p := &Process{command: command, ended: make(chan struct{})}
	command.Stdout, command.Stderr = &p.Stdout, &p.Stderr
	command.SysProcAttr = DieWithParent()
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that made it, not to the process, so
		// that thread has to live until the child is gone.
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

// PID is the number of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Args are its name and arguments.
func (p *Process) Args() []string { return p.command.Args }

// Signal sends a signal to a process that is to be there.
func (p *Process) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is what it ended with, once Ended is closed.
func (p *Process) Err() error { return p.err }

// Kill is kill -9, and waits until the process is gone. It may be gone already.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // which fails if it is gone
	<-p.ended
}

// Stop tells the process to stop, waits until it has, and fails the test if it ends with
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
		t.Errorf("an orderly stop: %v\n%s", p.err, p.Stderr.String())
	}
}

// AwaitLog waits for a line of the log on Stderr with a message, and returns it: nil if
// the process ends without having written it.
func (p *Process) AwaitLog(t testing.TB, message string) (found map[string]any) {
	t.Helper()
	Eventually(t, time.Minute, message, func() bool {
		over := false
		select {
		case <-p.ended: // whatever it wrote is there
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
