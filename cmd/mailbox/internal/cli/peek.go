package cli

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mailboxmq/mailbox/driver"
)

// filterFlags select messages.
type filterFlags struct {
	attributes []string
	olderThan  time.Duration
	reason     string
}

func (f *filterFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.attributes, "attr", "a", nil, "only messages with this attribute NAME=VALUE; can be repeated")
	flags.DurationVar(&f.olderThan, "older-than", 0, "only messages that were sent at least this long ago")
	flags.StringVar(&f.reason, "reason", "", "only dead letters with this reason: max_attempts, fatal, parse, integrity, expired or operator")
}

// given reports whether any filter is set.
func (f *filterFlags) given() bool {
	return len(f.attributes) > 0 || f.olderThan != 0 || f.reason != ""
}

// peekBody is a peek request.
type peekBody struct {
	Queue       string            `json:"topic"`
	States      []string          `json:"states,omitempty"`
	MessageID   string            `json:"msg_id,omitempty"`
	Attributes  map[string]string `json:"attrs,omitempty"`
	OlderThanMS int64             `json:"older_than_ms,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Limit       int               `json:"limit,omitempty"`
}

// body returns the peek request of the flags.
func (f *filterFlags) body(queue string) (peekBody, error) {
	attributes, err := parsePairs("attr", f.attributes)
	if err == nil && f.reason != "" && !driver.Reason(f.reason).Valid() {
		err = usageError("--reason: invalid value %.60q; want max_attempts, fatal, parse, integrity, expired or operator", f.reason)
	}
	return peekBody{Queue: queue, Attributes: attributes, OlderThanMS: f.olderThan.Milliseconds(), Reason: f.reason}, err
}

func (a *api) peek(ctx context.Context, body peekBody) iter.Seq2[peekedBody, error] {
	return list[peekedBody](ctx, a, apiRequest{path: "/v1/peek", body: body})
}

func (s *shell) peekCommand() *cobra.Command {
	var f filterFlags
	var states []string
	var id, tenant string
	var limit int
	c := &cobra.Command{
		Use: "peek QUEUE", Short: "Show messages without receiving them",
		Long: "Show messages without receiving them: ready ones in the order in which they would be delivered, then\n" +
			"delayed ones, those in flight, and dead ones. It changes nothing.",
		Example: "mailbox peek orders\nmailbox peek orders --state delayed --attr source=shop --limit 0 --json",
		Args:    wants(1, 1), ValidArgsFunction: s.completeQueue,
		RunE: s.run(func(ctx context.Context, args []string) error {
			body, err := f.body(args[0])
			if err != nil {
				return err
			}
			for _, state := range states {
				word := driver.State(strings.ReplaceAll(state, "-", " "))
				switch word {
				case driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead:
					body.States = append(body.States, string(word))
				default:
					return usageError("--state: invalid value %.60q; want ready, delayed, in-flight or dead", state)
				}
			}
			if limit < 0 {
				return usageError("--limit cannot be negative; 0 means no limit")
			}
			body.MessageID, body.Limit = id, limit
			connection, err := s.connect()
			if err != nil {
				return err
			}
			defer connection.close()
			connection.api.tenant = tenant
			return s.printPeeked(connection.api.peek(ctx, body), false)
		}),
	}
	f.register(c.Flags())
	c.Flags().StringSliceVar(&states, "state", nil, "only messages in these states: ready, delayed, in-flight, dead")
	c.Flags().StringVar(&tenant, "tenant", "", "show a queue of this tenant, with the operator's token")
	c.Flags().StringVar(&id, "id", "", "only the message with this id")
	c.Flags().IntVarP(&limit, "limit", "n", 20, "how many at most; 0 means all")
	return c
}

// bodyWidth is how many characters of a body a table shows.
const bodyWidth = 60

// printPeeked prints peeked messages: a table, or a line of JSON each.
func (s *shell) printPeeked(messages iter.Seq2[peekedBody, error], dead bool) error {
	t := table{header: []string{"ID", "STATE", "DELIVERIES", "SENT", "BODY"}}
	if dead {
		t.header = []string{"ID", "REASON", "DELIVERIES", "DIED", "ERROR", "BODY"}
	}
	for looked, err := range messages {
		if err != nil {
			return err
		}
		v := looked.view()
		switch {
		case s.global.json:
			if err := s.object(v); err != nil {
				return err
			}
		case dead:
			t.add(v.ID, v.Reason, plainNumber(v.Deliveries), stamp(v.DeadAt), printable([]byte(v.LastError), bodyWidth/2), printable(v.body(), bodyWidth/2))
		default:
			t.add(v.ID, v.State, plainNumber(v.Deliveries), stamp(v.EnqueuedAt), printable(v.body(), bodyWidth))
		}
	}
	if s.global.json || len(t.rows) == 0 {
		return nil
	}
	return t.write(s.Stdout)
}
