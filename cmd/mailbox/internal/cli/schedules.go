package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
)

func (s *shell) schedulesCommand() *cobra.Command {
	c := parent("schedules", "Send messages at times that a cron expression or an interval names",
		s.schedulesList(), s.schedulesAdd(), s.schedulesShow(), s.schedulesPause(), s.schedulesResume(), s.schedulesRun(), s.schedulesRemove())
	c.Aliases = []string{"schedule"}
	return c
}

// A scheduleName names a schedule in requests.
type scheduleName struct {
	Queue string `json:"topic"`
	Name  string `json:"name"`
}

// A scheduleBody is a schedule in the HTTP API.
type scheduleBody struct {
	Queue      string            `json:"topic"`
	Name       string            `json:"name"`
	Cron       string            `json:"cron,omitempty"`
	EveryMS    float64           `json:"every_ms,omitempty"`
	Zone       string            `json:"zone,omitempty"`
	Payload    []byte            `json:"payload_b64,omitempty"`
	Attributes map[string]string `json:"attrs,omitempty"`
	CatchUp    string            `json:"catch_up,omitempty"`
	Paused     bool              `json:"paused,omitempty"`
}

// A scheduleAnswer is a schedule with its times in the HTTP API.
type scheduleAnswer struct {
	scheduleBody
	CreatedAt *time.Time    `json:"created_at"`
	Upcoming  []string      `json:"upcoming"` // in the zone of the schedule
	Runs      []scheduleRun `json:"runs"`
	NextAt    *time.Time    `json:"next_at"`
	LastRun   *scheduleRun  `json:"last_run"`
	Error     string        `json:"error"`
}

// A scheduleRun is one message of a schedule in the HTTP API.
type scheduleRun struct {
	DueAt   *time.Time `json:"due_at,omitempty"`
	SentAt  *time.Time `json:"sent_at,omitempty"`
	ID      string     `json:"msg_id"`
	Outcome string     `json:"outcome,omitempty"`
}

// A runView is one message of a schedule in JSON.
type runView struct {
	ID      string     `json:"id"`
	DueAt   *time.Time `json:"due_at,omitempty"`
	SentAt  *time.Time `json:"sent_at,omitempty"`
	Outcome string     `json:"outcome,omitempty"`
}

func (r *scheduleRun) view() runView { return runView{r.ID, r.DueAt, r.SentAt, r.Outcome} }

