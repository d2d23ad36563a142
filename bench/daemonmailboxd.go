package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/remotebox"
)

// Settings that the workers of all servers share.
const (
	daemonQueue      = "bench"
	daemonVisibility = time.Minute
	daemonWait       = 200 * time.Millisecond
)

// A daemonDoor is the address of a mailboxd and a token.
type daemonDoor struct {
	oap, http string
	token     string
}

// mailboxdCapacity is how many messages a queue may hold by default.
const mailboxdCapacity = 1 << 20

// A dialer connects the workers of a mailboxd.
type dialer func(daemonDoor, *daemonStand) error

// mailboxdStand starts mailboxd with its queues in memory or on the disk.
func mailboxdStand(binary string, durable bool, dial dialer) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		backend := "memory:"
		if durable {
			backend = "disk:" + filepath.Join(dir, "queues")
		}
		return startMailboxd(dir, binary, backend, shape, dial)
	}
}

// mailboxdOnRedis starts mailboxd with its queues in a Redis, whose usage counts as that of
// the server.
func mailboxdOnRedis(binary string, durable bool, dial dialer) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		redis, address, err := startRedisProcess(filepath.Join(dir, "redis"), durable)
		if err != nil {
			return nil, err
		}
		stand, err := startMailboxd(dir, binary, "redis://"+address, shape, dial)
		if err != nil {
			return nil, errors.Join(err, redis.stop())
		}
		stand.process.beside = redis
		return stand, nil
	}
}

// startMailboxd starts mailboxd with default settings except for its addresses, its
// directory, its backend and, where they are not enough, its limits.
func startMailboxd(dir, binary, backend string, shape daemonShape, dial dialer) (*daemonStand, error) {
	var door daemonDoor
	var err error
	if door.oap, err = freeAddress(); err != nil {
		return nil, err
	}
	if door.http, err = freeAddress(); err != nil {
		return nil, err
	}
	arguments := []string{"--data-dir", dir, "--backend", backend, "--listen", door.http, "--listen-oap", door.oap, "--log-level", "warn"}
	if shape.waiting > mailboxdCapacity {
		arguments = append(arguments, "--shard-cap", strconv.Itoa(2*shape.waiting))
	}
	if shape.idle > 0 {
		// A token has less than half of the connections.
		arguments = append(arguments, "--max-conns", strconv.Itoa(3*shape.idle))
	}
	process, err := startDaemon(dir, []string{door.oap, door.http}, binary, arguments...)
	if err != nil {
		return nil, err
	}
	stand := &daemonStand{process: process, shape: shape}
	token, err := os.ReadFile(filepath.Join(dir, "operator.token"))
	if err != nil {
		return nil, errors.Join(err, stand.close())
	}
	door.token = strings.TrimSpace(string(token))
	stand.door = door
	if err := door.createQueues(shape.queues); err != nil {
		return nil, errors.Join(err, stand.close())
	}
	if err := dial(door, stand); err != nil {
		return nil, errors.Join(err, stand.close())
	}
	return stand, nil
}

// createQueues creates the queues: consumers may ask before the first message is sent.
func (d daemonDoor) createQueues(count int) error {
	ctx := context.Background()
	backend, err := remotebox.Open(ctx, []string{d.oap}, d.token, nil)
	if err != nil {
		return err
	}
	for i := range count {
		err = cmp.Or(err, backend.ConfigureQueue(ctx, queueName(i), driver.Config{}))
	}
	return errors.Join(err, backend.Close())
}

// queueName names the queue with an index.
func queueName(i int) string {
	if i == 0 {
		return daemonQueue
	}
	return daemonQueue + strconv.Itoa(i)
}

// A rotation is the order in which a worker uses queues: each for a batch. A producer and
// the consumer with the same number use the same queues in the same order.
type rotation struct {
	at, step, queues int
	batch, done      int
}

// rotation returns the order of the worker with number i. Workers that outnumber the queues
// share them.
func (s daemonShape) rotation(i int) *rotation {
	return &rotation{at: i % s.queues, step: s.workers, queues: s.queues, batch: s.batch}
}

func (r *rotation) current() int { return r.at }

// next returns the current queue and counts messages of it; after a batch comes another queue.
func (r *rotation) next(messages int) int {
	current := r.at
	if r.done += messages; r.done >= r.batch && r.queues > 1 {
		r.done -= r.batch
		r.at = (r.at + r.step) % r.queues
	}
	return current
}

// overOAP divides the workers between connections of remotebox, each of which its workers
// share as the goroutines of a program do. Consumers pull.
func overOAP(connections int) dialer {
	return func(door daemonDoor, stand *daemonStand) error {
		backends := make([]driver.Opener, max(connections, 1))
		for i := range backends {
			var err error
			if backends[i], err = stand.dialOAP(door); err != nil {
				return err
			}
		}
		return stand.useQueues(backends...)
	}
}

