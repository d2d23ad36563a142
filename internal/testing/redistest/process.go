package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// A process is a child that dies with this process.
type process struct {
	command *exec.Cmd
	exited  chan struct{} // closed when the process has ended
}

// startProcess starts the command; its output goes to the file named log.
func startProcess(command *exec.Cmd, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = dieWithParent()
	p := &process{command: command, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that made it, not to the process, so
		// that thread has to live until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // the error of a killed process says nothing
		}
		close(p.exited)
	}()
	err = errors.Join(<-started, output.Close())
	if err != nil {
		return nil, fmt.Errorf("redistest: start %s: %w", command.Path, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// signal sends a signal. It does nothing if the process has ended.
func (p *process) signal(signal syscall.Signal) { _ = p.command.Process.Signal(signal) }

// kill kills the process, stopped or not, and returns when it has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// gone reports whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
