package diskbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

// Some tests need another process. It is this test binary, with its role in an environment
// variable.
const (
	partVariable = "MAILBOX_DISKBOX_TEST_PART"
	dirVariable  = "MAILBOX_DISKBOX_TEST_DIR"
	seedVariable = "MAILBOX_DISKBOX_TEST_SEED"
)

// parts are the main functions of other processes, in a directory.
var parts = map[string]func(dir string) error{
	"load":         runLoad,
	"moves":        runMoves,
	"hold":         playHold,
	"unprivileged": runUnprivileged,
	"small disk":   runSmallDisk,
}

func init() {
	part := os.Getenv(partVariable)
	if part == "" {
		return
	}
	if err := parts[part](os.Getenv(dirVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// other returns a command that runs a part, for as long as ctx.
func other(ctx context.Context, part, dir string, environment ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), partVariable+"="+part, dirVariable+"="+dir), environment...)
	return cmd
}

// killQueues are the queues that processes use until they are killed.
var killQueues = map[string]driver.Config{
	"plain":         {MaxDeliveries: 20},
	"strict":        {StrictGroups: true},
	"fair":          {FairGroups: true},
	"priorities":    {PriorityAging: driver.Off, TTL: time.Hour},
	"mortal":        {TTL: 100 * time.Millisecond},
	"limits":        {FairGroups: true, GroupLimits: killLimits},
	"strict limits": {StrictGroups: true, GroupLimits: killLimits},
}

// killLimits limit groups by messages in flight and by rate. The rest of a queue drains in seconds.
const killLimits = "in-flight=4; 1: in-flight=1; 2: rate=1000,burst=20"

// A killLine is a line that a process prints about one queue; the first line has only the time
// it took to open the directory.
type killLine struct {
	Opened time.Duration   `json:"opened,omitempty"`
	Queue  string          `json:"queue,omitempty"`
	Events []history.Event `json:"events,omitempty"`
	Flow   killFlow        `json:"flow,omitzero"`
}

// A reporter prints every call on a queue twice: before it, with an unknown outcome, and after
// its answer. So the lines are right even if the process is killed in between.
type reporter struct {
	driver.Queue
	queue   string
	process string
	start   time.Time
	calls   *atomic.Uint64
	tell    func(killLine)
}

func (r *reporter) stamp() history.Stamp {
	return history.Stamp{Time: r.start.UnixNano() + int64(time.Since(r.start))}
}

// call prints a call with these elements. complete, if it is not nil, adds the results.
func (r *reporter) call(op history.Op, elements []history.Event, do func() error, complete func([]history.Event) []history.Event) error {
	number := r.calls.Add(1)
	for i := range elements {
		e := &elements[i]
		e.Process, e.Call, e.Position, e.Op = r.process, number, i, op
		e.Outcome, e.Invoke = history.OutcomeUnknown, r.stamp()
	}
	r.tell(killLine{Queue: r.queue, Events: elements})
	err := do()
	for i := range elements {
		e := &elements[i]
		e.Return = r.stamp()
		switch failure := driver.At(err, i); {
		case failure == nil:
			e.Outcome = history.OutcomeOK
		case !errors.Is(failure, driver.ErrUnavailable):
			e.Outcome = history.OutcomeFail
		}
	}
	if complete != nil {
		elements = complete(elements)
	}
	r.tell(killLine{Queue: r.queue, Events: elements})
	return err
}

func (r *reporter) Send(ctx context.Context, msgs []driver.Outgoing) (sent []driver.Sent, err error) {
	elements := make([]history.Event, len(msgs))
	for i, msg := range msgs {
		elements[i] = history.Event{Group: msg.Group, DedupKey: msg.DedupKey, Duration: msg.Delay}
		elements[i].Digest, elements[i].Count = killDigest(msg.Body)
	}
	err = r.call(history.OpSend, elements, func() error {
		sent, err = r.Queue.Send(ctx, msgs)
		return err
	}, func(events []history.Event) []history.Event {
		for i := range sent {
			events[i].ID, events[i].Duplicate = sent[i].ID, sent[i].Duplicate || sent[i].Replaced
			if sent[i].Duplicate {
				events[i].Count = 0 // the body is another one
			}
			if at := msgs[i].DeliverAt; !at.IsZero() {
				events[i].Duration = time.Duration(at.UnixNano() - events[i].Invoke.Time)
			}
		}
		return events
	})
	return sent, err
}

