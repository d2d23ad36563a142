package oapapi

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/internal/oap"
	"github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// Options are what a Server is made of; zero fields mean the defaults.
type Options struct {
	// Broker executes the requests. It must be set.
	Broker *broker.Broker
	// MaxConnections bounds the connections, 20,000 by default. One more is
	// closed at once.
	MaxConnections int
	// MaxInFlight bounds the unanswered requests of a connection, 1,024 by
	// default. One more is answered with ErrFull.
	MaxInFlight int
	// MaxQueues bounds the queues that all connections together have open, 32,768 by
	// default. Tenants and tokens have shares of it.
	MaxQueues int
	// HandshakeTimeout bounds the time until a connection has shown its
	// capability, 5 s by default; FrameTimeout that between the first and the
	// last byte of a frame, 30 s; WriteTimeout that in which a client must read
	// what it is sent, 30 s; and IdleTimeout that without any request, 10 min.
	HandshakeTimeout, FrameTimeout, WriteTimeout, IdleTimeout time.Duration
	// RestAfter is the time without any request after which a connection gives back the
	// memory that requests need, 1 s by default.
	RestAfter time.Duration
	// Logger gets what goes wrong with connections. Nil logs nothing.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	setNumber := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	setTime := func(field *time.Duration, value time.Duration) {
		if *field <= 0 {
			*field = value
		}
	}
	setNumber(&o.MaxConnections, 20_000)
	setNumber(&o.MaxInFlight, oap.MaxWindow)
	setNumber(&o.MaxQueues, 32_768)
	setTime(&o.HandshakeTimeout, 5*time.Second)
	setTime(&o.FrameTimeout, 30*time.Second)
	setTime(&o.WriteTimeout, 30*time.Second)
	setTime(&o.IdleTimeout, 10*time.Minute)
	setTime(&o.RestAfter, time.Second)
	o.RestAfter = min(o.RestAfter, o.IdleTimeout/2)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Server serves OAP/1 on any number of listeners. It is safe for concurrent
// use. Make one with New.
type Server struct {
	options  Options
	instance [16]byte
	sessions *sessions
	opened   *share.Pool // queues that connections have open
	refused  atomic.Int64

	mu        sync.Mutex // guards the fields below
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	draining  bool
	closed    bool
	stops     []func() bool  // end what closeAfter has begun
	done      sync.WaitGroup // connections
}

// New returns a server that does not serve yet. It does no I/O.
func New(options Options) *Server {
	s := &Server{
		options: options.withDefaults(), sessions: newSessions(),
		listeners: make(map[net.Listener]struct{}), conns: make(map[*conn]struct{}),
	}
	s.opened = share.New("open queues", "max_open_queues", int64(s.options.MaxQueues), retrySession)
	_, _ = rand.Read(s.instance[:]) // never fails, see crypto/rand
	return s
}

// Gauges are figures for metrics.
type Gauges struct {
	// Connections are open, Refused were closed because there were too many,
	// and Sessions are the producer sessions that are remembered.
	Connections, Sessions int
	Refused               int64
	// MaxConnections and MaxSessions bound the first two.
	MaxConnections, MaxSessions int
}

// Gauges returns the figures as they are now.
func (s *Server) Gauges() Gauges {
	s.mu.Lock()
	connections := len(s.conns)
	s.mu.Unlock()
	return Gauges{
		Connections: connections, Sessions: int(s.sessions.count.Stats().Used), Refused: s.refused.Load(),
		MaxConnections: s.options.MaxConnections, MaxSessions: maxSessions,
	}
}

// Serve accepts connections until the listener fails or the server is shut down
// or closed, in which cases it closes the listener and returns nil. Ending ctx
// closes the listener and all connections of the server. It blocks.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if !s.addListener(l) {
		return errors.Join(&driver.Error{Code: driver.ErrClosed, Op: "serve"}, l.Close())
	}
	defer s.removeListener(l)
	s.closeAfter(ctx, l)
	for failures := 0; ; {
		nc, err := l.Accept()
		if err == nil {
			failures = 0
			s.ServeConn(ctx, nc)
			continue
		}
		if s.stopping() || ctx.Err() != nil {
			return nil
		}
		// Out of file descriptors, most likely: others will close some.
		if failures++; failures > acceptFailures || errors.Is(err, net.ErrClosed) {
			return err
		}
		s.options.Logger.WarnContext(ctx, "oap.accept", "error", err)
		_ = backoff.Pause(ctx, acceptPause)
	}
}

// closeAfter closes a listener and all connections when ctx ends, until the server is
// closed. One function for all connections costs them nothing.
func (s *Server) closeAfter(ctx context.Context, l net.Listener) {
	stop := context.AfterFunc(ctx, func() {
		_ = l.Close() // its Serve returns
		for _, c := range s.connections() {
			_ = c.net.Close()
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
}

// How often, and how long apart, a listener that fails is tried again.
const (
	acceptFailures = 60
	acceptPause    = time.Second
)

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining || s.closed {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) removeListener(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	_ = l.Close() // it may be closed already
}

func (s *Server) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || s.closed
}

// ServeConn serves one connection, which it closes. It does not block.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	if s.closed || s.draining || len(s.conns) >= s.options.MaxConnections {
		s.mu.Unlock()
		s.refused.Add(1)
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.done.Add(1)
	s.mu.Unlock()
	if ctx.Err() != nil {
		_ = nc.Close() // closeAfter may not have seen it
	}
	go c.serve(ctx)
}

func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.done.Done()
}

// Close closes all listeners and connections, and returns when they have ended.
// Closing twice is fine.
func (s *Server) Close() error {
	s.stop(func() { s.closed = true }, func(c *conn) { _ = c.net.Close() })
	s.done.Wait()
	s.sessions.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stop := range s.stops {
		stop()
	}
	s.stops = nil
	return nil
}

// Shares returns the figures of what is divided among tenants and tokens here, for
// metrics.
func (s *Server) Shares() []share.Stats {
	return []share.Stats{s.sessions.count.Stats(), s.sessions.bytes.Stats(), s.opened.Stats()}
}

// stop changes the state, ends all listeners, and does something to each
// connection.
func (s *Server) stop(change func(), each func(*conn)) {
	s.mu.Lock()
	change()
	for l := range s.listeners {
		_ = l.Close() // its Serve returns
	}
	s.mu.Unlock()
	for _, c := range s.connections() {
		each(c)
	}
}

// connections returns those that are open.
func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// configured tells the clients that have a queue open what it promises now. Queues of other
// tenants may have the same name; their clients learn nothing new.
func (s *Server) configured(ctx context.Context, queue string) {
	for _, c := range s.connections() {
		c.refreshTraits(ctx, queue)
	}
}
