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
	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// The test in this file runs itself in further processes, whose environment says what
// they do. They report their calls on a pipe.
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

func TestKilledProcessesLoseNothing(t *testing.T) {
	if name := os.Getenv(workerVariable); name != "" {
		runWorkers(t, name)
		return
	}
	t.Parallel()
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncEverySec))
	queue := redistest.Prefix(t) + "workers"
	procs := &workerProcs{t: t, server: server, queue: queue}
	for range workerProcesses {
		procs.start()
	}
	killed := 0
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for ; killed < volume.Count(t, 20, 200); killed++ {
		<-second.C
		procs.killOldest()
		procs.start()
	}
	recorded := procs.stopAll()

	// Messages that killed processes held come back to another receiver.
	recorder := history.NewRecorder("survivor")
	q, err := openBackend(t, server.ClientOption(), nil).OpenQueue(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	traits := q.Traits()
	drain(t, recorder.Queue(q))
	final, err := history.Observe(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	recorded.Events = append(recorded.Events, recorder.History().Events...)
	report := history.Check(recorded, final, history.Terms{Traits: traits, Tolerance: 20 * time.Millisecond})
	t.Logf("%d processes killed; %d messages, %d deliveries", killed, report.Messages, report.Deliveries)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Deliveries <= report.Messages {
		t.Errorf("%d deliveries of %d messages: no message that a killed process held was delivered again", report.Deliveries, report.Messages)
	}
}

// drain receives and acks all messages, including those that come back.
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

// workerProcs are the running worker processes, oldest first, and the calls that all of
// them have reported.
type workerProcs struct {
	t      *testing.T
	server *redistest.Server
	queue  string

	started int
	procs   []*workerProc

	mu      sync.Mutex // guards events
	events  map[callID][]history.Event
	readers sync.WaitGroup
}

// A workerProc is a process that works until its input is closed.
type workerProc struct {
	command *exec.Cmd
	work    io.Closer
	ended   chan struct{} // closed when its last report was read
}

// A callID identifies a call of a process.
type callID struct {
	process string
	call    uint64
}

// start starts another process.
func (p *workerProcs) start() {
	p.t.Helper()
	p.started++
	command := exec.Command(os.Args[0], "-test.run=^TestKilledProcessesLoseNothing$")
	command.Env = append(os.Environ(), fmt.Sprintf("%s=worker %d", workerVariable, p.started),
		addressVariable+"="+p.server.Addr(), queueVariable+"="+p.queue)
	command.Stderr = os.Stderr
	in, out, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	command.ExtraFiles = []*os.File{out}
	work, err := command.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(command.Start(), out.Close()); err != nil {
		p.t.Fatal(err)
	}
	m := &workerProc{command: command, work: work, ended: make(chan struct{})}
	p.procs = append(p.procs, m)
	p.readers.Go(func() {
		defer close(m.ended)
		p.readEvents(in)
	})
}

// readEvents reads the reports of a process until it ends. An incomplete line is about a
// call that was not made, or whose end was not reported.
func (p *workerProcs) readEvents(in io.ReadCloser) {
	defer in.Close()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var events []history.Event
		if err := json.Unmarshal(line, &events); err != nil {
			p.t.Errorf("unreadable event %q: %v", line, err)
			return
		}
		p.mu.Lock()
		if p.events == nil {
			p.events = make(map[callID][]history.Event)
		}
		p.events[callID{events[0].Process, events[0].Call}] = events
		p.mu.Unlock()
	}
}

// killOldest kills the process that runs longest.
func (p *workerProcs) killOldest() {
	p.t.Helper()
	m := p.procs[0]
	p.procs = p.procs[1:]
	if err := m.command.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = m.command.Wait() // its error says that it was killed
	<-m.ended
	_ = m.work.Close()
}

