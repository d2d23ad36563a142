package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
	"github.com/mailboxmq/mailbox/worker"
)

// slotLife is how long a call may take, and how long a slot that a crash brings back is there.
const slotLife = 20 * time.Second

// TestKilledDaemonAnswersEachCallOnce has many callers and workers with nothing but a daemon on disk,
// which is killed twice, and workers in processes that are killed at random. Each call is answered,
// fails or times out, no request is answered twice, and no slot is left.
func TestKilledDaemonAnswersEachCallOnce(t *testing.T) {
	volume.Repeats(t)
	calls := volume.Of(1_000)
	dir := t.TempDir()
	d := &replyDaemon{t: t, dir: dir}
	d.restart()
	d.token = d.child.token
	d.child.must("/v1/queues/configure", `{"topic":"sums","config":{"max_attempts":0}}`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var workers sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	for range 4 {
		workers.Go(func() { d.work(working) })
	}
	backend := d.client()
	box, err := mailbox.Open[int](ctx, backend, "sums", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := reply.NewClient[int, string](box, backend.Replies(), &reply.Options[string]{TTL: slotLife})
	var answered, failed atomic.Int64
	var callers sync.WaitGroup
	for n := range calls {
		callers.Go(func() {
			answer, err := client.Call(ctx, n)
			switch {
			case errors.Is(err, mailbox.ErrUnavailable), errors.Is(err, mailbox.ErrTimeout):
				failed.Add(1)
			case err != nil:
				t.Errorf("call %d failed with %v, want %v or %v", n, err, mailbox.ErrUnavailable, mailbox.ErrTimeout)
			case !strings.HasPrefix(answer, fmt.Sprint(n, " by ")):
				t.Errorf("call %d was answered with %q", n, answer)
			default:
				answered.Add(1)
				d.expectAnswer(n, answer)
			}
		})
	}
	called := make(chan struct{})
	go func() { callers.Wait(); close(called) }()
	for restart := range 2 {
		for waiting := true; waiting && d.resolved.Load() < int64(calls*(restart+1)/4); {
			select {
			case <-called: // a slow machine: the others have timed out
				waiting = false
			case <-time.After(5 * time.Millisecond):
			}
		}
		d.restart()
	}
	<-called
	stop()
	workers.Wait()
	_ = box.Close()
	_ = backend.Close()
	if answered.Load() == 0 || answered.Load()+failed.Load() != int64(calls) && !t.Failed() {
		t.Errorf("%d of %d calls were answered, and %d failed", answered.Load(), calls, failed.Load())
	}
	if d.killed.Load() == 0 && answered.Load() > 4*30 {
		t.Error("no worker was killed")
	}
	t.Logf("%d calls were answered, %d failed or timed out; %d workers and 2 daemons were killed", answered.Load(), failed.Load(), d.killed.Load())
	d.expectNoSlots(ctx)
}

// replyDaemon is a daemon on disk that is killed, and what its workers have answered.
type replyDaemon struct {
	t        *testing.T
	dir      string
	child    *child
	token    string       // of the operator, which restarts keep
	resolved atomic.Int64 // answers that are known to be stored
	killed   atomic.Int64 // workers

	answers sync.Map // by request: the answer that a worker knows to be stored
}

// restart kills the daemon, if there is one, and starts it again.
func (d *replyDaemon) restart() {
	d.t.Helper()
	if d.child != nil {
		d.child.kill()
	}
	d.child = startChildWith(d.t, d.dir, nil, "--listen-oap=127.0.0.1:0")
	for {
		if _, rest, started := strings.Cut(d.child.log.String(), `"oap":"`); started {
			address, _, _ := strings.Cut(rest, `"`)
			err := os.WriteFile(d.addressFile()+".new", []byte(address), 0o600)
			if err == nil {
				err = os.Rename(d.addressFile()+".new", d.addressFile())
			}
			if err != nil {
				d.t.Fatal(err)
			}
			return
		}
		<-time.After(time.Millisecond)
	}
}

// client returns a client of the daemon, whatever its address is.
func (d *replyDaemon) client() *remotebox.Backend {
	return newReplyClient(d.token, d.addressFile())
}

func (d *replyDaemon) addressFile() string { return filepath.Join(d.dir, "address") }

// newReplyClient returns a client of the daemon whose address is in a file.
func newReplyClient(token, addressFile string) *remotebox.Backend {
	return remotebox.New([]string{"daemon"}, token, &remotebox.Options{Patience: slotLife, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		address, err := os.ReadFile(addressFile)
		if err != nil {
			return nil, err
		}
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", string(address))
	}})
}

// workerVariable makes this test program a worker of the daemon whose address is in a file of this name.
const workerVariable, workerToken = "TEST_AS_WORKER", "TEST_AS_WORKER_TOKEN"

// runWorker answers requests until the process is killed, and prints each answer that it knows to be stored.
func runWorker() {
	ctx := context.Background()
	backend := newReplyClient(os.Getenv(workerToken), os.Getenv(workerVariable))
	var given sync.Map // by message: the line for its answer
	box, err := mailbox.Open(ctx, backend, "sums", &mailbox.Options[int]{Replies: backend.Replies(), Hooks: mailbox.Hooks{
		Replied: func(_ context.Context, e mailbox.RepliedEvent) {
			if line, known := given.Load(e.MessageID); known && e.Err == nil {
				fmt.Print(line)
			}
		},
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	serve := worker.Serve(func(_ context.Context, m *mailbox.Message[int]) (string, error) {
		answer := fmt.Sprintf("%d by %d", m.Body, os.Getpid())
		given.Store(m.ID, fmt.Sprintf("%d\t%s\t.\n", m.Body, answer))
		return answer, nil
	}, nil)
	for { // a loop may end when the daemon is gone
		_ = worker.New(box, serve, &worker.Options[int]{Concurrency: 2, Visibility: 2 * time.Second}).Run(ctx)
	}
}

// work runs a worker in a process of its own, which is killed after some answers, at any point of its work;
// then another takes its place.
func (d *replyDaemon) work(ctx context.Context) {
	for ctx.Err() == nil {
		process := exec.CommandContext(ctx, os.Args[0])
		process.Env = append(os.Environ(), workerVariable+"="+d.addressFile(), workerToken+"="+d.token)
		output, err := process.StdoutPipe()
		if err == nil {
			err = process.Start()
		}
		if err != nil {
			if ctx.Err() == nil {
				d.t.Error(err)
			}
			return
		}
		left := 1 + rand.IntN(30)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			d.note(lines.Text())
			if left--; left == 0 {
				d.killed.Add(1)
				time.AfterFunc(rand.N(20*time.Millisecond), func() { _ = process.Process.Kill() }) // it may be over
			}
		}
		_ = process.Wait() // its error says that it was killed
	}
}

// note records an answer that a worker knows to be stored.
func (d *replyDaemon) note(line string) {
	fields := strings.Split(line, "\t")
	request, err := strconv.Atoi(fields[0])
	if len(fields) != 3 || fields[2] != "." || err != nil {
		return // the worker was killed while it printed
	}
	d.resolved.Add(1)
	if first, known := d.answers.LoadOrStore(request, fields[1]); known {
		d.t.Errorf("request %d was answered with %v and with %s", request, first, fields[1])
	}
}

// expectAnswer checks that a caller got the answer that a worker knows to be stored.
func (d *replyDaemon) expectAnswer(request int, answer string) {
	if stored, known := d.answers.Load(request); known && stored != answer {
		d.t.Errorf("call %d was answered with %s, and %v was stored", request, answer, stored)
	}
}

// expectNoSlots sweeps until no slot is left, in whatever state: those that failed callers or a crash have left
// expire within slotLife.
func (d *replyDaemon) expectNoSlots(ctx context.Context) {
	d.t.Helper()
	until := time.Now().Add(slotLife + 10*time.Second)
	for ; ; <-time.After(100 * time.Millisecond) {
		d.post(ctx, "/v1/replies/sweep", `{"limit":1000}`)
		list := d.post(ctx, "/v1/replies/list", "{}")
		if list == "" {
			return
		}
		if time.Now().After(until) {
			d.t.Fatalf("slots are left:\n%s", list)
		}
	}
}

// post returns the response to a request of the operator.
func (d *replyDaemon) post(ctx context.Context, path, body string) string {
	d.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.child.base+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.child.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %s %s, %v", path, response.Status, answer, err)
	}
	return string(answer)
}
