package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

func (s *shell) dlqCommand() *cobra.Command {
	c := parent("dlq", "List, redrive and discard dead letters", s.dlqList(), s.dlqCauses(), s.dlqShow(), s.dlqRedrive(), s.dlqDiscard())
	c.SuggestFor = []string{"dead", "deadletters"}
	return c
}

// dead yields the dead letters that the filter selects. The daemon filters them: see
// matches in internal/host/peek.go and redisbox/internal/shard/peek.go.
func (a *api) dead(ctx context.Context, f *filterFlags, queue string, limit int) iter.Seq2[peekedBody, error] {
	body, err := f.body(queue)
	if err != nil {
		return func(yield func(peekedBody, error) bool) { yield(peekedBody{}, err) }
	}
	if !f.given() {
		return list[peekedBody](ctx, a, apiRequest{path: "/v1/dlq/list", body: struct {
			Queue string `json:"topic"`
			Limit int    `json:"limit"`
		}{queue, limit}})
	}
	body.States, body.Limit = []string{string(driver.StateDead)}, limit
	return a.peek(ctx, body)
}

func (s *shell) dlqList() *cobra.Command {
	var f filterFlags
	var limit int
	c := &cobra.Command{
		Use: "ls QUEUE", Aliases: []string{"list"}, Short: "List dead letters, oldest first",
		Example: "mailbox dlq ls orders --reason max_attempts",
		Args:    wants(1, 1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if limit < 0 {
				return usageError("--limit cannot be negative; 0 means no limit")
			}
			return s.printPeeked(a.dead(ctx, &f, args[0], limit), true)
		}),
	}
	f.register(c.Flags())
	c.Flags().IntVarP(&limit, "limit", "n", 20, "how many at most; 0 means all")
	return c
}

func (s *shell) dlqCauses() *cobra.Command {
	var f filterFlags
	var search searchFlags
	var limit int
	c := &cobra.Command{
		Use: "causes QUEUE", Short: "Group dead letters by cause, the largest first",
		Long: "Group dead letters by cause: the reason, the type of the error, and its text without numbers, ids and quoted parts.\n" +
			"It looks for a second, or for --within, beginning with the oldest death. --cause of other commands takes the id of a cause.",
		Example: "mailbox dlq causes orders\nmailbox dlq causes orders --attr customer=ada --within 30s",
		Args:    wants(1, 1), ValidArgsFunction: s.completeQueue,
		RunE: func(c *cobra.Command, args []string) error {
			body, err := f.body(args[0])
			if err == nil {
				err = search.fill(&body, c.Flags().Changed)
			}
			if err == nil && limit < 0 {
				err = usageError("--limit cannot be negative; 0 means no limit")
			}
			if err != nil {
				return err
			}
			body.Limit = limit
			return s.withAPI(func(ctx context.Context, a *api, _ []string) error { return s.printCauses(ctx, a, body) })(c, args)
		},
	}
	f.register(c.Flags())
	search.register(c.Flags())
	c.Flags().IntVarP(&limit, "limit", "n", 20, "how many causes at most; 0 means all")
	return c
}

// A causeView is a cause of dead letters in JSON. Its fields are stable.
type causeView struct {
	Cause       string     `json:"cause"`
	Queue       string     `json:"queue"`
	Reason      string     `json:"reason"`
	ErrorType   string     `json:"error_type,omitempty"`
	Words       string     `json:"words"`
	Messages    int        `json:"messages"`
	FirstDeadAt *time.Time `json:"first_dead_at"`
	LastDeadAt  *time.Time `json:"last_dead_at"`
	ID          string     `json:"id"`
	LastError   string     `json:"last_error,omitempty"`
}

// A causesExtent says how far the daemon looked for causes.
type causesExtent struct {
	Looked   map[string]int `json:"looked"`
	Selected int            `json:"selected"`
	Causes   int            `json:"causes"`
	Cursor   string         `json:"cursor"`
}

