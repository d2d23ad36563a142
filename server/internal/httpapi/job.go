package httpapi

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

func jobRoutes() []Route {
	return []Route{
		{Method: "POST", Path: "/v1/jobs/start", serve: (*Handler).startJob},
		{Method: "POST", Path: "/v1/jobs/list", looks: true, serve: (*Handler).jobs},
		{Method: "POST", Path: "/v1/jobs/get", looks: true, serve: (*Handler).job},
		{Method: "POST", Path: "/v1/jobs/stop", serve: (*Handler).stopJob},
	}
}

// jobBody is a job as clients ask for it. Its fields that select are those of a peek, and more.
type jobBody struct {
	Queue       string            `json:"topic"`
	Action      string            `json:"action"`
	Rate        int               `json:"rate,omitempty"`
	MessageID   string            `json:"msg_id,omitempty"`
	Attributes  map[string]string `json:"attrs,omitempty"`
	OlderThanMS duration          `json:"older_than_ms,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Group       string            `json:"group,omitempty"`
	Priority    *int              `json:"priority,omitempty"`
	Text        string            `json:"text,omitempty"`
	Cause       string            `json:"cause,omitempty"`
	Until       string            `json:"until,omitempty"`
	Limit       int               `json:"limit,omitempty"`
}

func (r *jobBody) request() (broker.JobRequest, error) {
	request := broker.JobRequest{Queue: r.Queue, Action: broker.JobAction(r.Action), Rate: r.Rate, Selection: broker.Selection{
		Query: driver.Query{ID: r.MessageID, Attributes: r.Attributes, OlderThan: time.Duration(r.OlderThanMS), Reason: driver.Reason(r.Reason), Limit: r.Limit},
		Group: r.Group, Priority: r.Priority, Text: []byte(r.Text), Cause: r.Cause,
	}}
	switch {
	case r.Queue == "":
		return request, required("topic")
	case r.Action == "":
		return request, required("action")
	case r.Until != "":
		var err error
		if request.Selection.Until, err = time.Parse(time.RFC3339, r.Until); err != nil {
			return request, schemaError("until", "is not a time; want one like 2026-01-02T03:04:05Z")
		}
	}
	return request, nil
}

// A jobLine is a job.
type jobLine struct {
	ID string `json:"job_id"`
	jobBody
	State     string `json:"state"`
	Why       string `json:"why,omitempty"`
	Total     int    `json:"total"`
	Looked    int    `json:"looked"`
	Selected  int    `json:"selected"`
	Done      int    `json:"done"`
	Failed    int    `json:"failed"`
	StartedAt string `json:"started_at"`
	EndedAt   string `json:"ended_at,omitempty"`
	Token     string `json:"token"`
}

func jobLineOf(j *broker.Job) jobLine {
	s := &j.Selection
	return jobLine{
		ID: j.ID, State: string(j.State), Why: j.Why, Total: j.Total, Looked: j.Looked, Selected: j.Selected, Done: j.Done, Failed: j.Failed,
		StartedAt: timeText(j.Started), EndedAt: timeText(j.Ended), Token: j.Token.String(),
		jobBody: jobBody{
			Queue: j.Queue, Action: string(j.Action), Rate: j.Rate, MessageID: s.ID, Attributes: s.Attributes, OlderThanMS: duration(s.OlderThan), Reason: string(s.Reason),
			Group: s.Group, Priority: s.Priority, Text: string(s.Text), Cause: s.Cause, Until: timeText(s.Until), Limit: s.Limit,
		},
	}
}

func (c *call) answerJob(j broker.Job, err error) error {
	if err != nil {
		return err
	}
	return c.ok(jobLineOf(&j))
}

// startJob is POST /v1/jobs/start.
func (h *Handler) startJob(c *call) error {
	var r jobBody
	if err := c.decode(&r); err != nil {
		return err
	}
	request, err := r.request()
	if err != nil {
		return err
	}
	return c.answerJob(c.caller.StartJob(c.ctx(), request))
}

// jobs is POST /v1/jobs/list.
func (h *Handler) jobs(c *call) error {
	var r queueRequest
	if err := c.decodeOptional(&r); err != nil {
		return err
	}
	jobs, err := c.caller.Jobs(c.ctx(), r.Queue)
	if err != nil {
		return err
	}
	out := &lines{call: c}
	for i := range jobs {
		if err := out.addValue(jobLineOf(&jobs[i])); err != nil {
			return out.end(err)
		}
	}
	return out.end(nil)
}

type jobIDRequest struct {
	ID string `json:"job_id"`
}

func (c *call) readJobID() (string, error) {
	var r jobIDRequest
	if err := c.decode(&r); err != nil {
		return "", err
	}
	if r.ID == "" {
		return "", required("job_id")
	}
	return r.ID, nil
}

// job is POST /v1/jobs/get.
func (h *Handler) job(c *call) error {
	id, err := c.readJobID()
	if err != nil {
		return err
	}
	return c.answerJob(c.caller.Job(c.ctx(), id))
}

// stopJob is POST /v1/jobs/stop.
func (h *Handler) stopJob(c *call) error {
	id, err := c.readJobID()
	if err != nil {
		return err
	}
	return c.answerJob(c.caller.StopJob(c.ctx(), id))
}
