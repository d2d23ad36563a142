package simulation_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// faults are the random choices of one simulation. They are safe for concurrent use.
type faults struct {
	mu  sync.Mutex // guards the fields below
	rng *rand.Rand
	// calm is when the faults begin, so that a queue can be made before.
	calm  time.Time
	count map[string]int
}

// happens decides whether a fault happens, once in n times, and counts it.
func (f *faults) happens(what string, n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.calm) || f.rng.IntN(n) > 0 {
		return false
	}
	f.count[what]++
	return true
}

// upTo returns a random duration.
func (f *faults) upTo(most time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rng.Int64N(int64(most)))
}

// Frequencies of the faults of connections: once in so many dials, reads and writes.
const (
	refusals  = 6
	cuts      = 300
	longWaits = 100
)

var (
	errRefused = errors.New("connection refused")
	errCut     = errors.New("connection cut")
)

// dial connects a client to the daemon, if its machine is on.
func (m *machine) dial(ctx context.Context, _ string) (net.Conn, error) {
	if m.faults.happens("refused connections", refusals) {
		return nil, errRefused
	}
	ours, theirs := net.Pipe()
	d := m.daemon.Load()
	if d == nil || !d.power.connect(ours) {
		return nil, errRefused
	}
	d.server.ServeConn(context.WithoutCancel(ctx), theirs)
	return &connection{Conn: ours, faults: m.faults, power: d.power}, nil
}

// A connection is the client's end of one with faults.
type connection struct {
	net.Conn
	faults *faults
	power  *power
}

// Write sends some of p if the connection is cut meanwhile.
func (c *connection) Write(p []byte) (int, error) {
	c.pass()
	if !c.faults.happens("cut requests", cuts) {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:len(p)/2])
	_ = c.Close()
	return n, errCut
}

// Read loses what it has read if the connection is cut, or the power was.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	if c.power.off() {
		return 0, io.EOF
	}
	if c.faults.happens("cut answers", cuts) {
		_ = c.Close()
		return 0, errCut
	}
	return n, nil
}

// pass lets the time of a packet's journey pass.
func (c *connection) pass() {
	journey := c.faults.upTo(2 * time.Millisecond)
	if c.faults.happens("late packets", longWaits) {
		journey += c.faults.upTo(2 * time.Second)
	}
	<-time.After(journey)
}
