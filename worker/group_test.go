package worker_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/worker"
)

// fakeMember is a member whose Run is a function.
type fakeMember struct {
	name string
	run  func(ctx context.Context) error
}

func (m fakeMember) Name() string                  { return m.name }
func (m fakeMember) Run(ctx context.Context) error { return m.run(ctx) }

// group returns a group that gets only the signals of the case.
func (s *env) group(o worker.GroupOptions, members ...worker.Member) *worker.Group {
	o.Logger = s.Logs.Logger()
	o.NoSignals = o.Signals == nil
	return worker.NewGroup(&o, members...)
}

func TestGroupMembersRunAndStopTogether(t *testing.T) {
	runRule(t, "LOOP-4", []rule{
		{"loops and dead-letter consumers run together", func(s *env) {
			orders, seen := s.open("orders"), ruletest.NewRecorder()
			p := &policy{MaxDeliveries: 1}
			g := s.group(worker.GroupOptions{},
				worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: p})),
				deadletter.NewConsumer(p.Queue(orders), func(_ context.Context, l letter) (deadletter.Action, error) {
					seen.Add(l.Body)
					return deadletter.Drop, nil
				}, nil))
			stop := s.run(g)
			s.send(orders, "tea")
			s.Pass(time.Minute)
			ruletest.Equal(s, "letters seen", seen.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
		{"every member is told to stop at the same moment", func(s *env) {
			told := ruletest.NewRecorder()
			slow := func(name string, takes time.Duration) worker.Member {
				return fakeMember{name, func(ctx context.Context) error {
					<-ctx.Done()
					told.Add(name)
					<-time.After(takes)
					return nil
				}}
			}
			g := s.group(worker.GroupOptions{}, slow("a", time.Second), slow("b", 20*time.Second), slow("c", 0))
			time.AfterFunc(time.Minute, g.Stop)
			s.Must(g.Run(s.Context()))
			ruletest.Equal(s, "time", time.Since(s.Began), 80*time.Second)
			if got := told.When(); !slices.Equal(got, []time.Duration{time.Minute, time.Minute, time.Minute}) {
				s.Errorf("they were told at %v", got)
			}
		}},
		{"one that is done does not end the others", func(s *env) {
			g := s.group(worker.GroupOptions{}, fakeMember{"a", func(context.Context) error { return nil }},
				fakeMember{"b", func(context.Context) error { <-time.After(time.Minute); return nil }})
			s.Must(g.Run(s.Context()))
			ruletest.Equal(s, "time", time.Since(s.Began), time.Minute)
		}},
		{"one that does not end is named", func(s *env) {
			g := s.group(worker.GroupOptions{ShutdownTimeout: time.Minute},
				fakeMember{"mule", func(context.Context) error { <-time.After(time.Hour); return nil }})
			g2 := s.run(g)
			s.Pass(0)
			err := g2()
			s.Is(err, worker.ErrStuck)
			if !strings.Contains(err.Error(), "mule") {
				s.Errorf("the error does not name the member: %v", err)
			}
			ruletest.Equal(s, "time", time.Since(s.Began), time.Minute)
			s.Pass(time.Hour)
		}},
		{"Stop before Run prevents it", func(s *env) {
			g := s.group(worker.GroupOptions{}, fakeMember{"a", func(context.Context) error { s.Error("it ran"); return nil }})
			g.Stop()
			g.Stop()
			s.Must(g.Run(s.Context()))
			s.Is(g.Run(s.Context()), mailbox.ErrInvalid)
			s.Is(s.group(worker.GroupOptions{}, nil).Run(s.Context()), mailbox.ErrInvalid)
		}},
		{"the first signal drains, the second does not wait", func(s *env) {
			for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
				orders, signals := s.open("orders"+sig.String()), make(chan os.Signal)
				s.send(orders, "tea", "milk")
				g := s.group(worker.GroupOptions{Signals: signals},
					worker.New(orders, takes(time.Hour, ruletest.NewRecorder()), s.options(options{Prefetch: 1})))
				began := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- g.Run(s.Context()) }()
				s.Pass(time.Second)
				signals <- sig
				s.Pass(time.Second)
				s.expectStats(orders, mailbox.Stats{Ready: 1, InFlight: 1})
				signals <- sig
				s.Must(<-ended)
				ruletest.Equal(s, "time", time.Since(began), 2*time.Second)
				s.expectStats(orders, mailbox.Stats{Ready: 2})
			}
		}},
	})
}

