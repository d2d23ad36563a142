package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

const (
	redisProcesses = 4
	diskProcesses  = 2 // a folder for each: a store belongs to one process at a time
	// calmWithin is how long what is left when the storm is over may take. Nothing is
	// held for longer than a visibility, or waits for longer than the backoff.
	calmWithin = 30 * time.Second
)

// stormTime is a minute, or what the environment says.
func stormTime(t *testing.T) time.Duration {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes more than a minute: run without -short")
	}
	text := os.Getenv("MAILBOX_CHAOS_SECONDS")
	if text == "" {
		return time.Minute
	}
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 1 {
		t.Fatalf("MAILBOX_CHAOS_SECONDS is %q, not a number of seconds", text)
	}
	return time.Duration(seconds) * time.Second
}

// A place is a backend with its queue and the processes that work there.
type place struct {
	t       *testing.T
	name    string
	where   string
	part    string // that its processes play in the storm
	account *account
	// crashes records when the backend was down.
	crashes *drivertest.Recorder
	// embedded: the backend lives in the process, and goes down with it.
	embedded bool
	crew     []*process // each position is one goroutine's in the storm

	mu    sync.Mutex // guards the fields below
	hired int
	tally map[string]int
}

// newPlace starts processes at a place, and ends them when the test does.
func newPlace(t *testing.T, name, where, part string, processes int) *place {
	p := &place{
		t: t, name: name, where: where, part: part, account: newAccount(),
		crashes:  drivertest.NewRecorder(name + " crashes"),
		embedded: strings.HasPrefix(where, "disk"), tally: make(map[string]int),
	}
	for range processes {
		p.crew = append(p.crew, p.hire(part))
	}
	t.Cleanup(func() {
		for _, process := range p.crew {
			_ = process.command.Process.Kill()
			<-process.ended
		}
	})
	return p
}

func (p *place) hire(part string) *process {
	p.mu.Lock()
	p.hired++
	name := fmt.Sprintf("%s %d", p.name, p.hired)
	p.mu.Unlock()
	return start(p.t, name, p.where, part, p.account)
}

func (p *place) count(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally[what]++
}

// summary says what was done to the place.
func (p *place) summary() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var tally []string
	for _, what := range slices.Sorted(maps.Keys(p.tally)) {
		tally = append(tally, fmt.Sprintf("%s %d", what, p.tally[what]))
	}
	return strings.Join(tally, ", ")
}

// lifetime is how long a process may live at most in the storm, once it is awake.
const lifetime = 3 * time.Second

// churn ends the process at position i again and again, and starts others, until ctx ends.
func (p *place) churn(ctx context.Context, i int) {
	for ctx.Err() == nil {
		old := p.crew[i]
		select {
		case <-old.awake:
		case <-old.ended:
		}
		select {
		case <-old.ended: // of a message
			p.count("bombed")
			if !old.killed() {
				p.t.Errorf("a process of %s ended by itself: %v: %s", p.name, old.err, old.stderr.String())
			}
			p.replace(i, func() {})
		case <-time.After(rand.N(lifetime)):
			p.end(i)
		case <-ctx.Done():
		}
	}
}

// end kills the process at position i, or tells it to stop, and starts another.
func (p *place) end(i int) {
	old := p.crew[i]
	if rand.IntN(3) > 0 {
		p.count("killed")
		p.replace(i, func() {
			_ = old.command.Process.Kill() // it may be gone already
			<-old.ended
		})
		return
	}
	p.replace(i, func() {
		old.stop()
		p.awaitEnd(old)
	})
	if old.killed() {
		p.count("bombed")
		return
	}
	p.count("told to stop")
	if err := old.failed(); err != nil {
		p.t.Errorf("a process of %s that was told to stop: %v", p.name, err)
	}
}

// replace starts another process at position i, when this one has ended.
func (p *place) replace(i int, end func()) {
	swap := func() {
		end()
		p.crew[i] = p.hire(p.part)
	}
	if p.embedded {
		p.crashes.Crash(swap)
	} else {
		swap()
	}
}

