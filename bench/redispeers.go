package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox"
)

// bodies returns different bodies, because a bare list identifies messages by their
// bytes.
func bodies() (next func() string) {
	var last atomic.Uint64
	return func() string {
		body := make([]byte, bodyBytes)
		binary.BigEndian.PutUint64(body, last.Add(1))
		return string(body)
	}
}

// commander runs a command and waits for its answer.
type commander interface {
	Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult
	B() rueidis.Builder
}

// connections gives every worker a connection of its own, as most clients do, or lets all
// of them share one, which pipelines concurrent commands.
type connections struct {
	client rueidis.Client
	shared bool
	giveUp []func()
}

func connect(addr string, shared bool) (*connections, error) {
	client, err := newRueidis(addr)
	return &connections{client: client, shared: shared}, err
}

func (c *connections) next() commander {
	if c.shared {
		return c.client
	}
	own, giveUp := c.client.Dedicate()
	c.giveUp = append(c.giveUp, giveUp)
	return own
}

func (c *connections) close() error {
	for _, giveUp := range c.giveUp {
		giveUp()
	}
	c.client.Close()
	return nil
}

// openList is the simplest queue: a list, and another for messages in flight. Messages of
// a crashed consumer stay there.
func openList(shared bool) func(addr string) (*redisQueue, error) {
	return func(addr string) (*redisQueue, error) {
		connections, err := connect(addr, shared)
		if err != nil {
			return nil, err
		}
		ctx, body := context.Background(), bodies()
		return &redisQueue{
			newProducer: func() func() error {
				c := connections.next()
				return func() error {
					return c.Do(ctx, c.B().Lpush().Key("list").Element(body()).Build()).Error()
				}
			},
			newConsumer: func() func() (int, error) {
				c := connections.next()
				return func() (int, error) {
					got, err := c.Do(ctx, c.B().Rpoplpush().Source("list").Destination("working").Build()).ToString()
					if rueidis.IsRedisNil(err) {
						time.Sleep(50 * time.Microsecond)
						return 0, nil
					}
					if err != nil {
						return 0, err
					}
					return 1, c.Do(ctx, c.B().Lrem().Key("working").Count(1).Element(got).Build()).Error()
				}
			},
			close: connections.close,
		}, nil
	}
}

// openStream is a stream with a group of consumers.
func openStream(addr string) (*redisQueue, error) {
	connections, err := connect(addr, false)
	if err != nil {
		return nil, err
	}
	ctx, body := context.Background(), bodies()
	create := connections.client.B().XgroupCreate().Key("stream").Group("group").Id("0").Mkstream().Build()
	if err := connections.client.Do(ctx, create).Error(); err != nil {
		return nil, errors.Join(err, connections.close())
	}
	workers := 0
	return &redisQueue{
		newProducer: func() func() error {
			c := connections.next()
			return func() error {
				return c.Do(ctx, c.B().Xadd().Key("stream").Id("*").FieldValue().FieldValue("body", body()).Build()).Error()
			}
		},
		newConsumer: func() func() (int, error) {
			c := connections.next()
			workers++
			name := strconv.Itoa(workers)
			return func() (int, error) {
				got, err := c.Do(ctx, c.B().Xreadgroup().Group("group", name).Count(1).Streams().Key("stream").Id(">").Build()).AsXRead()
				if rueidis.IsRedisNil(err) {
					time.Sleep(50 * time.Microsecond)
					return 0, nil
				}
				if err != nil {
					return 0, err
				}
				id := got["stream"][0].ID
				// A confirmed message stays in the stream, and must be deleted like an acked
				// one.
				if err := c.Do(ctx, c.B().Xack().Key("stream").Group("group").Id(id).Build()).Error(); err != nil {
					return 0, err
				}
				return 1, c.Do(ctx, c.B().Xdel().Key("stream").Id(id).Build()).Error()
			}
		},
		close: connections.close,
	}, nil
}

// openAsynq is a library of tasks in Redis.
func openAsynq(addr string) (*redisQueue, error) {
	redis := asynq.RedisClientOpt{Addr: addr}
	client := asynq.NewClient(redis)
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: redisWorkers, LogLevel: asynq.FatalLevel, Logger: mute{},
		TaskCheckInterval: 10 * time.Millisecond,
	})
	body := bodies()
	return &redisQueue{
		newProducer: func() func() error {
			return func() error {
				_, err := client.Enqueue(asynq.NewTask("bench", []byte(body())))
				return err
			}
		},
		consume: func(done func()) error {
			return server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
				done()
				return nil
			}))
		},
		close: func() error {
			server.Shutdown()
			return client.Close()
		},
	}, nil
}

// mute is an asynq logger that logs nothing.
type mute struct{}

func (mute) Debug(...any) {}
func (mute) Info(...any)  {}
func (mute) Warn(...any)  {}
func (mute) Error(...any) {}
func (mute) Fatal(args ...any) {
	panic(fmt.Sprint(args...)) // asynq does not expect it to return
}

// openRedisbox is a queue of ours with batches of the given size.
func openRedisbox(batch int) func(addr string) (*redisQueue, error) {
	return func(addr string) (*redisQueue, error) {
		client, err := newRueidis(addr)
		if err != nil {
			return nil, err
		}
		q, closeBackend, err := openRedisQueue(client)
		if err != nil {
			client.Close()
			return nil, err
		}
		ctx, body := context.Background(), bodies()
		return &redisQueue{
			batch: batch,
			newProducer: func() func() error {
				out := make([]driver.Outgoing, batch)
				return func() error {
					for i := range out {
						out[i].Body = []byte(body())
					}
					_, err := q.Send(ctx, out)
					return err
				}
			},
			newConsumer: func() func() (int, error) {
				return func() (int, error) {
					got, err := q.Receive(ctx, driver.ReceiveRequest{Max: batch, Visibility: time.Minute, Wait: 10 * time.Millisecond})
					if err != nil || len(got) == 0 {
						return 0, err
					}
					receipts := make([]driver.Receipt, len(got))
					for i := range got {
						receipts[i] = got[i].Receipt
					}
					return len(got), q.Ack(ctx, receipts)
				}
			},
			close: func() error {
				err := closeBackend()
				client.Close()
				return err
			},
		}, nil
	}
}

func openRedisQueue(client rueidis.Client) (driver.Queue, func() error, error) {
	ctx := context.Background()
	backend, err := redisbox.Open(ctx, client, nil)
	if err != nil {
		return nil, nil, err
	}
	q, err := backend.OpenQueue(ctx, "bench")
	if err != nil {
		return nil, nil, errors.Join(err, backend.Close())
	}
	return q, backend.Close, nil
}
