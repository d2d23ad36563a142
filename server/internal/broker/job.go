package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/share"
)

const (
	// maxJobs bounds the jobs that run, of all tenants (OPS-4).
	maxJobs = 16
	// maxJobsKept bounds the jobs that have ended and are still listed, of all tenants, and jobKept how long they
	// are. One takes 6 KB at most.
	maxJobsKept = 256
	jobKept     = 24 * time.Hour
	// jobBatch is how many dead letters a step redrives or discards at most, and jobLook how many it
	// looks at.
	jobBatch, jobLook = 100, 256
	// jobPause is the time before a failed step is repeated, and jobPatience how long steps may fail
	// in a row.
	jobPause, jobPatience = time.Second, time.Minute
	// stopGrace is how long a step may take after its job was stopped.
	stopGrace = 500 * time.Millisecond
	// MaxJobRate is the highest rate of a job.
	MaxJobRate = 100_000
)

// A JobAction is what a job does with the dead letters that it selects.
type JobAction string

// The actions. JobCount changes nothing: it is the dry run of the others.
const (
	JobCount   JobAction = "count"
	JobRedrive JobAction = "redrive"
	JobDiscard JobAction = "discard"
)

// A JobState says whether a job runs, or how it ended.
type JobState string

// The states. A job that failed or was stopped has done what it says; the other dead letters stay.
const (
	JobRunning JobState = "running"
	JobDone    JobState = "done"
	JobStopped JobState = "stopped"
	JobFailed  JobState = "failed"
)

// A JobRequest is what a job should do.
type JobRequest struct {
	Queue     string
	Action    JobAction
	Selection Selection
	// Rate is how many dead letters it redrives or discards in a second at most; 0 means no limit but the shares of
	// the caller.
	Rate int
}

func (r *JobRequest) check() error {
	invalid := func(field, detail string) error {
		return &driver.Error{Code: driver.ErrInvalid, Op: "start job", Queue: r.Queue, Field: field, Detail: detail}
	}
	switch r.Action {
	case JobCount, JobRedrive, JobDiscard:
	default:
		return invalid("action", fmt.Sprintf("%.20q is not an action; want count, redrive or discard", string(r.Action)))
	}
	if r.Rate < 0 || r.Rate > MaxJobRate {
		return invalid("rate", fmt.Sprintf("%d is outside 0…%d", r.Rate, MaxJobRate))
	}
	return r.Selection.check()
}

// A Job acts on a selection of the dead letters of a queue, in the order of their deaths, and on none that died
// after it began. It runs in the daemon that started it, and ends with it.
type Job struct {
	JobRequest
	ID    string
	State JobState
	// Why is why a job failed or was stopped, or what a running one waits for; empty if it just runs or is done.
	Why string
	// Total is how many dead letters the queue had at the start, Looked how many of them the job has looked at,
	// Selected how many of those it selected, Done how many it counted, redrove or discarded, and Failed how many it could not,
	// because another message has their unique key or they are damaged. Others were redriven or discarded meanwhile by other callers.
	Total, Looked, Selected, Done, Failed int
	Started, Ended                        time.Time // Ended is zero while it runs
	Token                                 capability.TokenID
}

// A jobTable has the jobs that run, and the last ones that ended.
type jobTable struct {
	pool *share.Pool // has a unit for each that runs
	work sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	byID   map[string]*job
	closed bool
}

// A job is one that runs or has ended.
type job struct {
	caller  Caller
	key     queueKey
	table   *jobTable
	halt    chan struct{} // closed to stop it after the step that it is in
	cut     context.CancelFunc
	done    chan struct{} // closed when it has ended
	haltOne sync.Once

	mu   sync.Mutex // guards the fields below
	now  Job
	stop error // why halt was closed

	// Of the goroutine that runs it:
	next    func() (driver.DeadLetter, error, bool) // nil before the first step, and after one whose outcome is unknown
	forget  func()
	pending []string  // selected, and not acted on
	single  bool      // one in each step, because the queue is full
	last    bool      // next has no more
	due     time.Time // when the rate allows the next step
	failing time.Time // since when steps fail; zero if they do not
}

func (t *jobTable) init() {
	t.pool = share.New("jobs", "max_jobs", maxJobs, jobPause)
	t.byID = make(map[string]*job)
}

// StartJob starts a job. It needs a token for dlq, which is checked again with each step. It blocks until the dead letters are counted.
// Codes: ErrInvalid, ErrNotFound, ErrUnsupported (the backend keeps no dead letters), ErrFull (as many
// run as may), ErrUnavailable.
func (c Caller) StartJob(ctx context.Context, r JobRequest) (Job, error) {
	if _, err := c.authorize(ctx, capability.OpDLQ, r.Queue); err != nil {
		return Job{}, err
	}
	if err := r.check(); err != nil {
		return Job{}, err
	}
	stats, err := inQueue(ctx, &c, "start job", r.Queue, lastForWrites, func(q *queueUse) (driver.Stats, error) {
		if err := q.lacksDeadLetters("start job"); err != nil {
			return driver.Stats{}, err
		}
		return q.handle.Stats(ctx)
	})
	if err != nil {
		return Job{}, err
	}
	started := time.Now().UTC()
	if r.Selection.Until.IsZero() || r.Selection.Until.After(started) {
		r.Selection.Until = started
	}
	b := c.broker
	c.answers, c.binding, c.existing, c.unmetered = nil, nil, true, true
	j := &job{
		caller: c, key: queueKey{c.tenant, r.Queue}, table: &b.jobs, halt: make(chan struct{}), done: make(chan struct{}), due: started,
		now: Job{JobRequest: r, ID: rand.Text(), State: JobRunning, Total: stats.Dead, Started: started, Token: c.holder.token},
	}
	run, cut := context.WithCancel(context.Background()) //nolint:contextcheck // it outlives the request
	j.cut = cut
	if err := b.jobs.add(j); err != nil {
		cut()
		return Job{}, refusedShare(err, "start job", r.Queue)
	}
	c.record("start "+string(r.Action)+" job", r.Queue, j.now.ID+" "+r.Selection.Words(), 0, nil)
	begun := j.now
	go func() {
		defer b.jobs.work.Done()
		j.run(run)
	}()
	return begun, nil
}

// add adds a job that begins to run. StopJobs waits for it from then on.
func (t *jobTable) add(j *job) error {
	owner := j.caller.owner()
	if err := t.pool.Take(owner[:], 1); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		t.pool.Give(owner[:], 1)
		return j.caller.broker.admit("start job", j.key.name, -1)
	}
	t.tidyLocked(j.now.Started)
	t.byID[j.now.ID] = j
	t.work.Add(1)
	return nil
}

// tidyLocked forgets jobs that ended long ago, and if there are still too many, the oldest ones of the
// tenants that have most.
func (t *jobTable) tidyLocked(now time.Time) {
	ended := make(map[string][]*job)
	n := 0
	for id, j := range t.byID {
		at := j.snapshot().Ended
		switch {
		case at.IsZero():
		case now.Sub(at) >= jobKept:
			delete(t.byID, id)
		default:
			ended[j.key.tenant] = append(ended[j.key.tenant], j)
			n++
		}
	}
	for ; n >= maxJobsKept; n-- {
		var most string
		for tenant, jobs := range ended {
			if len(jobs) > len(ended[most]) {
				most = tenant
			}
		}
		oldest := slices.MinFunc(ended[most], func(x, y *job) int { return x.snapshot().Ended.Compare(y.snapshot().Ended) })
		delete(t.byID, oldest.now.ID)
		ended[most] = slices.DeleteFunc(ended[most], func(j *job) bool { return j == oldest })
	}
}

var errStopping = errors.New("the daemon stopped; start the job again with the same until to go on")

