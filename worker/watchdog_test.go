package worker_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

func TestWatchdogNoticesStuckHandlers(t *testing.T) {
	runRule(t, "LOOP-4", []rule{
		{"one that ignores its context ends the group", func(s *env) {
			orders := s.open("orders")
			id := s.send(orders, "tea")[0]
			stuck := ruletest.NewRecorder()
			var event worker.StuckEvent
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: 2 * time.Minute, Stuck: func(e worker.StuckEvent) {
				stuck.Add("stuck")
				event = e
			}}, worker.New(orders, func(ctx context.Context, m *message) error {
				if m.Deliveries == 1 {
					ignoreTheWorld()
				}
				return nil
			}, s.options(options{})))
			err := g.Run(s.Context())
			s.Is(err, worker.ErrStuck)
			at := stuck.When()[0]
			if stuck.Count() != 1 || at <= 2*time.Minute || at > 3*time.Minute {
				s.Errorf("it was noticed at %v", stuck.When())
			}
			if event.Member != "orders" || event.MessageID != id || event.Age != at || !strings.Contains(event.Stack, "ignoreTheWorld") {
				s.Errorf("the event is %+v", event)
			}
			took := time.Since(s.Began)
			if took < at+worker.DefaultWatchdogGrace || took > at+2*worker.DefaultWatchdogGrace+worker.DefaultDrain {
				s.Errorf("the group ended at %v", took)
			}
			log := s.Logs.String()
			said, acted := strings.Index(log, "worker: handler is stuck"), strings.Index(log, "worker: watchdog ends the group")
			if said < 0 || acted < said {
				s.Errorf("the log says first what it did: %s", log)
			}
			var line struct {
				Loop  string        `json:"loop"`
				ID    string        `json:"id"`
				Age   time.Duration `json:"age"`
				Stack string        `json:"stack"`
			}
			for text := range strings.Lines(log) {
				if strings.Contains(text, "worker: handler is stuck") {
					s.Must(json.Unmarshal([]byte(text), &line))
				}
			}
			if line.Loop != "orders" || line.ID != id || line.Age != at || !strings.Contains(line.Stack, "ignoreTheWorld") {
				s.Errorf("the log says %+v", line)
			}
			code, report := s.get(g, "/healthz")
			if code != http.StatusServiceUnavailable || report.Status != worker.Unhealthy {
				s.Errorf("liveness is %d %s", code, report.Status)
			}
			s.expectStats(orders, mailbox.Stats{Ready: 1}) // for a worker that is not stuck
			s.At(11 * time.Minute)
		}},
		{"it is cancelled even if Stuck panics", func(s *env) {
			orders, causes := s.open("orders"), make(chan error, 1)
			s.send(orders, "tea")
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: time.Minute, Stuck: func(worker.StuckEvent) { panic("help") }},
				worker.New(orders, func(ctx context.Context, m *message) error {
					if m.Deliveries == 1 {
						<-ctx.Done()
						causes <- context.Cause(ctx)
					}
					return nil
				}, s.options(options{})))
			stop := s.run(g)
			s.Is(<-causes, worker.ErrStuck)
			s.Must(stop())
		}},
		{"one that returns continues with the next message", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea", "milk")
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: 2 * time.Minute}, worker.New(orders, func(ctx context.Context, m *message) error {
				if m.Body == "tea" && m.Deliveries == 1 {
					<-ctx.Done()
					s.Is(context.Cause(ctx), worker.ErrStuck)
					return ctx.Err()
				}
				done.Add(m.Body)
				return nil
			}, s.options(options{})))
			stop := s.run(g)
			s.At(10 * time.Minute)
			if got := done.List(); !slices.Equal(got, []string{"milk", "tea"}) {
				s.Errorf("handled were %v", got)
			}
			s.Must(stop())
		}},
	})
}

