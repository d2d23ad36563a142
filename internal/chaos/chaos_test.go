package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/internal/testing/history"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
)

const (
	serverProcesses = 4 // on each server
	diskProcesses   = 2 // a folder for each: a store belongs to one process at a time
	// drainWithin bounds the time to drain a queue after the disturbances. No lease is longer
	// than a visibility, no delay longer than the backoff.
	drainWithin = 30 * time.Second
)

// A server can be killed and started again.
type server interface {
	Kill()
	Restart(ctx context.Context) error
}

// An env is one backend with its queue, and the processes that work on it.
type env struct {
	t       *testing.T
	name    string
	where   string
	role    string // of its processes while they are disturbed
	records *records
	// crashes records when the backend was down.
	crashes *history.Recorder
	// server has the backend; nil: there is none.
	server server
	// embedded: the backend is part of the process, and ends with it.
	embedded  bool
	processes []*process // each position belongs to one goroutine of disturb

	mu      sync.Mutex // guards the fields below
	started int
	tally   map[string]int
}

// newEnv starts processes on a backend, and kills them when the test ends.
func newEnv(t *testing.T, name, where, role string, processes int) *env {
	e := &env{
		t: t, name: name, where: where, role: role, records: newRecords(),
		crashes:  history.NewRecorder(name + " crashes"),
		embedded: strings.HasPrefix(where, "disk"), tally: make(map[string]int),
	}
	for range processes {
		e.processes = append(e.processes, e.startProcess(role))
	}
	t.Cleanup(func() {
		for _, process := range e.processes {
			_ = process.command.Process.Kill()
			<-process.ended
		}
	})
	return e
}

func (e *env) startProcess(role string) *process {
	e.mu.Lock()
	e.started++
	name := fmt.Sprintf("%s %d", e.name, e.started)
	e.mu.Unlock()
	return start(e.t, name, e.where, role, e.records)
}

func (e *env) count(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tally[what]++
}

// summary counts what was done to the backend and its processes.
func (e *env) summary() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var tally []string
	sum := 0
	for _, what := range slices.Sorted(maps.Keys(e.tally)) {
		sum += e.tally[what]
		tally = append(tally, fmt.Sprintf("%s %d", what, e.tally[what]))
	}
	return fmt.Sprintf("%d disturbances (%s)", sum, strings.Join(tally, ", "))
}

// lifetime bounds the time from the start of a process to its end.
const lifetime = 3 * time.Second

// churn ends and replaces the process at position i until ctx ends.
func (e *env) churn(ctx context.Context, i int) {
	for ctx.Err() == nil {
		old := e.processes[i]
		select {
		case <-old.awake:
		case <-old.ended:
		}
		select {
		case <-old.ended: // killed by a message
			e.count("killed by a message")
			if !old.killed() {
				e.t.Errorf("a process of %s ended without a signal: %v: %s", e.name, old.err, old.stderr.String())
			}
			e.replace(i, func() {})
		case <-time.After(rand.N(lifetime)):
			e.end(i)
		case <-ctx.Done():
		}
	}
}

// end kills the process at position i, or tells it to stop, and starts another.
func (e *env) end(i int) {
	old := e.processes[i]
	if rand.IntN(3) > 0 {
		e.count("killed")
		e.replace(i, func() {
			_ = old.command.Process.Kill() // it may be gone already
			<-old.ended
		})
		return
	}
	e.replace(i, func() {
		old.stop()
		e.awaitEnd(old)
	})
	if old.killed() {
		e.count("killed by a message")
		return
	}
	e.count("told to stop")
	if err := old.failed(); err != nil {
		e.t.Errorf("a process of %s that was told to stop: %v", e.name, err)
	}
}

// replace calls end, which ends the process at position i, and starts another.
func (e *env) replace(i int, end func()) {
	swap := func() {
		end()
		e.processes[i] = e.startProcess(e.role)
	}
	if e.embedded {
		e.crashes.Crash(swap)
	} else {
		swap()
	}
}

