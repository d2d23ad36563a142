package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

// statsTimeout bounds the Stats call for one queue, so that a hanging backend delays the
// reader of the metrics by no more than that.
const statsTimeout = 5 * time.Second

// A Queue is something whose messages can be counted, such as a *mailbox.Mailbox.
type Queue interface {
	Name() string
	Stats(ctx context.Context) (mailbox.Stats, error)
}

// A Watch is a set of queues whose messages are counted when the metrics are read, and the handlers
// of a recorder. The zero value is empty and ready to use. It is safe for concurrent use.
type Watch struct {
	mu       sync.Mutex // guards the fields below
	queues   []*watched
	recorder *Recorder // nil: of no handlers
}

// AddHandlers watches the handlers whose progress a recorder is told.
func (w *Watch) AddHandlers(r *Recorder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recorder = r
}

type watched struct {
	ctx      context.Context
	queue    Queue
	label    string
	capacity int
}

// Add watches a queue until ctx ends. capacity is how many messages it takes, 0 if that
// is unknown. A queue whose label is Other or already watched is not added: the figures
// of two queues would overwrite each other.
func (w *Watch) Add(ctx context.Context, queue Queue, label string, capacity int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues = slices.DeleteFunc(w.queues, func(q *watched) bool { return q.ctx.Err() != nil })
	if label != Other && !slices.ContainsFunc(w.queues, func(q *watched) bool { return q.label == label }) {
		w.queues = append(w.queues, &watched{ctx, queue, label, capacity})
	}
}

// A Figure is a value of an Observed instrument.
type Figure struct {
	Instrument *Instrument
	Value      float64
	Labels     []string
}

// Look counts the messages of all queues at the same time and returns the figures sorted
// by queue or loop. It blocks as long as the slowest backend takes, at most statsTimeout.
func (w *Watch) Look() []Figure {
	w.mu.Lock()
	queues, recorder := slices.Clone(w.queues), w.recorder
	w.mu.Unlock()
	figures := make([][]Figure, len(queues))
	var wg sync.WaitGroup
	for i, q := range queues {
		wg.Go(func() { figures[i] = q.look() })
	}
	wg.Wait()
	all := slices.Concat(figures...)
	if recorder != nil {
		all = append(all, recorder.look()...)
	}
	slices.SortStableFunc(all, func(a, b Figure) int { return cmp.Compare(a.Labels[0], b.Labels[0]) })
	return all
}

func (q *watched) look() []Figure {
	if q.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(q.ctx, statsTimeout)
	defer cancel()
	stats, err := q.queue.Stats(ctx)
	if err != nil {
		if q.ctx.Err() != nil {
			return nil
		}
		return []Figure{{WatchError, 1, []string{q.label}}}
	}
	figures := []Figure{
		{WatchError, 0, []string{q.label}},
		{QueueDepth, float64(stats.Ready), []string{q.label, "ready"}},
		{QueueDepth, float64(stats.Delayed), []string{q.label, "delayed"}},
		{InFlight, float64(stats.InFlight), []string{q.label}},
		{DeadDepth, float64(stats.Dead), []string{q.label}},
	}
	if q.capacity > 0 {
		figures = append(figures, Figure{Saturation, float64(stats.Waiting()) / float64(q.capacity), []string{q.label}})
	}
	return figures
}
