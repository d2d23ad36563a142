package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/deadletter"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/ruletest"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/worker"
)

// get asks a group for its health.
func (s *env) get(g *worker.Group, path string) (int, worker.HealthReport) {
	s.Helper()
	recorder := httptest.NewRecorder()
	g.Health().ServeHTTP(recorder, httptest.NewRequestWithContext(s.Context(), http.MethodGet, path, nil))
	var report worker.HealthReport
	if recorder.Code != http.StatusNotFound {
		s.Must(json.Unmarshal(recorder.Body.Bytes(), &report))
		ruletest.Equal(s, "content type", recorder.Header().Get("Content-Type"), "application/json")
	}
	return recorder.Code, report
}

func TestGroupReportsHealth(t *testing.T) {
	ready := []string{"/readyz", "/health/ready"}
	live := []string{"/healthz", "/health/live"}
	expect := func(s *env, g *worker.Group, paths []string, code int, status worker.HealthStatus) worker.HealthReport {
		s.Helper()
		var last worker.HealthReport
		for _, path := range paths {
			got, report := s.get(g, path)
			if got != code || report.Status != status {
				s.Errorf("%s says %d %s, want %d %s: %+v", path, got, report.Status, code, status, report)
			}
			last = report
		}
		return last
	}
	runRule(t, "LOOP-4", []rule{
		{"ready while all members run", func(s *env) {
			orders := s.open("orders")
			g := s.group(worker.GroupOptions{}, worker.New(orders, takes(10*time.Second, ruletest.NewRecorder()), s.options(options{})))
			expect(s, g, ready, 503, worker.Unhealthy)
			expect(s, g, live, 200, worker.Healthy)
			stop := s.run(g)
			s.send(orders, "tea")
			s.Pass(5 * time.Second)
			report := expect(s, g, ready, 200, worker.Healthy)
			if m := report.Members[0]; m.Name != "orders" || !m.Running || m.HandlerAge != 5 || m.MessageID == "" {
				s.Errorf("the member is %+v", m)
			}
			if d := report.DeadLetters[0]; d != (worker.DeadLetterHealth{Name: "orders"}) {
				s.Errorf("the dead letters are %+v", d)
			}
			go func() { _ = stop() }()
			s.Pass(time.Second)
			if report := expect(s, g, ready, 503, worker.Unhealthy); !report.Draining {
				s.Errorf("it does not say that it is draining: %+v", report)
			}
			expect(s, g, live, 200, worker.Healthy)
			s.Must(stop())
			expect(s, g, ready, 503, worker.Unhealthy)
			code, _ := s.get(g, "/nothing")
			ruletest.Equal(s, "another path", code, http.StatusNotFound)
		}},
		{"degraded when there are too many dead letters", func(s *env) {
			orders := s.open("orders")
			p := &policy{MaxDeliveries: 1, Mailbox: s.openLetters("dead", mailbox.Hooks{})}
			g := s.group(worker.GroupOptions{DeadLetterThreshold: 2},
				worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: p})),
				deadletter.NewConsumer(p.Queue(orders), func(context.Context, letter) (deadletter.Action, error) { return deadletter.Keep, nil }, nil))
			s.run(g)
			s.send(orders, "tea")
			s.Pass(time.Second)
			expect(s, g, ready, 200, worker.Healthy)
			s.send(orders, "milk")
			s.Pass(time.Second)
			report := expect(s, g, ready, 503, worker.Degraded)
			if len(report.DeadLetters) != 1 || report.DeadLetters[0] != (worker.DeadLetterHealth{Name: "dead", Depth: 2, Threshold: 2}) {
				s.Errorf("the dead letters are %+v", report.DeadLetters)
			}
			expect(s, g, live, 200, worker.Healthy)
		}},
		{"any number of dead letters without a threshold", func(s *env) {
			orders := s.open("orders")
			g := s.group(worker.GroupOptions{}, worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: &policy{MaxDeliveries: 1}})))
			s.run(g)
			for range 300 {
				s.send(orders, "tea")
			}
			s.Pass(time.Second)
			if report := expect(s, g, ready, 200, worker.Healthy); report.DeadLetters[0].Depth != 300 {
				s.Errorf("the dead letters are %+v", report.DeadLetters)
			}
		}},
		{"degraded when dead letters cannot be written, or counted", func(s *env) {
			s.Configure("orders", driver.Config{MaxDead: 1})
			orders := s.open("orders")
			g := s.group(worker.GroupOptions{}, worker.New(orders, fails(errMilk, ruletest.NewRecorder()), s.options(options{DeadLetters: &policy{MaxDeliveries: 1}})))
			s.run(g)
			s.send(orders, "tea")
			s.Pass(time.Second)
			expect(s, g, ready, 200, worker.Healthy)
			s.send(orders, "milk")
			s.Pass(time.Second)
			if report := expect(s, g, ready, 503, worker.Degraded); !report.Members[0].DeadLettersFailing {
				s.Errorf("the member is %+v", report.Members[0])
			}
			s.expectStats(orders, mailbox.Stats{Delayed: 1, Dead: 1})
			_, err := orders.PurgeDead(s.Context())
			s.Must(err)
			s.Pass(time.Minute)
			expect(s, g, ready, 200, worker.Healthy)
			s.Faults.Add(mailboxtest.Fault{Op: "stats", Err: mailbox.ErrUnavailable})
			if report := expect(s, g, ready, 503, worker.Degraded); report.DeadLetters[0].Error == "" {
				s.Errorf("the dead letters are %+v", report.DeadLetters)
			}
		}},
	})
}

func TestHealthIsServedOnAPort(t *testing.T) {
	member := fakeMember{"a", func(ctx context.Context) error { <-ctx.Done(); return nil }}
	g := worker.NewGroup(&worker.GroupOptions{HealthAddr: "127.0.0.1:0", NoSignals: true}, member)
	if g.HealthAddr() != nil {
		t.Error("it serves before it runs")
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(t.Context()) }()
	for g.HealthAddr() == nil {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/readyz", g.HealthAddr()), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status is %s", response.Status)
	}
	taken := worker.NewGroup(&worker.GroupOptions{HealthAddr: g.HealthAddr().String(), NoSignals: true}, member)
	if err := taken.Run(t.Context()); !errors.Is(err, mailbox.ErrUnavailable) {
		t.Errorf("a port that is taken is %v", err)
	}
	g.Stop()
	if err := <-ended; err != nil || g.HealthAddr() != nil {
		t.Errorf("it ended with %v, serving on %v", err, g.HealthAddr())
	}
}