// A scheduleView is a schedule in JSON. Its fields are stable.
type scheduleView struct {
	Queue      string            `json:"queue"`
	Name       string            `json:"name"`
	Cron       string            `json:"cron,omitempty"`
	Every      string            `json:"every,omitempty"`
	Zone       string            `json:"zone,omitempty"`
	CatchUp    string            `json:"catch_up,omitempty"`
	Paused     bool              `json:"paused"`
	Body       *string           `json:"body,omitempty"`
	BodyB64    []byte            `json:"body_b64,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	CreatedAt  *time.Time        `json:"created_at,omitempty"`
	NextAt     *time.Time        `json:"next_at,omitempty"`
	Upcoming   []string          `json:"upcoming,omitempty"`
	Runs       []runView         `json:"runs,omitempty"`
	Error      string            `json:"error,omitempty"`
}

func (a *scheduleAnswer) view(queue string) scheduleView {
	v := scheduleView{
		Queue: queue, Name: a.Name, Cron: a.Cron, Every: a.every(), Zone: a.Zone, CatchUp: a.CatchUp, Paused: a.Paused,
		Attributes: a.Attributes, CreatedAt: a.CreatedAt, NextAt: a.NextAt, Upcoming: a.Upcoming, Error: a.Error,
	}
	runs := a.Runs
	if a.LastRun != nil {
		runs = []scheduleRun{*a.LastRun}
	}
	for i := range runs {
		v.Runs = append(v.Runs, runs[i].view())
	}
	return v
}

// detail is view with the body.
func (a *scheduleAnswer) detail(queue string) scheduleView {
	v := a.view(queue)
	var m messageView
	m.setBody(a.Payload)
	v.Body, v.BodyB64 = m.Body, m.BodyB64
	return v
}

// every returns the interval as text; empty if there is none.
func (a *scheduleAnswer) every() string {
	if a.EveryMS == 0 {
		return ""
	}
	return (time.Duration(a.EveryMS) * time.Millisecond).String()
}

// when returns the times of the schedule as text.
func (a *scheduleAnswer) when() string {
	switch {
	case a.Cron != "":
		return a.Cron
	case a.EveryMS != 0:
		return "every " + a.every()
	}
	return "-"
}

func (s *shell) schedulesList() *cobra.Command {
	return &cobra.Command{
		Use: "ls QUEUE", Aliases: []string{"list"}, Short: "List the schedules of a queue",
		Example: "mailbox schedules ls reports", Args: wants(1, 1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			t := table{header: []string{"NAME", "WHEN", "ZONE", "NEXT", "LAST"}}
			for e, err := range list[scheduleAnswer](ctx, a, apiRequest{path: "/v1/schedules/list", body: queueBody{args[0]}}) {
				if err != nil {
					return err
				}
				if s.global.json {
					if err := s.object(e.view(args[0])); err != nil {
						return err
					}
					continue
				}
				next, last := stamp(e.NextAt), "-"
				switch {
				case e.Error != "":
					next = "unreadable"
				case e.Paused:
					next = pausedWord
				}
				if e.LastRun != nil {
					last = stamp(e.LastRun.SentAt)
				}
				zone := e.Zone
				if zone == "" {
					zone = "UTC"
				}
				t.add(e.Name, e.when(), zone, next, last)
			}
			if len(t.rows) == 0 {
				return nil
			}
			return t.write(s.Stdout)
		}),
	}
}

type scheduleFlags struct {
	cron, zone, file, catchUp string
	every                     time.Duration
	attributes                []string
	paused                    bool
}

func (s *shell) schedulesAdd() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use: "add QUEUE NAME [BODY]", Aliases: []string{"put", "set"}, Short: "Store a schedule, or change the one of this name",
		Long: "Store a schedule with a queue, or change the one of this name. The daemon sends a message for each due time, exactly one\n" +
			"however many daemons there are. The body is the argument, or a file; without them it is empty. A changed schedule stays paused, or not.",
		Example: "mailbox schedules add reports nightly '{\"report\":\"sales\"}' --cron '30 6 * * MON-FRI' --zone Europe/Berlin\n" +
			"mailbox schedules add reports often --every 15m --catch-up none",
		Args: wants(2, 3), ValidArgsFunction: s.completeQueue,
	}
	flags := c.Flags()
	c.RunE = s.withAPI(func(ctx context.Context, a *api, args []string) error {
		body, err := s.scheduleOf(&f, args)
		if err != nil {
			return err
		}
		var answer scheduleAnswer
		if err := a.call(ctx, apiRequest{path: "/v1/schedules/put", body: body}, &answer); err != nil {
			return err
		}
		next := "it is paused"
		if len(answer.Upcoming) > 0 {
			next = "next at " + answer.Upcoming[0]
		}
		return s.say(answer.detail(args[0]), "%s\t%s", printable([]byte(answer.Name), 0), next)
	})
	flags.StringVar(&f.cron, "cron", "", "cron expression with five fields: minute, hour, day of the month, month, day of the week")
	flags.DurationVar(&f.every, "every", 0, "interval, 1s to 8784h (366 days), counted from when the schedule was made; instead of --cron")
	flags.StringVar(&f.zone, "zone", "", "time zone of --cron, like Europe/Berlin; UTC without it")
	flags.StringVar(&f.catchUp, "catch-up", "", "what is sent for due times at which nothing could be sent: none, one (the default) or all")
	flags.StringVarP(&f.file, "file", "f", "", "file with the body; - means standard input")
	flags.StringArrayVarP(&f.attributes, "attr", "a", nil, "attribute NAME=VALUE; can be repeated")
	flags.BoolVar(&f.paused, "paused", false, "make a new schedule that sends nothing until it is resumed")
	return c
}

// scheduleOf returns the request that the flags and arguments describe.
func (s *shell) scheduleOf(f *scheduleFlags, args []string) (scheduleBody, error) {
	body := scheduleBody{
		Queue: args[0], Name: args[1], Cron: f.cron, EveryMS: float64(f.every) / float64(time.Millisecond), Zone: f.zone,
		CatchUp: f.catchUp, Paused: f.paused,
	}
	var err error
	if body.Attributes, err = parsePairs("attr", f.attributes); err != nil {
		return body, err
	}
	switch {
	case (f.cron == "") == (f.every == 0):
		return body, usageError("want one of --cron and --every")
	case len(args) == 3 && f.file != "":
		return body, usageError("the body is given twice, as an argument and with --file; leave one out")
	case len(args) == 3:
		body.Payload = []byte(args[2])
	case f.file != "":
		input, _, err := s.input(f.file)
		if err != nil {
			return body, err
		}
		defer func() { _ = input.Close() }()
		if body.Payload, err = io.ReadAll(io.LimitReader(input, maxBodyBytes+1)); err != nil {
			return body, usageError("read body: %v", err)
		}
	}
	return body, nil
}

func (s *shell) schedulesShow() *cobra.Command {
	return &cobra.Command{
		Use: "show QUEUE NAME", Short: "Show a schedule, when it is due next, and its last runs",
		Long: "Show a schedule, its next due times in its zone, and its last runs. The outcome of a run is the last that the daemon\n" +
			"remembers of its message.",
		Example: "mailbox schedules show reports nightly", Args: wants(2, 2), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			var answer scheduleAnswer
			if err := a.call(ctx, apiRequest{path: "/v1/schedules/get", body: scheduleName{args[0], args[1]}}, &answer); err != nil {
				return err
			}
			if s.global.json {
				return s.object(answer.detail(args[0]))
			}
			return s.showSchedule(&answer, args[0])
		}),
	}
}

func (s *shell) showSchedule(a *scheduleAnswer, queue string) error {
	t := table{header: []string{"SCHEDULE", a.Name}}
	t.add("queue", queue)
	t.add("when", a.when())
	if a.Zone != "" {
		t.add("zone", a.Zone)
	}
	t.add("catch up", a.CatchUp)
	if a.Paused {
		t.add(pausedWord, "yes")
	}
	t.add("created", stamp(a.CreatedAt))
	t.add("body", printable(a.Payload, 60))
	for _, name := range sortedKeys(a.Attributes) {
		t.add("attribute "+name, a.Attributes[name])
	}
	for _, at := range a.Upcoming {
		t.add("next", at)
	}
	for i := range a.Runs {
		run := &a.Runs[i]
		text := stamp(run.SentAt) + " " + run.ID
		if run.DueAt == nil {
			text += " asked for"
		}
		if run.Outcome != "" {
			text += " " + run.Outcome
		}
		t.add("run", text)
	}
	return t.write(s.Stdout)
}

func (s *shell) schedulesPause() *cobra.Command {
	return s.changeSchedule(&cobra.Command{
		Use: "pause QUEUE NAME", Short: "Stop a schedule until it is resumed",
		Long:    "Stop a schedule until it is resumed. Due times that pass meanwhile are not caught up.",
		Example: "mailbox schedules pause reports nightly",
	}, "/v1/schedules/pause", "paused")
}

func (s *shell) schedulesResume() *cobra.Command {
	return s.changeSchedule(&cobra.Command{
		Use: "resume QUEUE NAME", Short: "Start a paused schedule", Example: "mailbox schedules resume reports nightly",
	}, "/v1/schedules/resume", "resumed")
}

// changeSchedule completes a command that names a schedule and shows it in JSON.
func (s *shell) changeSchedule(c *cobra.Command, path, outcome string) *cobra.Command {
	c.Args, c.ValidArgsFunction = wants(2, 2), s.completeQueue
	c.RunE = s.withAPI(func(ctx context.Context, a *api, args []string) error {
		var answer scheduleAnswer
		if err := a.call(ctx, apiRequest{path: path, body: scheduleName{args[0], args[1]}}, &answer); err != nil {
			return err
		}
		return s.say(answer.detail(args[0]), "%s\t%s", printable([]byte(answer.Name), 0), outcome)
	})
	return c
}

func (s *shell) schedulesRun() *cobra.Command {
	return &cobra.Command{
		Use: "run QUEUE NAME", Short: "Send the message of a schedule now, whether it is paused or not",
		Example: "mailbox schedules run reports nightly", Args: wants(2, 2), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			var run scheduleRun
			if err := a.call(ctx, apiRequest{path: "/v1/schedules/run", body: scheduleName{args[0], args[1]}}, &run); err != nil {
				return err
			}
			return s.say(run.view(), "%s", run.ID)
		}),
	}
}

// scheduleRemovedView is a removed schedule in JSON.
type scheduleRemovedView struct {
	Queue   string `json:"queue"`
	Name    string `json:"name"`
	Removed bool   `json:"removed"`
}

func (s *shell) schedulesRemove() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "rm QUEUE NAME", Aliases: []string{"remove", "delete"}, Short: "Remove a schedule permanently",
		Long:    "Remove a schedule permanently. Messages that it has sent stay.",
		Example: "mailbox schedules rm reports nightly --yes", Args: wants(2, 2), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := s.confirm(yes, "removing a schedule of "+args[0]); err != nil {
				return err
			}
			if err := a.call(ctx, apiRequest{path: "/v1/schedules/delete", body: scheduleName{args[0], args[1]}}, nil); err != nil {
				return err
			}
			return s.say(scheduleRemovedView{args[0], args[1], true}, "%s\tremoved", printable([]byte(args[1]), 0))
		}),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
