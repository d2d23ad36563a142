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
	"github.com/mailboxmq/mailbox/internal/redistest"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/worker"
)

// The test runs itself in further processes, told by their environment who they are.
const (
	nameVariable  = "MAILBOX_CHAOS_PROCESS"
	placeVariable = "MAILBOX_CHAOS_PLACE" // "redis" and an address, or "disk" and a folder
	partVariable  = "MAILBOX_CHAOS_PART"
)

// The parts that a process plays.
const (
	partStorm = "send and work"
	partCalm  = "work until nothing is left"
	// partAckFirst is what no worker should do.
	partAckFirst = "send, ack and work then"
)

func TestMain(m *testing.M) {
	if os.Getenv(nameVariable) == "" {
		redistest.Main(m)
		return
	}
	if err := beProcess(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(nameVariable), err)
		os.Exit(1) // a TestMain has nothing to return to
	}
}

// queueName is that of the queue in every place.
const queueName = "orders"

// A backend is one that the places here have.
type backend interface {
	driver.Opener
	driver.Admin
	io.Closer
}

// openPlace opens the backend of a place.
func openPlace(ctx context.Context, place string) (backend, error) {
	kind, where, _ := strings.Cut(place, " ")
	if kind == "disk" {
		return diskbox.Open(ctx, where, nil)
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
	return &redisPlace{b, client}, nil
}

// redisPlace closes its client too.
type redisPlace struct {
	*redisbox.Backend
	client rueidis.Client
}

func (r *redisPlace) Close() error {
	err := r.Backend.Close()
	r.client.Close()
	return err
}

// openPatiently opens a place and its queue, also if the server is just down.
func openPatiently(ctx context.Context, place string) (b backend, q driver.Queue, err error) {
	for range 600 {
		if b, err = openPlace(ctx, place); err == nil {
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

// beProcess is the whole life of a process: it works until it is killed or told to stop.
func beProcess(ctx context.Context) error {
	name, part := os.Getenv(nameVariable), os.Getenv(partVariable)
	mouth := &mouth{to: os.NewFile(3, "mouth")}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	mouth.say(statement{Awake: true})
	b, q, err := openPatiently(ctx, os.Getenv(placeVariable))
	if err != nil {
		return err
	}
	defer b.Close()
	watched := &witness{q, name, new(atomic.Uint64), mouth}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	orders := mailbox.New(queueName, watched, &mailbox.Options[job]{Logger: logger})
	handler := worker.Handler[job](work)
	if part == partAckFirst {
		handler = func(ctx context.Context, m *mailbox.Message[job]) error { return errors.Join(m.Ack(ctx), work(ctx, m)) }
	}
	loop := newLoop(orders, handler, func(id string) { mouth.say(statement{Done: id}) })
	group := worker.NewGroup(&worker.GroupOptions{Signals: signals, Watchdog: -1, DeadLetterThreshold: -1, Logger: logger}, loop)
	stop := make(chan struct{})
	var sending sync.WaitGroup
	if part == partCalm {
		sending.Go(func() { stopWhenEmpty(ctx, q, group) })
	} else {
		sending.Go(func() { produce(ctx, watched, name, pace, stop) })
	}
	err = group.Run(ctx)
	close(stop)
	sending.Wait()
	return err
}

// stopWhenEmpty ends a group when its queue has been worked off.
func stopWhenEmpty(ctx context.Context, q driver.Queue, group *worker.Group) {
	defer group.Stop()
	for wait(ctx, 20*time.Millisecond) == nil {
		if stats, err := q.Stats(ctx); err != nil || stats.Waiting() == 0 {
			return
		}
	}
}

// A process is one that this one has started.
type process struct {
	command *exec.Cmd
	awake   chan struct{} // closed when it hears signals
	ended   chan struct{} // closed when it is gone and has said its last word
	err     error         // what it ended with; set before ended is closed
	stderr  strings.Builder
}

// start starts a process at a place, whose words go to the account. One that cannot be
// started is an error of the test, and has ended.
func start(t *testing.T, name, place, part string, to *account) *process {
	t.Helper()
	p := &process{command: exec.Command(os.Args[0]), awake: make(chan struct{}), ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), nameVariable+"="+name, placeVariable+"="+place, partVariable+"="+part)
	p.command.Stderr = &p.stderr
	p.command.SysProcAttr = dieWithParent()
	words, mouth, err := os.Pipe()
	if err == nil {
		p.command.ExtraFiles = []*os.File{mouth}
		err = errors.Join(p.command.Start(), mouth.Close())
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

// listen takes down what a process says, until it is gone. A line that it could not finish
// was about a call that it did not make, or of which it did not hear the end.
func (p *process) listen(t *testing.T, words io.ReadCloser, to *account) {
	defer words.Close()
	for lines := bufio.NewReader(words); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var s statement
		if err := json.Unmarshal(line, &s); err != nil {
			t.Errorf("unreadable statement %q: %v", line, err)
			return
		}
		if s.Awake {
			close(p.awake)
		}
		to.hear(s)
	}
}

// stop tells the process to stop, once it can hear that.
func (p *process) stop() {
	select {
	case <-p.awake:
	case <-p.ended:
	}
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have been killed by a message
}

// failed returns what is wrong with how a process ended that was not killed. A handler that
// does not listen keeps it from ending well, and that is said.
func (p *process) failed() error {
	if p.err == nil || strings.Contains(p.stderr.String(), string(worker.ErrStuck)) {
		return nil
	}
	return fmt.Errorf("%w: %s", p.err, p.stderr.String())
}

// killed reports whether a signal that cannot be caught has ended the process.
func (p *process) killed() bool {
	failed, ok := errors.AsType[*exec.ExitError](p.err)
	if !ok {
		return false
	}
	status, ok := failed.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
