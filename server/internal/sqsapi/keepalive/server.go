package keepalive

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options configure a Server.
type Options struct {
	// ReadTimeout bounds how long a request may take to arrive, from its first byte,
	// and WriteTimeout how long the client may take to read a response. A response gets
	// up to twice that, so that the deadline need not be set for each.
	ReadTimeout, WriteTimeout time.Duration
	// Wants reports whether a request is for the handler that took the connection. It
	// must look only at the head.
	Wants func(r *http.Request) bool
}

// A Server has the connections that were taken over. It is safe for concurrent use.
// Besides the goroutines that package http has for its connections, there is one for
// each http.Server to which a connection went back, and one for each watched request.
type Server struct {
	options Options

	mu        sync.Mutex // guards the fields below
	open      map[*Conn]struct{}
	listeners map[*http.Server]*returnListener
	closing   bool
	drained   bool          // empty is closed
	empty     chan struct{} // closed when closing is set and no connection is open
}

// New returns a server without connections.
func New(options Options) *Server {
	return &Server{
		options: options, open: make(map[*Conn]struct{}), listeners: make(map[*http.Server]*returnListener), empty: make(chan struct{}),
	}
}

// Take takes over the connection of a request that was read to its end and has no
// response yet. It returns nil, and changes nothing, if that is not possible.
// Otherwise the handler must respond with Conn.WriteAnswer and then call Conn.Serve
// before it returns. The handler must not use r any more.
func (s *Server) Take(w http.ResponseWriter, r *http.Request) *Conn {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil || r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.TLS != nil || r.Close {
		return nil
	}
	if s.isClosing() {
		return nil // package http tells the client that the connection ends
	}
	connection, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	c := &Conn{owner: s, server: server, conn: unwrap(connection)}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	c.init(r, early)
	s.add(c)
	return c
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *Server) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	if s.closing {
		c.end()
	}
}

func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.signalEmptyLocked()
}

// signalEmptyLocked ends the wait of Shutdown if no connection is open. A connection
// whose takeover has begun before Shutdown may still be added and removed after that.
func (s *Server) signalEmptyLocked() {
	if s.closing && len(s.open) == 0 && !s.drained {
		s.drained = true
		close(s.empty)
	}
}

// Shutdown closes the connections that wait for a request at once, and the others when
// their response is written. It blocks until all are closed; when ctx ends it closes
// the remaining ones, and returns the error of ctx. No more connections are taken over.
// It must be called once.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.signalEmptyLocked()
	for c := range s.open {
		c.end()
	}
	s.mu.Unlock()
	select {
	case <-s.empty:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		_ = c.conn.Close()
	}
	return ctx.Err()
}

// giveBack gives a connection back to package http, which first reads rest: the bytes
// that were read here and not consumed.
func (s *Server) giveBack(server *http.Server, connection net.Conn, rest []byte) {
	s.mu.Lock()
	l := s.listeners[server]
	if l == nil {
		l = &returnListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		s.listeners[server] = l
		// It ends with the server, which closes all of its listeners.
		go func() { _ = server.Serve(l) }()
	}
	s.mu.Unlock()
	_ = connection.SetDeadline(time.Time{})
	select {
	case l.conns <- &returned{unwrap(connection), rest}:
	case <-l.closed:
		_ = connection.Close()
	}
}

// A returnListener accepts the connections that go back to package http.
type returnListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept returns the next connection that goes back.
func (l *returnListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *returnListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns a name, because the listener has no address.
func (l *returnListener) Addr() net.Addr { return &net.UnixAddr{Name: "keepalive", Net: "keepalive"} }

// returned is a connection that went back to package http.
type returned struct {
	net.Conn
	rest []byte // read first
}

// Read reads rest, and then from the connection.
func (c *returned) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil
	}
	return n, nil
}

// unwrap returns the connection inside a returned one whose rest was read. Without it
// a connection that goes back often would be wrapped deeper each time.
func unwrap(connection net.Conn) net.Conn {
	for {
		back, ok := connection.(*returned)
		if !ok || len(back.rest) > 0 {
			return connection
		}
		connection = back.Conn
	}
}
