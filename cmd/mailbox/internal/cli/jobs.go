package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

const (
	// jobEvery is how often the progress of a job is read; more often at first.
	jobFirst, jobEvery = 5 * time.Millisecond, 200 * time.Millisecond
	// stopTimeout is how long stopping a job may take when its command is interrupted.
	stopTimeout = 5 * time.Second
	// restartPatience is how long the daemon of a job may be unreachable, as while it restarts.
	restartPatience = time.Minute
)

// jobBody asks for a job. It selects dead letters as a peek does.
type jobBody struct {
	peekBody
	Action string `json:"action"`
	Rate   int    `json:"rate,omitempty"`
	Until  string `json:"until,omitempty"`
}

// A jobView is a job in JSON. Its fields are stable.
type jobView struct {
	ID        string     `json:"id"`
	Queue     string     `json:"queue"`
	Action    string     `json:"action"`
	Rate      int        `json:"rate,omitempty"`
	State     string     `json:"state"`
	Why       string     `json:"why,omitempty"`
	Total     int        `json:"total"`
	Looked    int        `json:"looked"`
	Selected  int        `json:"selected"`
	Done      int        `json:"done"`
	Failed    int        `json:"failed"`
	Until     string     `json:"until"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Token     string     `json:"token"`
}

const jobRunning, jobDone = "running", "done"

// A jobAnswer is a job of the HTTP API.
type jobAnswer struct {
	jobView
	ID    string `json:"job_id"`
	Queue string `json:"topic"`
}

func (j *jobAnswer) view() jobView {
	v := j.jobView
	v.ID, v.Queue = j.ID, j.Queue
	return v
}

func (a *api) jobCall(ctx context.Context, path string, body any) (jobView, error) {
	var answer jobAnswer
	err := a.call(ctx, apiRequest{path: path, body: body}, &answer)
	return answer.view(), err
}

func (a *api) startJob(ctx context.Context, body jobBody) (jobView, error) {
	return a.jobCall(ctx, "/v1/jobs/start", body)
}

func (a *api) job(ctx context.Context, id string) (jobView, error) {
	return a.jobCall(ctx, "/v1/jobs/get", map[string]string{"job_id": id})
}

func (a *api) stopJob(ctx context.Context, id string) (jobView, error) {
	return a.jobCall(ctx, "/v1/jobs/stop", map[string]string{"job_id": id})
}

func (a *api) jobs(ctx context.Context, queue string) iter.Seq2[jobAnswer, error] {
	body := map[string]string{}
	if queue != "" {
		body["topic"] = queue
	}
	return list[jobAnswer](ctx, a, apiRequest{path: "/v1/jobs/list", body: body})
}

// runJob runs a job to its end and shows its progress. It returns the job, whose Done counts all that was done. When ctx ends it stops the
// job. A daemon that restarts forgets its jobs: then the rest is done by another one.
func (s *shell) runJob(ctx context.Context, a *api, verb string, body jobBody) (jobView, error) {
	job, err := a.startJob(ctx, body)
	if err != nil {
		return job, err
	}
	body.Until = job.Until
	bar := s.progress(verb, int64(job.Total))
	defer bar.end()
	before, answered, pause := 0, time.Now(), jobFirst
	for job.State == jobRunning {
		if err := backoff.Pause(ctx, pause); err != nil {
			return s.interruptJob(ctx, a, job, before)
		}
		pause = min(2*pause, jobEvery)
		now, err := a.job(ctx, job.ID)
		switch {
		case err == nil:
			bar.add(int64(max(0, now.Looked-job.Looked)))
			job, answered = now, time.Now()
		case errors.Is(err, driver.ErrNotFound):
			before += job.Done
			if body.Limit > 0 {
				body.Limit = max(1, body.Limit-job.Done)
			}
			if job, err = a.startJob(ctx, body); err != nil {
				job.Done = before
				return job, err
			}
		case ctx.Err() == nil && time.Since(answered) >= restartPatience:
			job.Done += before
			return job, err
		}
	}
	job.Done += before
	if job.State == jobDone {
		return job, nil
	}
	return job, &failure{exit: exitFailed, code: "job_" + job.State, sentence: fmt.Sprintf("the job ended early: %s", job.Why), advice: "give the command again to go on"}
}

// interruptJob stops a job because the user ended its command.
func (s *shell) interruptJob(ctx context.Context, a *api, job jobView, before int) (jobView, error) {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	stopped, err := a.stopJob(stop, job.ID)
	if err != nil {
		job.Done += before
		return job, &failure{
			exit: exitFailed, code: "job_running", cause: err, sentence: fmt.Sprintf("the job %s could not be stopped", job.ID),
			advice: "stop it with mailbox jobs stop " + job.ID,
		}
	}
	stopped.Done += before
	return stopped, ctx.Err()
}

func (s *shell) jobsCommand() *cobra.Command {
	c := parent("jobs", "List, show and stop jobs on dead letters", s.jobsList(), s.jobsShow(), s.jobsStop())
	c.SuggestFor = []string{"job", "tasks"}
	return c
}

func (s *shell) jobsList() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: "ls [QUEUE]", Aliases: []string{"list"}, Short: "List jobs, the latest first",
		Long:    "List the jobs that run in the daemon or ended in the last day: those of a queue, or of all. mailbox dlq redrive and discard start them.",
		Example: "mailbox jobs ls orders", Args: wants(0, 1), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			a.tenant = tenant
			queue := ""
			if len(args) > 0 {
				queue = args[0]
			}
			t := table{header: []string{"ID", "QUEUE", "ACTION", "STATE", "PROGRESS", "DONE", "STARTED"}}
			for answer, err := range a.jobs(ctx, queue) {
				if err != nil {
					return err
				}
				v := answer.view()
				if s.global.json {
					if err := s.object(v); err != nil {
						return err
					}
					continue
				}
				t.add(v.ID, v.Queue, v.Action, v.State, v.progress(), plainNumber(v.Done), stamp(v.StartedAt))
			}
			if len(t.rows) == 0 {
				return nil
			}
			return t.write(s.Stdout)
		}),
	}
	c.Flags().StringVar(&tenant, "tenant", "", "list the jobs of this tenant, with the operator's token")
	return c
}

// progress says how many of the dead letters the job has looked at.
func (v *jobView) progress() string { return fmt.Sprintf("%d of %d", v.Looked, v.Total) }

func (s *shell) jobsShow() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show how far a job has come", Args: wants(1, 1),
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			v, err := a.job(ctx, args[0])
			if err != nil {
				return err
			}
			return s.printJob(&v)
		}),
	}
}

func (s *shell) jobsStop() *cobra.Command {
	return &cobra.Command{
		Use: "stop ID", Short: "Stop a job; what it has done stays done", Args: wants(1, 1),
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			v, err := a.stopJob(ctx, args[0])
			if err != nil {
				return err
			}
			return s.printJob(&v)
		}),
	}
}

func (s *shell) printJob(v *jobView) error {
	if s.global.json {
		return s.object(v)
	}
	t := table{header: []string{"ID", v.ID}}
	for _, row := range [][2]string{
		{"queue", v.Queue},
		{"action", v.Action},
		{"state", v.State},
		{"why", v.Why},
		{"looked at", v.progress()},
		{"selected", plainNumber(v.Selected)},
		{"done", plainNumber(v.Done)},
		{"failed", positive(v.Failed)},
		{"rate", positive(v.Rate)},
		{"started", stamp(v.StartedAt)},
		{"ended", stamp(v.EndedAt)},
		{"until", v.Until},
		{"token", v.Token},
	} {
		if row[1] != "" {
			t.add(row[0], row[1])
		}
	}
	return t.write(s.Stdout)
}
