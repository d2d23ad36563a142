package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// buildMailboxd builds mailboxd from the module that is measured.
func buildMailboxd(dir string) (string, error) {
	const module = "github.com/mailboxmq/mailbox"
	source, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("build mailboxd: run this in the folder bench, or name a binary with -mailboxd: %w", err)
	}
	return buildServer(strings.TrimSpace(string(source)), filepath.Join(dir, "mailboxd"), module+"/cmd/mailboxd")
}

// buildServer builds a program in the context of the module in folder, unless it is
// there.
func buildServer(folder, binary, program string) (string, error) {
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	build := exec.Command("go", "build", "-o", binary, program)
	build.Dir = folder
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, output)
	}
	return binary, nil
}

// A daemonProcess is a server in a process of its own. It ends with this process.
type daemonProcess struct {
	command *exec.Cmd
	log     *os.File
	// halt stops a server that has its own way to stop.
	halt func() error
	// beside is another server that this one needs; nil for most.
	beside *daemonProcess
}

// startDaemon starts a server with its output in dir, which it creates, and returns when
// the server listens on all addresses.
func startDaemon(dir string, addresses []string, binary string, arguments ...string) (*daemonProcess, error) {
	return startDaemonWith(dir, addresses, nil, binary, arguments...)
}

// startDaemonWith is startDaemon with an environment that is added to that of this process.
func startDaemonWith(dir string, addresses, environment []string, binary string, arguments ...string) (*daemonProcess, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	p := &daemonProcess{command: exec.Command(binary, arguments...), log: log}
	p.command.Stdout, p.command.Stderr = log, log
	p.command.Env = append(os.Environ(), environment...)
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	for _, address := range addresses {
		if err := awaitListener(address); err != nil {
			said, _ := os.ReadFile(log.Name())
			return nil, errors.Join(fmt.Errorf("%s did not start: %w\n%s", binary, err, said), p.stop())
		}
	}
	return p, nil
}

func awaitListener(address string) (err error) {
	for range 3000 { // RabbitMQ takes ten seconds on a busy machine
		var connection net.Conn
		if connection, err = net.Dial("tcp", address); err == nil {
			return connection.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func freeAddress() (string, error) {
	port, err := freePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

func (p *daemonProcess) stop() error {
	if p.halt != nil {
		return p.halt()
	}
	for _, pid := range p.tree() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	_ = p.command.Wait() // it was killed
	err := p.log.Close()
	if p.beside != nil {
		err = errors.Join(err, p.beside.stop())
	}
	return err
}

// resident returns the resident memory of the server in MiB, child processes and the server
// beside it included.
func (p *daemonProcess) resident() float64 {
	kilobytes := uint64(0)
	for _, pid := range p.tree() {
		kilobytes += field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	}
	return float64(kilobytes) / 1024
}
