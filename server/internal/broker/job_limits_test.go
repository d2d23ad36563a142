package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// TestJobsAreOfTheirTenant is CON-1 and OPS-4: who sees and stops a job, and how many run.
func TestJobsAreOfTheirTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		acme, other := b.as("acme"), b.as("other")
		slow := broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Rate: 1}
		for _, c := range []broker.Caller{acme, other} {
			b.makeDead(c, "jobs", 100, "x")
		}
		job := start(t, acme, slow)
		_, err := other.Job(t.Context(), job.ID)
		expectCode(t, err, driver.ErrNotFound, "show a job of another tenant")
		_, err = other.StopJob(t.Context(), job.ID)
		expectCode(t, err, driver.ErrNotFound, "stop a job of another tenant")
		reader := b.as("acme", capability.Operations(capability.OpPeek, capability.OpStats, capability.OpSend, capability.OpRecv))
		_, err = reader.StartJob(t.Context(), slow)
		expectCode(t, err, driver.ErrForbidden, "start a job without dlq")
		_, err = reader.Job(t.Context(), job.ID)
		expectCode(t, err, driver.ErrForbidden, "show a job without dlq")
		_, err = reader.StopJob(t.Context(), job.ID)
		expectCode(t, err, driver.ErrForbidden, "stop a job without dlq")
		elsewhere := b.as("acme", capability.Queues(capability.Queue("invoices")))
		_, err = elsewhere.StopJob(t.Context(), job.ID)
		expectCode(t, err, driver.ErrForbidden, "stop a job of another queue")
		for _, c := range []broker.Caller{other, reader, elsewhere} {
			if jobs, err := c.Jobs(t.Context(), ""); err != nil || len(jobs) > 0 {
				t.Errorf("it sees %+v, %v", jobs, err)
			}
		}
		running := 1
		for ; ; running++ {
			if _, err := acme.StartJob(t.Context(), slow); err != nil {
				expectCode(t, err, driver.ErrFull, "one job too many")
				break
			}
		}
		if jobs, err := acme.Jobs(t.Context(), "jobs"); err != nil || len(jobs) != running || running >= 16 {
			t.Errorf("%d of %d jobs run, %v", len(jobs), running, err)
		}
		start(t, other, slow) // a share is left for others
		if stopped, err := b.as("acme").StopJob(t.Context(), job.ID); err != nil || stopped.State != broker.JobStopped {
			t.Errorf("another token of the tenant: %+v, %v", stopped, err)
		}
	})
}

// TestJobsThatEndedAreKeptWithinBounds: for a day, and 256 of them.
func TestJobsThatEndedAreKeptWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		acme, busy := b.as("acme"), b.as("busy")
		b.makeDead(acme, "jobs", 1, "x")
		b.makeDead(busy, "jobs", 1, "x")
		count := broker.JobRequest{Queue: "jobs", Action: broker.JobCount}
		first := start(t, acme, count).ID
		for range 300 {
			finish(t, busy, start(t, busy, count).ID)
		}
		if jobs, err := busy.Jobs(t.Context(), ""); err != nil || len(jobs) < 250 || len(jobs) > 256 {
			t.Errorf("%d are kept, %v", len(jobs), err)
		}
		look(t, acme, first) // one tenant does not displace what another did
		time.Sleep(24 * time.Hour)
		for _, c := range []broker.Caller{acme, busy} {
			if jobs, err := c.Jobs(t.Context(), ""); err != nil || len(jobs) > 0 {
				t.Errorf("%d are kept for longer than a day, %v", len(jobs), err)
			}
		}
	})
}

func TestJobsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.auditor(t, "")
		b.makeDead(c, "jobs", 10, "x")
		finish(t, c, start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Selection: broker.Selection{Query: driver.Query{Limit: 3}}}).ID)
		job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobDiscard, Rate: 1})
		time.Sleep(1500 * time.Millisecond)
		if _, err := c.StopJob(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range auditOf(t, c) {
			if strings.Contains(r.Operation, "job") {
				got = append(got, fmt.Sprintf("%s of %s: %d, %s", r.Operation, r.Queue, r.Count, r.Result))
			}
		}
		want := []string{
			"start redrive job of jobs: 0, ok", "redrive job done of jobs: 3, ok",
			"start discard job of jobs: 0, ok", "stop job of jobs: 0, ok", "discard job stopped of jobs: 2, stopped",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the audit says %q, want %q", got, want)
		}
	})
}

func TestJobRefusesWhatItCannotDo(t *testing.T) {
	b := memory(t, broker.Limits{})
	c := b.as("")
	b.makeDead(c, "jobs", 1, "x")
	ten := 10
	for name, r := range map[string]broker.JobRequest{
		"action":    {Queue: "jobs", Action: "purge"},
		"rate":      {Queue: "jobs", Action: broker.JobCount, Rate: -1},
		"limit":     {Queue: "jobs", Action: broker.JobCount, Selection: broker.Selection{Query: driver.Query{Limit: -1}}},
		"reason":    {Queue: "jobs", Action: broker.JobCount, Selection: broker.Selection{Query: driver.Query{Reason: "old"}}},
		"states":    {Queue: "jobs", Action: broker.JobCount, Selection: broker.Selection{Query: driver.Query{States: []driver.State{driver.StateReady}}}},
		"priority":  {Queue: "jobs", Action: broker.JobCount, Selection: broker.Selection{Priority: &ten}},
		"selection": {Queue: "jobs", Action: broker.JobCount, Selection: broker.Selection{Text: make([]byte, 5000)}},
	} {
		_, err := c.StartJob(t.Context(), r)
		expectCode(t, err, driver.ErrInvalid, name)
	}
	_, err := c.StartJob(t.Context(), broker.JobRequest{Queue: "none", Action: broker.JobCount})
	expectCode(t, err, driver.ErrNotFound, "a queue that does not exist")
}
