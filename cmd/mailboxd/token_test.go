package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mailboxmq/mailbox/capability"
)

// runWithAmnesia runs a daemon with amnesia until it has started, and returns its standard
// output, its log, and what it wrote to file descriptor 3.
func runWithAmnesia(t *testing.T, args ...string) (stdout, log, third string) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	args = append([]string{"--profile=micronode", "--listen=127.0.0.1:0", "--listen-oap=off"}, args...)
	process := exec.Command(os.Args[0], args...)
	process.Env = append(os.Environ(), childVariable+"=1")
	process.ExtraFiles = []*os.File{write}
	var errors bytes.Buffer
	process.Stderr = &errors
	pipe, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	text := make([]byte, 0, 4096)
	for !strings.Contains(string(text), "MSG_ID\n") {
		n, err := pipe.Read(text[len(text):cap(text)])
		if text = text[:len(text)+n]; err != nil {
			break
		}
	}
	_ = process.Process.Signal(syscall.SIGTERM)
	rest, _ := io.ReadAll(read)
	if err := process.Wait(); err != nil {
		t.Fatalf("%v: %s", err, errors.String())
	}
	return string(text), errors.String(), string(rest)
}

func parse(t *testing.T, text string) capability.Token {
	t.Helper()
	token, err := capability.Parse(strings.TrimSuffix(text, "\n"))
	if err != nil {
		t.Fatalf("no token: %q", text)
	}
	return token
}

func TestTokenIsNotWrittenToRedirectedOutput(t *testing.T) {
	stdout, log, _ := runWithAmnesia(t)
	for word := range strings.FieldsSeq(stdout + " " + log) {
		if token, err := capability.Parse(strings.Trim(word, `"`)); err == nil {
			t.Errorf("the output contains the token %v: %s", token.ID(), stdout)
		}
	}
	told := false
	for line := range strings.Lines(log) {
		var fields struct{ Level, Msg, Remedy string }
		if json.Unmarshal([]byte(line), &fields) == nil && fields.Level == "WARN" && strings.Contains(fields.Remedy, "--token-out") {
			told = true
		}
	}
	if !told || !strings.Contains(stdout, "curl") {
		t.Errorf("nothing says how to get the token: %s\n%s", stdout, log)
	}
}

func TestTokenOutWritesToDescriptorOrPath(t *testing.T) {
	stdout, _, third := runWithAmnesia(t, "--token-out=3")
	token := parse(t, third)
	if strings.Contains(stdout, token.Reveal()) {
		t.Errorf("the token is in the output too: %s", stdout)
	}
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	runWithAmnesia(t, "--token-out="+path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parse(t, string(text))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	stdout, _, _ = runWithAmnesia(t, "--token-out=1")
	first, _, _ := strings.Cut(stdout, "\n")
	parse(t, first)
}

func TestBadTokenOutStopsDaemon(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run([]string{"--profile=micronode", "--listen=127.0.0.1:0", "--listen-oap=off", "--log-level=error", "--token-out=" + t.TempDir() + "/no/where"}, nil, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "--token-out") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}

func TestTerminalIsDistinguishedFromPipe(t *testing.T) {
	if isTerminal(new(bytes.Buffer)) {
		t.Error("a buffer counts as a terminal")
	}
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this system has no /dev/ptmx: %v", err)
	}
	defer terminal.Close()
	if isTerminal(other) || !isTerminal(terminal) {
		t.Errorf("a pipe is a terminal: %t, a terminal is: %t", isTerminal(other), isTerminal(terminal))
	}
}
