package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// statsBody counts the messages of a queue, here and on the wire.
type statsBody struct {
	Ready    int  `json:"ready"`
	Delayed  int  `json:"delayed"`
	InFlight int  `json:"in_flight"`
	Dead     int  `json:"dead"`
	Paused   bool `json:"paused"`
	// Throttled is how many of the ready messages are in groups at their limit.
	Throttled int `json:"throttled,omitempty"`
}

// pausedWord marks a paused queue, and throttledWord messages of groups at their limit.
const pausedWord, throttledWord = "paused", "throttled"

// statsView are the counts of a queue in JSON.
type statsView struct {
	Queue string `json:"queue"`
	statsBody
	// At is set with --watch.
	At *time.Time `json:"at,omitempty"`
}

func (a *api) stats(ctx context.Context, queue string) (statsBody, error) {
	var stats statsBody
	err := a.call(ctx, apiRequest{path: "/v1/stats", body: queueBody{queue}}, &stats)
	return stats, err
}

func (s *shell) statsCommand() *cobra.Command {
	var watch bool
	var tenant string
	var interval time.Duration
	c := &cobra.Command{
		Use: "stats [QUEUE...]", Short: "Count the messages of queues",
		Long:    "Count the messages of queues, of all if none is named. With --watch the counts are shown repeatedly, at a terminal as mailbox top does.",
		Example: "mailbox stats\nmailbox stats orders --watch",
		Args:    wants(0, -1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := checkInterval(interval); err != nil {
				return err
			}
			a.tenant = tenant
			if watch {
				return s.watch(ctx, &watcher{api: a, queues: args, interval: interval})
			}
			counts, err := a.allStats(ctx, args)
			if err != nil {
				return err
			}
			return s.printStats(counts, nil)
		}),
	}
	c.Flags().StringVar(&tenant, "tenant", "", "count the queues of this tenant, with the operator's token")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show the counts repeatedly")
	c.Flags().DurationVar(&interval, "interval", time.Second, "how often, with --watch")
	return c
}

// checkInterval checks --interval.
func checkInterval(interval time.Duration) error {
	if interval < 100*time.Millisecond {
		return usageError("--interval: invalid value %v; want at least 100ms", interval)
	}
	return nil
}

// allStats counts the messages of the queues, or of all queues if none is given.
func (a *api) allStats(ctx context.Context, queues []string) ([]statsView, error) {
	if len(queues) == 0 {
		for name, err := range a.queues(ctx) {
			if err != nil {
				return nil, err
			}
			queues = append(queues, name)
		}
	}
	counts := make([]statsView, 0, len(queues))
	for _, name := range queues {
		stats, err := a.stats(ctx, name)
		if err != nil {
			return nil, err
		}
		counts = append(counts, statsView{Queue: name, statsBody: stats})
	}
	return counts, nil
}

// printStats prints counts: a table, or a line of JSON each, with the time if
// there is one.
func (s *shell) printStats(counts []statsView, at *time.Time) error {
	if s.global.json {
		for _, v := range counts {
			v.At = at
			if err := s.object(v); err != nil {
				return err
			}
		}
		return nil
	}
	if len(counts) == 0 {
		s.note("There are no queues.")
		return nil
	}
	t := statsTable(counts)
	return t.write(s.Stdout)
}

func statsTable(counts []statsView) *table {
	t := &table{header: []string{"QUEUE", "READY", "DELAYED", "IN FLIGHT", "DEAD"}}
	for _, v := range counts {
		queue := printable([]byte(v.Queue), bodyWidth)
		if v.Paused {
			queue += " (" + pausedWord + ")"
		}
		if v.Throttled > 0 {
			queue += " (" + plainNumber(v.Throttled) + " " + throttledWord + ")"
		}
		t.add(queue, plainNumber(v.Ready), plainNumber(v.Delayed), plainNumber(v.InFlight), plainNumber(v.Dead))
	}
	return t
}
