package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

const (
	// depthTimeout bounds how long a health check waits for a backend.
	depthTimeout = 2 * time.Second
	// healthReadTimeout bounds how long a client may take to send its request.
	healthReadTimeout = 5 * time.Second
)

// HealthStatus is the state of a group.
type HealthStatus string

// The states.
const (
	// Healthy: all members run, and nothing is stuck.
	Healthy HealthStatus = "healthy"
	// Degraded: messages are handled, but there are too many dead letters, they
	// cannot be written or counted, or a handler is stuck.
	Degraded HealthStatus = "degraded"
	// Unhealthy: a member does not run, or the group is stopping.
	Unhealthy HealthStatus = "unhealthy"
)

// HealthReport is the answer of the health handler, as JSON.
type HealthReport struct {
	Status HealthStatus `json:"status"`
	// Draining says that the group is stopping.
	Draining    bool               `json:"draining,omitempty"`
	Members     []MemberHealth     `json:"members,omitempty"`
	DeadLetters []DeadLetterHealth `json:"dead_letters,omitempty"`
}

// MemberHealth is the state of one member.
type MemberHealth struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	// Done says that it ended without an error.
	Done bool `json:"done,omitempty"`
	// BeatAge is the time since it last made progress, in seconds.
	BeatAge float64 `json:"beat_age_seconds,omitempty"`
	// HandlerAge is how long its slowest handler has made no progress, in seconds,
	// and MessageID the message of that handler.
	HandlerAge float64 `json:"handler_age_seconds,omitempty"`
	MessageID  string  `json:"message_id,omitempty"`
	Stuck      bool    `json:"stuck,omitempty"`
	// Progress has what running handlers have reported; see SetProgress.
	Progress []ProgressHealth `json:"progress,omitempty"`
	// DeadLettersFailing says that dead letters cannot be written.
	DeadLettersFailing bool `json:"dead_letters_failing,omitempty"`
}

// ProgressHealth is what one running handler has reported.
type ProgressHealth struct {
	MessageID string `json:"message_id"`
	// Fraction is how much of the work is done, from 0 to 1; nil if unknown.
	Fraction *float64 `json:"fraction,omitempty"`
	Text     string   `json:"text,omitempty"`
	// Age is the time since the report, in seconds.
	Age float64 `json:"age_seconds"`
}

// DeadLetterHealth is the state of one dead-letter queue.
type DeadLetterHealth struct {
	Name  string `json:"name"`
	Depth int    `json:"depth"`
	// Threshold is how many dead letters make the group degraded; 0 means none do.
	Threshold int `json:"threshold"`
	// Error says why they could not be counted.
	Error string `json:"error,omitempty"`
}

// Health returns a handler for health checks. /healthz and /health/live are liveness
// checks: 200, and 503 once the watchdog has ended the group. /readyz and
// /health/ready are readiness checks: 200 if healthy, and 503 if degraded or
// unhealthy, with a HealthReport that says why.
func (g *Group) Health() http.Handler {
	mux := http.NewServeMux()
	live := func(w http.ResponseWriter, _ *http.Request) {
		report := HealthReport{Status: Healthy}
		if g.tripped.Load() {
			report.Status = Unhealthy
		}
		writeReport(w, report)
	}
	ready := func(w http.ResponseWriter, request *http.Request) { writeReport(w, g.Report(request.Context())) }
	mux.HandleFunc("GET /healthz", live)
	mux.HandleFunc("GET /health/live", live)
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /health/ready", ready)
	return mux
}

func writeReport(w http.ResponseWriter, report HealthReport) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if report.Status != Healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	// The client may be gone; then there is nothing to do.
	_ = json.NewEncoder(w).Encode(report)
}