// awaitEnd waits for a process to end. It kills a process that does not end in time, and fails
// the test.
func (e *env) awaitEnd(old *process) {
	e.t.Helper()
	select {
	case <-old.ended:
	case <-time.After(drainWithin):
		_ = old.command.Process.Kill()
		<-old.ended
		e.t.Errorf("a process of %s does not end: %s", e.name, old.stderr.String())
	}
}

// drain stops all processes and starts one that only works, until no message waits.
func (e *env) drain() {
	e.t.Helper()
	for _, old := range e.processes {
		old.stop()
	}
	for _, old := range e.processes {
		e.awaitEnd(old)
	}
	for limit := time.Now().Add(drainWithin); ; {
		last := e.startProcess(roleDrain)
		e.awaitEnd(last)
		if !last.killed() {
			if err := last.failed(); err != nil {
				e.t.Errorf("a process of %s that drained the queue: %v", e.name, err)
			}
			return
		}
		// A message that kills its process does so on every delivery, until it is dead.
		e.crashes.Crash(func() {})
		e.count("killed by a message")
		if time.Now().After(limit) {
			e.t.Errorf("%s is not drained after %v", e.name, drainWithin)
			return
		}
	}
}

func TestNothingIsLostInChaos(t *testing.T) {
	duration := volume.Duration(t, time.Minute, 10*time.Minute)
	redis, postgres := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncAlways)), pgtest.Start(t)
	envs := []*env{
		newEnv(t, "redis", "redis "+redis.Addr(), roleSendAndWork, serverProcesses),
		newEnv(t, "postgres", "postgres "+postgres.URL(), roleSendAndWork, serverProcesses),
	}
	envs[0].server, envs[1].server = redis, postgres
	for i := range diskProcesses {
		envs = append(envs, newEnv(t, fmt.Sprint("disk ", i+1), "disk "+t.TempDir(), roleSendAndWork, 1))
	}
	disturb(t.Context(), duration, envs)
	var draining sync.WaitGroup
	for _, e := range envs {
		draining.Go(e.drain)
	}
	draining.Wait()
	for _, e := range envs {
		v := &verifier{env: e}
		v.verify(t)
		for _, sentence := range v.wrong {
			t.Error(sentence)
		}
		t.Logf("%s: %s; %s", e.name, e.summary(), v.summary)
	}
}

// The verifier must detect workers that ack before they work.
func TestWorkersThatAckFirstAreCaught(t *testing.T) {
	e := newEnv(t, "disk", "disk "+t.TempDir(), roleAckFirst, 1)
	for look := time.NewTicker(10 * time.Millisecond); e.records.worked() < 50; {
		select {
		case <-look.C:
		case <-e.processes[0].ended: // killed by a message
			e.processes[0] = e.startProcess(e.role)
		}
	}
	e.drain()
	v := &verifier{env: e}
	v.verify(t)
	if !strings.Contains(strings.Join(v.wrong, "\n"), "was never done") {
		t.Errorf("the verifier found no lost message: %q", v.wrong)
	}
}

// disturb ends processes and restarts the servers for a while.
func disturb(ctx context.Context, duration time.Duration, envs []*env) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var harm sync.WaitGroup
	for _, e := range envs {
		for i := range e.processes {
			harm.Go(func() { e.churn(ctx, i) })
		}
		if e.server != nil {
			harm.Go(func() {
				for wait(ctx, 3*time.Second+rand.N(4*time.Second)) == nil {
					e.restart(ctx)
				}
			})
		}
	}
	harm.Wait()
}

// restart kills and restarts the server, or, if it is one process, stops it for a while.
func (e *env) restart(ctx context.Context) {
	if single, ok := e.server.(interface {
		Stop()
		Continue()
	}); ok && rand.IntN(3) == 0 {
		e.count("hangs of the server")
		single.Stop()
		<-time.After(rand.N(2 * time.Second))
		single.Continue()
		return
	}
	e.count("restarts of the server")
	e.crashes.Crash(func() {
		e.server.Kill()
		<-time.After(rand.N(500 * time.Millisecond))
		if err := e.server.Restart(context.WithoutCancel(ctx)); err != nil {
			e.t.Error(err)
		}
	})
}
