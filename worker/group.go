package worker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mailboxmq/mailbox"
)

// A Member is something that a Group runs: a Loop, a deadletter.Consumer, or
// anything else that runs until its context ends.
//
// A member can have more methods, which the group then uses: those of [Watched],
// for the watchdog; LastBeat() time.Time, for health reports;
// DeadLetterDepth(ctx) (box string, depth int, err error) and
// DeadLettersFailing() bool, for readiness; and Abort(), for who does not want to
// wait for it to drain.
type Member interface {
	// Name is what the member is called in logs and health reports.
	Name() string
	// Run works until ctx ends, and then ends in order. It returns nil if nothing
	// went wrong.
	Run(ctx context.Context) error
}

// Defaults of GroupOptions.
const (
	DefaultShutdownTimeout = 30 * time.Second
	DefaultWatchdog        = 12 * time.Minute
	DefaultWatchdogGrace   = 30 * time.Second
)

// GroupOptions configure a Group. The zero value, and nil, are the defaults.
type GroupOptions struct {
	// Signals tells the group to stop: the first to drain, the second to end at
	// once. Nil means SIGTERM and SIGINT of the process, unless NoSignals says
	// that these are not the group's business, as in a test in virtual time.
	Signals   <-chan os.Signal
	NoSignals bool
	// ShutdownTimeout bounds how long members may take to end once they were told
	// to. It should be longer than they drain. 0 means DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// HealthAddr is where health is served while the group runs, such as ":8080".
	// Empty means nowhere; Group.Health is the handler for servers of your own.
	HealthAddr string
	// DeadLetterThreshold is how many dead letters in one box make the group not
	// ready. 0, or less, means that their number does not matter.
	DeadLetterThreshold int
	// Watchdog is how long a handler may go without progress, which is to return
	// or to call Beat. The watchdog then reports it, once, in the log, to Stuck and
	// in the health report, and leaves it alone unless CancelStuck is set. 0 means
	// DefaultWatchdog, a negative value that there is none.
	Watchdog time.Duration
	// CancelStuck makes the watchdog cancel a handler that it has reported and,
	// if the handler has not returned after WatchdogGrace, end the group. Watchdog
	// must be longer than handlers may take then. 0 means DefaultWatchdogGrace.
	CancelStuck   bool
	WatchdogGrace time.Duration
	// MemberFailed decides what to do about a member that has failed for the n-th
	// time, with err. Nil means that the first failure ends the group.
	MemberFailed func(member string, failures int, err error) Reaction
	// Stuck is called for a handler that the watchdog has found, after it was
	// logged and before it is cancelled, if it is. Nil means no call.
	Stuck func(event StuckEvent)
	// Logger gets what happens to the group. Nil means to discard it.
	Logger *slog.Logger
}

// A Reaction is what a group does about a member that has failed.
type Reaction string

// The reactions.
const (
	// EndGroup tells all members to stop.
	EndGroup Reaction = ""
	// RunAgain runs the member again after a pause, which grows with each of its
	// failures up to five seconds.
	RunAgain Reaction = "run again"
	// GoWithout lets the others go on. The group is unhealthy from then on, and
	// Run returns the error in the end.
	GoWithout Reaction = "go without"
)

// A Group runs members together: all of them begin at once, all are told to stop
// at the same moment, and the first that fails ends the others, unless
// GroupOptions.MemberFailed decides otherwise. Make one with NewGroup. Its methods may be called from many goroutines at once.
type Group struct {
	members []Member
	options GroupOptions
	logger  *slog.Logger

	stopped  chan struct{} // closed by Stop
	stopOnce sync.Once

	draining atomic.Bool
	tripped  atomic.Bool // the watchdog has ended the group

	mu      sync.Mutex // guards the fields below
	started bool
	running []bool // by position in members
	done    []bool // those that have ended without an error
	address net.Addr
}

// NewGroup returns a group of members. It does no I/O.
func NewGroup(options *GroupOptions, members ...Member) *Group {
	g := &Group{members: members, stopped: make(chan struct{}), running: make([]bool, len(members)), done: make([]bool, len(members))}
	if options != nil {
		g.options = *options
	}
	o := &g.options
	for _, field := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.ShutdownTimeout, DefaultShutdownTimeout},
		{&o.Watchdog, DefaultWatchdog},
		{&o.WatchdogGrace, DefaultWatchdogGrace},
	} {
		if *field.value == 0 {
			*field.value = field.standard
		}
	}
	o.DeadLetterThreshold = max(0, o.DeadLetterThreshold)
	g.logger = o.Logger
	if g.logger == nil {
		g.logger = slog.New(slog.DiscardHandler)
	}
	return g
}

// Stop tells the group to end, now or, if it does not run yet, as soon as it is
// run. It does not wait for that.
func (g *Group) Stop() { g.stopOnce.Do(func() { close(g.stopped) }) }

// HealthAddr returns where health is being served, and nil while it is not.
func (g *Group) HealthAddr() net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.address
}

// Run runs all members until ctx ends, Stop is called, a signal comes, a member
// fails for good, or the watchdog gives up. Then all of them are told to stop, at
// the same moment, and Run waits for them, up to ShutdownTimeout. A member that
// ends without an error is done, and the others go on.
//
// It returns nil if it was told to end and every member ended well, and otherwise
// what went wrong, first things first. A member that returns just the error of its
// context, after it was told to stop, has ended well. Codes beside those of the members:
// ErrInvalid if a member is nil or the group has run before; ErrUnavailable if
// health cannot be served; ErrStuck if the watchdog has ended it, or a member did
// not end in time.
func (g *Group) Run(ctx context.Context) error {
	if err := g.begin(); err != nil {
		return err
	}
	select {
	case <-g.stopped:
		return nil
	default:
	}
	serving, err := g.serveHealth(ctx)
	if err != nil {
		return err
	}
	defer serving.close()
	signals, forget := g.signals()
	defer forget()
	members, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := newSupervision(g, stop)
	s.start(members)
	if g.options.Watchdog > 0 {
		watching, end := context.WithCancel(context.WithoutCancel(ctx))
		var watchdog sync.WaitGroup
		watchdog.Go(func() { g.watch(watching, s.tripped) })
		defer watchdog.Wait()
		defer end()
	}
	return s.await(members, signals)
}

// begin makes the group one that has run.
func (g *Group) begin() error {
	invalid := func(field, detail string) error {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: opRun, Field: field, Detail: detail}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		return invalid("", "this group has run before")
	}
	for i, member := range g.members {
		if member == nil {
			return invalid("members", fmt.Sprintf("number %d is nil", i))
		}
	}
	g.started = true
	return nil
}

func (g *Group) setRunning(position int, running, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[position], g.done[position] = running, done
}

// signals returns where signals come from, and how to end that.
func (g *Group) signals() (<-chan os.Signal, func()) {
	if g.options.Signals != nil || g.options.NoSignals {
		return g.options.Signals, func() {}
	}
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	return received, func() { signal.Stop(received) }
}
