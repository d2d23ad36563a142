package redisbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// The test in this file runs itself in further processes, told by their
// environment who they are. They say what they do on a pipe.
const (
	workerVariable  = "MAILBOX_REDIS_TEST_WORKER"  // the name of the process
	addressVariable = "MAILBOX_REDIS_TEST_ADDRESS" // of the server
	queueVariable   = "MAILBOX_REDIS_TEST_QUEUE"
)

const (
	workerProcesses  = 2
	workersOfProcess = 16
	workerVisibility = time.Second
)

// kills is how many processes are killed, one every second: 20, or as many as
// MAILBOX_KILLS says.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("MAILBOX_KILLS")
	if text == "" {
		return 20
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("MAILBOX_KILLS is %q, not a number of processes", text)
	}
	return n
}

func TestKilledProcessesLoseNothing(t *testing.T) {
	if name := os.Getenv(workerVariable); name != "" {
		beWorkers(t, name)
		return
	}
	t.Parallel()
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncEverySec))
	queue := redistest.Prefix(t) + "workers"
	crew := &goroutines{t: t, server: server, queue: queue}
	for range workerProcesses {
		crew.hire()
	}
	killed := 0
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for ; killed < kills(t); killed++ {
		<-second.C
		crew.fire()
		crew.hire()
	}
	history := crew.disband()

	// What the dead left behind comes back to somebody else.
	recorder := drivertest.NewRecorder("survivor")
	q, err := openBackend(t, server.ClientOption(), nil).OpenQueue(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	traits := q.Traits()
	drain(t, recorder.Queue(q))
	final, err := drivertest.Observe(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	history.Events = append(history.Events, recorder.History().Events...)
	report := drivertest.Check(history, final, drivertest.Terms{Traits: traits, Tolerance: 20 * time.Millisecond})
	t.Logf("%d processes killed; %d messages, %d deliveries", killed, report.Messages, report.Deliveries)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Deliveries <= report.Messages {
		t.Errorf("%d deliveries of %d messages: nothing that a dead process held was delivered again", report.Deliveries, report.Messages)
	}
}

// drain takes everything there is, what comes back included.
func drain(t *testing.T, q driver.Queue) {
	t.Helper()
	for {
		deliveries, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 100, Visibility: time.Minute, Wait: 2 * workerVisibility})
		if err != nil {
			t.Fatal(err)
		}
		if len(deliveries) == 0 {
			return
		}
		if err := q.Ack(t.Context(), receiptsOf(deliveries)); err != nil {
			t.Fatal(err)
		}
	}
}

func receiptsOf(deliveries []driver.Delivery) []driver.Receipt {
	receipts := make([]driver.Receipt, len(deliveries))
	for i, d := range deliveries {
		receipts[i] = d.Receipt
	}
	return receipts
}

// A crew is the processes at work, oldest first, and what is known of all that
// ever were.
type goroutines struct {
	t      *testing.T
	server *redistest.Server
	queue  string

	hired   int
	members []*member

	mu    sync.Mutex // guards told
	told  map[testimony][]drivertest.Event
	tells sync.WaitGroup
}

// A member is a process, and what keeps it at work while it is open.
type member struct {
	command *exec.Cmd
	work    io.Closer
	ended   chan struct{} // it has said its last word
}

// A testimony is what one call of one process was.
type testimony struct {
	process string
	call    uint64
}

// hire starts another process.
func (c *goroutines) hire() {
	c.t.Helper()
	c.hired++
	command := exec.Command(os.Args[0], "-test.run=^TestKilledProcessesLoseNothing$")
	command.Env = append(os.Environ(), fmt.Sprintf("%s=worker %d", workerVariable, c.hired),
		addressVariable+"="+c.server.Addr(), queueVariable+"="+c.queue)
	command.Stderr = os.Stderr
	words, mouth, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	command.ExtraFiles = []*os.File{mouth}
	work, err := command.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := errors.Join(command.Start(), mouth.Close()); err != nil {
		c.t.Fatal(err)
	}
	m := &member{command: command, work: work, ended: make(chan struct{})}
	c.members = append(c.members, m)
	c.tells.Go(func() {
		defer close(m.ended)
		c.listen(words)
	})
}

// listen takes down what a process says, until it is gone. A line that it
// could not finish was about a call that it did not make, or of which it did
// not hear the end.
func (c *goroutines) listen(words io.ReadCloser) {
	defer words.Close()
	lines := bufio.NewReader(words)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var events []drivertest.Event
		if err := json.Unmarshal(line, &events); err != nil {
			c.t.Errorf("unreadable testimony %q: %v", line, err)
			return
		}
		c.mu.Lock()
		if c.told == nil {
			c.told = make(map[testimony][]drivertest.Event)
		}
		c.told[testimony{events[0].Process, events[0].Call}] = events
		c.mu.Unlock()
	}
}

// fire kills the process that has been there longest.
func (c *goroutines) fire() {
	c.t.Helper()
	m := c.members[0]
	c.members = c.members[1:]
	if err := m.command.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	_ = m.command.Wait() // it was killed, and says so
	<-m.ended
	_ = m.work.Close()
}

