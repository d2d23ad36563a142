package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/spelling"
)

func plainNumber(n int) string { return strconv.Itoa(n) }

// positive returns a number as text, empty for 0.
func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// queues lists the names of the queues that the token allows.
func (a *api) queues(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		type element struct {
			Queue string `json:"topic"`
		}
		for e, err := range list[element](ctx, a, apiRequest{path: "/v1/queues/list"}) {
			if !yield(e.Queue, err) {
				return
			}
		}
	}
}

// A queueBody is a request that names a queue.
type queueBody struct {
	Queue string `json:"topic"`
}

func (s *shell) queuesCommand() *cobra.Command {
	return parent("queues", "Create, change and delete queues",
		s.queuesList(), s.queuesCreate(), s.queuesConfigure(), s.queuesShow(), s.queuesDelete(), s.queuesPurge())
}

// withAPI runs do with a connection.
func (s *shell) withAPI(do func(ctx context.Context, a *api, args []string) error) func(*cobra.Command, []string) error {
	return s.run(func(ctx context.Context, args []string) error {
		connection, err := s.connect()
		if err != nil {
			return err
		}
		defer connection.close()
		return do(ctx, connection.api, args)
	})
}

func (s *shell) queuesList() *cobra.Command {
	var tenant string
	var all bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List queues",
		Long:    "List the queues of the token's tenant; with the operator's token those of any --tenant, or of --all-tenants.",
		Example: "mailbox queues ls\nmailbox queues ls --all-tenants",
		Args:    wants(0, 0),
		RunE: s.withAPI(func(ctx context.Context, a *api, _ []string) error {
			if all && tenant != "" {
				return usageError("--tenant and --all-tenants exclude each other; leave one out")
			}
			if all {
				return s.listTenants(ctx, a)
			}
			a.tenant = tenant
			for name, err := range a.queues(ctx) {
				if err != nil {
					return err
				}
				if err := s.say(queueView{name}, "%s", printable([]byte(name), 0)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	c.Flags().StringVar(&tenant, "tenant", "", "list the queues of this tenant, with the operator's token")
	c.Flags().BoolVar(&all, "all-tenants", false, "list the queues of all tenants, with the operator's token")
	return c
}

// listTenants lists the queues of all tenants.
func (s *shell) listTenants(ctx context.Context, a *api) error {
	type element struct {
		Tenant string `json:"tenant"`
		Queue  string `json:"topic"`
	}
	a.tenant = "*"
	t := table{header: []string{"TENANT", "QUEUE"}}
	for e, err := range list[element](ctx, a, apiRequest{path: "/v1/queues/list"}) {
		if err != nil {
			return err
		}
		if s.global.json {
			if err := s.object(tenantQueueView{e.Tenant, e.Queue}); err != nil {
				return err
			}
			continue
		}
		tenant := e.Tenant
		if tenant == "" {
			tenant = "-"
		}
		t.add(tenant, e.Queue)
	}
	if len(t.rows) == 0 {
		return nil
	}
	return t.write(s.Stdout)
}

// tenantQueueView is a queue of any tenant in a list, in JSON.
type tenantQueueView struct {
	Tenant string `json:"tenant"`
	Queue  string `json:"queue"`
}

// queueView is a queue in a list, in JSON.
type queueView struct {
	Queue string `json:"queue"`
}

func (s *shell) queuesCreate() *cobra.Command {
	var f configFlags
	c := &cobra.Command{
		Use: "create QUEUE", Short: "Create a queue",
		Long:    "Create a queue. Queues are also created when they are first used; here they can be given other settings. A setting that is not named gets the daemon's default; 0 turns it off.",
		Example: "mailbox queues create orders --max-attempts 10 --retain-ready 720h",
		Args:    wants(1, 1),
	}
	f.register(c.Flags())
	c.RunE = s.withAPI(func(ctx context.Context, a *api, args []string) error {
		_, err := a.config(ctx, args[0])
		if err == nil {
			return &failure{exit: exitConflict, code: "conflict", sentence: "there is a queue " + args[0] + " already", advice: "change it with mailbox queues configure"}
		}
		if !errors.Is(err, driver.ErrNotFound) {
			return err
		}
		return s.configure(ctx, a, args[0], f.apply(c.Flags(), configBody{}), "created")
	})
	return c
}

func (s *shell) queuesConfigure() *cobra.Command {
	var f configFlags
	c := &cobra.Command{
		Use: "configure QUEUE", Short: "Change the settings of a queue",
		Long:    "Change the settings of a queue. A setting that is not named stays as it is; 0 turns it off.",
		Example: "mailbox queues configure orders --max-attempts 3 --dead-letter-to orders-failed",
		Args:    wants(1, 1), ValidArgsFunction: s.completeQueue,
	}
	f.register(c.Flags())
	c.RunE = s.withAPI(func(ctx context.Context, a *api, args []string) error {
		if !f.given(c.Flags()) {
			return usageError("no setting given; mailbox queues configure --help lists them")
		}
		config, err := a.config(ctx, args[0])
		if err != nil {
			return err
		}
		return s.configure(ctx, a, args[0], f.apply(c.Flags(), config), "configured")
	})
	return c
}

func (s *shell) configure(ctx context.Context, a *api, queue string, config configBody, done string) error {
	body := struct {
		Queue  string     `json:"topic"`
		Config configBody `json:"config"`
	}{queue, config}
	if err := a.call(ctx, apiRequest{path: "/v1/queues/configure", body: body, creates: true}, nil); err != nil {
		return err
	}
	if !s.global.json {
		return s.line("%s was %s", queue, done)
	}
	return s.showQueue(ctx, a, queue)
}

func (s *shell) queuesShow() *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE", SuggestFor: []string{"describe", "info"}, Short: "Show the settings and counts of a queue", Args: wants(1, 1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error { return s.showQueue(ctx, a, args[0]) }),
	}
}

// queueDetailView is a queue in JSON.
type queueDetailView struct {
	Queue      string     `json:"queue"`
	Durability string     `json:"durability"`
	Ordering   string     `json:"ordering"`
	Stats      statsBody  `json:"stats"`
	Config     configBody `json:"config"`
}

func (s *shell) showQueue(ctx context.Context, a *api, queue string) error {
	v := queueDetailView{Queue: queue}
	var err error
	if v.Config, err = a.config(ctx, queue); err != nil {
		return err
	}
	if v.Stats, err = a.stats(ctx, queue); err != nil {
		return err
	}
	var traits struct{ Durability, Ordering string }
	if err := a.call(ctx, apiRequest{path: "/v1/traits", body: queueBody{queue}}, &traits); err != nil {
		return err
	}
	v.Durability, v.Ordering = traits.Durability, traits.Ordering
	if s.global.json {
		return s.object(v)
	}
	t := table{header: []string{"QUEUE", queue}}
	t.add("durability", v.Durability)
	t.add("ordering", v.Ordering)
	t.add("ready", plainNumber(v.Stats.Ready))
	t.add("delayed", plainNumber(v.Stats.Delayed))
	t.add("in flight", plainNumber(v.Stats.InFlight))
	t.add("dead", plainNumber(v.Stats.Dead))
	if v.Stats.Paused {
		t.add(pausedWord, "yes")
	}
	if v.Stats.Throttled > 0 {
		t.add(throttledWord, plainNumber(v.Stats.Throttled))
	}
	for _, setting := range v.Config.words() {
		t.add(setting[0], setting[1])
	}
	return t.write(s.Stdout)
}

// contents describes how many messages a queue has, for a confirmation; dead says whether
// dead letters count too. A queue that does not exist is an error. If the token
// does not allow stats, the text has no numbers.
func (a *api) contents(ctx context.Context, queue string, dead bool) (string, error) {
	stats, err := a.stats(ctx, queue)
	switch {
	case errors.Is(err, driver.ErrForbidden):
		if dead {
			return "messages and dead letters", nil
		}
		return "all messages", nil
	case err != nil:
		return "", err
	}
	words := plural(stats.Ready+stats.Delayed+stats.InFlight, "message")
	if stats.InFlight > 0 {
		words += fmt.Sprintf(" (%d in flight)", stats.InFlight)
	}
	if dead {
		words += " and " + plural(stats.Dead, "dead letter")
	}
	return words, nil
}

func (s *shell) queuesDelete() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete QUEUE", Short: "Delete a queue with everything in it", Args: wants(1, 1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := s.confirmQueue(ctx, a, yes, args[0], "deleting the queue "+args[0]+" with its %s", true); err != nil {
				return err
			}
			if err := a.call(ctx, apiRequest{path: "/v1/queues/delete", body: queueBody{args[0]}}, nil); err != nil {
				return err
			}
			return s.say(queueView{args[0]}, "%s was deleted", args[0])
		}),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// confirmQueue is confirm for the contents of a queue, which the question counts.