func TestGroupReactsToMemberFailure(t *testing.T) {
	runRule(t, "LOOP-4", []rule{
		{"one that fails takes the group down, and the others finish", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			g := s.group(worker.GroupOptions{},
				worker.New(orders, takes(10*time.Second, done), s.options(options{})),
				fakeMember{"broken", func(context.Context) error {
					<-time.After(time.Second)
					return errMilk
				}})
			err := g.Run(s.Context())
			s.Is(err, errMilk)
			if !strings.HasPrefix(err.Error(), "broken: ") {
				s.Errorf("the error does not name the member: %v", err)
			}
			ruletest.Equal(s, "time", time.Since(s.Began), 10*time.Second)
			ruletest.Equal(s, "handled", done.Count(), 1)
			s.expectStats(orders, mailbox.Stats{})
		}},
		{"one that panics fails", func(s *env) {
			g := s.group(worker.GroupOptions{}, fakeMember{"a", func(context.Context) error { panic(errMilk) }},
				fakeMember{"b", func(ctx context.Context) error { <-ctx.Done(); return nil }})
			s.Is(g.Run(s.Context()), errMilk)
		}},
		{"one that fails may be run again, with pauses that grow", func(s *env) {
			runs := ruletest.NewRecorder()
			g := s.group(worker.GroupOptions{MemberFailed: func(member string, failures int, err error) worker.Reaction {
				s.Is(err, errMilk)
				if member != "cow" || failures != runs.Count() {
					s.Errorf("failure %d of %s after %d runs", failures, member, runs.Count())
				}
				return worker.RunAgain
			}}, fakeMember{"cow", func(ctx context.Context) error {
				if runs.Add("cow"); runs.Count() < 12 {
					return errMilk
				}
				<-ctx.Done()
				return nil
			}})
			stop := s.run(g)
			s.Pass(10 * time.Millisecond)
			if _, report := s.get(g, "/readyz"); report.Status != worker.Unhealthy { // it waits to be run again
				s.Errorf("the group is %s", report.Status)
			}
			s.Pass(time.Hour)
			if _, report := s.get(g, "/readyz"); report.Status != worker.Healthy {
				s.Errorf("the group is %s", report.Status)
			}
			when := runs.When()
			ruletest.Equal(s, "runs", len(when), 12)
			for i := 1; i < len(when); i++ {
				if pause := when[i] - when[i-1]; pause < 25*time.Millisecond || pause > 5*time.Second || i > 8 && pause < 2*time.Second {
					s.Errorf("the pause before run %d was %v", i+1, pause)
				}
			}
			s.Must(stop())
		}},
		{"a panic of MemberFailed ends the group", func(s *env) {
			g := s.group(worker.GroupOptions{MemberFailed: func(string, int, error) worker.Reaction { panic("help") }},
				fakeMember{"cow", func(context.Context) error { return errMilk }},
				fakeMember{"other", func(ctx context.Context) error { <-ctx.Done(); return nil }})
			s.Is(g.Run(s.Context()), errMilk)
			if !strings.Contains(s.Logs.String(), "help") {
				s.Error("the log does not say so")
			}
		}},
		{"a member in its pause does not delay the end", func(s *env) {
			g := s.group(worker.GroupOptions{MemberFailed: func(string, int, error) worker.Reaction { return worker.RunAgain }},
				fakeMember{"cow", func(context.Context) error {
					return &mailbox.Error{Code: mailbox.ErrUnavailable, RetryAfter: time.Minute}
				}})
			stop := s.run(g)
			s.Pass(time.Second)
			s.Must(stop())
			ruletest.Equal(s, "time", time.Since(s.Began), time.Second)
		}},
		{"GoWithout lets the others continue", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			g := s.group(worker.GroupOptions{MemberFailed: func(string, int, error) worker.Reaction { return worker.GoWithout }},
				worker.New(orders, count(done), s.options(options{})),
				fakeMember{"broken", func(context.Context) error { return errMilk }})
			stop := s.run(g)
			s.Pass(time.Minute)
			s.send(orders, "tea")
			s.Pass(time.Second)
			ruletest.Equal(s, "handled", done.Count(), 1)
			if _, report := s.get(g, "/readyz"); report.Status != worker.Unhealthy || report.Members[1].Running {
				s.Errorf("the report is %+v", report)
			}
			s.Is(stop(), errMilk)
		}},
	})
}

// A real signal, in real time, under load: no message is lost, and none is left in
// flight.
func TestSIGTERMUnderLoadLosesNothing(t *testing.T) {
	memory := membox.New(nil)
	defer memory.Close()
	orders, err := mailbox.Open[int](t.Context(), memory, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer orders.Close()
	var sent, handled atomic.Int64
	sending, stopSending := context.WithCancel(t.Context())
	defer stopSending()
	senders := make(chan struct{})
	go func() {
		defer close(senders)
		for sending.Err() == nil {
			bodies := make([]int, 50)
			if _, err := orders.SendAll(t.Context(), bodies); err != nil {
				t.Error(err)
				return
			}
			if sent.Add(int64(len(bodies))) > 200_000 {
				return
			}
		}
	}()
	reached := make(chan struct{})
	loops := make([]worker.Member, 3)
	for i := range loops {
		loops[i] = worker.New(orders, func(context.Context, *mailbox.Message[int]) error {
			if handled.Add(1) == 5000 {
				close(reached)
			}
			return nil
		}, &worker.Options[int]{Name: fmt.Sprintf("loop %d", i), Concurrency: 4, Prefetch: 16})
	}
	group := worker.NewGroup(nil, loops...)
	ended := make(chan error, 1)
	go func() { ended <- group.Run(t.Context()) }()
	<-reached
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stopSending()
	<-senders
	stats, err := orders.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.InFlight != 0 || stats.Delayed != 0 || int64(stats.Ready)+handled.Load() != sent.Load() {
		t.Errorf("%d were sent, %d handled, and there are %+v", sent.Load(), handled.Load(), stats)
	}
}
