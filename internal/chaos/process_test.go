package chaos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/pgbox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/worker"
)

// The test runs its own binary in further processes. These variables configure them.
const (
	nameVariable    = "MAILBOX_CHAOS_PROCESS"
	backendVariable = "MAILBOX_CHAOS_BACKEND" // "redis ADDRESS", "postgres URL", "disk FOLDER" or "daemon ADDRESS TOKEN"
	roleVariable    = "MAILBOX_CHAOS_ROLE"
)

// The roles of a process.
const (
	roleSendAndWork = "send and work"
	roleDrain       = "work until nothing is left"
	// roleAckFirst acks before it works, which loses messages.
	roleAckFirst = "send, ack, then work"
	// roleCareful works with long leases and reports each attempt.
	roleCareful = "work, and report attempts"
)

func TestMain(m *testing.M) {
	if os.Getenv(nameVariable) == "" {
		redistest.Main(m)
		return
	}
	if err := runProcess(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(nameVariable), err)
		os.Exit(1) // a TestMain has nothing to return to
	}
}

// queueName is the name of the queue on every backend.
const queueName = "orders"

// A backend is what the envs need of one.
type backend interface {
	driver.Opener
	driver.Admin
	io.Closer
}

// openBackend opens the backend at an address such as "disk /tmp/x".
func openBackend(ctx context.Context, address string) (backend, error) {
	kind, where, _ := strings.Cut(address, " ")
	switch kind {
	case "disk":
		return diskbox.Open(ctx, where, nil)
	case "postgres":
		b, err := pgbox.OpenAddress(ctx, where, nil)
		if err != nil {
			return nil, err
		}
		return b.(backend), nil
	case "daemon":
		oap, token, _ := strings.Cut(where, " ")
		return remotebox.New([]string{oap}, token, nil), nil
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{where}})
	if err != nil {
		return nil, err
	}
	b, err := redisbox.Open(ctx, client, nil)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &redisBackend{b, client}, nil
}

// redisBackend also closes its client.
type redisBackend struct {
	*redisbox.Backend
	client rueidis.Client
}

func (r *redisBackend) Close() error {
	err := r.Backend.Close()
	r.client.Close()
	return err
}

// openWithRetry opens a backend and its queue. It retries while the server is down.
func openWithRetry(ctx context.Context, address string) (b backend, q driver.Queue, err error) {
	for range 600 {
		if b, err = openBackend(ctx, address); err == nil {
			if err = b.ConfigureQueue(ctx, queueName, queueConfig); err == nil {
				if q, err = b.OpenQueue(ctx, queueName); err == nil {
					return b, q, nil
				}
			}
			_ = b.Close()
		}
		if ended := wait(ctx, 50*time.Millisecond); ended != nil {
			return nil, nil, ended
		}
	}
	return nil, nil, err
}

// pace is the mean time between sends of a process.
const pace = 50 * time.Millisecond

// runProcess is the main function of a process: it works until it is killed or told to stop.
func runProcess(ctx context.Context) error {
	name, role := os.Getenv(nameVariable), os.Getenv(roleVariable)
	reporter := &reporter{to: os.NewFile(3, "reporter")}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	reporter.write(report{Awake: true})
	b, q, err := openWithRetry(ctx, os.Getenv(backendVariable))
	if err != nil {
		return err
	}
	defer b.Close()
	recorded := &recordingQueue{q, name, new(atomic.Uint64), reporter}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	orders := mailbox.New(queueName, recorded, &mailbox.Options[job]{Logger: logger})
	handler := worker.Handler[job](work)
	if role == roleAckFirst {
		handler = func(ctx context.Context, m *mailbox.Message[job]) error { return errors.Join(m.Ack(ctx), work(ctx, m)) }
	}
	loop := newLoop(orders, handler, func(id string) { reporter.write(report{Done: id}) })
	if role == roleCareful {
		loop = carefulLoop(orders, reporter)
	}
	group := worker.NewGroup(&worker.GroupOptions{Signals: signals, Watchdog: -1, DeadLetterThreshold: -1, Logger: logger}, loop)
	stop := make(chan struct{})
	var sending sync.WaitGroup
	switch role {
	case roleCareful: // the test sends
	case roleDrain:
		sending.Go(func() { stopWhenEmpty(ctx, q, group) })
	default:
		sending.Go(func() { produce(ctx, recorded, name, pace, stop) })
	}
	err = group.Run(ctx)
	close(stop)
	sending.Wait()
	return err
}

// stopWhenEmpty stops a group when no message waits in its queue.
func stopWhenEmpty(ctx context.Context, q driver.Queue, group *worker.Group) {
	defer group.Stop()
	for wait(ctx, 20*time.Millisecond) == nil {
		if stats, err := q.Stats(ctx); err != nil || stats.Waiting() == 0 {
			return
		}
	}
}

// A process is a child process of the test.
type process struct {
	command *exec.Cmd
	awake   chan struct{} // closed when it handles signals
	ended   chan struct{} // closed when it is gone and all its reports are read
	err     error         // what it ended with; set before ended is closed
	stderr  strings.Builder
}

// start starts a process on a backend and adds its reports to records. If it cannot be started,
// the test fails and the process counts as ended.
func start(t *testing.T, name, address, role string, to *records) *process {
	t.Helper()
	p := &process{command: exec.Command(os.Args[0]), awake: make(chan struct{}), ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), nameVariable+"="+name, backendVariable+"="+address, roleVariable+"="+role)
	p.command.Stderr = &p.stderr
	p.command.SysProcAttr = proctest.DieWithParent()
	words, reporter, err := os.Pipe()
	if err == nil {
		p.command.ExtraFiles = []*os.File{reporter}
		err = errors.Join(p.command.Start(), reporter.Close())
	}
	if err != nil {
		t.Error(err)
		p.err = err
		close(p.ended)
		return p
	}
	go func() {
		defer close(p.ended)
		p.listen(t, words, to)
		p.err = p.command.Wait()
	}()
	return p
}

// listen adds the reports of a process to records until the process is gone. It drops an
// incomplete last line: its call was not made, or its end was not seen.
func (p *process) listen(t *testing.T, words io.ReadCloser, to *records) {
	defer words.Close()
	for lines := bufio.NewReader(words); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var s report
		if err := json.Unmarshal(line, &s); err != nil {
			t.Errorf("unreadable report %q: %v", line, err)
			return
		}
		if s.Awake {
			close(p.awake)
		}
		to.add(s)
	}
}

// stop tells the process to stop, once it handles signals.
func (p *process) stop() {
	select {
	case <-p.awake:
	case <-p.ended:
	}
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have been killed by a message
}

// failed returns the error of a process that was not killed. A handler that ignores its context
// makes the process end with ErrStuck; that is expected.
func (p *process) failed() error {
	if p.err == nil || strings.Contains(p.stderr.String(), string(worker.ErrStuck)) {
		return nil
	}
	return fmt.Errorf("%w: %s", p.err, p.stderr.String())
}

// killed reports whether SIGKILL ended the process.
func (p *process) killed() bool {
	failed, ok := errors.AsType[*exec.ExitError](p.err)
	if !ok {
		return false
	}
	status, ok := failed.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
