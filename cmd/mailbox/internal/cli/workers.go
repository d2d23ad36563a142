package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

// A workerView is a receiver of a queue, in the HTTP API and in JSON. Its fields are stable.
type workerView struct {
	Queue    string     `json:"queue"`
	Name     string     `json:"name"`
	Protocol string     `json:"protocol"`
	Address  string     `json:"address,omitempty"`
	Token    string     `json:"token"`
	Since    time.Time  `json:"since"`
	Seen     time.Time  `json:"seen"`
	Waiting  int        `json:"waiting"`
	InFlight int        `json:"in_flight"`
	Acked    int        `json:"acked"`
	Failed   int        `json:"failed"`
	Expired  int        `json:"expired"`
	Held     []heldView `json:"held,omitempty"`
}

type heldView struct {
	ID       string      `json:"id"`
	Attempt  int         `json:"attempt"`
	TakenAt  time.Time   `json:"taken_at"`
	Until    time.Time   `json:"until"`
	Progress *reportView `json:"progress,omitempty"`
}

// A reportView is what a worker has reported about a message, in the HTTP API and in JSON.
type reportView struct {
	Fraction *float64  `json:"fraction,omitempty"`
	Text     string    `json:"text,omitempty"`
	At       time.Time `json:"at"`
}

// String returns the report for people.
func (r *reportView) String() string {
	progress := driver.Progress{Fraction: -1, Text: printable([]byte(r.Text), driver.MaxProgressBytes)}
	if r.Fraction != nil {
		progress.Fraction = *r.Fraction
	}
	return cmp.Or(progress.String(), "at work")
}

// workers lists the receivers of a queue, or of all.
func (a *api) workers(ctx context.Context, queue string) ([]workerView, error) {
	path := "/v1/workers"
	if queue != "" {
		path += "?" + url.Values{"topic": {queue}}.Encode()
	}
	var answer struct {
		Workers []struct {
			workerView
			Queue string `json:"topic"`
			Held  []struct {
				heldView
				ID string `json:"msg_id"`
			} `json:"held"`
		} `json:"workers"`
	}
	if err := a.call(ctx, apiRequest{method: http.MethodGet, path: path}, &answer); err != nil {
		return nil, err
	}
	all := make([]workerView, len(answer.Workers))
	for i, w := range answer.Workers {
		all[i] = w.workerView
		all[i].Queue = w.Queue
		for _, held := range w.Held {
			held.heldView.ID = held.ID
			all[i].Held = append(all[i].Held, held.heldView)
		}
	}
	return all, nil
}

func (s *shell) workersCommand() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: "workers [QUEUE]", Aliases: []string{"worker"}, Short: "List who receives, and what they hold",
		Long: "List the receivers that the daemon has seen in the last 5 minutes, or that wait or hold messages: of a queue, or of all.\n" +
			"With a queue, the messages are listed that they have held for longest, and the progress of their handlers, for tokens with the operation peek.",
		Example: "mailbox workers orders", Args: wants(0, 1),
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			queue := ""
			if len(args) > 0 {
				queue = args[0]
			}
			a.tenant = tenant
			all, err := a.workers(ctx, queue)
			if err != nil {
				return err
			}
			now := time.Now()
			t := table{header: []string{"QUEUE", "WORKER", "FROM", "SEEN", "WAITING", "HOLDS", "ACKED", "FAILED", "EXPIRED", "LONGEST", "PROGRESS"}}
			for i := range all {
				w := &all[i]
				if s.global.json {
					if err := s.object(w); err != nil {
						return err
					}
					continue
				}
				t.add(w.Queue, w.title(40), w.from(), shortSpan(now.Sub(w.Seen)), fmt.Sprint(w.Waiting), fmt.Sprint(w.InFlight),
					fmt.Sprint(w.Acked), fmt.Sprint(w.Failed), fmt.Sprint(w.Expired), w.longest(now), w.progress(now))
			}
			if len(t.rows) == 0 {
				return nil
			}
			return t.write(s.Stdout)
		}),
	}
	c.Flags().StringVar(&tenant, "tenant", "", "list the workers of this tenant, with the operator's token")
	return c
}

// title returns the name of the worker, which the receiver chose.
func (w *workerView) title(limit int) string {
	if w.Name == "" {
		return "-"
	}
	return printable([]byte(w.Name), limit)
}

func (w *workerView) from() string {
	return strings.TrimSpace(printable([]byte(w.Protocol+" "+w.Address), 60))
}

// progress returns the report about the message that was held for longest of those that have one.
func (w *workerView) progress(now time.Time) string {
	for i := range w.Held {
		if report := w.Held[i].Progress; report != nil {
			return fmt.Sprintf("%s (%s ago)", report, shortSpan(now.Sub(report.At)))
		}
	}
	return "-"
}

// longest returns the message that the worker has held for longest, and how long that is.
func (w *workerView) longest(now time.Time) string {
	if len(w.Held) == 0 {
		return "-"
	}
	return printable([]byte(w.Held[0].ID), 40) + " " + shortSpan(now.Sub(w.Held[0].TakenAt))
}
