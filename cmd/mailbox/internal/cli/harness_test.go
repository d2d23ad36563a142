package cli_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/cmd/mailbox/internal/cli"
	"github.com/mailboxmq/mailbox/server"
)

// asProgram is the variable that makes the test binary the program mailbox.
const asProgram = "MAILBOX_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		program := cli.Program{Args: os.Args[1:], Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: "v0.0.0-test"}
		os.Exit(program.Run(context.Background()))
	}
	goleak.VerifyTestMain(m)
}

// A daemon is a real one, in this process.
type daemon struct {
	*server.Server
	dir  string
	stop context.CancelFunc // stops the daemon and waits for it
}

// start starts a daemon with a configuration whose addresses and directory are
// filled in.
func start(t *testing.T, config server.Config) *daemon {
	t.Helper()
	dir := t.TempDir()
	if config.DataDir == "" {
		config.DataDir = dir
	}
	if config.Listen == "" {
		config.Listen, config.ListenOAP = "127.0.0.1:0", "127.0.0.1:0"
	}
	s, err := server.New(config, &server.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Started():
	case err := <-done:
		t.Fatalf("the daemon did not start: %v", err)
	}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the daemon stopped with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &daemon{s, config.DataDir, stop}
}

func inMemory() server.Config { return server.Config{Backend: "memory:"} }
func onDisk() server.Config   { return server.Config{} }

// environ returns the environment of a client of the daemon.
func (d *daemon) environ(more ...string) []string {
	return append([]string{
		"HOME=" + d.dir, "PATH=/usr/bin:/bin", "MAILBOX_ADDR=" + d.Address(server.HTTP), "MAILBOX_OAP_ADDR=" + d.Address(server.OAP),
		"MAILBOXD_DATA_DIR=" + d.dir,
	}, more...)
}

// A result is the output and exit code of a command.
type result struct {
	stdout, stderr string
	code           int
}

// A transcript is a writer that can be read while it is written.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
	ended   chan struct{} // closed when the output has ended
}

func newTranscript() *transcript {
	return &transcript{changed: make(chan struct{}), ended: make(chan struct{})}
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
	return w.text.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits until the transcript contains a text.
func (w *transcript) await(t *testing.T, text string) {
	t.Helper()
	for {
		w.mu.Lock()
		has, changed := strings.Contains(w.text.String(), text), w.changed
		w.mu.Unlock()
		if has {
			return
		}
		select {
		case <-changed:
		case <-w.ended:
			if !strings.Contains(w.String(), text) {
				t.Fatalf("%q never appeared in %q", text, w)
			}
		}
	}
}

// A running command can be watched and interrupted.
type running struct {
	stdout, stderr *transcript
	interrupt      context.CancelFunc
	code           chan int
}

// begin starts a command.
func begin(t *testing.T, environ []string, stdin io.Reader, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r := &running{newTranscript(), newTranscript(), cancel, make(chan int, 1)}
	program := cli.Program{Args: args, Environ: environ, Stdin: stdin, Stdout: r.stdout, Stderr: r.stderr, Version: "v0.0.0-test"}
	go func() {
		r.code <- program.Run(ctx)
		close(r.stdout.ended)
		close(r.stderr.ended)
	}()
	return r
}

func (r *running) wait() result {
	code := <-r.code
	return result{r.stdout.String(), r.stderr.String(), code}
}

// mailbox runs a command to its end.
func mailbox(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	return begin(t, environ, strings.NewReader(""), args...).wait()
}

// mailbox runs a command on the daemon.
func (d *daemon) mailbox(t *testing.T, args ...string) result {
	t.Helper()
	return mailbox(t, d.environ(), args...)
}

// must runs a command on the daemon that must succeed, and returns its output.
func (d *daemon) must(t *testing.T, args ...string) string {
	t.Helper()
	r := d.mailbox(t, args...)
	if r.code != 0 {
		t.Fatalf("mailbox %s: exit code %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return strings.TrimSuffix(r.stdout, "\n")
}

// wantCode checks the exit code and the error message.
func (r result) wantCode(t *testing.T, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; stdout %q, stderr %q", r.code, code, r.stdout, r.stderr)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("standard error does not say %q: %s", w, r.stderr)
		}
	}
	if strings.Count(r.stderr, "\n") > 1 {
		t.Errorf("an error is one sentence, not: %s", r.stderr)
	}
}

// tokenFile returns the file of the operator's token.
func (d *daemon) tokenFile() string { return filepath.Join(d.dir, "operator.token") }

// runTo runs a command that writes to a file.
func runTo(t *testing.T, environ []string, stdout io.Writer, args ...string) result {
	t.Helper()
	stderr := newTranscript()
	code := cli.Program{Args: args, Environ: environ, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr}.Run(t.Context())
	return result{"", stderr.String(), code}
}
