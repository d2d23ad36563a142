package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox"
)

// lookWithin bounds how long a look at one queue may take, so that a backend that hangs
// costs whoever reads the figures no more than that.
const lookWithin = 5 * time.Second

// A Queue is something whose messages can be counted, such as a *mailbox.Mailbox.
type Queue interface {
	Name() string
	Stats(ctx context.Context) (mailbox.Stats, error)
}

// A Watch is a set of queues that are looked at when somebody reads their figures. The
// zero value is empty and ready to use. It is safe for concurrent use.
type Watch struct {
	mu     sync.Mutex // guards queues
	queues []*watched
}

type watched struct {
	ctx      context.Context
	queue    Queue
	topic    string
	capacity int
}

// Add watches a queue until ctx ends. Capacity is how many messages it takes, 0 if
// nobody knows. Topic is its label. A queue that has the label of another, because
// there are too many, is not watched: their figures would overwrite each other.
func (w *Watch) Add(ctx context.Context, queue Queue, topic string, capacity int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues = slices.DeleteFunc(w.queues, func(q *watched) bool { return q.ctx.Err() != nil })
	if topic != Other && !slices.ContainsFunc(w.queues, func(q *watched) bool { return q.topic == topic }) {
		w.queues = append(w.queues, &watched{ctx, queue, topic, capacity})
	}
}

// A Figure is a value of an Observed instrument.
type Figure struct {
	Instrument *Instrument
	Value      float64
	Labels     []string
}

// Look looks at all queues at the same time and returns their figures, by topic. It
// blocks as long as the slowest backend takes, and for five seconds at most.
func (w *Watch) Look() []Figure {
	w.mu.Lock()
	queues := slices.Clone(w.queues)
	w.mu.Unlock()
	figures := make([][]Figure, len(queues))
	var wg sync.WaitGroup
	for i, q := range queues {
		wg.Go(func() { figures[i] = q.look() })
	}
	wg.Wait()
	all := slices.Concat(figures...)
	slices.SortStableFunc(all, func(a, b Figure) int { return cmp.Compare(a.Labels[0], b.Labels[0]) })
	return all
}

func (q *watched) look() []Figure {
	if q.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(q.ctx, lookWithin)
	defer cancel()
	stats, err := q.queue.Stats(ctx)
	if err != nil {
		if q.ctx.Err() != nil {
			return nil
		}
		return []Figure{{WatchError, 1, []string{q.topic}}}
	}
	figures := []Figure{
		{WatchError, 0, []string{q.topic}},
		{QueueDepth, float64(stats.Ready), []string{q.topic, "ready"}},
		{QueueDepth, float64(stats.Delayed), []string{q.topic, "delayed"}},
		{InFlight, float64(stats.InFlight), []string{q.topic}},
		{DeadDepth, float64(stats.Dead), []string{q.topic}},
	}
	if q.capacity > 0 {
		figures = append(figures, Figure{Saturation, float64(stats.Waiting()) / float64(q.capacity), []string{q.topic}})
	}
	return figures
}
