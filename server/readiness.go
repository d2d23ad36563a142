package server

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/httpapi"
	"github.com/mailboxmq/mailbox/server/internal/metrics"
)

const (
	// pingTimeout is how long a backend may take to answer before it counts as not ready.
	pingTimeout = time.Second
	// clockTolerance is how far the clock may have been set back.
	clockTolerance = 2 * time.Minute
)

// readiness returns which conditions of readiness fail. Their names are stable, so that
// alerts can use them.
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
	if state := s.broker.State(); state != broker.StateServing {
		r.Missing = append(r.Missing, "not_draining")
		r.Degraded = r.Degraded || state > broker.StateStopping // it accepts writes until then
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := s.broker.Ping(ctx); err != nil {
		r.Missing, r.Degraded = append(r.Missing, "shards_ready"), true
	}
	if s.broker.ClockBehind() > clockTolerance {
		r.Missing = append(r.Missing, "clock_skew_ok")
	}
	r.Notes = map[string]string{"profile": c.Profile, "dlq_profile": s.deadLetterProfile(), "durability": string(s.durability())}
	if disk, ok := s.opener.(*diskbox.Backend); ok {
		space := disk.Space()
		r.Notes["disk_volume_bytes"] = strconv.FormatUint(space.VolumeBytes, 10)
		r.Notes["disk_free_bytes"] = strconv.FormatUint(space.FreeBytes, 10)
		r.Notes["disk_reserve_bytes"] = strconv.FormatUint(space.ReserveBytes, 10)
	}
	if backend, ok := s.opener.(interface {
		Replication() (problem string, lost bool)
	}); ok {
		if problem, lost := backend.Replication(); problem != "" {
			r.Notes["replication"], r.Degraded = problem, r.Degraded || lost
		}
	}
	s.broker.Measure(ctx)
	if n := s.broker.DeadLettersFull(); n > 0 {
		r.Degraded = true
		r.Notes["dead_letters_full"] = fmt.Sprintf("%d queues have no room for dead letters; their failing messages stay and are retried", n)
	}
	if c.InsecureListen {
		r.Notes["plaintext"] = "beyond this machine"
	}
	if c.SQS.Unsigned {
		r.Notes["sqs"] = "unsigned requests are accepted"
	}
	return r
}

// durabilityUnknown is the durability of a backend that does not report one.
const durabilityUnknown driver.Durability = "unknown"

// durability returns what messages and dead letters survive in the backend.
func (s *Server) durability() driver.Durability {
	if backend, ok := s.opener.(interface{ DefaultTraits() driver.Traits }); ok {
		return backend.DefaultTraits().Durability
	}
	return durabilityUnknown
}

// deadLetterProfile returns whether dead letters survive a restart of the backend:
// durable, ephemeral or unknown.
func (s *Server) deadLetterProfile() string {
	switch d := s.durability(); {
	case d == durabilityUnknown:
		return string(d)
	case d.Restarts():
		return "durable"
	}
	return "ephemeral"
}

// warnOfLoss logs that a restart loses messages, unless amnesia was chosen.
func (s *Server) warnOfLoss(c *Config) {
	if profile := s.deadLetterProfile(); profile != "durable" && !*c.Amnesia {
		s.log.Warn("messages and dead letters may not survive a restart of the backend",
			slog.String("dlq_profile", profile), slog.String("durability", string(s.durability())))
	}
}

// describe sets the metrics that do not change.
func (s *Server) describe(c *Config) {
	s.metrics.SQSUnsigned(c.SQS.Unsigned)
	s.metrics.Info(c.Profile, s.deadLetterProfile(), *c.Amnesia, c.InsecureListen && c.TLSCert == "")
}

// showFigures registers the metrics that are read at each scrape. It is called once.
func (s *Server) showFigures() {
	s.metrics.WatchOAP(func() metrics.OAP {
		g := s.oap.Gauges()
		return metrics.OAP{
			Connections: g.Connections, MaxConnections: g.MaxConnections, Refused: g.Refused,
			Sessions: g.Sessions, MaxSessions: g.MaxSessions,
		}
	})
	s.metrics.WatchShares(s.broker.Shares, s.oap.Shares, s.console.Shares, s.connectionShares)
	s.metrics.WatchRevocations(s.keys.revocations.Len, revocation.Max)
	s.metrics.WatchAudit(func() (used, limit int64, failures uint64) {
		stats := s.keys.auditLog().Stats()
		return stats.Used, stats.Limit, stats.Failures
	})
	if disk, ok := s.opener.(*diskbox.Backend); ok {
		s.metrics.WatchDisk(func() (total, free, reserve uint64) {
			space := disk.Space()
			return space.VolumeBytes, space.FreeBytes, space.ReserveBytes
		})
	}
}