func (s *shell) confirmQueue(ctx context.Context, a *api, yes bool, queue, question string, dead bool) error {
	if yes {
		return nil
	}
	holds, err := a.contents(ctx, queue, dead)
	if err != nil {
		return err
	}
	return s.confirm(false, fmt.Sprintf(question, holds))
}

// removedView is the number of removed messages in JSON.
type removedView struct {
	Queue   string `json:"queue"`
	Removed int    `json:"removed"`
}

func (s *shell) queuesPurge() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "purge QUEUE", Short: "Remove all messages except dead letters", Args: wants(1, 1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := s.confirmQueue(ctx, a, yes, args[0], "removing %s from "+args[0], false); err != nil {
				return err
			}
			removed, err := a.removed(ctx, "/v1/purge", queueBody{args[0]})
			if err != nil {
				return err
			}
			return s.say(removedView{args[0], removed}, "%s removed from %s", plural(removed, "message"), args[0])
		}),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (s *shell) pauseCommand() *cobra.Command {
	return s.setPausedCommand(&cobra.Command{
		Use: "pause QUEUE", Short: "Stop the deliveries of a queue",
		Long: "Stop the deliveries of a queue until mailbox resume. Receives wait; messages can be sent and settled, and leases, delays\n" +
			"and retention run. A pause survives restarts of the daemon.",
		Example: "mailbox pause orders",
	}, "/v1/pause", true, "%s is paused")
}

