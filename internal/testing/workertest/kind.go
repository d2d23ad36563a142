// Package workertest has cases of the rule of workers that a backend can break, FLOW-7. They run on
// any backend, in virtual time or on the real clock.
package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver/drivertest"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/worker"
)

// Rule is the id of the rule.
const Rule = "FLOW-7"

// Cases returns the cases.
func Cases() []ruletest.Case {
	return []ruletest.Case{
		{Name: "a mux handles kinds and dead-letters unknown ones", Run: muxHandlesKinds},
		{Name: "a mux puts unknown kinds back for a time, uncounted", Run: muxPutsUnknownBack},
		{Name: "a batch has the messages that were received within a time", Run: batchFills},
		{Name: "a batch settles each message", Run: batchSettlesEach},
	}
}

// Run runs the cases in virtual time, as drivertest.Run does.
func Run(t *testing.T, b drivertest.Backend) {
	t.Helper()
	for _, c := range Cases() {
		name := Rule + "/" + c.Name
		if b.Only != nil && !b.Only(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(ruletest.NewEnv(t, b.Open(t).(ruletest.Backend))) })
		})
	}
}

var errMilk = errors.New("no milk")

// putBack is how long unknown kinds are put back.
const putBack = 300 * time.Millisecond

func muxHandlesKinds(s *ruletest.Env) {
	done := ruletest.NewRecorder()
	handle := func(_ context.Context, m *mailbox.Message[string]) error {
		done.Add(m.Kind() + " " + m.Body)
		return nil
	}
	mux, err := worker.NewMux(nil, worker.Kind("tea", nil, handle), worker.Kind("note", mailbox.String(), handle))
	s.Must(err)
	jobs := openWork(s, mux)
	sendKinds(s, `"green"`, "tea", "note", "riddle")
	stop := start(s, worker.New(jobs, mux.Handle, nil))
	expectStats(s, jobs, mailbox.Stats{Dead: 1})
	s.Must(stop())
	if got := slices.Sorted(slices.Values(done.List())); !slices.Equal(got, []string{`note "green"`, "tea green"}) {
		s.Errorf("handled were %q", got)
	}
	for letter, err := range jobs.DeadLetters(s.Context()) {
		s.Must(err)
		ruletest.Equal(s, "reason", letter.Reason, mailbox.ReasonParse)
		if !strings.Contains(letter.LastError, `"riddle" has no handler here`) {
			s.Errorf("the last error is %q", letter.LastError)
		}
	}
}

func muxPutsUnknownBack(s *ruletest.Env) {
	done := ruletest.NewRecorder()
	handle := func(_ context.Context, m *mailbox.Message[string]) error {
		done.Add(fmt.Sprintf("%s, delivery %d", m.Kind(), m.Deliveries))
		return nil
	}
	back := &worker.MuxOptions{Unknown: mailbox.Disposition{Action: mailbox.PoisonPutBack, Delay: putBack}}
	kitchen, err := worker.NewMux(back, worker.Kind("tea", mailbox.String(), handle))
	s.Must(err)
	library, err := worker.NewMux(nil, worker.Kind("riddle", mailbox.String(), handle))
	s.Must(err)
	jobs := openWork(s, kitchen)
	sendKinds(s, "green", "riddle")
	_, err = worker.New(jobs, kitchen.Handle, nil).RunOnce(s.Context())
	s.Must(err)
	put := time.Now()
	expectStats(s, jobs, mailbox.Stats{Delayed: 1})
	stop := start(s, worker.New(openWork(s, library), library.Handle, nil))
	expectStats(s, jobs, mailbox.Stats{})
	if early := putBack - time.Since(put); early > putBack/2 {
		s.Errorf("the message was handled %v early", early)
	}
	s.Must(stop())
	if got := done.List(); !slices.Equal(got, []string{"riddle, delivery 1"}) {
		s.Errorf("handled were %q", got)
	}
}

