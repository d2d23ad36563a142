package drivertest

import (
	"sync/atomic"
	"testing"
	"time"
)

// A pauseWatch finds out how long the machine stood still, or was too busy to run a goroutine
// that sleeps most of the time.
type pauseWatch struct{ most atomic.Int64 }

// watchPauses watches until the end of the test. It looks after each interval.
func watchPauses(t *testing.T, interval time.Duration) *pauseWatch {
	w := &pauseWatch{}
	end, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(end); <-ended })
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-end:
				return
			case <-ticker.C:
			}
			now := time.Now()
			if pause := now.Sub(last) - interval; pause > time.Duration(w.most.Load()) {
				w.most.Store(int64(pause))
			}
			last = now
		}
	}()
	return w
}

// longest returns the longest pause so far.
func (w *pauseWatch) longest() time.Duration { return time.Duration(w.most.Load()) }