func (s *shell) resumeCommand() *cobra.Command {
	return s.setPausedCommand(&cobra.Command{
		Use: "resume QUEUE", Short: "Start the deliveries of a paused queue",
		Example: "mailbox resume orders",
	}, "/v1/resume", false, "%s is not paused")
}

// pausedView says in JSON whether a queue is paused.
type pausedView struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
}

func (s *shell) setPausedCommand(c *cobra.Command, path string, paused bool, done string) *cobra.Command {
	c.Args, c.ValidArgsFunction = wants(1, 1), s.completeQueue
	c.RunE = s.withAPI(func(ctx context.Context, a *api, args []string) error {
		if err := a.call(ctx, apiRequest{path: path, body: queueBody{args[0]}}, nil); err != nil {
			return err
		}
		return s.say(pausedView{args[0], paused}, done, args[0])
	})
	return c
}

// throttledView says in JSON for how long a group is throttled.
type throttledView struct {
	Queue  string  `json:"queue"`
	Group  string  `json:"group"`
	WaitMS float64 `json:"wait_ms"`
}

func (s *shell) throttleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "throttle QUEUE GROUP WAIT", Short: "Deliver nothing of a group for a time",
		Long: "Deliver no message of a group for a time of at most a day, as a server asks for that answers with Retry-After. Messages of\n" +
			"other groups do not wait. It does not shorten an earlier throttle, but 0 ends it, and it survives restarts of the daemon.\n" +
			"The queue needs strict or fair groups, and the token the operation throttle.",
		Example: "mailbox throttle orders tenant-a 30s\nmailbox throttle orders tenant-a 0",
		Args:    wants(3, 3), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			wait, err := time.ParseDuration(args[2])
			if err != nil || wait < 0 || wait > driver.MaxThrottle {
				return usageError("WAIT: invalid value %q; want a time from 0 to %v, like 30s", args[2], driver.MaxThrottle)
			}
			request := struct {
				Queue  string  `json:"topic"`
				Group  string  `json:"group"`
				WaitMS float64 `json:"wait_ms"`
			}{args[0], args[1], float64(wait) / float64(time.Millisecond)}
			if err := a.call(ctx, apiRequest{path: "/v1/throttle", body: request}, nil); err != nil {
				return err
			}
			view := throttledView(request)
			if wait == 0 {
				return s.say(view, "%s of %s is not throttled", args[1], args[0])
			}
			return s.say(view, "%s of %s waits for %v", args[1], args[0], wait)
		}),
	}
}

// removed sends a request that removes messages, and returns how many were.
func (a *api) removed(ctx context.Context, path string, body any) (int, error) {
	var answer struct {
		Removed int `json:"removed"`
	}
	err := a.call(ctx, apiRequest{path: path, body: body}, &answer)
	return answer.Removed, err
}

// completeQueue completes the name of a queue, if a daemon answers quickly.
func (s *shell) completeQueue(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return s.queueNames(c.Context()), cobra.ShellCompDirectiveNoFileComp
}

// queueNames lists the queues that the token allows, if a daemon answers quickly.
func (s *shell) queueNames(ctx context.Context) (names []string) {
	connection, err := s.connect()
	if err != nil {
		return nil
	}
	defer connection.close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for name, err := range connection.api.queues(ctx) {
		if err != nil || len(names) == 1000 {
			break
		}
		names = append(names, name)
	}
	return names
}

// nameQueue adds the name of an existing queue to the error that one does not exist, if
// the names are similar.
func (s *shell) nameQueue(ctx context.Context, err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Code != driver.ErrNotFound || e.Queue == "" || e.MessageID != "" || e.Op == opSchedule {
		return err
	}
	f := *explain(err)
	if near := spelling.Nearest(e.Queue, s.queueNames(ctx)); near != "" {
		f.advice = fmt.Sprintf("did you mean %s?", printable([]byte(near), 60))
	}
	return &f
}
