package keepalive

import (
	"errors"
	"os"
	"time"
)

// watchAfter is how long a request may take before a watch starts.
const watchAfter = 10 * time.Millisecond

// A watch detects that the client disconnects while a request is handled.
type watch struct {
	conn  *Conn
	timer *time.Timer
	begun bool // between begin and end
	ended chan struct{}
	over  bool    // guarded by conn.mu: stop watching
	early [1]byte // what the client sent during the watch
	read  int
}

func (w *watch) init(c *Conn) { w.conn, w.ended = c, make(chan struct{}, 1) }

// begin starts the watch after a pause.
func (w *watch) begin(after time.Duration) {
	if w.begun {
		return
	}
	w.begun, w.read = true, 0
	w.conn.mu.Lock()
	w.over = false
	w.conn.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.run)
	} else {
		w.timer.Reset(after)
	}
}

// run watches, in a goroutine of its own, until the client disconnects or sends
// something, or until the watch is ended.
func (w *watch) run() {
	defer func() { w.ended <- struct{}{} }()
	c := w.conn
	c.mu.Lock()
	if w.over {
		c.mu.Unlock()
		return
	}
	c.idleFrom = time.Time{}
	_ = c.conn.SetReadDeadline(time.Time{})
	c.mu.Unlock()
	n, err := c.conn.Read(w.early[:])
	w.read = n
	if n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.cancel()
	}
}

// end ends the watch. A byte that the client has sent during it begins its next request.
func (w *watch) end() {
	if !w.begun {
		return
	}
	w.begun = false
	if w.timer.Stop() {
		return
	}
	c := w.conn
	c.mu.Lock()
	w.over = true
	_ = c.conn.SetReadDeadline(past)
	c.mu.Unlock()
	<-w.ended
	c.allow(time.Time{})
	c.in = append(c.in, w.early[:w.read]...)
}
