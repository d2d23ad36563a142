package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// makeDead sends n messages and dead-letters them.
func (b *bench) makeDead(c broker.Caller, queue string, n int, text string) {
	b.t.Helper()
	for n > 0 {
		part := min(n, 100)
		outgoing := make([]broker.Outgoing, part)
		for i := range outgoing {
			outgoing[i].Body = []byte(text)
		}
		if _, err := c.Send(b.t.Context(), queue, outgoing); err != nil {
			b.t.Fatal(err)
		}
		b.deadLetter(c, queue, part, text)
		n -= part
	}
}

// deadLetter receives n messages and dead-letters them.
func (b *bench) deadLetter(c broker.Caller, queue string, n int, text string) {
	b.t.Helper()
	for n > 0 {
		got := b.receive(c, queue, n)
		if len(got) == 0 {
			b.t.Fatalf("%d messages are missing", n)
		}
		requests := make([]broker.DeadLetterRequest, len(got))
		for i := range got {
			requests[i] = broker.DeadLetterRequest{Receipt: got[i].Receipt, Reason: driver.ReasonFatal, Error: text}
		}
		if err := c.DeadLetter(b.t.Context(), queue, requests); err != nil {
			b.t.Fatal(err)
		}
		n -= len(got)
	}
}

func roomy(t testing.TB, c broker.Caller, queue string) {
	t.Helper()
	if err := c.Configure(t.Context(), queue, driver.Config{MaxDead: 1_000_000}); err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB, c broker.Caller, r broker.JobRequest) broker.Job {
	t.Helper()
	job, err := c.StartJob(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func look(t testing.TB, c broker.Caller, id string) broker.Job {
	t.Helper()
	job, err := c.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// finish waits for the end of a job, whatever that takes.
func finish(t testing.TB, c broker.Caller, id string) broker.Job {
	t.Helper()
	for {
		if job := look(t, c, id); job.State != broker.JobRunning {
			return job
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func expectJob(t testing.TB, job broker.Job, want string) {
	t.Helper()
	got := fmt.Sprintf("%s: %d of %d looked at, %d selected, %d done, %d failed", job.State, job.Looked, job.Total, job.Selected, job.Done, job.Failed)
	if got != want {
		t.Errorf("got %q (%s), want %q", got, job.Why, want)
	}
}

func expectStats(t testing.TB, c broker.Caller, queue string, ready, dead int) {
	t.Helper()
	stats, err := c.Stats(t.Context(), queue)
	if err != nil || stats.Ready != ready || stats.Dead != dead {
		t.Errorf("%d ready and %d dead, %v; want %d and %d", stats.Ready, stats.Dead, err, ready, dead)
	}
}

// TestJobRedrivesAtItsRate is CON-2: a redrive of any size runs as a job, at a rate, with progress.
func TestJobRedrivesAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.as("")
		roomy(t, c, "jobs")
		b.makeDead(c, "jobs", 20_000, "x")
		job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Rate: 1000})
		if job.State != broker.JobRunning || job.Total != 20_000 || job.Token != c.TokenID() {
			t.Errorf("%+v", job)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if now := look(t, c, job.ID); now.Done < 9_900 || now.Done > 10_200 || now.Looked < now.Done {
			t.Errorf("after half of the time: %+v", now)
		}
		ended := finish(t, c, job.ID)
		expectJob(t, ended, "done: 20000 of 20000 looked at, 20000 selected, 20000 done, 0 failed")
		if took := ended.Ended.Sub(job.Started); took < 19*time.Second || took > 21*time.Second {
			t.Errorf("it took %v", took)
		}
		expectStats(t, c, "jobs", 20_000, 0)
	})
}

// TestJobStopsWithinOneSecond is CON-2: what was redriven stays so, and the rest stays dead.
func TestJobStopsWithinOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.as("")
		roomy(t, c, "jobs")
		b.makeDead(c, "jobs", 20_000, "x")
		for _, rate := range []int{1, 7, 500} {
			job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobDiscard, Rate: rate})
			time.Sleep(3500 * time.Millisecond)
			began := time.Now()
			ended, err := c.StopJob(t.Context(), job.ID)
			if err != nil || ended.State != broker.JobStopped || !strings.HasPrefix(ended.Why, "stopped by token ") {
				t.Errorf("%+v, %v", ended, err)
			}
			if took := time.Since(began); took >= time.Second {
				t.Errorf("it stopped after %v", took)
			}
			if most := rate*7/2 + max(1, rate/4); ended.Done == 0 || ended.Done > most {
				t.Errorf("%d were discarded in 3.5 s at %d a second", ended.Done, rate)
			}
			expectStats(t, c, "jobs", 0, job.Total-ended.Done)
			if again, err := c.StopJob(t.Context(), job.ID); err != nil || again.State != broker.JobStopped {
				t.Errorf("stopping twice: %+v, %v", again, err)
			}
		}
	})
}