// A causeAnswer is a cause of the HTTP API, or its last line, which has Looked.
type causeAnswer struct {
	causeView
	causesExtent
	ID    string `json:"msg_id"`
	Queue string `json:"topic"`
}

// printCauses prints causes, and how far the daemon looked: to Stderr, or as a line of JSON.
func (s *shell) printCauses(ctx context.Context, a *api, body peekBody) error {
	t := table{header: []string{"CAUSE", "MESSAGES", "REASON", "FIRST", "LAST", "ERROR"}}
	var extent causesExtent
	for answer, err := range list[causeAnswer](ctx, a, apiRequest{path: "/v1/dlq/causes", body: body}) {
		if err != nil {
			return err
		}
		v := answer.causeView
		v.ID, v.Queue = answer.ID, answer.Queue
		switch {
		case answer.Looked != nil:
			extent = answer.causesExtent
		case s.global.json:
			if err := s.object(v); err != nil {
				return err
			}
		default:
			text := v.Words
			if v.ErrorType != "" {
				text = v.ErrorType + ": " + text
			}
			t.add(v.Cause, plainNumber(v.Messages), v.Reason, stamp(v.FirstDeadAt), stamp(v.LastDeadAt), printable([]byte(text), causeWidth))
		}
	}
	if s.global.json {
		return s.object(extent)
	}
	if len(t.rows) > 0 {
		if err := t.write(s.Stdout); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("looked at %s: %d selected, in %s", plural(extent.Looked[string(driver.StateDead)], "dead letter"), extent.Selected, plural(extent.Causes, "cause"))
	if extent.Cursor != "" {
		text += "; go on with --cursor " + extent.Cursor
	}
	_, err := fmt.Fprintln(s.Stderr, text)
	return err
}

// causeWidth is how many characters of an error a table of causes shows.
const causeWidth = 100

func (s *shell) dlqShow() *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE ID", Short: "Show a dead letter with all details", Args: wants(2, 2), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			body := peekBody{Queue: args[0], States: []string{string(driver.StateDead)}, MessageID: args[1], Limit: 1}
			for looked, err := range a.peek(ctx, body) {
				if err != nil {
					return err
				}
				return s.printDead(looked.view())
			}
			return &failure{
				exit: exitNotFound, code: "not_found", sentence: "there is no dead letter " + printable([]byte(args[1]), 40) + " in " + args[0],
				advice: "see which there are with mailbox dlq ls " + args[0],
			}
		}),
	}
}

func (s *shell) printDead(v messageView) error {
	if s.global.json {
		return s.object(v)
	}
	t := table{header: []string{"ID", v.ID}}
	for _, row := range [][2]string{
		{"queue", v.Queue},
		{"reason", v.Reason},
		{"error", v.LastError},
		{"error type", v.ErrorType},
		{"cause", v.Cause},
		{"died", stamp(v.DeadAt)},
		{"sent", stamp(v.EnqueuedAt)},
		{"first received", stamp(v.FirstReceivedAt)},
		{"deliveries", plainNumber(v.Deliveries)},
		{"redrives", plainNumber(v.Redrives)},
		{"key", v.Key},
		{"group", v.Group},
		{"priority", positive(v.Priority)},
		{"reply to", v.ReplyTo},
		{"correlation id", v.CorrelationID},
	} {
		if row[1] != "" {
			t.add(row[0], row[1])
		}
	}
	for _, name := range sortedKeys(v.Attributes) {
		t.add("attribute "+printable([]byte(name), bodyWidth), v.Attributes[name])
	}
	t.add("body", string(v.body()))
	return t.write(s.Stdout)
}

// selection selects the dead letters of a command.
type selection struct {
	filterFlags
	all, dryRun, yes bool
	limit, rate      int
}

