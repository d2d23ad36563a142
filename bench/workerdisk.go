package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/mailboxmq/mailbox/diskbox"
)

const diskMessages = 10_000

// workersOnDisk compares a Loop on the disk backend with River on a PostgreSQL on the same
// disk. Both promise the same: confirmed work is synced to the disk.
func (r *report) workersOnDisk() (err error) {
	server, err := startPostgres(r.dir)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, server.close()) }()
	loop := func(prefetch int) func(messages, handlers int) (*workload, error) {
		return func(messages, handlers int) (*workload, error) { return r.diskLoop(messages, handlers, prefetch) }
	}
	tasks := []workerTask{
		{name: "River", fill: func(messages, handlers int) (*workload, error) { return riverLoad(server, messages, handlers) }},
		{name: "Loop on diskbox", atLeast: 10, fill: loop(0)},
		{name: "Loop on diskbox, prefetch 128", atLeast: 10, fill: loop(128)},
	}
	for _, handlers := range []int{8, 64} {
		if err := r.workers("handlers on disk, every ack synced", diskMessages, handlers, tasks); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) diskLoop(messages, handlers, prefetch int) (*workload, error) {
	dir, err := os.MkdirTemp(r.dir, "mailbox-bench-worker-")
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	backend, err := diskbox.Open(ctx, dir, nil)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	closeAll := func() error { return errors.Join(backend.Close(), os.RemoveAll(dir)) }
	orders, err := fillMailbox(ctx, backend, messages)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &workload{work: loopOver(orders, handlers, prefetch), ours: true, close: closeAll}, nil
}

// riverArgs is a job of River's.
type riverArgs struct {
	Body []byte `json:"body"`
}

// Kind implements river.JobArgs.
func (riverArgs) Kind() string { return "bench" }

// riverLoad fills River's table and drains it. It polls as often as River allows, because
// by default it fetches ten times a second.
func riverLoad(server *postgresServer, messages, handlers int) (*workload, error) {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(server.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	w, err := fillRiver(ctx, pool, messages, handlers)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return w, nil
}

func fillRiver(ctx context.Context, pool *pgxpool.Pool, messages, handlers int) (*workload, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return nil, err
	}
	var handle func()
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[riverArgs]) error {
		handle()
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: handlers}},
		Workers:       workers,
		FetchCooldown: time.Millisecond, FetchPollInterval: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	if err := insertRiver(ctx, client, messages); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, "VACUUM ANALYZE river_job"); err != nil {
		return nil, err
	}
	return &workload{
		work: func(handled func(), stop <-chan struct{}) error {
			handle = handled
			if err := client.Start(ctx); err != nil {
				return err
			}
			<-stop
			return client.Stop(ctx)
		},
		close: func() error {
			pool.Close()
			return nil
		},
	}, nil
}

func insertRiver(ctx context.Context, client *river.Client[pgx.Tx], messages int) error {
	for sent := 0; sent < messages; sent += workerBatch {
		batch := make([]river.InsertManyParams, min(workerBatch, messages-sent))
		for i := range batch {
			batch[i].Args = riverArgs{Body: make([]byte, bodyBytes)}
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}
