package httpapi

import (
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/schedule"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// scheduleRequest names a schedule.
type scheduleRequest struct {
	Queue string `json:"topic"`
	Name  string `json:"name"`
}

func (c *call) readSchedule() (r scheduleRequest, err error) {
	if err := c.decode(&r); err != nil {
		return r, err
	}
	switch {
	case r.Queue == "":
		return r, required("topic")
	case r.Name == "":
		return r, required("Name")
	}
	return r, nil
}

type putScheduleRequest struct {
	Queue      string            `json:"topic"`
	Name       string            `json:"name"`
	Cron       string            `json:"cron"`
	EveryMS    duration          `json:"every_ms"`
	Zone       string            `json:"zone"`
	Payload    []byte            `json:"payload_b64"`
	Attributes map[string]string `json:"attrs"`
	CatchUp    string            `json:"catch_up"`
	Paused     bool              `json:"paused"`
}

// putSchedule is POST /v1/schedules/put.
func (h *Handler) putSchedule(c *call) error {
	var r putScheduleRequest
	if err := c.decode(&r); err != nil {
		return err
	}
	switch {
	case r.Queue == "":
		return required("topic")
	case r.Name == "":
		return required("Name")
	}
	return c.answerSchedule(c.caller.PutSchedule(c.ctx(), r.Queue, schedule.Schedule{
		Name: r.Name, Cron: r.Cron, Every: time.Duration(r.EveryMS), Zone: r.Zone, Body: r.Payload, Attributes: r.Attributes,
		CatchUp: schedule.CatchUp(r.CatchUp), Paused: r.Paused,
	}))
}

// getSchedule is POST /v1/schedules/get.
func (h *Handler) getSchedule(c *call) error {
	r, err := c.readSchedule()
	if err != nil {
		return err
	}
	return c.answerSchedule(c.caller.Schedule(c.ctx(), r.Queue, r.Name))
}

// pauseSchedule is POST /v1/schedules/pause.
func (h *Handler) pauseSchedule(c *call) error {
	r, err := c.readSchedule()
	if err != nil {
		return err
	}
	return c.answerSchedule(c.caller.PauseSchedule(c.ctx(), r.Queue, r.Name))
}

// resumeSchedule is POST /v1/schedules/resume.
func (h *Handler) resumeSchedule(c *call) error {
	r, err := c.readSchedule()
	if err != nil {
		return err
	}
	return c.answerSchedule(c.caller.ResumeSchedule(c.ctx(), r.Queue, r.Name))
}

// runSchedule is POST /v1/schedules/run.
func (h *Handler) runSchedule(c *call) error {
	r, err := c.readSchedule()
	if err != nil {
		return err
	}
	run, err := c.caller.RunSchedule(c.ctx(), r.Queue, r.Name)
	if err != nil {
		return err
	}
	return c.ok(runOf(run, ""))
}

// deleteSchedule is POST /v1/schedules/delete.
func (h *Handler) deleteSchedule(c *call) error {
	r, err := c.readSchedule()
	if err != nil {
		return err
	}
	return c.okUnless(c.caller.RemoveSchedule(c.ctx(), r.Queue, r.Name))
}

// schedules is POST /v1/schedules/list.
func (h *Handler) schedules(c *call) error {
	queue, err := c.readQueue()
	if err != nil {
		return err
	}
	all, err := c.caller.ScheduleList(c.ctx(), queue)
	if err != nil {
		return err
	}
	out := &lines{call: c}
	for i := range all {
		line := scheduleSummaryOf(&all[i])
		if err := out.addValue(line); err != nil {
			return out.end(err)
		}
	}
	return out.end(nil)
}

// scheduleSummary is a schedule in a list. One that cannot be read has only a name, the runs and an
// error.
type scheduleSummary struct {
	Name      string        `json:"name"`
	Cron      string        `json:"cron,omitempty"`
	EveryMS   duration      `json:"every_ms,omitempty"`
	Zone      string        `json:"zone,omitempty"`
	CatchUp   string        `json:"catch_up,omitempty"`
	Paused    bool          `json:"paused"`
	CreatedAt string        `json:"created_at,omitempty"`
	NextAt    string        `json:"next_at,omitempty"`
	LastRun   *scheduledRun `json:"last_run,omitempty"`
	Error     string        `json:"error,omitempty"`
}

type scheduledRun struct {
	DueAt     string `json:"due_at,omitempty"`
	SentAt    string `json:"sent_at"`
	MessageID string `json:"msg_id"`
	Outcome   string `json:"outcome,omitempty"`
}

func runOf(run driver.Run, outcome string) scheduledRun {
	return scheduledRun{timeText(run.Due), timeText(run.At), run.MessageID, outcome}
}

func scheduleSummaryOf(s *schedule.Status) scheduleSummary {
	summary := scheduleSummary{
		Name: s.Schedule.Name, Cron: s.Schedule.Cron, EveryMS: duration(s.Schedule.Every), Zone: s.Schedule.Zone,
		Paused: s.Schedule.Paused, CreatedAt: timeText(s.Schedule.Created), NextAt: timeText(s.Next),
	}
	if n := len(s.Runs); n > 0 {
		run := runOf(s.Runs[n-1], "")
		summary.LastRun = &run
	}
	if s.Err != nil {
		summary.Error = "it cannot be read here; remove it, or use the version that stored it"
		return summary
	}
	summary.CatchUp = catchUpOf(&s.Schedule)
	return summary
}

// catchUpOf returns the rule in force.
func catchUpOf(s *schedule.Schedule) string {
	if s.CatchUp == "" {
		return string(schedule.CatchUpOne)
	}
	return string(s.CatchUp)
}

// scheduleResponse is a schedule with its due times, in its zone, and its runs.
type scheduleResponse struct {
	Queue      string            `json:"topic"`
	Name       string            `json:"name"`
	Cron       string            `json:"cron,omitempty"`
	EveryMS    duration          `json:"every_ms,omitempty"`
	Zone       string            `json:"zone,omitempty"`
	Payload    []byte            `json:"payload_b64"`
	Attributes map[string]string `json:"attrs"`
	CatchUp    string            `json:"catch_up"`
	Paused     bool              `json:"paused"`
	CreatedAt  string            `json:"created_at"`
	Through    string            `json:"through,omitempty"`
	Upcoming   []string          `json:"upcoming"`
	Runs       []scheduledRun    `json:"runs"`
}

// answerSchedule answers with a schedule.
func (c *call) answerSchedule(s broker.ScheduleStatus, err error) error {
	if err != nil {
		return err
	}
	response := scheduleResponse{
		Queue: s.Schedule.Queue, Name: s.Schedule.Name, Cron: s.Schedule.Cron, EveryMS: duration(s.Schedule.Every), Zone: s.Schedule.Zone,
		Payload: s.Schedule.Body, Attributes: s.Schedule.Attributes, CatchUp: catchUpOf(&s.Schedule), Paused: s.Schedule.Paused,
		CreatedAt: timeText(s.Schedule.Created), Through: timeText(s.Through), Upcoming: make([]string, 0, len(s.Upcoming)),
		Runs: make([]scheduledRun, 0, len(s.Runs)),
	}
	if response.Payload == nil {
		response.Payload = []byte{}
	}
	if response.Attributes == nil {
		response.Attributes = map[string]string{}
	}
	for _, at := range s.Upcoming {
		response.Upcoming = append(response.Upcoming, at.Format(time.RFC3339Nano))
	}
	for i, run := range s.Runs {
		response.Runs = append(response.Runs, runOf(run, s.Outcomes[i]))
	}
	return c.ok(response)
}
