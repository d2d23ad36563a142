package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
)

func (s *shell) dlqCommand() *cobra.Command {
	c := parent("dlq", "List, redrive and discard dead letters", s.dlqList(), s.dlqShow(), s.dlqRedrive(), s.dlqDiscard())
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
	limit            int
}

func (f *selection) registerAll(c *cobra.Command, verb string) {
	f.register(c.Flags())
	c.Flags().BoolVar(&f.all, "all", false, verb+" all of them")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "only count them")
	c.Flags().IntVarP(&f.limit, "limit", "n", 0, "how many at most, oldest first; 0 means no limit")
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
	}
	return nil
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

// changeDead calls change with parts of the ids, which returns how many dead letters it
// found, and returns the sum. Ids that the user named are passed
// one at a time, so that the error can name unknown ones.
func (s *shell) changeDead(verb, queue string, ids []string, named bool, change func(part []string) (int, error)) (changed int, err error) {
	bar := s.progress(verb, int64(len(ids)))
	defer bar.end()
	size := dlqPart
	if named {
		size = 1
	}
	var unknown []string
	for part := range slices.Chunk(ids, size) {
		n, err := change(part)
		changed += n
		if err != nil {
			return changed, err
		}
		if named && n == 0 {
			unknown = append(unknown, part...)
		}
		bar.add(int64(len(part)))
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

// ids returns the ids of the selected dead letters.
func (f *selection) ids(ctx context.Context, a *api, queue string) ([]string, error) {
	var ids []string
	for looked, err := range a.dead(ctx, &f.filterFlags, queue, f.limit) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, looked.MessageID)
	}
	return ids, nil
}

// chosen returns the ids for a command: those that the user named, each once,
// or those that are selected. Named ids are looked up only for a dry run.
func (f *selection) chosen(ctx context.Context, a *api, queue string, ids []string) (chosen []string, named bool, err error) {
	if len(ids) == 0 {
		chosen, err = f.ids(ctx, a, queue)
		return chosen, false, err
	}
	ids = distinct(ids)
	if !f.dryRun {
		return ids, true, nil
	}
	found, err := f.named(ctx, a, queue, ids)
	if err == nil {
		err = unknownDead(queue, slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(found, id) }))
	}
	return found, true, err
}

// dlqPart is how many dead letters one request names.
const dlqPart = 1000

func (s *shell) dlqRedrive() *cobra.Command {
	var f selection
	c := &cobra.Command{
		Use: "redrive QUEUE [ID...]", Short: "Make dead letters ready again",
		Long:    "Make dead letters ready again, at the tail of the queue: some by their ids, those that a filter selects, or all.",
		Example: "mailbox dlq redrive orders --all\nmailbox dlq redrive orders --reason max_attempts --limit 100 --dry-run",
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
	// The ids are fixed first, so that a message that dies again is not redriven
	// twice.
	ids, named, err := f.chosen(ctx, a, queue, ids)
	if err != nil {
		return err
	}
	if f.dryRun {
		return s.say(movedView{queue, len(ids), true}, "%s would be redriven in %s", plural(len(ids), "dead letter"), queue)
	}
	moved, err := s.changeDead("redriving", queue, ids, named, func(part []string) (int, error) {
		var answer struct {
			Moved int `json:"moved"`
		}
		err := a.call(ctx, apiRequest{path: "/v1/dlq/reprocess", body: map[string]any{"topic": queue, "msg_ids": part}}, &answer)
		if some, ok := errors.AsType[*partial](err); ok {
			answer.Moved = some.done
		}
		return answer.Moved, err
	})
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
	ids, named, err := f.chosen(ctx, a, queue, ids)
	if err != nil {
		return err
	}
	type view struct {
		removedView
		DryRun bool `json:"dry_run,omitempty"`
	}
	if f.dryRun {
		return s.say(view{removedView{queue, len(ids)}, true}, "%s would be discarded from %s", plural(len(ids), "dead letter"), queue)
	}
	if len(ids) > 0 {
		if err := s.confirm(f.yes, "discarding "+plural(len(ids), "dead letter")+" of "+queue); err != nil {
			return err
		}
	}
	removed, err := s.changeDead("discarding", queue, ids, named, func(part []string) (int, error) {
		return a.removed(ctx, "/v1/dlq/discard", map[string]any{"topic": queue, "msg_ids": part})
	})
	if err == nil || removed > 0 {
		err = errors.Join(s.say(view{removedView: removedView{queue, removed}}, "%s discarded from %s", plural(removed, "dead letter"), queue), err)
	}
	return err
}
