package console

import (
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	h "github.com/mailboxmq/mailbox/server/internal/console/markup"
)

// suggestedRate is how many dead letters a second the form of a redrive or discard begins with.
const suggestedRate = 1000

// jobsPerPage is how many jobs a page lists.
const jobsPerPage = 50

func jobList(v *view, p *page) error {
	queue := v.get("queue")
	jobs, err := v.caller.Jobs(v.ctx(), queue)
	if err != nil {
		return err
	}
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("dead", "tenant", v.tenant)), h.Text("Dead letters")),
		h.If(queue != "", h.Group{h.Text(" / "), h.A(h.Href(link("dead", "queue", queue, "tenant", v.tenant)), h.Text(queue))})))
	p.heading(h.Text("Jobs"))
	if len(jobs) == 0 {
		p.live("jobs", empty("No job runs, and none ended in the last day. Redriving or discarding dead letters starts one."))
		return nil
	}
	current := pageNumber(v.get("page"), len(jobs), jobsPerPage)
	now := time.Now()
	var rows []h.Node
	for i := range jobs[(current-1)*jobsPerPage : min(len(jobs), current*jobsPerPage)] {
		j := &jobs[(current-1)*jobsPerPage+i]
		rows = append(rows, h.Tr(
			h.Td(v.jobLink(j)), h.Td(h.A(h.Href(link("queue", "name", j.Queue, "tenant", v.tenant)), h.Text(j.Queue))), h.Td(jobState(j.State)),
			h.Td(jobBar(j)), numberCell(j.Done, ""), numberCell(j.Failed, "dead"), h.Td(ago(j.Started, now)), h.Td(h.Code(h.Text(j.Token.String()))),
		))
	}
	p.live("jobs", table("Jobs", []string{"Job", "Queue", "State", "Looked at", "#Done", "#Failed", "Started", "Token"}, rows),
		pager("jobs", "job", current, len(jobs), jobsPerPage, "queue", queue, "tenant", v.tenant),
		h.P(h.Class("quiet"), h.Text("Those that run in this daemon, and those that ended in the last day. Each daemon knows its own, and forgets them when it restarts.")))
	return nil
}

func (v *view) jobLink(j *broker.Job) h.Node {
	return h.A(h.Href(link("job", "id", j.ID, "tenant", v.tenant)), h.Text(jobVerb(j.Action)+" "+shorten(j.ID, 8)))
}

func jobVerb(a broker.JobAction) string {
	switch a {
	case broker.JobRedrive:
		return "Redrive"
	case broker.JobDiscard:
		return "Discard"
	}
	return "Count"
}

func jobState(s broker.JobState) h.Node {
	class := map[broker.JobState]string{broker.JobRunning: "in_flight", broker.JobDone: "done", broker.JobFailed: "dead"}[s]
	return h.Span(h.Class("state "+class), h.Text(string(s)))
}

// jobBar shows how far a job has looked.
func jobBar(j *broker.Job) h.Node {
	text := number(j.Looked) + " of " + number(j.Total)
	return h.Group{
		h.El("progress", h.Attr("max", strconv.Itoa(max(1, j.Total))), h.Attr("value", strconv.Itoa(j.Looked)), h.Aria("label", "Dead letters looked at"), h.Text(text)),
		h.Text(" " + text),
	}
}

func jobPage(v *view, p *page) error {
	j, err := v.caller.Job(v.ctx(), v.get("id"))
	if err != nil {
		return err
	}
	p.title = jobVerb(j.Action) + " dead letters of " + j.Queue
	p.add(h.P(h.Class("crumbs"), h.A(h.Href(link("dead", "tenant", v.tenant)), h.Text("Dead letters")), h.Text(" / "),
		h.A(h.Href(link("dead", "queue", j.Queue, "tenant", v.tenant)), h.Text(j.Queue)), h.Text(" / "), h.A(h.Href(link("jobs", "queue", j.Queue, "tenant", v.tenant)), h.Text("Jobs"))))
	change := v.mayChange(capability.OpDLQ, j.Queue)
	p.heading(h.Text(p.title), v.button(change && j.State == broker.JobRunning, "danger", "Stop…", "stop-job", "queue", j.Queue, "job", j.ID))
	var f facts
	f.add("state", jobState(j.State))
	f.text(map[bool]string{true: "waits", false: "because"}[j.State == broker.JobRunning], j.Why)
	f.add("looked at", jobBar(&j))
	f.text(map[broker.JobAction]string{broker.JobCount: "counted", broker.JobRedrive: "made ready", broker.JobDiscard: "discarded"}[j.Action], count(j.Done, "message")+jobSpeed(&j))
	if j.Failed > 0 {
		f.text("left", count(j.Failed, "message")+", because another message has their unique key or they are damaged")
	}
	f.add("selects", timed(j.Selection.Words()))
	f.add("started", moment(j.Started))
	if !j.Ended.IsZero() {
		f.add("ended", moment(j.Ended))
	}
	f.add("token", h.Code(h.Text(j.Token.String())))
	p.live("job", f.list(), v.jobNext(&j, change))
	return nil
}

