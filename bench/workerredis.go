package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/mailboxmq/mailbox/redisbox"
)

const redisMessages = 20_000

// workersOnRedis compares a Loop with asynq in one and the same Redis server, which syncs
// its file every second.
func (r *report) workersOnRedis() (err error) {
	server, err := startRedis(r.dir, "appendonly", "yes", "appendfsync", "everysec")
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, server.close()) }()
	loop := func(prefetch int) func(messages, handlers int) (*workload, error) {
		return func(messages, handlers int) (*workload, error) {
			return redisLoop(server, messages, handlers, prefetch)
		}
	}
	tasks := []workerTask{
		{name: "asynq", fill: func(messages, handlers int) (*workload, error) { return asynqLoad(server, messages, handlers) }},
		{name: "Loop on redisbox", atLeast: 5, fill: loop(0)},
		{name: "Loop on redisbox, prefetch 128", atLeast: 5, fill: loop(128)},
	}
	for _, handlers := range []int{8, 64} {
		if err := r.workers("handlers on Redis, file synced every second", redisMessages, handlers, tasks); err != nil {
			return err
		}
	}
	return nil
}

func redisLoop(server *redisServer, messages, handlers, prefetch int) (*workload, error) {
	if err := server.flush(); err != nil {
		return nil, err
	}
	client, err := newRueidis(server.addr)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	backend, err := redisbox.Open(ctx, client, nil)
	if err != nil {
		client.Close()
		return nil, err
	}
	closeAll := func() error {
		defer client.Close()
		return backend.Close()
	}
	orders, err := fillMailbox(ctx, backend, messages)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &workload{work: loopOver(orders, handlers, prefetch), ours: true, close: closeAll}, nil
}

func asynqLoad(server *redisServer, messages, handlers int) (*workload, error) {
	if err := server.flush(); err != nil {
		return nil, err
	}
	redis := asynq.RedisClientOpt{Addr: server.addr}
	client := asynq.NewClient(redis)
	errs := make([]error, redisWorkers)
	var senders sync.WaitGroup
	for i := range redisWorkers {
		senders.Go(func() {
			for n := i; n < messages && errs[i] == nil; n += redisWorkers {
				_, errs[i] = client.Enqueue(asynq.NewTask("bench", make([]byte, bodyBytes)))
			}
		})
	}
	senders.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	runner := asynq.NewServer(redis, asynq.Config{
		Concurrency: handlers, LogLevel: asynq.FatalLevel, Logger: mute{}, TaskCheckInterval: 10 * time.Millisecond,
	})
	return &workload{
		work: func(handled func(), stop <-chan struct{}) error {
			err := runner.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				handled()
				return nil
			}))
			<-stop
			runner.Shutdown()
			return err
		},
		close: client.Close,
	}, nil
}