// stopAll lets the processes finish their calls, and returns the history of all.
func (p *workerProcs) stopAll() history.History {
	p.t.Helper()
	for _, m := range p.procs {
		if err := m.work.Close(); err != nil {
			p.t.Error(err)
		}
	}
	for _, m := range p.procs {
		<-m.ended
		if err := m.command.Wait(); err != nil {
			p.t.Errorf("a process that was not killed: %v", err)
		}
	}
	p.readers.Wait()
	return history.History{Events: slices.Concat(slices.Collect(maps.Values(p.events))...)}
}

// runWorkers is the main function of a process: it works until it is killed, or its
// standard input ends.
func runWorkers(t *testing.T, name string) {
	option := rueidis.ClientOption{InitAddress: []string{os.Getenv(addressVariable)}}
	q, err := openBackend(t, option, nil).OpenQueue(t.Context(), os.Getenv(queueVariable))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	w := &reportingQueue{Queue: q, process: name, out: os.NewFile(3, "testimony")}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var workers sync.WaitGroup
	for i := range workersOfProcess {
		workers.Go(func() { runWorker(ctx, t, w, strconv.Itoa(i)) })
	}
	workers.Wait()
}

// runWorker sends, receives and settles until ctx ends. It does not cancel calls.
func runWorker(ctx context.Context, t *testing.T, w *reportingQueue, name string) {
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

// A reportingQueue reports every call before it is made and when it has returned, so that
// the calls of a killed process are known.
type reportingQueue struct {
	driver.Queue
	process string
	calls   atomic.Uint64

	mu  sync.Mutex // guards out
	out io.Writer
}

// record makes one call through a recorder of its own.
func (w *reportingQueue) record(do func(q driver.Queue)) {
	number := w.calls.Add(1)
	recorder := history.NewRecorder(w.process)
	do(recorder.Queue(&beforeCall{Queue: w.Queue, do: func() { w.report(number, recorder.History()) }}))
	w.report(number, recorder.History())
}

// report writes a line. A process that cannot report a call must not make it.
func (w *reportingQueue) report(number uint64, recorded history.History) {
	for i := range recorded.Events {
		e := &recorded.Events[i]
		e.Call = number
		if e.Outcome == history.OutcomeUnknown {
			// The server may execute it after this process has ended.
			e.Return.Time += int64(time.Second)
		}
	}
	line, err := json.Marshal(recorded.Events)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (w *reportingQueue) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	w.record(func(q driver.Queue) { sent, err = q.Send(ctx, msgs) })
	return sent, err
}

func (w *reportingQueue) Receive(ctx context.Context, req driver.ReceiveRequest) (deliveries []driver.Delivery, err error) {
	w.record(func(q driver.Queue) { deliveries, err = q.Receive(ctx, req) })
	return deliveries, err
}

func (w *reportingQueue) Ack(ctx context.Context, receipts []driver.Receipt) (err error) {
	if len(receipts) > 0 {
		w.record(func(q driver.Queue) { err = q.Ack(ctx, receipts) })
	}
	return err
}

func (w *reportingQueue) Nack(ctx context.Context, nacks []driver.Nack) (err error) {
	w.record(func(q driver.Queue) { err = q.Nack(ctx, nacks) })
	return err
}

// A beforeCall calls do just before it makes a call.
type beforeCall struct {
	driver.Queue
	do func()
}

func (b *beforeCall) Send(ctx context.Context, msgs []driver.Outgoing) ([]driver.Sent, error) {
	b.do()
	return b.Queue.Send(ctx, msgs)
}

func (b *beforeCall) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	b.do()
	return b.Queue.Receive(ctx, req)
}

func (b *beforeCall) Ack(ctx context.Context, receipts []driver.Receipt) error {
	b.do()
	return b.Queue.Ack(ctx, receipts)
}

func (b *beforeCall) Nack(ctx context.Context, nacks []driver.Nack) error {
	b.do()
	return b.Queue.Nack(ctx, nacks)
}