func (r *reporter) Receive(ctx context.Context, req driver.ReceiveRequest) (got []driver.Delivery, err error) {
	err = r.call(history.OpReceive, []history.Event{{Duration: req.Visibility}}, func() error {
		got, err = r.Queue.Receive(ctx, req)
		return err
	}, func(events []history.Event) []history.Event {
		all := make([]history.Event, max(len(got), 1))
		for i := range all {
			all[i] = events[0]
			all[i].Position = i
			if i < len(got) {
				d := &got[i]
				all[i].ID, all[i].Receipt = d.ID, d.Receipt
				all[i].Digest, all[i].Count = killDigest(d.Body)
				all[i].Group, all[i].Deliveries = d.Group, d.Deliveries
			}
		}
		return all
	})
	return got, err
}

// settle settles one delivery.
func (r *reporter) settle(op history.Op, d driver.Delivery, duration time.Duration, do func() error) error {
	err := r.call(op, []history.Event{{Receipt: d.Receipt, Duration: duration}}, do, nil)
	if errors.Is(err, driver.ErrReceiptExpired) {
		return nil
	}
	return err
}

// A killRun collects the lines of all processes.
type killRun struct {
	dir     string
	rng     *rand.Rand
	events  map[string]map[eventKey]history.Event
	crashes []history.Event
	opening []time.Duration // how long each process took to open the directory
	pauses  map[string]killPause
	flaws   []error // of what processes found

	fired, removed, replaced int // firings of unknown outcome that were done, and messages
}

type eventKey struct {
	process  string
	call     uint64
	position int
}

// enter replaces the line before a call by the one after it.
func (k *killRun) enter(line killLine) {
	if line.Opened > 0 {
		k.opening = append(k.opening, line.Opened)
		if n := len(k.crashes); n > 0 {
			k.crashes[n-1].Return.Time = time.Now().UnixNano()
		}
	}
	if err := k.enterFlow(line.Queue, line.Flow); err != nil {
		k.flaws = append(k.flaws, err)
	}
	for _, e := range line.Events {
		if k.events[line.Queue] == nil {
			k.events[line.Queue] = make(map[eventKey]history.Event)
		}
		k.events[line.Queue][eventKey{e.Process, e.Call, e.Position}] = e
	}
}

// round lets a process work for a while and kills it.
func (k *killRun) round(ctx context.Context, number uint64) error {
	cmd := other(ctx, "load", k.dir, seedVariable+"="+fmt.Sprint(number))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var killed atomic.Bool
	kill := func() {
		killed.Store(true)
		_ = cmd.Process.Kill()
	}
	lines := bufio.NewReader(stdout)
	var timer *time.Timer
	if k.rng.IntN(4) == 0 { // perhaps before the directory is open
		timer = time.AfterFunc(time.Duration(k.rng.IntN(150))*time.Millisecond, kill)
	}
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break // the end, perhaps of an incomplete line
		}
		var line killLine
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		k.enter(line)
		if timer == nil {
			timer = time.AfterFunc(time.Duration(20+k.rng.IntN(400))*time.Millisecond, kill)
		}
	}
	if timer != nil {
		timer.Stop()
	}
	_ = cmd.Wait()
	if !killed.Load() {
		return fmt.Errorf("the process ended by itself: %s", stderr.String())
	}
	now := history.Stamp{Time: time.Now().UnixNano()}
	k.crashes = append(k.crashes, history.Event{
		Process: "parent", Call: uint64(1_000_000 + len(k.crashes)), Op: history.OpCrash, Outcome: history.OutcomeOK, Invoke: now, Return: now,
	})
	return nil
}

