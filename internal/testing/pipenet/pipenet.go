// Package pipenet is a network within the process, for tests. It works in virtual time, because both
// ends of a connection are inside the bubble.
package pipenet

import (
	"context"
	"net"
	"sync"
	"time"
)

// HeaderTimeout is the ReadHeaderTimeout for servers on a Listener. An http.Transport may dial a
// connection and keep it unused. In virtual time a shorter timeout would close it at the very
// instant at which the client writes a request to it, and that request would fail.
const HeaderTimeout = 10_000 * time.Hour

// A Listener accepts connections that are pipes. Make one with Listen.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a listener. The caller closes it.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects. It blocks until the connection is accepted, ctx ends or the listener is closed.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// DialContext is Dial for http.Transport.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return l.Dial(ctx)
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends the listener. Closing twice is fine.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns an address of no network.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }
