package cli

import (
	"context"
	"time"
)

// A watcher shows the counts of queues repeatedly.
type watcher struct {
	api      *api
	queues   []string
	interval time.Duration
}

// watch shows counts until ctx ends: as top does at a terminal, in tables or lines of JSON
// otherwise.
func (s *shell) watch(ctx context.Context, w *watcher) error {
	if isTerminal(s.Stdout) && isTerminal(s.Stdin) && !s.global.json {
		return s.top(ctx, w.api, w.queues, w.interval)
	}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		counts, err := w.api.allStats(ctx, w.queues)
		if ctx.Err() != nil {
			return nil // interrupted, which ends the watch
		}
		if err != nil {
			return err
		}
		if !first && !s.global.json {
			if err := s.line(""); err != nil {
				return err
			}
		}
		if err := s.printStats(counts, timeOf(time.Now())); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// waiting returns the number of messages that are not dead.
func (b *statsBody) waiting() int { return b.Ready + b.Delayed + b.InFlight }