func (f *selection) registerAll(c *cobra.Command, verb string) {
	f.register(c.Flags())
	c.Flags().BoolVar(&f.all, "all", false, verb+" all of them")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count them")
	c.Flags().IntVarP(&f.limit, "limit", "n", 0, "how many at most, oldest first; 0 means no limit")
	c.Flags().IntVar(&f.rate, "rate", 0, "how many a second at most; 0 means no limit")
}

func (f *selection) check(ids []string) error {
	ways := 0
	for _, given := range []bool{len(ids) > 0, f.all, f.given()} {
		if given {
			ways++
		}
	}
	switch {
	case ways == 0:
		return usageError("name the dead letters: by ids, --all, or a filter like --reason")
	case ways > 1:
		return usageError("ids, --all and filters exclude each other; use one of them")
	case f.limit < 0:
		return usageError("--limit cannot be negative; 0 means no limit")
	case f.rate < 0:
		return usageError("--rate cannot be negative; 0 means no limit")
	}
	return nil
}

// job returns the job on the selected dead letters.
func (f *selection) job(queue, action string) (jobBody, error) {
	body, err := f.body(queue)
	body.Limit = f.limit
	return jobBody{peekBody: body, Action: action, Rate: f.rate}, err
}

// named returns those of the ids that belong to dead letters, each once.
func (f *selection) named(ctx context.Context, a *api, queue string, ids []string) (found []string, err error) {
	for looked, err := range a.dead(ctx, &f.filterFlags, queue, 0) {
		if err != nil {
			return nil, err
		}
		if slices.Contains(ids, looked.MessageID) {
			found = append(found, looked.MessageID)
		}
		if len(found) == len(ids) {
			break
		}
	}
	return found, nil
}

// unknownDead returns the error about ids that do not belong to dead letters; nil if there are none.
func unknownDead(queue string, unknown []string) error {
	if len(unknown) == 0 {
		return nil
	}
	shown := make([]string, 0, 10)
	for _, id := range unknown[:min(len(unknown), cap(shown))] {
		shown = append(shown, printable([]byte(id), 40))
	}
	text := strings.Join(shown, ", ")
	if more := len(unknown) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &failure{
		exit: exitNotFound, code: "not_found", sentence: fmt.Sprintf("%s has no dead letter %s", queue, text),
		advice: "see which it has with mailbox dlq ls " + queue,
	}
}

// changeDead calls change with each of the ids, and returns how many dead letters were found. The error names the others.
func (s *shell) changeDead(verb, queue string, ids []string, change func(ids []string) (int, error)) (changed int, err error) {
	bar := s.progress(verb, int64(len(ids)))
	defer bar.end()
	var unknown []string
	for _, id := range ids {
		n, err := change([]string{id})
		changed += n
		if err != nil {
			return changed, err
		}
		if n == 0 {
			unknown = append(unknown, id)
		}
		bar.add(1)
	}
	return changed, unknownDead(queue, unknown)
}

// distinct returns ids without repetitions.
func distinct(ids []string) []string {
	var once []string
	for _, id := range ids {
		if !slices.Contains(once, id) {
			once = append(once, id)
		}
	}
	return once
}

// count counts the dead letters for a command: those that the user named, or those that are selected. It returns a job that
// does it with the latter, and leaves what dies after it was counted.
func (s *shell) count(ctx context.Context, a *api, f *selection, queue string, ids []string, action string) (n int, body jobBody, err error) {
	if len(ids) > 0 {
		found, err := f.named(ctx, a, queue, ids)
		if err == nil {
			err = unknownDead(queue, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return slices.Contains(found, id) }))
		}
		return len(found), body, err
	}
	if body, err = f.job(queue, "count"); err != nil {
		return 0, body, err
	}
	job, err := s.runJob(ctx, a, "counting", body)
	body.Action, body.Until = action, job.Until
	return job.Done, body, err
}

