package console

import (
	"slices"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
	"github.com/mailboxmq/mailbox/server/internal/wireerr"
)

// The budget of the list of schedules, in queues, and how many schedules it shows.
const (
	leastScheduled, mostScheduled = 20, 200
	maxSchedulesShown             = 500
)

func scheduleList(v *view, p *page) error {
	names, listed, err := v.scheduledQueues()
	if err != nil {
		return err
	}
	create := h.A(h.Class("button primary"), h.Href("edit-schedule"), h.Text("New schedule"))
	p.heading(h.Text("Schedules"), h.If(v.mayMakeSchedules("") || !listed && slices.ContainsFunc(names, func(q broker.TenantQueue) bool { return v.mayMakeSchedules(q.Queue) }), create))
	limit := v.budget(leastScheduled, mostScheduled)
	now := time.Now()
	var rows []h.Node
	looked := 0
	for _, name := range names {
		if limit.spent(looked) || len(rows) >= maxSchedulesShown {
			break
		}
		looked++
		rows = append(rows, v.scheduleRows(name, now)...)
	}
	note := count(len(rows), "schedule") + " in " + count(looked, "queue") + "."
	switch {
	case len(rows) > maxSchedulesShown: // one queue can have more
		rows = rows[:maxSchedulesShown]
		note = "The first " + number(maxSchedulesShown) + " schedules."
	case looked < len(names):
		note = "The schedules of the first " + number(looked) + " of " + count(len(names), "queue") + "."
	case !listed:
		note += " These are of the queues that your token names."
	}
	if len(rows) == 0 {
		p.live("schedules", empty("No schedule yet. Make one here or by a command: mailbox schedules add QUEUE NAME BODY --every 1m"), h.P(h.Class("quiet"), h.Text(note)))
		return nil
	}
	p.live("schedules", table("Schedules", []string{"Schedule", "Queue", "When", "Next", "Last run"}, rows), h.P(h.Class("quiet"), h.Text(note)))
	return nil
}

// scheduledQueues returns the queues that may have schedules.
func (v *view) scheduledQueues() (names []broker.TenantQueue, listed bool, err error) {
	if !v.may(capability.OpAdmin, "") {
		return v.queueNames()
	}
	for name, err := range v.caller.ScheduledQueues(v.ctx()) {
		if err != nil {
			return nil, true, err
		}
		names = append(names, name)
	}
	return names, true, nil
}

// scheduleRows are the rows about the schedules of a queue. A queue whose schedules the token may not
// read has none.
func (v *view) scheduleRows(q broker.TenantQueue, now time.Time) (rows []h.Node) {
	caller, err := v.of(q)
	if err != nil || !caller.Allows(v.ctx(), capability.OpAdmin, q.Queue) {
		return nil
	}
	all, err := caller.ScheduleList(v.ctx(), q.Queue)
	if err != nil {
		return []h.Node{h.Tr(h.Td(), h.Td(v.queueLink(q)), h.Td(h.ColSpan("3"), h.Class("quiet"), h.Text(wireerr.Of(err).Message())))}
	}
	for i := range all {
		s := &all[i]
		last := h.Text("–")
		if n := len(s.Runs); n > 0 {
			last = ago(s.Runs[n-1].At, now)
		}
		next := ago(s.Next, now)
		if s.Schedule.Paused {
			next = h.Span(h.Class("tag paused"), h.Text("paused"))
		}
		rows = append(rows, h.Tr(
			h.Td(h.A(h.Href(link("schedule", "queue", q.Queue, "tenant", v.foreignTenant(q.Tenant), "schedule", s.Schedule.Name)), h.Text(s.Schedule.Name))),
			h.Td(v.queueLink(q), v.tenantTag(q.Tenant)), h.Td(h.Text(when(s))), h.Td(next), h.Td(last),
		))
	}
	return rows
}

// when says when a schedule is due.
func when(s *schedule.Status) string {
	switch {
	case s.Err != nil:
		return "cannot be read by this version"
	case s.Schedule.Cron != "" && s.Schedule.Zone != "":
		return s.Schedule.Cron + " in " + s.Schedule.Zone
	case s.Schedule.Cron != "":
		return s.Schedule.Cron + " in UTC"
	}
	return "every " + s.Schedule.Every.String()
}