// TestJobLeavesWhatDiesLater: a job ends although its messages die again as fast as it redrives them, and redrives each once.
func TestJobLeavesWhatDiesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.as("")
		b.makeDead(c, "jobs", 1000, "x")
		time.Sleep(time.Second)
		job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Rate: 400})
		for died := 0; died < 1000; {
			time.Sleep(50 * time.Millisecond)
			got := b.receive(c, "jobs", 100)
			for i := range got {
				if err := c.DeadLetter(t.Context(), "jobs", []broker.DeadLetterRequest{{Receipt: got[i].Receipt, Reason: driver.ReasonFatal}}); err != nil {
					t.Fatal(err)
				}
			}
			died += len(got)
		}
		expectJob(t, finish(t, c, job.ID), "done: 1000 of 1000 looked at, 1000 selected, 1000 done, 0 failed")
		expectStats(t, c, "jobs", 0, 1000)
		for m, err := range c.DeadLetters(t.Context(), "jobs") {
			if err != nil || m.Redrives != 1 {
				t.Fatalf("%s was redriven %d times, %v", m.ID, m.Redrives, err)
			}
		}
	})
}

// TestJobIsUnknownWhileDaemonStops: one that looks at a job does not take the end of the daemon for that of the job.
func TestJobIsUnknownWhileDaemonStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		c := b.as("")
		b.makeDead(c, "jobs", 10, "x")
		job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Rate: 1})
		b.StopJobs()
		if got, err := c.Job(t.Context(), job.ID); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestJobEndsWithItsToken: a token that is revoked or expires stops what it started.
func TestJobEndsWithItsToken(t *testing.T) {
	for _, way := range []string{"revoked", "expired"} {
		synctest.Test(t, func(t *testing.T) {
			b := memory(t, broker.Limits{})
			defer b.StopJobs()
			c := b.as("")
			b.makeDead(c, "jobs", 5000, "x")
			token := mint(t, b.ring, "", capability.ExpiresAt(time.Now().Add(5*time.Second)))
			job := start(t, b.Caller(token, broker.Origin{}), broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Rate: 100})
			if way == "revoked" {
				time.Sleep(time.Second)
				if err := c.Revoke(t.Context(), revocation.Revocation{Token: token.ID()}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5*time.Second + verify.DefaultCacheTTL)
			ended := look(t, c, job.ID)
			if ended.State != broker.JobFailed || ended.Done == 0 || ended.Done > 700 || !strings.Contains(ended.Why, way) {
				t.Errorf("%s: %+v", way, ended)
			}
			expectStats(t, c, "jobs", ended.Done, 5000-ended.Done)
		})
	}
}

// TestJobGoesOnAfterRestart: a job ends with its daemon; started again with the same Until it does the rest.
func TestJobGoesOnAfterRestart(t *testing.T) {
	const n = 1000
	directory := t.TempDir()
	open := func() (*bench, func()) {
		backend, err := diskbox.Open(t.Context(), directory, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := newBench(t, backend, broker.Limits{})
		return b, func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := backend.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	b, end := open()
	c := b.as("")
	b.makeDead(c, "jobs", n, "x")
	job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Rate: 20})
	for look(t, c, job.ID).Done < 10 {
		time.Sleep(time.Millisecond)
	}
	b.StopJobs()
	jobs, err := c.Jobs(t.Context(), "jobs")
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	stopped := jobs[0]
	if stopped.State != broker.JobStopped || stopped.Done == n || !strings.Contains(stopped.Why, "start the job again") {
		t.Errorf("%+v", stopped)
	}
	_, err = c.StartJob(t.Context(), broker.JobRequest{Queue: "jobs", Action: broker.JobCount})
	expectCode(t, err, driver.ErrUnavailable, "start a job in a daemon that stops")
	end()

	b, end = open()
	defer end()
	c = b.as("")
	_, err = c.Job(t.Context(), job.ID)
	expectCode(t, err, driver.ErrNotFound, "a job of the daemon before")
	expectStats(t, c, "jobs", stopped.Done, n-stopped.Done)
	b.deadLetter(c, "jobs", stopped.Done, "again") // those that were redriven die again, and stay dead
	again := stopped.JobRequest
	again.Rate = 0
	rest := finish(t, c, start(t, c, again).ID)
	if rest.State != broker.JobDone || rest.Done != n-stopped.Done {
		t.Errorf("%d were redriven and then %+v", stopped.Done, rest)
	}
	expectStats(t, c, "jobs", n-stopped.Done, stopped.Done)
	seen := make(map[string]bool)
	for m, err := range c.Peek(t.Context(), "jobs", driver.Query{}) {
		if err != nil || m.Redrives != 1 || seen[m.ID] {
			t.Fatalf("%s was redriven %d times, %v", m.ID, m.Redrives, err)
		}
		seen[m.ID] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d are left", len(seen), n)
	}
}

func TestJobActsOnItsSelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.as("")
		if err := c.Configure(t.Context(), "jobs", driver.Config{}); err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			m := broker.Outgoing{Outgoing: driver.Outgoing{Body: fmt.Appendf(nil, "order %d", i), Group: fmt.Sprint("g", i%3), Priority: i % 2, Attributes: map[string]string{"region": fmt.Sprint(i % 4)}}}
			if _, err := c.Send(t.Context(), "jobs", []broker.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
			text := "refused after 3 s"
			if i%5 == 0 {
				text = "no such order"
			}
			b.deadLetter(c, "jobs", 1, text)
			time.Sleep(time.Minute)
		}
		refused := deadOf("refused after 7 s")
		cause, _ := refused.Cause()
		one := 1
		var middle time.Time
		n := 0
		for m := range c.DeadLetters(t.Context(), "jobs") {
			if n++; n == 20 {
				middle = m.DeadAt
			}
		}
		for name, s := range map[string]struct {
			broker.Selection
			want int
		}{
			"all":       {want: 60},
			"reason":    {broker.Selection{Query: driver.Query{Reason: driver.ReasonExpired}}, 0},
			"group":     {broker.Selection{Group: "g1"}, 20},
			"priority":  {broker.Selection{Priority: &one}, 30},
			"attribute": {broker.Selection{Query: driver.Query{Attributes: map[string]string{"region": "3"}}}, 15},
			"text":      {broker.Selection{Text: []byte("order 1")}, 11},
			"older":     {broker.Selection{Query: driver.Query{OlderThan: 30*time.Minute - time.Second}}, 31},
			"cause":     {broker.Selection{Cause: cause}, 48},
			"until":     {broker.Selection{Until: middle}, 20},
			"limit":     {broker.Selection{Query: driver.Query{Limit: 7}}, 7},
			"two":       {broker.Selection{Group: "g1", Priority: &one}, 10},
		} {
			job := finish(t, c, start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobCount, Selection: s.Selection}).ID)
			if job.State != broker.JobDone || job.Done != s.want {
				t.Errorf("%s: %+v, want %d", name, job, s.want)
			}
		}
		expectStats(t, c, "jobs", 0, 60)
		finish(t, c, start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobDiscard, Selection: broker.Selection{Cause: cause}}).ID)
		expectStats(t, c, "jobs", 0, 12)
	})
}

// TestJobWaitsForRoom: a full queue delays a redrive, and makes it neither lose nor repeat one.
func TestJobWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.as("")
		if err := c.Configure(t.Context(), "jobs", driver.Config{MaxMessages: 130}); err != nil {
			t.Fatal(err)
		}
		b.makeDead(c, "jobs", 250, "x")
		job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive})
		var ids []string
		for range 60 {
			time.Sleep(5 * time.Second)
			if now := look(t, c, job.ID); now.State == broker.JobRunning && now.Why == "" {
				t.Errorf("it does not say what it waits for: %+v", now)
			}
			for _, d := range b.receive(c, "jobs", 10) {
				ids = append(ids, d.ID)
				if err := c.Ack(t.Context(), "jobs", []string{d.Receipt}); err != nil {
					t.Fatal(err)
				}
			}
		}
		expectJob(t, look(t, c, job.ID), "done: 250 of 250 looked at, 250 selected, 250 done, 0 failed")
		slices.Sort(ids)
		if distinct := len(slices.Compact(ids)); distinct != 250 {
			t.Errorf("%d of 250 messages were delivered", distinct)
		}

		b.makeDead(c, "jobs", 130, "x")
		for range 130 {
			b.send(c, "jobs", "y")
		}
		job = start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive})
		time.Sleep(2 * time.Minute)
		if ended := look(t, c, job.ID); ended.State != broker.JobFailed || ended.Done != 0 || !strings.Contains(ended.Why, "MaxMessages") {
			t.Errorf("a queue that stays full: %+v", ended)
		}
	})
}

// TestJobLeavesHeldKeys: a dead letter whose unique key another message has stays, and is counted.
func TestJobLeavesHeldKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.as("")
		unique := func() {
			m := broker.Outgoing{Outgoing: driver.Outgoing{Body: []byte("x"), UniqueKey: "k"}}
			if _, err := c.Send(t.Context(), "jobs", []broker.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
		}
		unique()
		b.deadLetter(c, "jobs", 1, "x")
		b.makeDead(c, "jobs", 9, "x")
		unique()
		job := start(t, c, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive})
		expectJob(t, finish(t, c, job.ID), "done: 10 of 10 looked at, 10 selected, 9 done, 1 failed")
		expectStats(t, c, "jobs", 10, 1)
	})
}

// TestJobOutlivesItsRequest: the end of the request does not end the job.
func TestJobOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory(t, broker.Limits{})
		defer b.StopJobs()
		c := b.as("")
		b.makeDead(c, "jobs", 100, "x")
		ctx, cancel := context.WithCancel(t.Context())
		job, err := c.StartJob(ctx, broker.JobRequest{Queue: "jobs", Action: broker.JobRedrive, Rate: 10})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		expectJob(t, finish(t, c, job.ID), "done: 100 of 100 looked at, 100 selected, 100 done, 0 failed")
	})
}
