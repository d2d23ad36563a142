package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// DrainNow ends the delay of Config.DrainDelay, of the current drain or of a later one.
// It can be called at any time, and repeatedly.
func (s *Server) DrainNow() { s.drainOnce.Do(func() { close(s.drainNow) }) }

// announceDrain lets readiness fail for Config.DrainDelay, while listeners accept and
// requests work, so that load balancers send their clients to other daemons. It returns
// at once if there is no delay, and early when DrainNow is called or a listener fails.
func (s *Server) announceDrain(ctx context.Context, failed <-chan error) error {
	delay := s.Config().DrainDelay
	if delay <= 0 {
		return nil
	}
	s.broker.SetState(broker.StateStopping)
	s.log.LogAttrs(ctx, slog.LevelInfo, "drain announced", slog.Duration("delay", delay))
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.drainNow:
	case err := <-failed:
		return err
	}
	return nil
}

// drain stops the daemon in order, on SIGTERM for example: it refuses writes, then
// receives, finishes running requests, and closes the listeners. At DrainTimeout it
// cuts off the rest, which loses nothing that was confirmed.
func (s *Server) drain(ctx context.Context, cut func(), listeners []listener) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.Config().DrainTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cut)() // a hanging backend must not delay the drain
	s.log.LogAttrs(ctx, slog.LevelInfo, "draining")
	s.sqs.Close() // its move tasks save their progress
	s.broker.StopJobs()
	// Writes stop before receives, so that receivers can still take what is there.
	s.broker.SetState(broker.StateReadOnly)
	s.broker.SetState(broker.StateSettling)
	s.rpc.Drain()
	var stopping sync.WaitGroup
	stopping.Go(func() {
		if err := s.http.Shutdown(ctx); err != nil {
			_ = s.http.Close()
		}
	})
	stopping.Go(func() {
		if err := s.sqsHTTP.Shutdown(ctx); err != nil {
			_ = s.sqsHTTP.Close()
		}
	})
	stopping.Go(func() { _ = s.sqs.Shutdown(ctx) })
	stopping.Go(func() {
		if err := s.oap.Shutdown(ctx); err != nil {
			_ = s.oap.Close()
		}
	})
	stopping.Wait()
	for _, l := range listeners {
		_ = l.Close()
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "stopped", slog.Duration("took", time.Since(began)))
}