// awaitEnd waits for a process. One that does not end is stuck.
func (p *place) awaitEnd(old *process) {
	p.t.Helper()
	select {
	case <-old.ended:
	case <-time.After(calmWithin):
		_ = old.command.Process.Kill()
		<-old.ended
		p.t.Errorf("a process of %s does not end: %s", p.name, old.stderr.String())
	}
}

// calm ends the storm: a process that only works takes over, until nothing is left.
func (p *place) calm() {
	p.t.Helper()
	for _, old := range p.crew {
		old.stop()
	}
	for _, old := range p.crew {
		p.awaitEnd(old)
	}
	for limit := time.Now().Add(calmWithin); ; {
		last := p.hire(partCalm)
		p.awaitEnd(last)
		if !last.killed() {
			if err := last.failed(); err != nil {
				p.t.Errorf("a process of %s that worked until the end: %v", p.name, err)
			}
			return
		}
		// A message that kills its process does so again and again, until it is dead.
		p.crashes.Crash(func() {})
		p.count("bombed")
		if time.Now().After(limit) {
			p.t.Errorf("%s has not been worked off after %v", p.name, calmWithin)
			return
		}
	}
}

func TestNothingIsLostInChaos(t *testing.T) {
	duration := stormTime(t)
	server := redistest.Standalone(t, redistest.AppendOnly(redistest.FsyncAlways))
	places := []*place{newPlace(t, "redis", "redis "+server.Addr(), partStorm, redisProcesses)}
	for i := range diskProcesses {
		places = append(places, newPlace(t, fmt.Sprint("disk ", i+1), "disk "+t.TempDir(), partStorm, 1))
	}
	storm(t.Context(), duration, places, server)
	var calming sync.WaitGroup
	for _, p := range places {
		calming.Go(p.calm)
	}
	calming.Wait()
	for _, p := range places {
		j := &judge{place: p}
		j.deliver(t)
		for _, sentence := range j.wrong {
			t.Error(sentence)
		}
		t.Logf("%s: %s; %s", p.name, p.summary(), j.summary)
	}
}

// The judge has to notice workers that ack before they work.
func TestWorkersThatAckFirstAreCaught(t *testing.T) {
	stormTime(t)
	p := newPlace(t, "disk", "disk "+t.TempDir(), partAckFirst, 1)
	for look := time.NewTicker(10 * time.Millisecond); p.account.worked() < 50; {
		select {
		case <-look.C:
		case <-p.crew[0].ended: // of a message, which may be the first
			p.crew[0] = p.hire(p.part)
		}
	}
	p.calm()
	j := &judge{place: p}
	j.deliver(t)
	if !strings.Contains(strings.Join(j.wrong, "\n"), "was never done") {
		t.Errorf("nothing was lost, says the judge: %q", j.wrong)
	}
}

// storm does harm for a while.
func storm(ctx context.Context, duration time.Duration, places []*place, server *redistest.Server) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var harm sync.WaitGroup
	for _, p := range places {
		for i := range p.crew {
			harm.Go(func() { p.churn(ctx, i) })
		}
	}
	harm.Go(func() {
		for wait(ctx, 3*time.Second+rand.N(4*time.Second)) == nil {
			restart(ctx, server, places[0])
		}
	})
	harm.Wait()
}

// restart takes the server down, or makes it hang for a while.
func restart(ctx context.Context, server *redistest.Server, redis *place) {
	if rand.IntN(3) == 0 {
		redis.count("hangs of the server")
		server.Stop()
		<-time.After(rand.N(2 * time.Second))
		server.Continue()
		return
	}
	redis.count("restarts of the server")
	redis.crashes.Crash(func() {
		server.Kill()
		<-time.After(rand.N(500 * time.Millisecond))
		if err := server.Restart(context.WithoutCancel(ctx)); err != nil {
			redis.t.Error(err)
		}
	})
}
