package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/server"
)

// A foreign program is one of docs/requests.md.
type foreignProgram struct {
	interpreter, file string
	environ           []string
}

// foreignPrograms writes the programs of docs/requests.md to files.
func foreignPrograms(t *testing.T, d *running) map[string]foreignProgram {
	t.Helper()
	text, err := os.ReadFile("../docs/requests.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := make(map[string]foreignProgram)
	for language, p := range map[string]foreignProgram{
		"python": {interpreter: "python3", file: "requests.py"}, "javascript": {interpreter: "node", file: "requests.mjs"},
	} {
		_, code, _ := strings.Cut(string(text), "```"+language+" "+p.file+"\n")
		code, _, found := strings.Cut(code, "```")
		if lines := len(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(code, " ", ""), "\t", ""))); !found || lines > 40 {
			t.Errorf("the program in %s has %d lines, at most 40 are allowed", language, lines)
		}
		p.interpreter = proctest.Find(t, p.interpreter)
		p.file = filepath.Join(t.TempDir(), p.file)
		if err := os.WriteFile(p.file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		p.environ = append(os.Environ(), "MAILBOX=http://"+d.Address(server.HTTP), "MAILBOX_TOKEN="+d.OperatorToken().Reveal())
		programs[language] = p
	}
	return programs
}

func (p foreignProgram) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, p.interpreter, append([]string{p.file}, args...)...)
	c.Env = p.environ
	return c
}

// serve runs a worker until the test ends.
func (p foreignProgram) serve(t *testing.T, queue string) {
	t.Helper()
	p.serveTo(t, queue, nil)
}

// serveTo is serve for a worker whose output goes to a writer.
func (p foreignProgram) serveTo(t *testing.T, queue string, output io.Writer) {
	t.Helper()
	worker := p.command(context.Background(), "serve", queue)
	worker.Stdout = output
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
}

// TestProgramsOfDocumentAskAndAnswer has a client and a worker in each language, and one in Go on the
// other side. A request that cannot be sent leaves no slot either.
func TestProgramsOfDocumentAskAndAnswer(t *testing.T) {
	d := start(t, server.Config{Profile: server.Micronode})
	backend := remotebox.New([]string{d.Address(server.OAP)}, d.OperatorToken().Reveal(), nil)
	defer backend.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	programs := foreignPrograms(t, d)
	create := func(queue string) {
		if status, answer := d.post(d.OperatorToken(), "/v1/queues/configure", `{"topic":"`+queue+`","config":{}}`); status != 200 {
			t.Fatalf("create %s: %v", queue, answer)
		}
	}
	create("go")
	serveSums(t, backend)
	for language, program := range programs {
		create(language)
		program.serve(t, language)
		box, err := mailbox.Open[[]int](ctx, backend, language, nil)
		if err != nil {
			t.Fatal(err)
		}
		client := reply.NewClient[[]int, int](box, backend.Replies(), nil)
		if sum, err := client.Call(ctx, []int{1, 2, 39}); err != nil || sum != 42 {
			t.Errorf("a worker in %s answers a client in Go with %d, %v", language, sum, err)
		}
		texts := reply.NewClient[[]string, int](mailbox.New[[]string](language, box.Queue(), nil), backend.Replies(), nil)
		var failure *mailbox.Failure
		if sum, err := texts.Call(ctx, []string{"x"}); language == "python" && (!errors.As(err, &failure) || failure.Text == "") {
			t.Errorf("an error of a worker in %s: %d, %v", language, sum, err)
		}
		_ = box.Close()
	}
	for client, program := range programs {
		for _, worker := range []string{"go", "python", "javascript"} {
			output, err := program.command(ctx, "call", worker, "[1, 2, 39]").CombinedOutput()
			if got := strings.TrimSpace(string(output)); err != nil || got != "42" {
				t.Errorf("a worker in %s answers a client in %s with %s, %v", worker, client, got, err)
			}
		}
		if output, err := program.command(ctx, "call", "", "[1]").CombinedOutput(); err == nil {
			t.Errorf("a client in %s calls a queue without a name: %s", client, output)
		}
	}
	soon, cancel := context.WithTimeout(ctx, 45*time.Second) // before the slots of the programs expire
	defer cancel()
	d.expectNoSlots(soon)
}

