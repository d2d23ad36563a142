package server

import (
	"context"
	"fmt"
	"net/http"
)

// Alive calls the daemon's handlers without a connection, and returns nil if they
// answer. It is for watchdogs: it blocks while the daemon's own locks are stuck, even
// if ctx ends. It ignores errors of the backend, which a restart does not fix;
// readiness reports those.
func (s *Server) Alive(ctx context.Context) error {
	select {
	case <-s.started:
	default:
		return fmt.Errorf("the daemon has not started")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", http.NoBody)
	if err != nil {
		return err
	}
	answer := &statusWriter{header: make(http.Header)}
	s.http.Handler.ServeHTTP(answer, request)
	if answer.status != http.StatusOK {
		return fmt.Errorf("healthz: unexpected status %d", answer.status)
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_ = s.broker.Ping(ctx) // must return; its error does not matter
	s.broker.Shares()      // must return
	return nil
}

// A statusWriter keeps only the status of an answer.
type statusWriter struct {
	header http.Header
	status int
}

// Header returns the headers.
func (w *statusWriter) Header() http.Header { return w.header }

// WriteHeader keeps the status.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write discards the body.
func (w *statusWriter) Write(body []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(body), nil
}
