package lane

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options say how connections are served.
type Options struct {
	// ReadTimeout bounds how long a request may take to arrive, from its first byte,
	// and WriteTimeout how long the client may take to read an answer. An answer gets
	// up to twice that, so that the deadline need not be set for each.
	ReadTimeout, WriteTimeout time.Duration
	// Wants reports whether a request is for whoever took the connection. It looks at
	// the head alone.
	Wants func(r *http.Request) bool
}

// Lanes are all connections that were taken over. They are safe for concurrent use.
// There are no goroutines but those that package http has for its connections, that
// of each server to which a connection went back, and that of each request that is
// watched.
type Lanes struct {
	options Options

	mu      sync.Mutex // guards the fields below
	open    map[*Conn]struct{}
	doors   map[*http.Server]*door
	closing bool
	told    bool
	empty   chan struct{} // closed when closing and nothing is open
}

// New returns lanes without connections.
func New(options Options) *Lanes {
	return &Lanes{options: options, open: make(map[*Conn]struct{}), doors: make(map[*http.Server]*door), empty: make(chan struct{})}
}

// Take takes over the connection of a request that was read to its end and is not
// answered yet. It returns nil, and changes nothing, where that is not possible.
// Otherwise the handler answers with Conn.WriteAnswer, and then calls Conn.Serve
// before it returns. r is the handler's no more.
func (l *Lanes) Take(w http.ResponseWriter, r *http.Request) *Conn {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil || r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.TLS != nil || r.Close {
		return nil
	}
	if l.isClosing() {
		return nil // package http tells the client that the connection ends
	}
	connection, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	c := &Conn{lanes: l, server: server, conn: plain(connection)}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	c.init(r, early)
	l.enter(c)
	return c
}

func (l *Lanes) isClosing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closing
}

func (l *Lanes) enter(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	if l.closing {
		c.end()
	}
}

func (l *Lanes) leave(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	l.tell()
}

// tell tells Shutdown if it has nothing to wait for. A connection that was taken over
// just before may come and go after that.
func (l *Lanes) tell() {
	if l.closing && len(l.open) == 0 && !l.told {
		l.told = true
		close(l.empty)
	}
}

// Shutdown ends the connections that wait for a request, and the others when they
// have answered theirs. It blocks until all are closed; when ctx ends it cuts off
// those that are not, and returns its error. Nothing is taken over any more. It is to
// be called once.
func (l *Lanes) Shutdown(ctx context.Context) error {
	l.mu.Lock()
	l.closing = true
	l.tell()
	for c := range l.open {
		c.end()
	}
	l.mu.Unlock()
	select {
	case <-l.empty:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.conn.Close()
	}
	return ctx.Err()
}

// giveBack lets package http go on with a connection, beginning with what was read
// of it and not taken.
func (l *Lanes) giveBack(server *http.Server, connection net.Conn, rest []byte) {
	l.mu.Lock()
	d := l.doors[server]
	if d == nil {
		d = &door{conns: make(chan net.Conn), closed: make(chan struct{})}
		l.doors[server] = d
		// It ends with the server, which closes all of its listeners.
		go func() { _ = server.Serve(d) }()
	}
	l.mu.Unlock()
	_ = connection.SetDeadline(time.Time{})
	select {
	case d.conns <- &returned{plain(connection), rest}:
	case <-d.closed:
		_ = connection.Close()
	}
}

// A door is a listener for connections that come back.
type door struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept returns the next connection that comes back.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// Addr names the door, in place of an address.
func (d *door) Addr() net.Addr { return &net.UnixAddr{Name: "lane", Net: "lane"} }

// A returned is a connection that came back.
type returned struct {
	net.Conn
	rest []byte // to be read first
}

// Read reads what was there before, and then what comes.
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

// plain returns a connection without what came back of it, if all of that was read. A
// connection may go to and fro for ever.
func plain(connection net.Conn) net.Conn {
	for {
		back, ok := connection.(*returned)
		if !ok || len(back.rest) > 0 {
			return connection
		}
		connection = back.Conn
	}
}
