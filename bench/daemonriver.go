package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverStand starts PostgreSQL with default settings, in which every commit is synced, and
// River with as many workers as a batch needs for each consumer. River fetches jobs as often
// as it can, since by default it does so ten times a second. The files are in a directory
// in dir, because the user of the server cannot read that of the suite.
func riverStand(dir string) func(string, daemonShape) (*daemonStand, error) {
	return func(_ string, shape daemonShape) (*daemonStand, error) {
		server, err := startPostgres(dir)
		if err != nil {
			return nil, err
		}
		process := &daemonProcess{command: server.command, halt: server.close}
		stand := &daemonStand{process: process, shape: shape}
		if err := stand.startRiver(server.url, riverFetching{cooldown: time.Millisecond, poll: time.Millisecond, workers: shape.workers * shape.batch}, nil); err != nil {
			return nil, errors.Join(err, stand.close())
		}
		return stand, nil
	}
}

// riverFetching is how River fetches jobs: how long it waits after a fetch, how long without a notice, and how many
// jobs it works on.
type riverFetching struct {
	cooldown, poll time.Duration
	workers        int
}

// startRiver starts River in a database. A tracer that is not nil sees its statements.
func (s *daemonStand) startRiver(url string, fetching riverFetching, tracer pgx.QueryTracer) error {
	ctx := context.Background()
	pool, err := s.connect(url, tracer)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	// A worker hands its job to a consumer and ends when that acks.
	jobs := make(chan *riverJob)
	stopped := make(chan struct{})
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[riverArgs]) error {
		j := &riverJob{body: job.Args.Body, id: job.ID, acked: make(chan struct{})}
		select {
		case jobs <- j:
			<-j.acked
			return nil
		case <-stopped:
			return errors.New("the run is over")
		}
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: fetching.workers}},
		Workers:       workers,
		FetchCooldown: fetching.cooldown, FetchPollInterval: fetching.poll,
		Logger: quiet,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	s.onDisconnect(func() error {
		close(stopped)
		return client.StopAndCancel(ctx)
	})
	for range s.shape.workers {
		s.producers = append(s.producers, func(bodies [][]byte) error { return riverSend(client, bodies) })
		s.consumers = append(s.consumers, &riverConsumer{jobs: jobs, batch: s.shape.batch})
	}
	return nil
}

func riverSend(client *river.Client[pgx.Tx], bodies [][]byte) error {
	ctx := context.Background()
	if len(bodies) == 1 {
		_, err := client.Insert(ctx, riverArgs{Body: bodies[0]}, nil)
		return err
	}
	jobs := make([]river.InsertManyParams, len(bodies))
	for i, body := range bodies {
		jobs[i].Args = riverArgs{Body: body}
	}
	inserted, err := client.InsertManyFast(ctx, jobs)
	if err == nil && inserted != len(bodies) {
		err = fmt.Errorf("inserted %d jobs of %d", inserted, len(bodies))
	}
	return err
}

// A riverJob is a job that a worker of River's has.
type riverJob struct {
	body  []byte
	id    int64
	acked chan struct{}
}

type riverConsumer struct {
	jobs   <-chan *riverJob
	batch  int
	got    []*riverJob
	bodies [][]byte
}

func (c *riverConsumer) receive() ([][]byte, error) {
	c.got, c.bodies = c.got[:0], c.bodies[:0]
	timer := time.NewTimer(daemonWait)
	defer timer.Stop()
	select {
	case j := <-c.jobs:
		c.take(j)
	case <-timer.C:
		return nil, nil
	}
	for len(c.got) < c.batch {
		select {
		case j := <-c.jobs:
			c.take(j)
		default:
			return c.bodies, nil
		}
	}
	return c.bodies, nil
}

func (c *riverConsumer) take(j *riverJob) {
	c.got, c.bodies = append(c.got, j), append(c.bodies, j.body)
}

// ack lets the workers end. River completes jobs in batches afterwards, and a worker does
// not wait for that.
func (c *riverConsumer) ack() error {
	for _, j := range c.got {
		close(j.acked)
	}
	return nil
}
