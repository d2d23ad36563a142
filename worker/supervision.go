package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// A result is how one run of a member ended.
type result struct {
	position int
	err      error
}

// A supervision is one run of a group: it starts the members, stops them and waits
// for them. Its fields belong to the goroutine of Group.Run.
type supervision struct {
	group    *Group
	results  chan result
	tripped  chan error              // the error of the watchdog
	stop     context.CancelCauseFunc // stops all members
	left     int                     // members that have not ended
	failures []int                   // by position of the member
	errs     []error
}

func newSupervision(g *Group, stop context.CancelCauseFunc) *supervision {
	members := len(g.members)
	return &supervision{
		group: g, results: make(chan result, members), tripped: make(chan error, 1),
		stop: stop, left: members, failures: make([]int, members),
	}
}

// start starts all members.
func (s *supervision) start(ctx context.Context) {
	for position := range s.group.members {
		s.run(ctx, position, 0)
	}
}

// run runs one member after a pause.
func (s *supervision) run(ctx context.Context, position int, pause time.Duration) {
	go func() {
		end := result{position, errGoexit}
		defer func() { s.results <- end }()
		if pause > 0 {
			_ = backoff.Pause(ctx, pause)
			if ctx.Err() != nil {
				end.err = nil // told to stop during the pause
				return
			}
		}
		s.group.setRunning(position, true, false)
		end.err = runMember(ctx, s.group.members[position])
	}()
}

// runMember runs a member and turns a panic into an error.
func runMember(ctx context.Context, member Member) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	return member.Run(ctx)
}

// await returns when all members have ended, or after ShutdownTimeout.
func (s *supervision) await(ctx context.Context, signals <-chan os.Signal) error {
	g := s.group
	stopped, done := g.stopped, ctx.Done()
	timeout := time.NewTimer(0)
	timeout.Stop()
	defer timeout.Stop()
	for s.left > 0 {
		select {
		case end := <-s.results:
			s.ended(ctx, end)
		case err := <-s.tripped:
			s.errs = append(s.errs, err)
			s.stop(err)
		case received, open := <-signals:
			if !open {
				signals = nil
			} else {
				s.signalled(ctx, received)
			}
		case <-stopped:
			stopped = nil
			s.stop(ErrShutdown)
		case <-done:
			done = nil
			g.draining.Store(true)
			g.logger.LogAttrs(ctx, slog.LevelInfo, "worker: group is stopping", slog.Any("cause", context.Cause(ctx)))
			timeout.Reset(g.options.ShutdownTimeout)
		case <-timeout.C:
			s.giveUp()
			return errors.Join(s.errs...)
		}
	}
	return errors.Join(s.errs...)
}

// signalled drains the group at the first signal, and aborts it at the second.
func (s *supervision) signalled(ctx context.Context, received os.Signal) {
	g := s.group
	g.logger.LogAttrs(ctx, slog.LevelInfo, "worker: group got a signal", slog.String("signal", received.String()))
	if ctx.Err() == nil {
		s.stop(fmt.Errorf("%w: %v", ErrShutdown, received))
		return
	}
	for _, member := range g.members {
		if abortable, ok := member.(interface{ Abort() }); ok {
			abortable.Abort()
		}
	}
}

// ended records how a member ended, and runs it again or stops the group.
func (s *supervision) ended(ctx context.Context, end result) {
	g := s.group
	if ctx.Err() != nil && (end.err == ctx.Err() || end.err == context.Cause(ctx)) { //nolint:errorlint // a wrapped error is a failure
		end.err = nil // it only says that the member was told to stop
	}
	g.setRunning(end.position, false, end.err == nil)
	if end.err == nil {
		s.left--
		return
	}
	name := g.members[end.position].Name()
	s.failures[end.position]++
	failures, reaction := s.failures[end.position], EndGroup
	if ctx.Err() == nil {
		reaction = g.react(ctx, name, failures, end.err)
	}
	g.logger.LogAttrs(ctx, slog.LevelError, "worker: member failed", slog.String("member", name),
		slog.Int("failures", failures), slog.String("reaction", string(reaction)), slog.Any("err", end.err))
	if reaction == RunAgain {
		s.run(ctx, end.position, backoff.AfterError(failures, end.err))
		return
	}
	s.left--
	err := fmt.Errorf("%s: %w", name, end.err)
	s.errs = append(s.errs, err)
	if reaction != GoWithout {
		s.stop(err)
	}
}

// react returns what to do about a failed member. A panic of MemberFailed ends the
// group.
func (g *Group) react(ctx context.Context, member string, failures int, err error) (reaction Reaction) {
	if g.options.MemberFailed == nil {
		return EndGroup
	}
	defer g.panicked(ctx, "MemberFailed")
	return g.options.MemberFailed(member, failures, err)
}

// giveUp adds an error for each member that did not stop in time.
func (s *supervision) giveUp() {
	g := s.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, member := range g.members {
		if g.running[i] {
			s.errs = append(s.errs, &mailbox.Error{
				Code: ErrStuck, Op: opRun, Queue: member.Name(),
				Detail: fmt.Sprintf("the member did not stop within %v", g.options.ShutdownTimeout),
			})
		}
	}
}
