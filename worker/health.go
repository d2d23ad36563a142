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
	// depthWithin bounds how long a health check waits for a backend.
	depthWithin = 2 * time.Second
	// healthReadTimeout bounds how long a client may take to ask.
	healthReadTimeout = 5 * time.Second
)

// HealthStatus is the state of a group in one word.
type HealthStatus string

// The states.
const (
	// Healthy: everything is as it should be.
	Healthy HealthStatus = "healthy"
	// Degraded: messages are handled, and a person should look at the dead letters
	// or at a handler without progress.
	Degraded HealthStatus = "degraded"
	// Unhealthy: the group does not run, or is ending.
	Unhealthy HealthStatus = "unhealthy"
)

// HealthReport is what the health handler answers, as JSON.
type HealthReport struct {
	Status HealthStatus `json:"status"`
	// Draining says that the group is ending.
	Draining    bool               `json:"draining,omitempty"`
	Members     []MemberHealth     `json:"members,omitempty"`
	DeadLetters []DeadLetterHealth `json:"dead_letters,omitempty"`
}

// MemberHealth is the state of one member.
type MemberHealth struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	// Done says that it has ended without an error.
	Done bool `json:"done,omitempty"`
	// BeatAge is how long ago it gave a sign of life, in seconds.
	BeatAge float64 `json:"beat_age_seconds,omitempty"`
	// HandlerAge is how long its oldest handler has given none, in seconds, and
	// MessageID what that is busy with.
	HandlerAge float64 `json:"handler_age_seconds,omitempty"`
	MessageID  string  `json:"message_id,omitempty"`
	Stuck      bool    `json:"stuck,omitempty"`
	// DeadLettersFailing says that dead letters cannot be written.
	DeadLettersFailing bool `json:"dead_letters_failing,omitempty"`
}

// DeadLetterHealth is the state of one box of dead letters.
type DeadLetterHealth struct {
	Name  string `json:"name"`
	Depth int    `json:"depth"`
	// Threshold is how many make the group degraded; 0 if no number does.
	Threshold int `json:"threshold"`
	// Error says why they could not be counted.
	Error string `json:"error,omitempty"`
}

// Health returns a handler for health checks. /healthz and /health/live say
// whether the process should go on living: 200, and 503 once the watchdog has
// given up on it. /readyz and /health/ready say how it is doing: 200 if healthy,
// and 503 if degraded or unhealthy, with a HealthReport that tells why.
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
	// A client that does not read its answer has nobody to complain to.
	_ = json.NewEncoder(w).Encode(report)
}

// Report says how the group is doing. It asks the backends for the number of dead
// letters, and blocks for that, but not for long.
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
	if beating, ok := member.(interface{ LastBeat() time.Time }); ok {
		if beat := beating.LastBeat(); !beat.IsZero() {
			health.BeatAge = now.Sub(beat).Seconds()
		}
	}
	if watched, ok := member.(Watched); ok {
		if id, since, _ := watched.Oldest(); !since.IsZero() && since.Before(now) {
			age := now.Sub(since)
			health.MessageID, health.HandlerAge = id, age.Seconds()
			health.Stuck = g.options.Watchdog > 0 && age > g.options.Watchdog
		}
	}
	if burying, ok := member.(interface{ DeadLettersFailing() bool }); ok {
		health.DeadLettersFailing = burying.DeadLettersFailing()
	}
	return health
}

// deadLetterHealth counts the dead letters of all members, each box once.
func (g *Group) deadLetterHealth(ctx context.Context) []DeadLetterHealth {
	ctx, cancel := context.WithTimeout(ctx, depthWithin)
	defer cancel()
	var all []DeadLetterHealth
	seen := make(map[string]bool)
	for _, member := range g.members {
		counter, ok := member.(interface {
			DeadLetterDepth(ctx context.Context) (box string, depth int, err error)
		})
		if !ok {
			continue
		}
		box, depth, err := counter.DeadLetterDepth(ctx)
		if seen[box] || errors.Is(err, mailbox.ErrUnsupported) {
			continue
		}
		seen[box] = true
		health := DeadLetterHealth{Name: box, Depth: depth, Threshold: g.options.DeadLetterThreshold}
		if err != nil {
			health.Error = err.Error()
		}
		all = append(all, health)
	}
	return all
}

// healthServer serves health while a group runs.
type healthServer struct {
	server *http.Server
	serve  sync.WaitGroup
	gone   func()
}

// serveHealth starts to serve health, if it is to be served.
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
		// It returns when the server is closed, and says nothing but that.
		_ = s.server.Serve(listener)
	})
	return s, nil
}

// close ends the serving.
func (s *healthServer) close() {
	if s.server != nil {
		_ = s.server.Close()
		s.serve.Wait()
	}
	s.gone()
}