// dialAll connects to several daemons, which the workers use in turn.
func (s *daemonStand) dialAll(doors []daemonDoor) error {
	var backends []driver.Opener
	for _, door := range doors {
		backend, err := s.dialOAP(door)
		if err != nil {
			return errors.Join(err, s.close())
		}
		backends = append(backends, backend)
	}
	return s.useQueues(backends...)
}

func (s *daemonStand) dialOAP(door daemonDoor) (*remotebox.Backend, error) {
	backend, err := remotebox.Open(context.Background(), []string{door.oap}, door.token, nil)
	if err != nil {
		return nil, err
	}
	s.onDisconnect(backend.Close)
	return backend, nil
}

// useQueues adds producers and consumers, which use the backends in turn.
func (s *daemonStand) useQueues(backends ...driver.Opener) error {
	queues := make([][]driver.Queue, len(backends)) // by backend
	for i, backend := range backends {
		for n := range s.shape.queues {
			queue, err := backend.OpenQueue(context.Background(), queueName(n))
			if err != nil {
				return err
			}
			queues[i] = append(queues[i], queue)
		}
	}
	for i := range s.shape.workers {
		s.produceTo(queues[2*i%len(queues)], i)
		s.consumers = append(s.consumers, &pullConsumer{queues: queues[(2*i+1)%len(queues)], batch: s.shape.batch, rotation: s.shape.rotation(i)})
	}
	return nil
}

// produceTo adds the producer with number i.
func (s *daemonStand) produceTo(queues []driver.Queue, i int) {
	var out []driver.Outgoing
	order := s.shape.rotation(i)
	s.producers = append(s.producers, func(bodies [][]byte) error {
		out = out[:0]
		for _, body := range bodies {
			out = append(out, driver.Outgoing{Body: body})
		}
		_, err := queues[order.next(len(bodies))].Send(context.Background(), out)
		return err
	})
}

// pullConsumer receives from queues of any backend.
type pullConsumer struct {
	queues   []driver.Queue
	batch    int
	rotation *rotation
	from     driver.Queue
	bodies   [][]byte
	receipts []driver.Receipt
}

func (c *pullConsumer) receive() ([][]byte, error) {
	c.from = c.queues[c.rotation.current()]
	got, err := c.from.Receive(context.Background(), driver.ReceiveRequest{Max: c.batch, Visibility: daemonVisibility, Wait: daemonWait})
	c.bodies, c.receipts = c.bodies[:0], c.receipts[:0]
	for i := range got {
		c.bodies, c.receipts = append(c.bodies, got[i].Body), append(c.receipts, got[i].Receipt)
	}
	c.rotation.next(len(got))
	return c.bodies, err
}

func (c *pullConsumer) ack() error { return c.from.Ack(context.Background(), c.receipts) }

// overSubscription lets the daemon push messages to the consumers, as far ahead as NATS
// does.
func overSubscription(door daemonDoor, stand *daemonStand) error {
	backend, err := stand.dialOAP(door)
	if err != nil {
		return err
	}
	queue, err := backend.OpenQueue(context.Background(), daemonQueue)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stand.onDisconnect(func() error {
		cancel()
		return nil
	})
	batch := stand.shape.batch
	for i := range stand.shape.workers {
		stand.produceTo([]driver.Queue{queue}, i)
		c := &subscribedConsumer{queue: queue, batch: batch, deliveries: make(chan driver.Delivery, batch), failed: make(chan error, 1)}
		go c.pump(ctx)
		stand.consumers = append(stand.consumers, c)
	}
	return nil
}

// daemonAhead is how many messages a server may send ahead to a consumer, for each
// message of a batch.
const daemonAhead = 8

type subscribedConsumer struct {
	queue      driver.Queue
	batch      int
	deliveries chan driver.Delivery
	failed     chan error
	bodies     [][]byte
	receipts   []driver.Receipt
}

// pump makes a channel of the subscription, so that a consumer can stop waiting
// without ending it.
func (c *subscribedConsumer) pump(ctx context.Context) {
	for delivery, err := range c.queue.(remotebox.Subscriber).Subscribe(ctx, daemonVisibility, daemonAhead*c.batch) {
		if err != nil {
			c.failed <- err
			return
		}
		select {
		case c.deliveries <- delivery:
		case <-ctx.Done():
			return
		}
	}
}

func (c *subscribedConsumer) receive() ([][]byte, error) {
	c.bodies, c.receipts = c.bodies[:0], c.receipts[:0]
	timer := time.NewTimer(daemonWait)
	defer timer.Stop()
	select {
	case d := <-c.deliveries:
		c.take(d)
	case err := <-c.failed:
		return nil, err
	case <-timer.C:
		return nil, nil
	}
	for len(c.bodies) < c.batch {
		select {
		case d := <-c.deliveries:
			c.take(d)
		default:
			return c.bodies, nil
		}
	}
	return c.bodies, nil
}

func (c *subscribedConsumer) take(d driver.Delivery) {
	c.bodies, c.receipts = append(c.bodies, d.Body), append(c.receipts, d.Receipt)
}

func (c *subscribedConsumer) ack() error { return c.queue.Ack(context.Background(), c.receipts) }
