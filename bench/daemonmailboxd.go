package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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

// mailboxdStand starts mailboxd with default settings except for its addresses and its
// directory. dial connects the workers.
func mailboxdStand(binary string, durable bool, dial func(daemonDoor, int, *daemonStand) error) func(string, int) (*daemonStand, error) {
	return func(dir string, batch int) (*daemonStand, error) {
		var door daemonDoor
		var err error
		if door.oap, err = freeAddress(); err != nil {
			return nil, err
		}
		if door.http, err = freeAddress(); err != nil {
			return nil, err
		}
		backend := "memory:"
		if durable {
			backend = "disk:" + filepath.Join(dir, "queues")
		}
		process, err := startDaemon(dir, []string{door.oap, door.http}, binary,
			"--data-dir", dir, "--backend", backend, "--listen", door.http, "--listen-oap", door.oap, "--log-level", "warn")
		if err != nil {
			return nil, err
		}
		stand := &daemonStand{process: process}
		token, err := os.ReadFile(filepath.Join(dir, "operator.token"))
		if err != nil {
			return nil, errors.Join(err, stand.close())
		}
		door.token = strings.TrimSpace(string(token))
		if err := door.createQueue(); err != nil {
			return nil, errors.Join(err, stand.close())
		}
		if err := dial(door, batch, stand); err != nil {
			return nil, errors.Join(err, stand.close())
		}
		return stand, nil
	}
}

// createQueue creates the queue: consumers may ask before the first message is sent.
func (d daemonDoor) createQueue() error {
	ctx := context.Background()
	backend, err := remotebox.Open(ctx, []string{d.oap}, d.token, nil)
	if err != nil {
		return err
	}
	return errors.Join(backend.ConfigureQueue(ctx, daemonQueue, driver.Config{}), backend.Close())
}

// overOAP lets all workers share one remotebox, as the goroutines of a program do.
// Consumers pull.
func overOAP(door daemonDoor, batch int, stand *daemonStand) error {
	queue, err := dialOAP(door, stand)
	if err != nil {
		return err
	}
	for range daemonWorkers {
		stand.consumers = append(stand.consumers, &oapConsumer{queue: queue, batch: batch})
	}
	return nil
}

// dialOAP connects, and adds the producers.
func dialOAP(door daemonDoor, stand *daemonStand) (driver.Queue, error) {
	ctx := context.Background()
	backend, err := remotebox.Open(ctx, []string{door.oap}, door.token, nil)
	if err != nil {
		return nil, err
	}
	stand.disconnect = backend.Close
	queue, err := backend.OpenQueue(ctx, daemonQueue)
	if err != nil {
		return nil, err
	}
	for range daemonWorkers {
		var out []driver.Outgoing
		stand.producers = append(stand.producers, func(bodies [][]byte) error {
			out = out[:0]
			for _, body := range bodies {
				out = append(out, driver.Outgoing{Body: body})
			}
			_, err := queue.Send(ctx, out)
			return err
		})
	}
	return queue, nil
}

type oapConsumer struct {
	queue    driver.Queue
	batch    int
	bodies   [][]byte
	receipts []driver.Receipt
}

func (c *oapConsumer) receive() ([][]byte, error) {
	got, err := c.queue.Receive(context.Background(), driver.ReceiveRequest{Max: c.batch, Visibility: daemonVisibility, Wait: daemonWait})
	c.bodies, c.receipts = c.bodies[:0], c.receipts[:0]
	for i := range got {
		c.bodies, c.receipts = append(c.bodies, got[i].Body), append(c.receipts, got[i].Receipt)
	}
	return c.bodies, err
}

func (c *oapConsumer) ack() error { return c.queue.Ack(context.Background(), c.receipts) }

// overSubscription lets the daemon push messages to the consumers, as far ahead as NATS
// does.
func overSubscription(door daemonDoor, batch int, stand *daemonStand) error {
	queue, err := dialOAP(door, stand)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	disconnect := stand.disconnect
	stand.disconnect = func() error {
		cancel()
		return disconnect()
	}
	for range daemonWorkers {
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