// TestRPL6DocumentedWorkersSkipCancelledRequests sends requests that are cancelled, or whose slots are
// gone, before each worker of the document starts, and one that waits behind them.
func TestRPL6DocumentedWorkersSkipCancelledRequests(t *testing.T) {
	d := start(t, server.Config{Profile: server.Micronode})
	backend := remotebox.New([]string{d.Address(server.OAP)}, d.OperatorToken().Reveal(), nil)
	defer backend.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for language, program := range foreignPrograms(t, d) {
		if status, answer := d.post(d.OperatorToken(), "/v1/queues/configure", `{"topic":"`+language+`","config":{}}`); status != 200 {
			t.Fatalf("create %s: %v", language, answer)
		}
		box, err := mailbox.Open[[]string](ctx, backend, language, &mailbox.Options[[]string]{Replies: backend.Replies()})
		if err != nil {
			t.Fatal(err)
		}
		client := reply.NewClient[[]string, int](box, backend.Replies(), nil)
		for body, forget := range map[string]func(*reply.Future[int]) error{
			"cancelled": func(f *reply.Future[int]) error { return f.Cancel(ctx) },
			"deleted":   func(f *reply.Future[int]) error { return backend.Replies().Delete(ctx, f.ID()) },
		} {
			future, err := client.Send(ctx, []string{body})
			if err == nil {
				err = forget(future)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		started := program.serveNoting(t, language)
		if n, err := client.Call(ctx, []string{"waiting"}); err != nil || n != 1 {
			t.Errorf("the worker in %s answered %d, %v", language, n, err)
		}
		if got := started.String(); got != "waiting\n" {
			t.Errorf("the worker in %s started the requests %q", language, got)
		}
		for stats := (mailbox.Stats{InFlight: 1}); stats != (mailbox.Stats{}) && err == nil; <-time.After(time.Millisecond) {
			stats, err = box.Stats(ctx) // until the worker has acked
		}
		if err = errors.Join(err, box.Close()); err != nil {
			t.Error(err)
		}
	}
}

// serveNoting runs a worker until the test ends whose handler writes the first element of each request
// that it starts, and answers 1.
func (p foreignProgram) serveNoting(t *testing.T, queue string) *lockedBuffer {
	t.Helper()
	code, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	noting, replaced := string(code), 0
	for handler, other := range map[string]string{
		"serve(sys.argv[2], sum)":                                 "serve(sys.argv[2], lambda request: print(request[0], flush=True) or 1)",
		"serve(queue, (list) => list.reduce((a, b) => a + b, 0))": "serve(queue, (list) => (console.log(list[0]), 1))",
	} {
		replaced += strings.Count(noting, handler)
		noting = strings.ReplaceAll(noting, handler, other)
	}
	if replaced != 1 {
		t.Fatalf("%d handlers were found in the program", replaced)
	}
	p.file = filepath.Join(t.TempDir(), filepath.Base(p.file))
	if err := os.WriteFile(p.file, []byte(noting), 0o600); err != nil {
		t.Fatal(err)
	}
	started := new(lockedBuffer)
	p.serveTo(t, queue, started)
	return started
}

// serveSums answers requests of the queue go until the test ends.
func serveSums(t *testing.T, backend *remotebox.Backend) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	box, err := mailbox.Open(ctx, backend, "go", &mailbox.Options[[]int]{Replies: backend.Replies()})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			got, err := box.Receive(ctx, mailbox.WithWait(time.Minute))
			if err != nil {
				return
			}
			for _, m := range got {
				sum := 0
				for _, n := range m.Body {
					sum += n
				}
				if err := mailbox.Reply(context.WithoutCancel(ctx), m, sum); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		_ = box.Close()
	})
}

// expectNoSlots waits until all reply slots are removed: clients do not wait for that.
func (r *running) expectNoSlots(ctx context.Context) {
	r.t.Helper()
	for ; ; <-time.After(10 * time.Millisecond) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/v1/replies/list", strings.NewReader("{}"))
		if err != nil {
			r.t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+r.OperatorToken().Reveal())
		response, err := r.client.Do(request)
		if err != nil {
			r.t.Fatal(err)
		}
		list, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err == nil && response.StatusCode == http.StatusOK && len(list) == 0 {
			return
		}
		if err != nil || ctx.Err() != nil {
			r.t.Fatalf("slots are left: %s, %v", list, err)
		}
	}
}
