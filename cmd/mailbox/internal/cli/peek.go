package cli

import (
	"context"
	"fmt"
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
	cause      string
}

// searchFlags select messages in ways that only mailbox peek and mailbox dlq causes have, and go on.
type searchFlags struct {
	text, group, cursor string
	priority            int
	within              time.Duration
}

func (f *searchFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.text, "text", "", "only messages whose body contains this text")
	flags.StringVar(&f.group, "group", "", "only messages of this group")
	flags.IntVar(&f.priority, "priority", -1, "only messages with this priority")
	flags.DurationVar(&f.within, "within", 0, "stop looking after this time, up to 30s, and print how far it looked and the cursor to go on")
	flags.StringVar(&f.cursor, "cursor", "", "go on where an earlier command stopped")
}

// fill adds the flags to a request.
func (f *searchFlags) fill(body *peekBody, given func(string) bool) error {
	body.Text, body.Group = f.text, f.group
	switch {
	case !given("priority"):
	case f.priority < 0 || f.priority > driver.MaxPriority:
		return usageError("--priority: invalid value %d; want 0 to %d", f.priority, driver.MaxPriority)
	default:
		body.Priority = &f.priority
	}
	if given("within") || given("cursor") {
		if f.within < 0 || given("within") && f.within < time.Millisecond {
			return usageError("--within: invalid value %v; want 1ms to 30s", f.within)
		}
		body.Cursor, body.WithinMS = &f.cursor, f.within.Milliseconds()
	}
	return nil
}

func (f *filterFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.attributes, "attr", "a", nil, "only messages with this attribute NAME=VALUE; can be repeated")
	flags.DurationVar(&f.olderThan, "older-than", 0, "only messages that were sent at least this long ago")
	flags.StringVar(&f.reason, "reason", "", "only dead letters with this reason: max_attempts, fatal, parse, integrity, expired or operator")
	flags.StringVar(&f.cause, "cause", "", "only dead letters with this cause; see mailbox dlq causes")
}

// given reports whether any filter is set.
func (f *filterFlags) given() bool {
	return len(f.attributes) > 0 || f.olderThan != 0 || f.reason != "" || f.cause != ""
}

// peekBody is a peek request.
type peekBody struct {
	Queue       string            `json:"topic"`
	States      []string          `json:"states,omitempty"`
	MessageID   string            `json:"msg_id,omitempty"`
	Attributes  map[string]string `json:"attrs,omitempty"`
	OlderThanMS int64             `json:"older_than_ms,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Cause       string            `json:"cause,omitempty"`
	Text        string            `json:"text,omitempty"`
	Group       string            `json:"group,omitempty"`
	Priority    *int              `json:"priority,omitempty"`
	Limit       int               `json:"limit,omitempty"`
	Cursor      *string           `json:"cursor,omitempty"`
	WithinMS    int64             `json:"within_ms,omitempty"`
}

// body returns the peek request of the flags.
func (f *filterFlags) body(queue string) (peekBody, error) {
	attributes, err := parsePairs("attr", f.attributes)
	if err == nil && f.reason != "" && !driver.Reason(f.reason).Valid() {
		err = usageError("--reason: invalid value %.60q; want max_attempts, fatal, parse, integrity, expired or operator", f.reason)
	}
	return peekBody{Queue: queue, Attributes: attributes, OlderThanMS: f.olderThan.Milliseconds(), Reason: f.reason, Cause: f.cause}, err
}

func (a *api) peek(ctx context.Context, body peekBody) iter.Seq2[peekedBody, error] {
	return list[peekedBody](ctx, a, apiRequest{path: "/v1/peek", body: body})
}

func (s *shell) peekCommand() *cobra.Command {
	var f filterFlags
	var search searchFlags
	var states []string
	var id, tenant string
	var limit int
	var c *cobra.Command
	c = &cobra.Command{
		Use: "peek QUEUE", Short: "Show messages without receiving them",
		Long: "Show messages without receiving them: ready ones in the order in which they would be delivered, then\n" +
			"delayed ones, those in flight, and dead ones. It changes nothing.",
		Example: "mailbox peek orders\nmailbox peek orders --state delayed --attr source=shop --limit 0 --json\nmailbox peek orders --text 4711 --within 5s",
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
			if err := search.fill(&body, c.Flags().Changed); err != nil {
				return err
			}
			connection, err := s.connect()
			if err != nil {
				return err
			}
			defer connection.close()
			connection.api.tenant = tenant
			var extent peekedBody
			if err := s.printPeeked(withoutExtent(connection.api.peek(ctx, body), &extent), false); err != nil || body.Cursor == nil {
				return err
			}
			return s.printExtent(&extent)
		}),
	}
	f.register(c.Flags())
	search.register(c.Flags())
	c.Flags().StringSliceVar(&states, "state", nil, "only messages in these states: ready, delayed, in-flight, dead")
	c.Flags().StringVar(&tenant, "tenant", "", "show a queue of this tenant, with the operator's token")
	c.Flags().StringVar(&id, "id", "", "only the message with this id")
	c.Flags().IntVarP(&limit, "limit", "n", 20, "how many at most; 0 means all")
	return c
}

// withoutExtent yields the messages of a search, and keeps its last line.
func withoutExtent(messages iter.Seq2[peekedBody, error], extent *peekedBody) iter.Seq2[peekedBody, error] {
	return func(yield func(peekedBody, error) bool) {
		for looked, err := range messages {
			if err == nil && looked.Looked != nil {
				*extent = looked
				continue
			}
			if !yield(looked, err) {
				return
			}
		}
	}
}

// printExtent prints how far a search looked, and how to go on: to Stderr, or as a line of JSON.
func (s *shell) printExtent(extent *peekedBody) error {
	if s.global.json {
		return s.object(struct {
			Looked map[string]int `json:"looked"`
			Cursor string         `json:"cursor"`
		}{extent.Looked, extent.Cursor})
	}
	var parts []string
	for _, state := range []driver.State{driver.StateReady, driver.StateDelayed, driver.StateInFlight, driver.StateDead} {
		if n := extent.Looked[string(state)]; n > 0 {
			parts = append(parts, plainNumber(n)+" "+string(state))
		}
	}
	if parts == nil {
		parts = []string{"0"}
	}
	text := "looked at " + strings.Join(parts, ", ") + ": all that were left"
	if extent.Cursor != "" {
		text = "looked at " + strings.Join(parts, ", ") + "; go on with --cursor " + extent.Cursor
	}
	_, err := fmt.Fprintln(s.Stderr, text)
	return err
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