func TestWatchdogIgnoresWorkingHandlers(t *testing.T) {
	runRule(t, "LOOP-4", []rule{
		{"one that beats is not stuck", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			s.send(orders, "tea")
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: 2 * time.Minute}, worker.New(orders, func(ctx context.Context, m *message) error {
				for range 20 {
					worker.Beat(ctx)
					if err := takes(time.Minute, done)(ctx, m); err != nil {
						return err
					}
				}
				return nil
			}, s.options(options{})))
			stop := s.run(g)
			s.At(21 * time.Minute)
			ruletest.Equal(s, "minutes", done.Count(), 20)
			s.Must(stop())
		}},
		{"an idle loop is not stuck, and neither is one that is busy", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			// Less than one receive waits.
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: worker.DefaultWait / 2}, worker.New(orders, takes(worker.DefaultWait/4, done), s.options(options{})))
			stop := s.run(g)
			s.At(time.Hour)
			s.send(orders, "a", "b", "c", "d", "e", "f")
			s.Pass(10 * time.Minute)
			ruletest.Equal(s, "handled", done.Count(), 6)
			s.Must(stop())
			if log := s.Logs.String(); strings.Contains(log, "stuck") {
				s.Error(log)
			}
		}},
		{"a backend that does not answer is stuck too", func(s *env) {
			orders := s.open("orders")
			s.Faults.Add(mailboxtest.Fault{Op: "receive", Delay: 24 * time.Hour})
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: time.Minute}, worker.New(orders, count(ruletest.NewRecorder()), s.options(options{})))
			s.Is(g.Run(s.Context()), worker.ErrStuck)
		}},
		{"a dead-letter consumer is watched as well", func(s *env) {
			orders := s.open("orders")
			s.send(orders, "tea")
			p := &policy{MaxDeliveries: 1}
			_, err := worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: p})).RunOnce(s.Context())
			s.Must(err)
			causes := make(chan error, 1)
			g := s.group(worker.GroupOptions{CancelStuck: true, Watchdog: time.Minute}, deadletter.NewConsumer(p.Queue(orders), func(ctx context.Context, l letter) (deadletter.Action, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return "", ctx.Err()
			}, nil))
			stop := s.run(g)
			s.Is(<-causes, worker.ErrStuck)
			s.Must(stop())
		}},
	})
}

func TestStuckHandlerIsOnlyReportedByDefault(t *testing.T) {
	runRule(t, "LOOP-4", []rule{
		{"by default", func(s *env) {
			orders, done := s.open("orders"), ruletest.NewRecorder()
			id := s.send(orders, "tea")[0]
			stuck := ruletest.NewRecorder()
			g := s.group(worker.GroupOptions{Stuck: func(e worker.StuckEvent) { stuck.Add(e.MessageID) }},
				worker.New(orders, takes(time.Hour, done), s.options(options{DeadLetters: &policy{MaxDeliveries: 1}})))
			stop := s.run(g)
			s.At(worker.DefaultWatchdog)
			ruletest.Equal(s, "reports", stuck.Count(), 0)
			code, report := s.get(g, "/readyz")
			if code != http.StatusOK || report.Members[0].Stuck {
				s.Errorf("readiness is %d %+v", code, report)
			}
			s.At(worker.DefaultWatchdog + 2*time.Minute)
			ruletest.Equal(s, "reports", stuck.Count(), 1)
			code, report = s.get(g, "/readyz")
			if code != http.StatusServiceUnavailable || report.Status != worker.Degraded || !report.Members[0].Stuck || report.Members[0].MessageID != id {
				s.Errorf("readiness is %d %+v", code, report)
			}
			if code, _ := s.get(g, "/healthz"); code != http.StatusOK {
				s.Errorf("liveness is %d", code)
			}
			s.At(time.Hour)
			ruletest.Equal(s, "reports", stuck.Count(), 1)
			ruletest.Equal(s, "handled", done.Count(), 1)
			s.Pass(0)
			s.expectStats(orders, mailbox.Stats{})
			s.Must(stop())
		}},
		{"and so is a backend that does not answer", func(s *env) {
			orders := s.open("orders")
			s.Faults.Add(mailboxtest.Fault{Op: "receive", Delay: time.Hour, Times: 1})
			stop := s.run(s.group(worker.GroupOptions{}, worker.New(orders, count(ruletest.NewRecorder()), s.options(options{}))))
			s.At(2 * time.Hour)
			s.Must(stop())
			if log := s.Logs.String(); !strings.Contains(log, "worker: handler is stuck") {
				s.Errorf("the log says %s", log)
			}
		}},
	})
}

// ignoreTheWorld is a handler that ignores its context for ten minutes.
func ignoreTheWorld() { <-time.After(10 * time.Minute) }
