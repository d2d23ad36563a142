package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/worker"
)

// reports has what running handlers have reported with worker.SetProgress.
type reports struct {
	mu     sync.Mutex // guards latest
	latest map[reporting]time.Time
}

// reporting is a handler at work.
type reporting struct{ loop, queue, message string }

func reportingOf(info *worker.Info) reporting {
	return reporting{info.Loop, info.Queue, info.MessageID}
}

func (r *Recorder) progressed(_ context.Context, event worker.ProgressEvent) {
	r.reports.mu.Lock()
	defer r.reports.mu.Unlock()
	if r.reports.latest == nil {
		r.reports.latest = make(map[reporting]time.Time)
	}
	r.reports.latest[reportingOf(&event.Info)] = time.Now()
}

// ended forgets what a handler has reported.
func (r *reports) ended(info *worker.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.latest, reportingOf(info))
}

// look returns how many handlers of each loop have reported, and how long ago the one did whose
// report is the oldest.
func (r *Recorder) look() (figures []Figure) {
	now := time.Now()
	counts, ages := make(map[string]int), make(map[string]time.Duration)
	r.reports.mu.Lock()
	for handler, at := range r.reports.latest {
		loop := r.members.bound(handler.loop)
		counts[loop]++
		ages[loop] = max(ages[loop], now.Sub(at))
	}
	r.reports.mu.Unlock()
	for loop, n := range counts {
		figures = append(figures, Figure{HandlersReporting, float64(n), []string{loop}}, Figure{ProgressAge, ages[loop].Seconds(), []string{loop}})
	}
	return figures
}
