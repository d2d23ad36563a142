package worker_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/worker"
)

// Some tests need another process. It is this test binary; environment variables
// select its role and its folder.
const (
	partVariable   = "MAILBOX_WORKER_TEST_PART"
	folderVariable = "MAILBOX_WORKER_TEST_FOLDER"
	// limitVariable is the delivery limit of the other process's policy.
	limitVariable = "MAILBOX_WORKER_TEST_LIMIT"
)

// The roles.
const (
	partWork     = "work until the end"
	roleFinish   = "work until nothing is left"
	roleAckFirst = "ack first, and work then" // what no worker should do
)

func TestMain(m *testing.M) {
	part := os.Getenv(partVariable)
	if part == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := runRole(context.Background(), part, os.Getenv(folderVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// kinds are the kinds of work that the bodies of messages name.
var kinds = []string{"fine", "fine", "flaky", "fine", "panics", "slow", "fine", "hangs", "poison", "fine"}

// dies reports whether messages of a kind always become dead letters.
func dies(kind string) bool { return kind == "hangs" || kind == "poison" || kind == unreadable }

// unreadable is the kind of a body that is not JSON.
const unreadable = "unreadable"

// fatal is the kind of work that ends its process with fatalStatus.
const (
	fatal       = "fatal"
	fatalStatus = 3
)

// The worker of the other process. Leases and timeouts are short, so that a test
// is too.
const (
	workVisibility = 200 * time.Millisecond
	workTimeout    = 600 * time.Millisecond
	workDrain      = 300 * time.Millisecond
	workSlow       = 400 * time.Millisecond // longer than the visibility and the drain time
)

// doWork is the handler of the other process.
func doWork(ctx context.Context, m *message) error {
	switch m.Body {
	case "flaky":
		if m.Deliveries <= 2 {
			return errMilk
		}
	case "panics":
		if m.Deliveries == 1 {
			panic("spilled")
		}
	case "slow":
		select {
		case <-time.After(workSlow):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case "hangs":
		<-ctx.Done()
		return context.Cause(ctx)
	case "poison":
		return errMilk
	case fatal:
		os.Exit(fatalStatus)
	}
	<-time.After(rand.N(4 * time.Millisecond))
	return nil
}

func openOrders(ctx context.Context, folder string) (*diskbox.Backend, *inbox, error) {
	disk, err := diskbox.Open(ctx, filepath.Join(folder, "queues"), nil)
	if err != nil {
		return nil, nil, err
	}
	orders, err := mailbox.Open[string](ctx, disk, "orders", nil)
	return disk, orders, err
}

// runRole is the other process. It writes what it does to a file, one line a call, so
// that a kill at any moment leaves complete lines.
func runRole(ctx context.Context, part, folder string) error {
	told, err := os.OpenFile(filepath.Join(folder, "told"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer told.Close()
	limit, err := strconv.Atoi(os.Getenv(limitVariable))
	if err != nil {
		return err
	}
	disk, orders, err := openOrders(ctx, folder)
	if err != nil {
		return err
	}
	defer disk.Close()
	loop := worker.New(orders, func(ctx context.Context, m *message) error {
		if part == roleAckFirst {
			if err := m.Ack(ctx); err != nil {
				return err
			}
		}
		if m.Body == fatal {
			if _, err := fmt.Fprintf(told, "begun %s\n", m.ID); err != nil {
				return err
			}
		}
		if err := doWork(ctx, m); err != nil {
			return err
		}
		_, err := fmt.Fprintf(told, "done %s\n", m.ID)
		return err
	}, &options{
		Concurrency: 8, Prefetch: 8, Visibility: workVisibility, Timeout: workTimeout, Drain: workDrain,
		Backoff: worker.LinearBackoff(20*time.Millisecond, time.Second), DeadLetters: &policy{MaxDeliveries: limit},
		Hooks: worker.Hooks{Settled: func(_ context.Context, event worker.SettledEvent) {
			if _, err := fmt.Fprintf(told, "%s %s\n", event.Result, event.MessageID); err != nil {
				panic(err)
			}
		}},
	})
	group := worker.NewGroup(&worker.GroupOptions{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}, loop)
	if part == roleFinish {
		go stopWhenEmpty(ctx, orders, group)
	}
	fmt.Println("running")
	return group.Run(ctx)
}

// stopWhenEmpty stops a group when its mailbox is empty.
func stopWhenEmpty(ctx context.Context, orders *inbox, group *worker.Group) {
	for range time.NewTicker(20 * time.Millisecond).C {
		if stats, err := orders.Stats(ctx); err != nil || stats.Waiting() == 0 {
			group.Stop()
			return
		}
	}
}

// A factory is a folder in which other processes work, and the messages sent there.
type factory struct {
	*testing.T
	folder string
	sent   map[string]string // kind by id
	limit  int               // of the policy
}

// newFactory sends n messages of all kinds.
func newFactory(t *testing.T, n int) *factory {
	t.Helper()
	f := &factory{T: t, folder: t.TempDir(), sent: make(map[string]string), limit: 3}
	disk, _, err := openOrders(t.Context(), f.folder)
	f.must(err)
	f.must(disk.ConfigureQueue(t.Context(), "orders", driver.Config{MaxDeliveries: driver.Off}))
	f.must(disk.Close())
	f.open(func(orders *inbox) {
		for i := range n {
			kind := kinds[i%len(kinds)]
			sent, err := orders.Send(t.Context(), kind)
			f.must(err)
			f.sent[sent.ID] = kind
		}
		sent, err := orders.Queue().Send(t.Context(), []driver.Outgoing{{Body: []byte("{")}})
		f.must(err)
		f.sent[sent[0].ID] = unreadable
	})
	return f
}

func (f *factory) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// open opens the mailbox in this process. No other process can use it meanwhile.
func (f *factory) open(use func(orders *inbox)) {
	f.Helper()
	disk, orders, err := openOrders(f.Context(), f.folder)
	f.must(err)
	use(orders)
	f.must(disk.Close())
}

// start starts a process and returns when it runs.
func (f *factory) start(part string) *exec.Cmd {
	f.Helper()
	process := exec.CommandContext(f.Context(), os.Args[0])
	process.Env = append(os.Environ(), partVariable+"="+part, folderVariable+"="+f.folder, limitVariable+"="+strconv.Itoa(f.limit))
	var failures strings.Builder
	process.Stderr = &failures
	out, err := process.StdoutPipe()
	f.must(err)
	f.must(process.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "running\n" {
		_ = process.Wait()
		f.Fatalf("the process says %q, %v: %s", line, err, failures.String())
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return process
}

// killAfter lets a process work for a while and kills it with SIGKILL.
func (f *factory) killAfter(part string, d time.Duration) {
	f.Helper()
	process := f.start(part)
	<-time.After(d)
	f.must(process.Process.Kill())
	if state := process.Wait(); state == nil {
		f.Error("a killed process exited with status 0")
	}
}

// awaitWork waits until the other process has handled a message: before that it may
// not listen to signals.
func (f *factory) awaitWork() {
	f.Helper()
	limit := time.Now().Add(time.Minute)
	for look := time.NewTicker(5 * time.Millisecond); ; <-look.C {
		for line := range f.told() {
			if strings.HasPrefix(line, "done ") {
				return
			}
		}
		if time.Now().After(limit) {
			f.Fatal("nothing was done in a minute")
		}
	}
}

// told returns how often each line was written for each message.
func (f *factory) told() map[string]int {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.folder, "told"))
	f.must(err)
	lines := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		lines[strings.TrimSpace(line)]++
	}
	return lines
}

// check returns what is wrong when all work is over: every message must be handled
// and acked once, or be a dead letter with the right reason.
func (f *factory) check() []string {
	f.Helper()
	var wrong []string
	reasons := make(map[string]mailbox.Reason)
	f.open(func(orders *inbox) {
		stats, err := orders.Stats(f.Context())
		f.must(err)
		if stats.Waiting() > 0 {
			wrong = append(wrong, fmt.Sprintf("stuck: there are %+v", stats))
		}
		for letter, err := range deadletter.NewQueue(orders, nil).List(f.Context()) {
			f.must(err)
			reasons[letter.MessageID] = letter.Reason
		}
	})
	told := f.told()
	for id, kind := range f.sent {
		reason, dead := reasons[id]
		want := mailbox.ReasonMaxDeliveries
		if kind == unreadable {
			want = mailbox.ReasonParse
		}
		switch {
		case told["acked "+id] > 1:
			wrong = append(wrong, fmt.Sprintf("a message that is %s was acked %d times", kind, told["acked "+id]))
		case dies(kind) && !dead:
			wrong = append(wrong, fmt.Sprintf("lost: a message that is %s is not dead", kind))
		case dies(kind) && (reason != want || told["acked "+id] > 0):
			wrong = append(wrong, fmt.Sprintf("a message that is %s is dead because of %q", kind, reason))
		case !dies(kind) && dead:
			wrong = append(wrong, fmt.Sprintf("a message that is %s is dead because of %q", kind, reason))
		case !dies(kind) && told["done "+id] == 0:
			wrong = append(wrong, fmt.Sprintf("lost: a message that is %s was never done", kind))
		}
	}
	return wrong
}

// killRepeatedly kills one process after the other, and lets the last one finish. Being
// killed costs a delivery of all that the process holds, so the policy allows for
// that, for three attempts, and for leases that a busy machine loses.
func (f *factory) killRepeatedly(part string, kills int) {
	f.Helper()
	f.limit = kills + 6
	for range kills {
		f.killAfter(part, 20*time.Millisecond+rand.N(300*time.Millisecond))
	}
	process := f.start(roleFinish)
	f.must(process.Wait())
}

// LOOP-3, DLQ-1, DLQ-2: whatever handlers do and however often the process is
// killed, every message is done or dead in the end, and what is dead can be sent
// back and done.
func TestKilledWorkersLoseNothing(t *testing.T) {
	f := newFactory(t, 200)
	f.killRepeatedly(partWork, volume.Count(t, 6, 100))
	for _, sentence := range f.check() {
		t.Error(sentence)
	}
	f.open(func(orders *inbox) {
		box := deadletter.NewQueue(orders, nil)
		dead, err := box.Discard(t.Context(), deadletter.Filter[string]{Match: func(l letter) bool { return l.DecodeErr != nil }})
		f.must(err)
		redriven, err := box.Redrive(t.Context(), deadletter.Filter[string]{}, nil)
		f.must(err)
		if dead != 1 || redriven.Moved != 40 { // of ten messages, one hangs and one is poison
			t.Errorf("%d letters could not be read and %d were sent back, want 1 and 40", dead, redriven.Moved)
		}
		finished, ctx := ruletest.NewRecorder(), t.Context()
		loop := worker.New(orders, count(finished), nil)
		for handled := 1; handled > 0; {
			handled, err = loop.RunOnce(ctx)
			f.must(err)
		}
		stats, err := orders.Stats(ctx)
		f.must(err)
		if finished.Count() != redriven.Moved || stats != (mailbox.Stats{}) {
			t.Errorf("%d of %d were done the second time, and there are %+v", finished.Count(), redriven.Moved, stats)
		}
	})
}

// DLQ-2: a handler that ends its process is started as often as the policy
// allows, and then the message is dead. The disk may forget the first delivery:
// the lease of a message that has not been through a crash is not synced at once.
func TestMessageThatCrashesProcessIsDeadLettered(t *testing.T) {
	const limit = 3
	f := &factory{T: t, folder: t.TempDir(), limit: limit}
	var id string
	f.open(func(orders *inbox) {
		sent, err := orders.Send(t.Context(), fatal)
		f.must(err)
		id = sent.ID
	})
	exits := 0
	for ; exits <= limit+1; exits++ {
		err := f.start(roleFinish).Wait()
		if err == nil {
			break
		}
		if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != fatalStatus {
			t.Fatalf("the process ended with %v", err)
		}
	}
	if begun := f.told()["begun "+id]; exits != begun || begun < limit || begun > limit+1 {
		t.Errorf("the handler was started %d times and ended %d processes, want %d", begun, exits, limit)
	}
	f.open(func(orders *inbox) {
		for letter, err := range deadletter.NewQueue(orders, nil).List(t.Context()) {
			f.must(err)
			if letter.MessageID != id || letter.Reason != mailbox.ReasonMaxDeliveries || letter.Deliveries != limit+1 {
				t.Errorf("the dead letter is %+v", letter)
			}
			return
		}
		t.Error("no dead letter")
	})
}

// The check of the test above must notice a worker that acks before it works.
func TestKilledWorkersThatAckFirstAreCaught(t *testing.T) {
	f := newFactory(t, 200)
	f.killRepeatedly(roleAckFirst, volume.Count(t, 6, 100))
	wrong := f.check()
	if !strings.Contains(strings.Join(wrong, "\n"), "lost: ") {
		t.Errorf("nothing was lost, says the judge: %q", wrong)
	}
}

// LOOP-3, LOOP-4: a process that is told to stop under load ends well and in
// time, and leaves nothing in flight.
func TestSIGTERMDrainsProcess(t *testing.T) {
	f := newFactory(t, 200)
	process := f.start(partWork)
	f.awaitWork()
	told := time.Now()
	f.must(process.Process.Signal(syscall.SIGTERM))
	if err := process.Wait(); err != nil {
		failed, _ := errors.AsType[*exec.ExitError](err)
		t.Fatalf("it ended with %v: %s", failed, process.Stderr)
	}
	if took := time.Since(told); took > workDrain+time.Minute { // the disk, the race detector and the machine
		t.Errorf("it took %v to end", took)
	}
	lines := f.told()
	f.open(func(orders *inbox) {
		stats, err := orders.Stats(t.Context())
		f.must(err)
		if stats.InFlight > 0 || stats.Ready == 0 {
			t.Errorf("there are %+v, want none in flight and some that wait", stats)
		}
		for peeked, err := range orders.Peek(t.Context(), mailbox.Query{}) {
			f.must(err)
			if lines["acked "+peeked.ID] > 0 {
				t.Errorf("a message was acked and is %s", peeked.State)
			}
			delete(f.sent, peeked.ID)
		}
	})
	for id, kind := range f.sent { // those that are gone
		if lines["done "+id] == 0 {
			t.Errorf("a message that is %s is gone and was never done", kind)
		}
	}
}