// Report returns the health of the group. It counts the dead letters, which blocks
// for up to two seconds.
func (g *Group) Report(ctx context.Context) HealthReport {
	report := HealthReport{Status: Healthy, Draining: g.draining.Load()}
	worse := func(status HealthStatus) {
		if report.Status != Unhealthy {
			report.Status = status
		}
	}
	if report.Draining || g.tripped.Load() {
		worse(Unhealthy)
	}
	now := time.Now()
	for i := range g.members {
		health := g.memberHealth(i, now)
		if !health.Running && !health.Done {
			worse(Unhealthy)
		}
		if health.DeadLettersFailing || health.Stuck {
			worse(Degraded)
		}
		report.Members = append(report.Members, health)
	}
	report.DeadLetters = g.deadLetterHealth(ctx)
	for _, letters := range report.DeadLetters {
		if letters.Error != "" || letters.Threshold > 0 && letters.Depth >= letters.Threshold {
			worse(Degraded)
		}
	}
	return report
}

func (g *Group) memberHealth(position int, now time.Time) MemberHealth {
	member := g.members[position]
	health := MemberHealth{Name: member.Name()}
	g.mu.Lock()
	health.Running, health.Done = g.running[position], g.done[position]
	g.mu.Unlock()
	watched, ok := member.(watchedMember)
	if !ok {
		return health
	}
	doing := watched.Activity()
	if !doing.LastBeat.IsZero() {
		health.BeatAge = now.Sub(doing.LastBeat).Seconds()
	}
	if !doing.Since.IsZero() && doing.Since.Before(now) {
		age := now.Sub(doing.Since)
		health.MessageID, health.HandlerAge = doing.MessageID, age.Seconds()
		health.Stuck = g.options.Watchdog > 0 && age > g.options.Watchdog
	}
	for _, p := range doing.Progress {
		reported := ProgressHealth{MessageID: p.MessageID, Text: p.Text, Age: now.Sub(p.At).Seconds()}
		if p.Fraction >= 0 {
			reported.Fraction = &p.Fraction
		}
		health.Progress = append(health.Progress, reported)
	}
	health.DeadLettersFailing = doing.DeadLettersFailing
	return health
}

// deadLetterHealth counts the dead letters of all members, each queue once.
func (g *Group) deadLetterHealth(ctx context.Context) []DeadLetterHealth {
	ctx, cancel := context.WithTimeout(ctx, depthTimeout)
	defer cancel()
	var all []DeadLetterHealth
	seen := make(map[string]bool)
	for _, member := range g.members {
		counter, ok := member.(interface {
			DeadLetterDepth(ctx context.Context) (queue string, depth int, err error)
		})
		if !ok {
			continue
		}
		queue, depth, err := counter.DeadLetterDepth(ctx)
		if seen[queue] || errors.Is(err, mailbox.ErrUnsupported) {
			continue
		}
		seen[queue] = true
		health := DeadLetterHealth{Name: queue, Depth: depth, Threshold: g.options.DeadLetterThreshold}
		if err != nil {
			health.Error = err.Error()
		}
		all = append(all, health)
	}
	return all
}

// A healthServer serves health checks while a group runs.
type healthServer struct {
	server *http.Server
	serve  sync.WaitGroup
	gone   func()
}

// serveHealth serves health checks if GroupOptions.HealthAddr is set.
func (g *Group) serveHealth(ctx context.Context) (*healthServer, error) {
	s := &healthServer{gone: func() {}}
	if g.options.HealthAddr == "" {
		return s, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", g.options.HealthAddr)
	if err != nil {
		return nil, &mailbox.Error{Code: mailbox.ErrUnavailable, Op: opRun, Field: "HealthAddr", Err: err}
	}
	g.mu.Lock()
	g.address = listener.Addr()
	g.mu.Unlock()
	s.gone = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.address = nil
	}
	s.server = &http.Server{Handler: g.Health(), ReadHeaderTimeout: healthReadTimeout}
	s.serve.Go(func() {
		// The error only says that the server was closed.
		_ = s.server.Serve(listener)
	})
	return s, nil
}

// close stops the server.
func (s *healthServer) close() {
	if s.server != nil {
		_ = s.server.Close()
		s.serve.Wait()
	}
	s.gone()
}
