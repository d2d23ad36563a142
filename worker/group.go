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
// A member can have more methods, which the group then uses: Activity()
// [Activity], which does not block, for the watchdog and health reports; DeadLetterDepth(ctx)
// (queue string, depth int, err error), for readiness; and Abort(), which the second signal
// calls to end the drain.
type Member interface {
	// Name returns the name of the member in logs and health reports.
	Name() string
	// Run works until ctx ends, and then drains. It returns nil unless something
	// went wrong.
	Run(ctx context.Context) error
}

// Defaults of GroupOptions.
const (
	defaultShutdownTimeout = 30 * time.Second
	defaultWatchdog        = 12 * time.Minute
	defaultWatchdogGrace   = 30 * time.Second
)

// GroupOptions configure a Group. The zero value, and nil, are the defaults.
type GroupOptions struct {
	// Signals stops the group: the first signal makes it drain, the second ends it
	// at once. Nil means SIGTERM and SIGINT of the process, unless NoSignals is set,
	// as in a test in virtual time.
	Signals   <-chan os.Signal
	NoSignals bool
	// ShutdownTimeout bounds how long members may take to stop. It should be longer
	// than their drain time. 0 means 30 seconds.
	ShutdownTimeout time.Duration
	// HealthAddr is the listen address for health checks, such as ":8080". Empty
	// means none; Group.Health is the handler for a server of your own.
	HealthAddr string
	// DeadLetterThreshold is how many dead letters in one queue make the group not
	// ready. 0, or less, means no limit.
	DeadLetterThreshold int
	// Watchdog is how long a handler may make no progress, which is to return or to
	// call Beat. The watchdog then reports it, once, in the log, to Stuck and in the
	// health report, and does no more unless CancelStuck is set. 0 means
	// 12 minutes, a negative value no watchdog.
	Watchdog time.Duration
	// CancelStuck makes the watchdog cancel a handler that it has reported and, if
	// the handler has not returned after WatchdogGrace, end the group. Watchdog must
	// then be longer than handlers may take. 0 means 30 seconds.
	CancelStuck   bool
	WatchdogGrace time.Duration
	// MemberFailed decides what to do about a member that failed with err, for the
	// failures-th time. Nil means that the first failure ends the group.
	MemberFailed func(member string, failures int, err error) Reaction
	// Stuck is called for a stuck handler, after it was logged and before it is
	// cancelled, if it is. Nil means no call.
	Stuck func(event StuckEvent)
	// Logger logs what happens to the group. Nil means no log.
	Logger *slog.Logger
}

// A Reaction is what a group does about a failed member.
type Reaction string

// The reactions.
const (
	// EndGroup stops all members.
	EndGroup Reaction = ""
	// RunAgain runs the member again after a pause, which grows with each of its
	// failures up to five seconds.
	RunAgain Reaction = "run again"
	// GoWithout lets the other members continue. The group is unhealthy from then
	// on, and Run returns the error at its end.
	GoWithout Reaction = "go without"
)

// A Group runs members together: all start at once and stop at the same moment, and
// the first that fails ends the others, unless GroupOptions.MemberFailed decides
// otherwise. Make one with NewGroup. Its methods may be called from many goroutines
// at once.
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
	done    []bool // members that ended without an error
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
		{&o.ShutdownTimeout, defaultShutdownTimeout},
		{&o.Watchdog, defaultWatchdog},
		{&o.WatchdogGrace, defaultWatchdogGrace},
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

// Stop makes the group drain and end, now or as soon as Run is called. It does not
// wait for that.
func (g *Group) Stop() { g.stopOnce.Do(func() { close(g.stopped) }) }

// HealthAddr returns the listen address for health checks, nil if there is none.
func (g *Group) HealthAddr() net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.address
}

// Run runs all members until ctx ends, Stop is called, a signal comes, a member fails
// for good, or the watchdog gives up. Then it stops all of them at the same moment
// and waits for them, up to ShutdownTimeout. A member that ends without an error is
// done, and the others continue.
//
// It returns nil if it was told to stop and every member ended without an error, and
// otherwise the errors in the order in which they occurred. A member that was told to
// stop and returns just the error of its context has ended without an error. Codes
// beside those of the members: ErrInvalid if a member is nil or the group has run
// before; ErrUnavailable if the health address cannot be listened on; ErrStuck if the
// watchdog ended the group, or a member did not stop in time.
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

// begin checks the members and marks the group as started.
func (g *Group) begin() error {
	invalid := func(field, detail string) error {
		return &mailbox.Error{Code: mailbox.ErrInvalid, Op: opRun, Field: field, Detail: detail}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		return invalid("", "the group has run before")
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

// signals returns the channel of signals, and a function that unsubscribes.
func (g *Group) signals() (<-chan os.Signal, func()) {
	if g.options.Signals != nil || g.options.NoSignals {
		return g.options.Signals, func() {}
	}
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, os.Interrupt)
	return received, func() { signal.Stop(received) }
}
