package worker_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/worker"
)

func TestProgressIsReported(t *testing.T) {
	inMemory(t, func(s *env) {
		orders, events := s.open("orders"), ruletest.NewRecorder()
		id := s.send(orders, "tea")[0]
		type step struct{}
		g := s.group(worker.GroupOptions{Watchdog: 2 * time.Minute}, worker.New(orders, func(ctx context.Context, m *message) error {
			ctx = context.WithValue(ctx, step{}, "derived")
			for i := range 5 {
				worker.SetProgress(ctx, float64(i)/5, fmt.Sprintf("step %d of 5", i+1))
				<-time.After(time.Minute)
			}
			worker.SetProgress(ctx, -1, "")
			<-time.After(time.Minute)
			return nil
		}, s.options(options{Hooks: worker.Hooks{Progress: func(ctx context.Context, event worker.ProgressEvent) {
			if event.MessageID != id || event.Progress.MessageID != id || event.Loop != "orders" || ctx.Value(step{}) != "derived" {
				s.Errorf("the event is %+v", event)
			}
			events.Add(fmt.Sprintf("%v %s", event.Progress.Fraction, event.Progress.Text))
			if event.Progress.Fraction > 0.5 {
				panic("a hook")
			}
		}}})))
		stop := s.run(g)
		s.Pass(150 * time.Second)
		_, report := s.get(g, "/readyz")
		progress := report.Members[0].Progress
		if len(progress) != 1 || progress[0].MessageID != id || *progress[0].Fraction != 0.4 || progress[0].Text != "step 3 of 5" || progress[0].Age != 30 {
			s.Errorf("the report is %+v", progress)
		}
		ruletest.Equal(s, "status", report.Status, worker.Healthy)
		s.Pass(3 * time.Minute)
		_, report = s.get(g, "/readyz")
		if progress := report.Members[0].Progress; len(progress) != 1 || progress[0].Fraction != nil || progress[0].Text != "" {
			s.Errorf("the report is %+v", progress)
		}
		s.Pass(time.Minute)
		_, report = s.get(g, "/readyz")
		ruletest.Equal(s, "handlers with progress after the end", len(report.Members[0].Progress), 0)
		if got := events.List(); !slices.Equal(got, []string{"0 step 1 of 5", "0.2 step 2 of 5", "0.4 step 3 of 5", "0.6 step 4 of 5", "0.8 step 5 of 5", "-1 "}) {
			s.Errorf("events were %q", got)
		}
		s.expectStats(orders, mailbox.Stats{})
		s.Must(stop())
	})
}

func TestProgressIsBounded(t *testing.T) {
	inMemory(t, func(s *env) {
		worker.SetProgress(s.Context(), 1, "not the context of a handler")
		orders := s.open("orders")
		for range 30 {
			s.send(orders, "tea")
		}
		loop := worker.New(orders, func(ctx context.Context, m *message) error {
			worker.SetProgress(ctx, math.NaN(), "")
			worker.SetProgress(ctx, 7, strings.Repeat("ä", driver.MaxProgressBytes)+"\xff")
			<-time.After(time.Minute)
			return nil
		}, s.options(options{Concurrency: 30}))
		stop := s.run(loop)
		s.Pass(time.Second)
		reports := loop.Activity().Progress
		ruletest.Equal(s, "reports", len(reports), 20)
		ruletest.Equal(s, "fraction", reports[0].Fraction, 1)
		ruletest.Equal(s, "text", reports[0].Text, strings.Repeat("ä", driver.MaxProgressBytes/2))
		s.Pass(time.Minute)
		s.Must(stop())
	})
}

// TestProgressGoesWithExtension: the backend gets the latest report with each extension, for single messages and for
// batches.
func TestProgressGoesWithExtension(t *testing.T) {
	inMemory(t, func(s *env) {
		recorder := &extensionRecorder{Queue: s.open("orders").Queue(), reports: ruletest.NewRecorder()}
		work := func(ctx context.Context) {
			worker.SetProgress(ctx, 0.1, "first")
			worker.SetProgress(ctx, 0.4, "page\n4")
			<-time.After(time.Minute)
		}
		orders := mailbox.New("orders", recorder, &mailbox.Options[string]{})
		for _, loop := range []*worker.Loop[string]{
			worker.New(orders, func(ctx context.Context, m *message) error { work(ctx); return nil }, s.options(options{})),
			worker.NewBatch(orders, func(ctx context.Context, m []*message) error { work(ctx); return nil }, nil),
		} {
			s.send(orders, "tea")
			stop := s.run(loop)
			s.Pass(65 * time.Second)
			s.Must(stop())
			if got := recorder.reports.List(); len(got) < 3 || slices.ContainsFunc(got, func(report string) bool { return report != "40 %: page 4" }) {
				s.Errorf("the extensions report %q", got)
			}
			recorder.reports = ruletest.NewRecorder()
		}
	})
}

// An extensionRecorder records the reports of extensions.
type extensionRecorder struct {
	driver.Queue
	reports *ruletest.Recorder
}

func (q *extensionRecorder) Extend(ctx context.Context, extensions []driver.Extension) ([]time.Duration, error) {
	for _, e := range extensions {
		q.reports.Add(fmt.Sprint(e.Progress))
	}
	return q.Queue.Extend(ctx, extensions)
}