// jobSpeed says how fast a job is, and its rate.
func jobSpeed(j *broker.Job) string {
	until := j.Ended
	if until.IsZero() {
		until = time.Now()
	}
	text := ""
	if took := until.Sub(j.Started); took >= time.Second {
		text = ", " + number(int(float64(j.Done)/took.Seconds())) + " a second"
	}
	if j.Rate > 0 {
		text += ", at most " + number(j.Rate) + " a second"
	}
	return text
}

// jobNext is what can be done after a job.
func (v *view) jobNext(j *broker.Job, change bool) h.Node {
	conditions, ok := parameters(&j.Selection)
	conditions = append(conditions, "queue", j.Queue, "job", j.ID)
	switch {
	case j.State == broker.JobRunning:
		return h.P(h.Class("quiet"), h.Text("Messages that die while it runs are left. Stopping it leaves the rest as it is."))
	case ok && j.Action == broker.JobCount && j.State == broker.JobDone && j.Done > 0:
		return h.Div(h.Class("actions"),
			v.button(change, "", "Redrive "+number(j.Done)+"…", "redrive", conditions...),
			v.button(change, "danger", "Discard "+number(j.Done)+"…", "discard", conditions...))
	}
	return h.P(h.A(h.Href(link("dead", "queue", j.Queue, "tenant", v.tenant)), h.Text("Dead letters of "+j.Queue+" →")))
}

// startJob starts a job on the dead letters that a form names, and leads to its page.
func (v *view) startJob(action broker.JobAction, confirmed int) (string, error) {
	s, err := v.selected()
	if err != nil {
		return "", err
	}
	rate := 0
	if text := v.get("rate"); text != "" {
		if rate, err = strconv.Atoi(text); err != nil || rate < 0 || rate > broker.MaxJobRate {
			return "", invalid("rate", "want a number from 0 to "+strconv.Itoa(broker.MaxJobRate))
		}
	}
	request := broker.JobRequest{Queue: v.get("queue"), Action: action, Rate: rate, Selection: s.forJob()}
	if !s.cut {
		request.Selection.Limit = confirmed
	}
	if confirmed == 0 && !s.cut {
		return "Nothing to do: no dead letter is selected any more.", nil
	}
	j, err := v.caller.StartJob(v.ctx(), request)
	if err != nil {
		return "", err
	}
	v.values.Set("after", link("job", "id", j.ID))
	return "Started: " + map[broker.JobAction]string{broker.JobCount: "counting", broker.JobRedrive: "redriving", broker.JobDiscard: "discarding"}[action] + " dead letters of " + j.Queue + ".", nil
}

func previewCount(v *view) (preparation, error) {
	s, err := v.selected()
	return preparation{
		title: "Count dead letters", button: "Count", back: s.back, fields: s.confirmation(),
		sentence: "This looks at all dead letters " + s.words + ", as a job, and changes nothing.",
	}, err
}

func doCount(v *view, _ int) (string, error) {
	s, err := v.selected()
	if err != nil {
		return "", err
	}
	conditions := s.conditions
	conditions.Until = time.Time{}
	j, err := v.caller.StartJob(v.ctx(), broker.JobRequest{Queue: v.get("queue"), Action: broker.JobCount, Selection: conditions})
	if err != nil {
		return "", err
	}
	v.values.Set("after", link("job", "id", j.ID))
	return "Started: counting dead letters of " + j.Queue + ".", nil
}

func previewStopJob(v *view) (preparation, error) {
	j, err := v.caller.Job(v.ctx(), v.get("job"))
	return preparation{
		title: "Stop a job", button: "Stop", destructive: true, back: link("job", "id", j.ID), touched: j.Done,
		sentence: "The job has " + map[broker.JobAction]string{broker.JobCount: "counted ", broker.JobRedrive: "made ready ", broker.JobDiscard: "discarded "}[j.Action] +
			count(j.Done, "message") + " of " + j.Queue + ", which stays so. The other dead letters stay dead.",
	}, err
}

func doStopJob(v *view, _ int) (string, error) {
	j, err := v.caller.StopJob(v.ctx(), v.get("job"))
	return "The job is " + string(j.State) + " after " + count(j.Done, "message") + ".", err
}
