package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

// traceBody is the trace of a message in the HTTP API.
type traceBody struct {
	Message *peekedBody `json:"message"`
	Events  []struct {
		At      time.Time `json:"at"`
		Kind    string    `json:"kind"`
		By      string    `json:"by"`
		Attempt int       `json:"attempt"`
		Note    string    `json:"note"`
	} `json:"events"`
	Progress *reportView `json:"progress"`
}

// traceView is the trace of a message in JSON.
type traceView struct {
	ID       string       `json:"id"`
	Queue    string       `json:"queue"`
	Message  *messageView `json:"message,omitempty"`
	Events   []eventView  `json:"events"`
	Progress *reportView  `json:"progress,omitempty"`
}

type eventView struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Token   string    `json:"token,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Note    string    `json:"note,omitempty"`
}

func (s *shell) traceCommand() *cobra.Command {
	var queue string
	c := &cobra.Command{
		Use: "trace ID", Short: "Show the trace of a message",
		Long: "Show the trace of a message: when it was sent, delivered, extended, nacked, dead-lettered and acked, and by which\n" +
			"token, and the progress of its handler. Daemons keep only the latest events.",
		Example: "mailbox trace 01K9ZQ4T1V6N8F7M2C3B5D0XAW",
		Args:    wants(1, 1),
		RunE: s.run(func(ctx context.Context, args []string) error {
			connection, err := s.connect()
			if err != nil {
				return err
			}
			defer connection.close()
			life, found, err := connection.api.trace(ctx, queue, args[0])
			if err != nil {
				return err
			}
			return s.printTrace(args[0], found, life)
		}),
	}
	c.Flags().StringVar(&queue, "queue", "", "queue of the message; otherwise all queues are searched")
	return c
}

// trace returns the trace of a message, in one queue or in any.
func (a *api) trace(ctx context.Context, queue, id string) (life traceBody, found string, err error) {
	ask := func(queue string) error {
		return a.call(ctx, apiRequest{path: "/v1/life", body: map[string]string{"topic": queue, "msg_id": id}}, &life)
	}
	if queue != "" {
		return life, queue, ask(queue)
	}
	for name, err := range a.queues(ctx) {
		if err != nil {
			return life, "", err
		}
		if err := ask(name); err == nil || !errors.Is(err, driver.ErrNotFound) {
			return life, name, err
		}
	}
	return life, "", &driver.Error{Code: driver.ErrNotFound, MessageID: printable([]byte(id), 40)}
}

func (s *shell) printTrace(id, queue string, life traceBody) error {
	v := traceView{ID: id, Queue: queue, Events: []eventView{}, Progress: life.Progress}
	if life.Message != nil {
		message := life.Message.view()
		v.Message = &message
	}
	for _, e := range life.Events {
		v.Events = append(v.Events, eventView{e.At.UTC(), e.Kind, e.By, e.Attempt, e.Note})
	}
	if s.global.json {
		return s.object(v)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s\n", id, printable([]byte(queue), 0))
	for _, e := range v.Events {
		fmt.Fprintf(&b, "  %s  %s", e.At.Format("2006-01-02 15:04:05.000 UTC"), e.Kind)
		if e.Attempt > 0 {
			fmt.Fprintf(&b, ", delivery %d", e.Attempt)
		}
		if e.Note != "" {
			fmt.Fprintf(&b, ": %s", printable([]byte(e.Note), 200))
		}
		if e.Token != "" {
			fmt.Fprintf(&b, " (token %s)", e.Token)
		}
		b.WriteByte('\n')
	}
	b.WriteString(whereabouts(v.Message))
	if v.Progress != nil {
		fmt.Fprintf(&b, "\n  Its worker has reported since %s: %s", stamp(&v.Progress.At), v.Progress)
	}
	return s.line("%s", b.String())
}

// whereabouts describes the current state of a message.
func whereabouts(m *messageView) string {
	switch {
	case m == nil:
		return "  It is not in the queue any more."
	case m.State == string(driver.StateDead):
		return fmt.Sprintf("  It has been dead since %s (%s).", stamp(m.DeadAt), printable([]byte(m.Reason), 0))
	case m.DueAt != nil:
		return fmt.Sprintf("  It is %s until %s, after %s.", m.State, stamp(m.DueAt), deliveries(m.Deliveries))
	}
	return fmt.Sprintf("  It is %s, after %s.", m.State, deliveries(m.Deliveries))
}

func deliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}