// history returns the history of a queue. Calls without an answer may take effect until the
// crash.
func (k *killRun) history(queue string) history.History {
	h := history.History{Events: append([]history.Event(nil), k.crashes...)}
	for _, e := range k.events[queue] {
		if e.Return.Time == 0 {
			e.Return.Time = e.Invoke.Time
			for _, crash := range k.crashes {
				if crash.Invoke.Time > e.Invoke.Time {
					e.Return.Time = crash.Invoke.Time
					break
				}
			}
		}
		h.Events = append(h.Events, e)
	}
	return h
}

// drain receives the remaining messages of a queue.
func (k *killRun) drain(ctx context.Context, q driver.Queue, name string) (history.FinalState, error) {
	var calls atomic.Uint64
	r := &reporter{Queue: q, queue: name, process: "parent", start: time.Now(), calls: &calls, tell: k.enter}
	if err := r.found(ctx); err != nil {
		return history.FinalState{}, err
	}
	if err := q.Resume(ctx); err != nil {
		return history.FinalState{}, err
	}
	for {
		got, err := r.Receive(ctx, driver.ReceiveRequest{Max: 100, Visibility: time.Minute, Wait: 100 * time.Millisecond})
		if err != nil {
			return history.FinalState{}, err
		}
		for _, d := range got {
			if err := r.settle(history.OpAck, d, 0, func() error { return r.Ack(ctx, []driver.Receipt{d.Receipt}) }); err != nil {
				return history.FinalState{}, err
			}
		}
		stats, err := q.Stats(ctx)
		if err != nil {
			return history.FinalState{}, err
		}
		if len(got) == 0 && stats.Waiting() == 0 {
			return history.Observe(ctx, q)
		}
	}
}

func TestKillingTheProcessLosesNothing(t *testing.T) {
	kills := volume.Count(t, 25, 1000)
	seed := volume.Seed(t)
	k := &killRun{dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 0)), events: make(map[string]map[eventKey]history.Event), pauses: make(map[string]killPause)}
	for n := range kills {
		if err := k.round(t.Context(), seed+uint64(n)); err != nil {
			t.Fatalf("seed %d, process %d: %v", seed, n+1, err)
		}
	}
	start := time.Now()
	b, err := Open(t.Context(), k.dir, &Options{small: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	k.enter(killLine{Opened: time.Since(start)})
	for name, config := range killQueues {
		k.check(t, b, name, config)
	}
	for _, err := range k.flaws {
		t.Error(err)
	}
	t.Logf("%d messages were removed and %d replaced, and %d firings whose answer was lost were done", k.removed, k.replaced, k.fired)
	opened := len(k.opening) - 1
	t.Logf("%d processes were killed, %d of them had opened the directory; the longest took %v", kills, opened, slices.Max(k.opening))
	slices.Sort(k.opening)
	if usual := k.opening[opened*9/10]; usual > 5*time.Second { // a busy machine can make some slow
		t.Errorf("opening the directory took %v for one process in ten, at most 5 s are allowed", usual)
	}
	if opened < kills/2 {
		t.Error("most processes were killed before they did anything")
	}
}

// check checks the history of a queue.
func (k *killRun) check(t *testing.T, b *Backend, name string, config driver.Config) {
	t.Helper()
	q, err := b.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	final, err := k.drain(t.Context(), q, name)
	if err != nil {
		t.Fatal(err)
	}
	recorded := k.history(name)
	report := history.Check(recorded, final, history.Terms{Traits: q.Traits(), Config: config, Tolerance: 5 * time.Millisecond})
	rules := make(map[string]int)
	for _, v := range report.Violations {
		rules[v.Rule]++
	}
	answered := make(map[history.Op]int)
	for _, e := range recorded.Events {
		if e.Outcome == history.OutcomeOK {
			answered[e.Op]++
		}
	}
	k.checkFlow(t, recorded, final)
	t.Logf("%s: %d acknowledged sends, %d lost; %d acks, %d back; %d deliveries, %d of them repeated after a crash",
		name, answered[history.OpSend], rules["SND-1"], answered[history.OpAck], rules["ACK-1"], report.Deliveries, report.Repeats)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if answered[history.OpSend] == 0 || answered[history.OpAck] == 0 && config.TTL == 0 { // on a busy machine the lives of all may end before an ack
		t.Error("hardly anything was done")
	}
}