func batchFills(s *ruletest.Env) {
	orders, done := openOrders(s, "a", "b", "c", "d", "e"), ruletest.NewRecorder()
	stop := start(s, worker.NewBatch(orders, func(_ context.Context, batch []*mailbox.Message[string]) error {
		var bodies []string
		for _, m := range batch {
			bodies = append(bodies, m.Body)
		}
		done.Add(strings.Join(bodies, " "))
		return nil
	}, &worker.BatchOptions[string]{Size: 3, Fill: 50 * time.Millisecond}))
	expectStats(s, orders, mailbox.Stats{})
	s.Must(stop())
	if got := done.List(); !slices.Equal(got, []string{"a b c", "d e"}) {
		s.Errorf("the batches were %q", got)
	}
}

func batchSettlesEach(s *ruletest.Env) {
	var bodies []string
	for i := range 25 {
		bodies = append(bodies, fmt.Sprint(i))
	}
	orders, done := openOrders(s, bodies...), ruletest.NewRecorder()
	stop := start(s, worker.NewBatch(orders, func(_ context.Context, batch []*mailbox.Message[string]) error {
		errs := make([]error, len(batch))
		for i, m := range batch {
			done.Add(m.Body)
			switch {
			case strings.HasSuffix(m.Body, "3"):
				errs[i] = worker.Permanent(errMilk)
			case strings.HasSuffix(m.Body, "5") && m.Deliveries == 1:
				errs[i] = errMilk
			}
		}
		return &mailbox.BatchError{Errs: errs}
	}, &worker.BatchOptions[string]{
		Size: 10, Fill: 50 * time.Millisecond,
		Options: worker.Options[string]{Backoff: worker.LinearBackoff(10*time.Millisecond, 10*time.Millisecond)},
	}))
	expectStats(s, orders, mailbox.Stats{Dead: 3})
	s.Must(stop())
	got, want := slices.Sorted(slices.Values(done.List())), slices.Sorted(slices.Values(append(bodies, "5", "15")))
	if !slices.Equal(got, want) {
		s.Errorf("handled were %q, want each once, and 5 and 15 twice", got)
	}
}

// openWork opens the mailbox of a mux.
func openWork(s *ruletest.Env, mux *worker.Mux) *mailbox.Mailbox[worker.Work] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, "jobs", mux.Options(&mailbox.Options[worker.Work]{Logger: s.Logs.Logger()}))
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	return m
}

// openOrders opens a mailbox and sends to it.
func openOrders(s *ruletest.Env, bodies ...string) *mailbox.Mailbox[string] {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, "orders", &mailbox.Options[string]{Logger: s.Logs.Logger()})
	s.Must(err)
	s.Cleanup(func() { m.Close() })
	_, err = m.SendAll(s.Context(), bodies)
	s.Must(err)
	return m
}

// sendKinds sends a body as several kinds.
func sendKinds(s *ruletest.Env, body string, kinds ...string) {
	s.Helper()
	m, err := mailbox.Open(s.Context(), s.Faults, "jobs", &mailbox.Options[string]{Codec: mailbox.String()})
	s.Must(err)
	defer m.Close()
	for _, kind := range kinds {
		_, err := m.Send(s.Context(), body, mailbox.WithKind(kind))
		s.Must(err)
	}
}

// start calls Run until the returned function is called, which returns the error of Run.
func start(s *ruletest.Env, member interface{ Run(context.Context) error }) (stop func() error) {
	ctx, cancel := context.WithCancel(s.Context())
	var result error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result = member.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-ended
		return result
	}
	s.Cleanup(func() { _ = stop() }) // cases that want the error call stop
	return stop
}

// patience is how long expectStats waits. It looks rarely after a while, because each look costs
// a call also in virtual time.
const patience = time.Minute

// expectStats waits until a queue has these stats.
func expectStats(s *ruletest.Env, m interface {
	Stats(ctx context.Context) (mailbox.Stats, error)
}, want mailbox.Stats,
) {
	s.Helper()
	start := time.Now()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		got, err := m.Stats(s.Context())
		s.Must(err)
		if got == want {
			return
		}
		if time.Since(start) > patience {
			s.Fatalf("the stats are %+v after %v, want %+v", got, patience, want)
		}
		<-time.After(pause)
	}
}
