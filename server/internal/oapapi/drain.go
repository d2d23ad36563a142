package oapapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/internal/oap"
)

const (
	// drainEvery is how often a server that drains looks for idle connections.
	drainEvery = 50 * time.Millisecond
	// drainGrace is how long a client that is asked to leave may take to say
	// goodbye, or to ask for something that was on its way.
	drainGrace = time.Second
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
		telling.Go(c.out.flushHere)
	})
	ended := make(chan struct{})
	go func() {
		s.done.Wait()
		close(ended)
	}()
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			return s.Close()
		case <-ctx.Done():
			err := ctx.Err()
			return errors.Join(err, s.Close())
		case now := <-ticker.C:
			for _, c := range s.connections() {
				if c.dismiss(now) {
					telling.Go(c.out.flushHere)
				}
			}
		}
	}
}

// leaving is a request to the client of a connection to leave.
type leaving struct {
	asked  time.Time // zero: the client was not asked
	frames uint64    // that had been read by then
}

// dismiss asks a client that is idle to leave, and leaves one that does not. It
// reports whether there is something to write. Shutdown calls it.
func (c *conn) dismiss(now time.Time) bool {
	frames := c.frames.Load()
	switch {
	case !c.authenticated.Load():
		_ = c.net.Close()
		return false
	case c.inFlight.Load() > 0 || c.slotWaits.Load() > 0 || c.held.any(now) || c.out.size() > 0:
		return false
	case c.leaving.asked.IsZero() || c.leaving.frames != frames:
		c.leaving = leaving{now, frames}
		return c.out.frame(nil, oap.Event, oap.EventLeave, 0, nil)
	case now.Sub(c.leaving.asked) >= drainGrace:
		_ = c.net.Close()
	}
	return false
}
