package server

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
)

const (
	// pingTimeout is how long a backend may take to answer before it is not ready.
	pingTimeout = time.Second
	// clockTolerance is how far the clock may have been turned back.
	clockTolerance = 2 * time.Minute
)

// readiness is what the daemon is ready for. The names are fixed, so that alerts
// can be about them.
func (s *Server) readiness(ctx context.Context) httpapi.Readiness {
	var r httpapi.Readiness
	c := s.Config()
	select {
	case <-s.started:
	default:
		r.Missing = append(r.Missing, "listeners_bound")
	}
	if s.keys.ring.Current().IsZero() {
		r.Missing, r.Degraded = append(r.Missing, "cap_authority_ok"), true
	}
	if s.broker.State() != broker.StateServing {
		r.Missing, r.Degraded = append(r.Missing, "not_draining"), true
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := s.broker.Ping(ctx); err != nil {
		r.Missing, r.Degraded = append(r.Missing, "shards_ready"), true
	}
	if s.broker.ClockBehind() > clockTolerance {
		r.Missing = append(r.Missing, "clock_skew_ok")
	}
	r.Notes = map[string]string{"profile": c.Profile, "dlq_profile": c.deadLetterProfile()}
	if c.InsecureListen {
		r.Notes["plaintext"] = "beyond this machine"
	}
	if c.SQS.Unsigned {
		r.Notes["sqs"] = "unsigned requests are believed"
	}
	return r
}

// deadLetterProfile says whether dead letters survive the process.
func (c *Config) deadLetterProfile() string {
	if c.Backend == "memory:" {
		return "ephemeral"
	}
	return "durable"
}

// describe puts what does not change into the metrics.
func (s *Server) describe(c *Config) {
	s.metrics.SQSUnsigned(c.SQS.Unsigned)
	s.metrics.Info(c.Profile, c.deadLetterProfile(), *c.Amnesia, c.InsecureListen && c.TLSCert == "")
}