// StopJobs stops all jobs and waits for them. No job starts afterwards.
func (b *Broker) StopJobs() {
	t := &b.jobs
	t.mu.Lock()
	t.closed = true
	for _, j := range t.byID {
		j.end(errStopping)
	}
	t.mu.Unlock()
	t.work.Wait()
}

// Jobs returns the jobs on the dead letters of a queue, or on those of all queues that the token allows dlq on, the latest first.
// It does no I/O.
func (c Caller) Jobs(ctx context.Context, queue string) ([]Job, error) {
	if queue != "" {
		if _, err := c.authorize(ctx, capability.OpDLQ, queue); err != nil {
			return nil, err
		}
	} else if err := c.Valid(ctx); err != nil {
		return nil, err
	}
	var found []Job
	allowed := make(map[string]bool)
	for _, j := range c.broker.jobs.all() {
		if j.key.tenant != c.tenant || queue != "" && j.key.name != queue {
			continue
		}
		may, asked := allowed[j.key.name]
		if !asked {
			may = c.Allows(ctx, capability.OpDLQ, j.key.name)
			allowed[j.key.name] = may
		}
		if may {
			found = append(found, j.snapshot())
		}
	}
	slices.SortFunc(found, func(x, y Job) int { return cmp.Or(y.Started.Compare(x.Started), cmp.Compare(x.ID, y.ID)) })
	return found, nil
}

func (t *jobTable) all() []*job {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tidyLocked(time.Now())
	jobs := make([]*job, 0, len(t.byID))
	for _, j := range t.byID {
		jobs = append(jobs, j)
	}
	return jobs
}

// Job returns a job. It needs a token for dlq on its queue. Codes: ErrNotFound (this daemon does not know
// it, or it is of another tenant), ErrUnavailable (the daemon stops, and so did the job: ask again when it is back).
func (c Caller) Job(ctx context.Context, id string) (Job, error) {
	j, err := c.job(ctx, "show job", id)
	if err != nil {
		return Job{}, err
	}
	now := j.snapshot()
	t := &c.broker.jobs
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return Job{}, &driver.Error{Code: driver.ErrUnavailable, Op: "show job", Detail: "the daemon stops"}
	}
	return now, nil
}

func (c *Caller) job(ctx context.Context, op, id string) (*job, error) {
	if err := c.Valid(ctx); err != nil {
		return nil, err
	}
	t := &c.broker.jobs
	t.mu.Lock()
	j := t.byID[id]
	t.mu.Unlock()
	if j == nil || j.key.tenant != c.tenant {
		return nil, &driver.Error{Code: driver.ErrNotFound, Op: op, Field: "job_id", Detail: "this daemon knows no such job; jobs are forgotten after a day and when their daemon restarts"}
	}
	if _, err := c.authorize(ctx, capability.OpDLQ, j.key.name); err != nil {
		return nil, err
	}
	return j, nil
}

// StopJob stops a job and returns it, which takes a second at most. What it has done stays done. Stopping one that has
// ended changes nothing. It needs a token for dlq on the queue of the job. Codes: as Job.
func (c Caller) StopJob(ctx context.Context, id string) (Job, error) {
	j, err := c.job(ctx, "stop job", id)
	if err != nil {
		return Job{}, err
	}
	if j.end(errors.New("stopped by token " + c.holder.token.String())) {
		c.record("stop job", j.key.name, j.now.ID, 0, nil)
	}
	select {
	case <-j.done:
	case <-ctx.Done():
	}
	return j.snapshot(), nil
}

// end stops a job, and reports whether it was running and nothing else had stopped it. A step that takes long is cut off.
func (j *job) end(why error) (stops bool) {
	j.haltOne.Do(func() {
		j.mu.Lock()
		stops = j.now.State == JobRunning
		j.stop = why
		j.mu.Unlock()
		close(j.halt)
		if stops {
			time.AfterFunc(stopGrace, j.cut)
		}
	})
	return stops
}

func (j *job) snapshot() Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.now
}

// change changes what callers see of a job.
func (j *job) change(do func(now *Job)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	do(&j.now)
}
