package oapapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

const (
	// leaveEvery is how often a server that drains looks for idle connections.
	leaveEvery = 50 * time.Millisecond
	// leaveGrace is how long a client that is asked to leave may take to say
	// goodbye, or to ask for something that was on its way.
	leaveGrace = time.Second
)

// Shutdown stops listening, tells every client to go elsewhere, sends receives
// that wait there, and returns when all connections have ended. Meanwhile it takes
// no messages any more, and does everything else that it is asked. Clients that
// have nothing under way, and hold no message that they could settle, are asked to
// leave at once; those that do not are left. When ctx ends first, it closes what
// remains, and returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	var telling sync.WaitGroup // clients that do not read must not hold up others
	defer telling.Wait()
	s.stop(func() { s.draining = true }, func(c *conn) {
		c.beginDrain()
		telling.Go(c.out.flush)
	})
	ended := make(chan struct{})
	go func() {
		s.done.Wait()
		close(ended)
	}()
	ticker := time.NewTicker(leaveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			s.crew.end()
			return nil
		case <-ctx.Done():
			err := ctx.Err()
			return errors.Join(err, s.Close())
		case now := <-ticker.C:
			for _, c := range s.connections() {
				if c.dismiss(now) {
					telling.Go(c.out.flush)
				}
			}
		}
	}
}

// A farewell is a connection's request to its client to leave.
type farewell struct {
	asked  time.Time // zero if it was not
	frames uint64    // had been read by then
}

// dismiss asks a client that is idle to leave, and leaves one that does not. It
// reports whether there is something to write. Shutdown calls it.
func (c *conn) dismiss(now time.Time) bool {
	frames := c.frames.Load()
	switch {
	case !c.started.Load():
		_ = c.net.Close()
		return false
	case c.inFlight.Load() > 0 || c.holding.any(now) || c.out.size() > 0:
		return false
	case c.farewell.asked.IsZero() || c.farewell.frames != frames:
		c.farewell = farewell{now, frames}
		return c.out.frame(oap.Event, oap.EventLeave, 0, nil)
	case now.Sub(c.farewell.asked) >= leaveGrace:
		_ = c.net.Close()
	}
	return false
}
