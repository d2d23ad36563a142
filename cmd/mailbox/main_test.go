package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
)

// programs builds both programs.
func programs(t *testing.T) (mailbox, mailboxd string) {
	t.Helper()
	dir, err := proctest.Build("cli", "mailbox", "mailboxd")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "mailbox"), filepath.Join(dir, "mailboxd")
}

// A process is a mailboxd.
type process struct {
	*exec.Cmd
	log     *bufio.Scanner
	environ []string // for its clients
	oap     string   // its address for OAP/1
}

// started is the log line about the start.
type started struct {
	Msg  string `json:"msg"`
	HTTP string `json:"http"`
	OAP  string `json:"oap"`
}

func startDaemon(t *testing.T, program string, args ...string) *process {
	t.Helper()
	home := t.TempDir()
	d := &process{Cmd: exec.Command(program, append([]string{"--listen", "127.0.0.1:0", "--listen-oap", "127.0.0.1:0"}, args...)...)}
	d.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	d.Stdout = io.Discard
	stderr, err := d.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.ProcessState == nil {
			_ = d.Process.Kill()
			_ = d.Wait()
		}
	})
	d.log = bufio.NewScanner(stderr)
	line := d.awaitLog(t, "started")
	d.oap = line.OAP
	d.environ = append(d.Env, "MAILBOX_ADDR="+line.HTTP, "MAILBOX_OAP_ADDR="+line.OAP)
	return d
}

// awaitLog reads the log up to a line.
func (d *process) awaitLog(t *testing.T, message string) (line started) {
	t.Helper()
	for d.log.Scan() {
		if json.Unmarshal(d.log.Bytes(), &line) == nil && line.Msg == message {
			return line
		}
	}
	t.Fatalf("the daemon's log ended before it said %q", message)
	return line
}

func TestProgramsWorkTogether(t *testing.T) {
	mailbox, mailboxd := programs(t)
	d := startDaemon(t, mailboxd)
	run := func(code int, args ...string) string {
		t.Helper()
		command := exec.Command(mailbox, args...)
		command.Env = d.environ
		var stdout, stderr bytes.Buffer
		command.Stdout, command.Stderr = &stdout, &stderr
		_ = command.Run() // the exit code has the result
		if got := command.ProcessState.ExitCode(); got != code {
			t.Fatalf("mailbox %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, &stderr)
		}
		return strings.TrimSuffix(stdout.String(), "\n")
	}
	id := run(0, "send", "hello", "Good morning")
	if got := run(0, "recv", "hello"); got != id+"\tGood morning" {
		t.Errorf("received %q", got)
	}
	run(0, "ack", id)
	run(8, "recv", "hello")
	run(5, "stats", "nowhere")
	run(2, "nonsense")
	run(0, "doctor")

	follow := exec.Command(mailbox, "recv", "hello", "--follow", "--exec", `read -r body; echo "$body"`)
	follow.Env = d.environ
	output, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	run(0, "send", "hello", "again")
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "again\n" {
		t.Errorf("followed %q, %v", line, err)
	}
	if err := follow.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("an interrupted follower ended with %v", err)
	}

	run(0, "keys", "rotate", "--retire", "--yes", "--pid", strconv.Itoa(d.Process.Pid))
	d.awaitLog(t, "reloaded")
	run(0, "stats") // with the operator's new token

	if err := d.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for d.log.Scan() { // to its end
		continue
	}
	if err := d.Wait(); err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	run(3, "stats")
}
