package main

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// confine makes a command run with the file system and the user of the image. Without the
// privileges for that, it runs with the paths of the image on this machine.
func (i *image) confine(c *exec.Cmd) {
	if os.Getuid() == 0 {
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid)}}
		return
	}
	c.Path = filepath.Join(i.root, c.Path)
	c.Env = append(c.Env, "MAILBOXD_DATA_DIR="+filepath.Join(i.root, i.env["MAILBOXD_DATA_DIR"]))
}

func TestImageWorksWithItsCommandLine(t *testing.T) {
	if _, err := exec.LookPath("install"); err != nil {
		t.Skip("the Dockerfile calls install, of the package coreutils:", err)
	}
	i := assemble(t)
	i.env["MAILBOXD_INSECURE_LISTEN"] = "true" // the user of the image must set it
	for _, name := range []string{"MAILBOXD_LISTEN", "MAILBOXD_LISTEN_OAP"} {
		host, _, err := net.SplitHostPort(i.env[name])
		if err != nil {
			t.Fatal(err)
		}
		i.env[name] = net.JoinHostPort(host, proctest.FreePort(t)) // other tests run on this machine
	}
	run := func(code int, words ...string) string {
		t.Helper()
		c := i.program(words...)
		var stdout, stderr bytes.Buffer
		c.Stdout, c.Stderr = &stdout, &stderr
		if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != code {
			t.Fatalf("%v: %v, want exit code %d: %s%s", words, err, code, &stdout, &stderr)
		}
		return strings.TrimSuffix(stdout.String(), "\n")
	}
	run(3, i.healthcheck...)
	daemon := i.program(i.entrypoint...)
	stderr, err := daemon.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = daemon.Process.Kill() }()
	log := bufio.NewScanner(stderr)
	for log.Scan() && !strings.Contains(log.Text(), `"msg":"started"`) {
		t.Log(log.Text())
	}
	go func() {
		for log.Scan() {
			continue
		}
	}()
	if got := run(0, i.healthcheck...); got != "alive" {
		t.Errorf("the health check says %q", got)
	}
	const mailbox = "/usr/local/bin/mailbox"
	token, err := os.ReadFile(filepath.Join(i.root, "var/lib/mailboxd/operator.token"))
	if got := run(0, mailbox, "cap", "token"); err != nil || got != strings.TrimSpace(string(token)) {
		t.Errorf("the token is printed as %q, %v", got, err)
	}
	if got := run(0, mailbox, "health", "--ready"); got != "ready" {
		t.Errorf("readiness is %q", got)
	}
	id := run(0, mailbox, "send", "hello", "Good morning")
	if got := run(0, mailbox, "recv", "hello", "--ack"); got != id+"\tGood morning" {
		t.Errorf("received %q", got)
	}
	if got := run(0, mailbox, "doctor"); !strings.Contains(got, "the daemon is v1.2.3-image, this is v1.2.3-image") {
		t.Errorf("the doctor says\n%s", got)
	}
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
}