func schedulePage(v *view, p *page) error {
	queue, name := v.get("queue"), v.get("schedule")
	if queue == "" || name == "" {
		return invalid("schedule", "want the name of a queue and of a schedule")
	}
	s, err := v.caller.Schedule(v.ctx(), queue, name)
	if err != nil {
		return err
	}
	p.title = name
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("schedules", "tenant", v.tenant)), h.Text("Schedules")), h.Text(" / "), h.A(h.Href(link("queue", "name", queue, "tenant", v.tenant)), h.Text(queue))))
	pause, label := "pause-schedule", "Pause"
	if s.Schedule.Paused {
		pause, label = "resume-schedule", "Resume"
	}
	admin := v.mayChange(capability.OpAdmin, queue)
	at := []string{"queue", queue, "schedule", name}
	p.heading(h.Text(name), h.If(s.Schedule.Paused, h.Span(h.Class("tag paused"), h.Text("paused"))),
		v.button(admin, "", label, pause, at...), v.button(admin && v.mayChange(capability.OpSend, queue), "", "Run now", "run-schedule", at...),
		h.If(v.mayMakeSchedules(queue), h.A(h.Class("button"), h.Href(link("edit-schedule", at...)), h.Text("Change…"))),
		v.button(admin, "danger", "Remove…", "remove-schedule", at...))
	now := time.Now()
	var f facts
	f.text("when", when(&s.Status))
	f.text("missed due times", string(s.Schedule.CatchUp))
	f.add("made", moment(s.Schedule.Created))
	p.live("upcoming", f.list(), h.Div(h.Class("columns"),
		h.Section(h.Class("panel"), h.H2(h.Text("Next")), upcoming(&s, now)),
		h.Section(h.Class("panel"), h.H2(h.Text("Runs")), v.runs(queue, &s, now)),
	))
	p.add(h.Div(h.Class("columns"),
		h.Section(h.Class("panel"), h.H2(h.Text("Body")), showBody(s.Schedule.Body)),
		h.Section(h.Class("panel"), h.H2(h.Text("Attributes")), attributes(s.Schedule.Attributes)),
	))
	return nil
}

func upcoming(s *broker.ScheduleStatus, now time.Time) h.Node {
	if len(s.Upcoming) == 0 {
		return empty("The schedule is paused, or its last due time has passed.")
	}
	return h.Ul(h.Map(s.Upcoming, func(t time.Time) h.Node { return h.Li(dueTime(&s.Schedule, t), h.Text(", "), ago(t, now)) }))
}

// runs shows the latest runs, newest first.
func (v *view) runs(queue string, s *broker.ScheduleStatus, now time.Time) h.Node {
	var rows []h.Node
	for i := len(s.Runs) - 1; i >= 0; i-- {
		run := s.Runs[i]
		due := moment(run.Due)
		if run.Due.IsZero() {
			due = h.Text("by hand")
		}
		rows = append(rows, h.Tr(h.Td(due), h.Td(ago(run.At, now)), h.Td(v.messageLink(queue, run.MessageID)), h.Td(h.Text(s.Outcomes[i]))))
	}
	if len(rows) == 0 {
		return empty("It has not run yet.")
	}
	return table("Runs", []string{"Due", "Sent", "Message", "Outcome"}, rows)
}

func (v *view) scheduleBack() string {
	return link("schedule", "queue", v.get("queue"), "schedule", v.get("schedule"))
}

func previewPauseSchedule(v *view) (preparation, error) {
	s, err := v.caller.Schedule(v.ctx(), v.get("queue"), v.get("schedule"))
	return preparation{
		title: "Pause schedule " + v.get("schedule"), button: "Pause", back: v.scheduleBack(),
		sentence: "It sends nothing to " + v.get("queue") + " until it is resumed, and due times that pass are not caught up. It is due " + when(&s.Status) + ".",
	}, err
}

func doPauseSchedule(v *view, _ int) (string, error) {
	_, err := v.caller.PauseSchedule(v.ctx(), v.get("queue"), v.get("schedule"))
	return "Paused " + v.get("schedule") + ".", err
}

func previewResumeSchedule(v *view) (preparation, error) {
	s, err := v.caller.Schedule(v.ctx(), v.get("queue"), v.get("schedule"))
	return preparation{
		title: "Resume schedule " + v.get("schedule"), button: "Resume", back: v.scheduleBack(),
		sentence: "It sends to " + v.get("queue") + " again: " + when(&s.Status) + ".",
	}, err
}

func doResumeSchedule(v *view, _ int) (string, error) {
	_, err := v.caller.ResumeSchedule(v.ctx(), v.get("queue"), v.get("schedule"))
	return "Resumed " + v.get("schedule") + ".", err
}

func previewRunSchedule(v *view) (preparation, error) {
	s, err := v.caller.Schedule(v.ctx(), v.get("queue"), v.get("schedule"))
	return preparation{
		title: "Run schedule " + v.get("schedule"), button: "Send 1 message", touched: 1, back: v.scheduleBack(),
		sentence: "This sends its message to " + v.get("queue") + " now: " + count(len(s.Schedule.Body), "byte") + ". Its due times stay as they are.",
	}, err
}

func doRunSchedule(v *view, _ int) (string, error) {
	run, err := v.caller.RunSchedule(v.ctx(), v.get("queue"), v.get("schedule"))
	return "Sent message " + run.MessageID + ".", err
}

func previewRemoveSchedule(v *view) (preparation, error) {
	_, err := v.caller.Schedule(v.ctx(), v.get("queue"), v.get("schedule"))
	return preparation{
		title: "Remove schedule " + v.get("schedule"), button: "Remove 1 schedule", destructive: true, back: v.scheduleBack(), after: "schedules",
		sentence: "This removes schedule " + v.get("schedule") + " of " + v.get("queue") + " for good. Messages that it sent stay.",
	}, err
}

func doRemoveSchedule(v *view, _ int) (string, error) {
	return "Removed " + v.get("schedule") + ".", v.caller.RemoveSchedule(v.ctx(), v.get("queue"), v.get("schedule"))
}
