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

// buildDaemons builds mailboxd from the module that is measured, and nats-server
// from the version that this module requires.
func buildDaemons(dir string) (mailboxd, nats string, err error) {
	const module = "github.com/mailboxmq/mailbox"
	source, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("the daemon suite builds its servers, and must be run in the folder of the benchmark: %w", err)
	}
	mailboxd, nats = filepath.Join(dir, "mailboxd"), filepath.Join(dir, "nats-server")
	ours := exec.Command("go", "build", "-o", mailboxd, module+"/cmd/mailboxd")
	ours.Dir = strings.TrimSpace(string(source))
	theirs := exec.Command("go", "build", "-o", nats, "github.com/nats-io/nats-server/v2")
	for _, build := range []*exec.Cmd{ours, theirs} {
		if output, err := build.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("%v: %w\n%s", build.Args, err, output)
		}
	}
	return mailboxd, nats, nil
}

// A daemonProcess is a server in a process of its own. It ends with this process.
type daemonProcess struct {
	command *exec.Cmd
	log     *os.File
}

// startDaemon starts a server with its output in dir, which it creates, and returns when
// the server listens on all addresses.
func startDaemon(dir string, addresses []string, binary string, arguments ...string) (*daemonProcess, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	p := &daemonProcess{command: exec.Command(binary, arguments...), log: log}
	p.command.Stdout, p.command.Stderr = log, log
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
	for range 1000 {
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
	_ = p.command.Process.Kill()
	_ = p.command.Wait() // it was killed
	return p.log.Close()
}

// processor returns the processor time of the server. Linux counts it in hundredths of
// a second.
func (p *daemonProcess) processor() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	// The name of the program, in brackets, may contain blanks. The fields after it are
	// counted from the third.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0
	}
	ticks := 0
	for _, field := range []string{fields[user], fields[system]} {
		n, _ := strconv.Atoi(field) // 0 if it is not a number
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// resident returns the resident memory of the server in MiB.
func (p *daemonProcess) resident() float64 {
	return float64(field(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid), "VmRSS:")) / 1024
}
