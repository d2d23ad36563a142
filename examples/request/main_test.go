package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/internal/testing/redistest"
)

// childVariable makes this test binary run the program.
const childVariable = "MAILBOX_REQUEST_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	redistest.Main(m)
}

// A program is the program of this folder in a process of its own.
type program struct {
	t       *testing.T
	command *exec.Cmd
	out     *bufio.Reader
}

// start runs the program, until the test ends at the latest.
func start(t *testing.T, server *redistest.Server, args ...string) *program {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-redis", server.Addr()}, args...)...)
	command.Env = append(os.Environ(), childVariable+"=1")
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, command: command, out: bufio.NewReader(out)}
	t.Cleanup(func() { _ = command.Wait() }) // the end of the test's context has killed it
	return p
}

// says returns the rest of the next line, which must begin with word.
func (p *program) says(word string) string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	rest, ok := strings.CutPrefix(line, word+" ")
	if err != nil || !ok {
		p.t.Fatalf("the program says %q (%v), want %q", line, err, word)
	}
	return strings.TrimSpace(rest)
}

// ends waits until the program exits with status 0.
func (p *program) ends() {
	p.t.Helper()
	if rest, err := io.ReadAll(p.out); err != nil || len(rest) > 0 {
		p.t.Errorf("the program says %q too (%v)", rest, err)
	}
	if err := p.command.Wait(); err != nil {
		p.t.Errorf("the program has failed: %v", err)
	}
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func TestTwoProcessesAskAndAnswer(t *testing.T) {
	server := redistest.Standalone(t)
	worker := start(t, server, "-serve")
	for _, number := range []uint64{600851475143, 97, 1} {
		client := start(t, server, fmt.Sprint(number))
		if id := client.says("request"); id == "" {
			t.Error("the request has no id")
		}
		if got, want := client.says("factors"), fmt.Sprint(factors(number)); got != want {
			t.Errorf("the factors of %d are %s, want %s", number, got, want)
		}
		client.ends()
		if got, want := worker.says("asked"), fmt.Sprint("for ", number); got != want {
			t.Errorf("the worker was asked %q, want %q", got, want)
		}
	}
	worker.signal(os.Interrupt)
	worker.ends()
}

// TestAnswerOfCrashedClientIsFoundByID: the id gets the answer any number of times,
// whether the client crashed before or after it arrived.
func TestAnswerOfCrashedClientIsFoundByID(t *testing.T) {
	server := redistest.Standalone(t)
	client := start(t, server, "91")
	id := client.says("request") // no worker runs, so it waits
	client.signal(os.Kill)
	_ = client.command.Wait() // it was killed

	waits := start(t, server, "-id", id)
	worker := start(t, server, "-serve")
	if got := worker.says("asked"); got != "for 91" {
		t.Errorf("the worker was asked %q", got)
	}
	again := start(t, server, "-id", id)
	for _, next := range []*program{waits, again} {
		if got := next.says("factors"); got != "[7 13]" {
			t.Errorf("the factors of 91 are %s", got)
		}
		next.ends()
	}
	worker.signal(os.Interrupt)
	worker.ends() // it served once
}

func TestFactors(t *testing.T) {
	for n, want := range map[uint64][]uint64{
		0: nil, 1: nil, 2: {2}, 97: {97}, 360: {2, 2, 2, 3, 3, 5}, 600851475143: {71, 839, 1471, 6857},
	} {
		if got := factors(n); !slices.Equal(got, want) {
			t.Errorf("the factors of %d are %v, want %v", n, got, want)
		}
	}
}
