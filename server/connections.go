package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	pools "github.com/mailboxmq/mailbox/internal/share"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// strangerIdle is how long a connection may do nothing while it has shown no token,
// whatever the idle timeout is.
const strangerIdle = 30 * time.Second

// bounded closes connections beyond a number at once, and those of an address, or of
// a token, that has used up its share: a client that is refused learns more than one
// that waits.
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

// connectionShares returns the figures of the listeners.
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
		owner := pools.Path{addressKey(c.RemoteAddr())}
		if l.pool.Take(owner, 1) == nil {
			l.changed()
			return &boundedConn{Conn: c, listener: l, owner: owner}, nil
		}
		l.refused()
		_ = c.Close()
	}
}

// addressBits is how much of an IPv6 address names a client: the rest is its own to
// choose.
const addressBits = 64

// addressKey names the share of an address. It is that of no tenant.
func addressKey(address net.Addr) pools.Key {
	key := pools.Key{Name: "local", ID: [16]byte{1}}
	client := broker.ClientAt(address.String())
	switch {
	case client.Is6():
		key.Name = netip.PrefixFrom(client, addressBits).Masked().String()
	case client.IsValid():
		key.Name = client.String()
	}
	return key
}

// A boundedConn is a connection that counts against a share: first of its address,
// and then of the token that it has shown, where a connection has one. Until it has
// shown one, it is closed when it has been idle for a while.
type boundedConn struct {
	net.Conn
	listener *boundedListener

	mu     sync.Mutex // guards the fields below
	owner  pools.Path
	closed bool
	shown  bool
	until  time.Time // the deadline for reading that was asked for
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
	_ = c.showLocked() // a connection that has failed says so when it is read
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

// SetReadDeadline implements net.Conn. Strangers get less time.
func (c *boundedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
	if !c.shown {
		if latest := time.Now().Add(strangerIdle); t.IsZero() || t.After(latest) {
			t = latest
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// SyscallConn is that of the connection within.
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

// arriving is the ConnContext of servers that speak HTTP.
func arriving(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if bounded, ok := c.(*boundedConn); ok {
		return broker.WithArrival(ctx, bounded)
	}
	return ctx
}
