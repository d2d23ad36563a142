package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// A page serves one page. It is a member of the group: it starts and stops with the
// others, and the group ends if the page cannot be served.
type page struct {
	addr    string
	handler http.Handler
}

// Name implements worker.Member.
func (p *page) Name() string { return "metrics" }

// Run implements worker.Member.
func (p *page) Run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