// disband lets the others finish what they do, and returns the history of all.
func (c *goroutines) disband() drivertest.History {
	c.t.Helper()
	for _, m := range c.members {
		if err := m.work.Close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, m := range c.members {
		<-m.ended
		if err := m.command.Wait(); err != nil {
			c.t.Errorf("a process that was not killed: %v", err)
		}
	}
	c.tells.Wait()
	return drivertest.History{Events: slices.Concat(slices.Collect(maps.Values(c.told))...)}
}

// beWorkers is the whole life of a process: it works until it is killed, or
// its standard input ends.
func beWorkers(t *testing.T, name string) {
	option := rueidis.ClientOption{InitAddress: []string{os.Getenv(addressVariable)}}
	q, err := openBackend(t, option, nil).OpenQueue(t.Context(), os.Getenv(queueVariable))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	w := &witness{Queue: q, process: name, mouth: os.NewFile(3, "testimony")}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var workers sync.WaitGroup
	for i := range workersOfProcess {
		workers.Go(func() { beWorker(ctx, t, w, strconv.Itoa(i)) })
	}
	workers.Wait()
}

// beWorker sends, receives and settles until ctx ends. Calls themselves are
// not cut short.
func beWorker(ctx context.Context, t *testing.T, w *witness, name string) {
	for next := 0; ctx.Err() == nil; {
		batch := make([]driver.Outgoing, 1+rand.IntN(4))
		for i := range batch {
			batch[i].Body = fmt.Appendf(nil, "%s, %s, %d", w.process, name, next)
			next++
		}
		if _, err := w.Send(t.Context(), batch); err != nil {
			t.Errorf("send: %v", err)
			return
		}
		deliveries, err := w.Receive(t.Context(), driver.ReceiveRequest{Max: 8, Visibility: workerVisibility, Wait: 20 * time.Millisecond})
		if err != nil {
			t.Errorf("receive: %v", err)
			return
		}
		rest(t.Context(), time.Duration(rand.IntN(20))*time.Millisecond)
		receipts := receiptsOf(deliveries)
		if rand.IntN(16) == 0 && len(receipts) > 0 {
			_ = w.Nack(t.Context(), []driver.Nack{{Receipt: receipts[0]}})
			receipts = receipts[1:]
		}
		if err := w.Ack(t.Context(), receipts); err != nil && !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("ack: %v", err)
			return
		}
		rest(t.Context(), 10*time.Millisecond)
	}
}

// A witness is a queue that tells of every call, before it is made and when it
// has returned, so that what a process did is known although it was killed.
type witness struct {
	driver.Queue
	process string
	calls   atomic.Uint64

	mu    sync.Mutex // guards mouth
	mouth io.Writer
}

// watch makes one call through a recorder of its own.
func (w *witness) watch(do func(q driver.Queue)) {
	number := w.calls.Add(1)
	recorder := drivertest.NewRecorder(w.process)
	do(recorder.Queue(&threshold{Queue: w.Queue, cross: func() { w.tell(number, recorder.History()) }}))
	w.tell(number, recorder.History())
}

// tell writes a line. A process that cannot tell what it does must not do it.
func (w *witness) tell(number uint64, history drivertest.History) {
	for i := range history.Events {
		e := &history.Events[i]
		e.Call = number
		if e.Outcome == drivertest.OutcomeUnknown {
			// The server may get to it when this process is gone.
			e.Return.Time += int64(time.Second)
		}
	}
	line, err := json.Marshal(history.Events)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, err = w.mouth.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (w *witness) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	w.watch(func(q driver.Queue) { sent, err = q.Send(ctx, msgs) })
	return sent, err
}

func (w *witness) Receive(ctx context.Context, req driver.ReceiveRequest) (deliveries []driver.Delivery, err error) {
	w.watch(func(q driver.Queue) { deliveries, err = q.Receive(ctx, req) })
	return deliveries, err
}

func (w *witness) Ack(ctx context.Context, receipts []driver.Receipt) (err error) {
	if len(receipts) > 0 {
		w.watch(func(q driver.Queue) { err = q.Ack(ctx, receipts) })
	}
	return err
}

func (w *witness) Nack(ctx context.Context, nacks []driver.Nack) (err error) {
	w.watch(func(q driver.Queue) { err = q.Nack(ctx, nacks) })
	return err
}

// A threshold calls cross just before it lets a call through.
type threshold struct {
	driver.Queue
	cross func()
}

func (th *threshold) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	th.cross()
	return th.Queue.Send(ctx, msgs)
}

func (th *threshold) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	th.cross()
	return th.Queue.Receive(ctx, req)
}

func (th *threshold) Ack(ctx context.Context, receipts []driver.Receipt) error {
	th.cross()
	return th.Queue.Ack(ctx, receipts)
}

func (th *threshold) Nack(ctx context.Context, nacks []driver.Nack) error {
	th.cross()
	return th.Queue.Nack(ctx, nacks)
}
