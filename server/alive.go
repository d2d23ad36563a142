package server

import (
	"context"
	"fmt"
	"net/http"
)

// Alive asks the daemon what a client would, without a connection, and returns nil if it
// answers. It is for watchdogs: it does not return while the daemon's own locks are
// stuck, whatever ctx says, and errors of the backend are not errors here, because a
// restart does not mend them; readiness tells them.
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
		return fmt.Errorf("the daemon answers with status %d", answer.status)
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_ = s.broker.Ping(ctx) // that it returns is enough
	s.broker.Shares()      // and so here
	return nil
}

// A statusWriter keeps the status of an answer alone.
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
