package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	pools "github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// noTokenIdle is how long a connection may be idle before it has sent a token, even if
// the idle timeout is longer.
const noTokenIdle = 30 * time.Second

// bounded returns a listener that closes connections beyond a number, and those of an
// address or a token that has used up its share. It closes them at once, because a
// refused client learns more than a waiting one.
func (s *Server) bounded(l net.Listener, name string, most int) net.Listener {
	s.metrics.ConnectionLimit(name, most)
	pool := pools.New(name+" connections", "max_conns", int64(most), time.Second)
	s.mu.Lock()
	s.connections = append(s.connections, pool)
	s.mu.Unlock()
	return &boundedListener{
		Listener: l, pool: pool,
		changed: func() { s.metrics.Connections(name, pool.Stats().Used) },
		refused: func() { s.metrics.Rejected("connections") },
	}
}

// connectionShares returns the use of the connections of all listeners.
func (s *Server) connectionShares() []pools.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := make([]pools.Stats, len(s.connections))
	for i, pool := range s.connections {
		stats[i] = pool.Stats()
	}
	return stats
}

type boundedListener struct {
	net.Listener
	pool             *pools.Pool
	changed, refused func()
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		owner := pools.Path{broker.AddressKey(broker.ClientAt(c.RemoteAddr().String()))}
		if l.pool.Take(owner, 1) == nil {
			l.changed()
			return &boundedConn{Conn: c, listener: l, owner: owner}, nil
		}
		l.refused()
		_ = c.Close()
	}
}

// A boundedConn is a connection that counts against a share: first that of its address,
// and then that of its token, on protocols where a connection has one. Until it has
// sent a token, it is closed after noTokenIdle.
type boundedConn struct {
	net.Conn
	listener *boundedListener

	mu     sync.Mutex // guards the fields below
	owner  pools.Path
	closed bool
	shown  bool
	until  time.Time // the read deadline that the server has set
}

// Own counts the connection for another owner from now on. The error is ErrFull.
func (c *boundedConn) Own(owner [2]pools.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if err := c.listener.pool.Move(c.owner, owner[:], 1); err != nil {
		c.listener.refused()
		return err
	}
	c.owner = owner[:]
	return c.showLocked()
}

// Shown implements broker.Arrival.
func (c *boundedConn) Shown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.showLocked() // the next read of a failed connection returns the error
}

func (c *boundedConn) showLocked() error {
	if c.shown {
		return nil
	}
	c.shown = true
	return c.Conn.SetReadDeadline(c.until)
}

// SetDeadline implements net.Conn.
func (c *boundedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn. Before a token was sent the deadline is at most
// noTokenIdle away.
func (c *boundedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
	if !c.shown {
		if latest := time.Now().Add(noTokenIdle); t.IsZero() || t.After(latest) {
			t = latest
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// SyscallConn returns that of the underlying connection.
func (c *boundedConn) SyscallConn() (syscall.RawConn, error) {
	system, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return system.SyscallConn()
}

func (c *boundedConn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.listener.pool.Give(c.owner, 1)
		c.listener.changed()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// arriving is the ConnContext of the HTTP servers.
func arriving(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if bounded, ok := c.(*boundedConn); ok {
		return broker.WithArrival(ctx, bounded)
	}
	return ctx
}