func (s *shell) dlqRedrive() *cobra.Command {
	var f selection
	c := &cobra.Command{
		Use: "redrive QUEUE [ID...]", Short: "Make dead letters ready again",
		Long: "Make dead letters ready again, at the tail of the queue: some by their ids, those that a filter selects, or all.\n" +
			"A filter and --all start a job in the daemon, which Ctrl-C stops; mailbox jobs lists it. Those that die meanwhile are left.",
		Example: "mailbox dlq redrive orders --all\nmailbox dlq redrive orders --cause 9ec38399596b --limit 100 --dry-run",
		Args:    wants(1, -1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := f.check(args[1:]); err != nil {
				return err
			}
			return s.redrive(ctx, a, &f, args[0], args[1:])
		}),
	}
	f.registerAll(c, "redrive")
	return c
}

// movedView is the result of a redrive in JSON.
type movedView struct {
	Queue  string `json:"queue"`
	Moved  int    `json:"moved"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (s *shell) redrive(ctx context.Context, a *api, f *selection, queue string, ids []string) error {
	ids = distinct(ids)
	if f.dryRun {
		n, _, err := s.count(ctx, a, f, queue, ids, "redrive")
		if err != nil {
			return err
		}
		return s.say(movedView{queue, n, true}, "%s would be redriven in %s", plural(n, "dead letter"), queue)
	}
	var moved int
	body, err := f.job(queue, "redrive")
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		var job jobView
		job, err = s.runJob(ctx, a, "redriving", body)
		moved = job.Done
	default:
		moved, err = s.changeDead("redriving", queue, ids, func(ids []string) (int, error) {
			var answer struct {
				Moved int `json:"moved"`
			}
			err := a.call(ctx, apiRequest{path: "/v1/dlq/reprocess", body: map[string]any{"topic": queue, "msg_ids": ids}}, &answer)
			if some, ok := errors.AsType[*partial](err); ok {
				answer.Moved = some.done
			}
			return answer.Moved, err
		})
	}
	if err == nil || moved > 0 {
		err = errors.Join(s.say(movedView{Queue: queue, Moved: moved}, "%s redriven in %s", plural(moved, "dead letter"), queue), err)
	}
	return err
}

func (s *shell) dlqDiscard() *cobra.Command {
	var f selection
	c := &cobra.Command{
		Use: "discard QUEUE [ID...]", Short: "Remove dead letters permanently",
		Example: "mailbox dlq discard orders 01K9ZQ4T1V6N8F7M2C3B5D0XAW\nmailbox dlq discard orders --older-than 168h --yes",
		Args:    wants(1, -1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := f.check(args[1:]); err != nil {
				return err
			}
			return s.discard(ctx, a, &f, args[0], args[1:])
		}),
	}
	f.registerAll(c, "discard")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	return c
}

func (s *shell) discard(ctx context.Context, a *api, f *selection, queue string, ids []string) error {
	type view struct {
		removedView
		DryRun bool `json:"dry_run,omitempty"`
	}
	ids = distinct(ids)
	n, body := len(ids), jobBody{}
	if n == 0 || f.dryRun {
		var err error
		if n, body, err = s.count(ctx, a, f, queue, ids, "discard"); err != nil {
			return err
		}
	}
	if f.dryRun {
		return s.say(view{removedView{queue, n}, true}, "%s would be discarded from %s", plural(n, "dead letter"), queue)
	}
	if n > 0 {
		if err := s.confirm(f.yes, "discarding "+plural(n, "dead letter")+" of "+queue); err != nil {
			return err
		}
	}
	var removed int
	var err error
	if len(ids) > 0 {
		removed, err = s.changeDead("discarding", queue, ids, func(ids []string) (int, error) {
			return a.removed(ctx, "/v1/dlq/discard", map[string]any{"topic": queue, "msg_ids": ids})
		})
	} else {
		var job jobView
		job, err = s.runJob(ctx, a, "discarding", body)
		removed = job.Done
	}
	if err == nil || removed > 0 {
		err = errors.Join(s.say(view{removedView: removedView{queue, removed}}, "%s discarded from %s", plural(removed, "dead letter"), queue), err)
	}
	return err
}
