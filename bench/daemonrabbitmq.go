package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rabbitmqServer is the script that starts RabbitMQ as the user that calls it. The one that
// Debian has on the PATH starts it as another user.
func rabbitmqServer() (string, error) {
	if binary := os.Getenv("MAILBOX_RABBITMQ_SERVER"); binary != "" {
		return exec.LookPath(binary)
	}
	found, _ := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
	if len(found) == 0 {
		return "", fmt.Errorf("rabbitmq-server: %w; make setup-bench installs it", errMissing)
	}
	return slices.Max(found), nil
}

// rabbitmqStand starts RabbitMQ with a quorum queue, which is synced to the disk before a
// message is confirmed. Its protocol does not confirm acks. Each worker has a connection.
func rabbitmqStand(dir string, shape daemonShape) (*daemonStand, error) {
	binary, err := rabbitmqServer()
	if err != nil {
		return nil, err
	}
	var addresses [3]string // of clients, of other nodes, of the port mapper
	for i := range addresses {
		if addresses[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	port := func(i int) string {
		_, port, _ := net.SplitHostPort(addresses[i])
		return port
	}
	// Without its port mapper, RabbitMQ starts one that does not end with it.
	mapper, err := startDaemon(filepath.Join(dir, "epmd"), addresses[2:], "epmd", "-address", "127.0.0.1", "-port", port(2))
	if err != nil {
		return nil, err
	}
	process, err := startDaemonWith(dir, addresses[:1], []string{
		"HOME=" + dir, "RABBITMQ_ALLOW_INPUT=1", "RABBITMQ_SERVER_START_ARGS=-noinput", "RABBITMQ_NODENAME=bench@localhost", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + port(0), "RABBITMQ_DIST_PORT=" + port(1), "ERL_EPMD_PORT=" + port(2), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_MNESIA_BASE=" + dir, "RABBITMQ_LOG_BASE=" + dir, "RABBITMQ_LOGS=-", "RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "plugins"),
		"RABBITMQ_PID_FILE=" + filepath.Join(dir, "pid"), "RABBITMQ_CONFIG_FILES=" + dir,
	}, binary)
	if err != nil {
		return nil, errors.Join(err, mapper.stop())
	}
	stand := &daemonStand{process: process, shape: shape}
	stand.onDisconnect(mapper.stop)
	if err := stand.dialRabbitMQ("amqp://guest:guest@" + addresses[0]); err != nil {
		return nil, errors.Join(err, stand.close())
	}
	return stand, nil
}

func (s *daemonStand) dialRabbitMQ(url string) error {
	first, err := s.openChannel(url)
	if err != nil {
		return err
	}
	if _, err := first.QueueDeclare(daemonQueue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return err
	}
	for range s.shape.workers {
		producer, err := s.openChannel(url)
		if err != nil {
			return err
		}
		if err := producer.Confirm(false); err != nil {
			return err
		}
		s.producers = append(s.producers, func(bodies [][]byte) error { return rabbitmqSend(producer, bodies) })
		consumer, err := s.openChannel(url)
		if err != nil {
			return err
		}
		if err := consumer.Qos(daemonAhead*s.shape.batch, 0, false); err != nil {
			return err
		}
		deliveries, err := consumer.Consume(daemonQueue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		s.consumers = append(s.consumers, &rabbitmqConsumer{deliveries: deliveries, batch: s.shape.batch})
	}
	return nil
}

func (s *daemonStand) openChannel(url string) (*amqp.Channel, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	s.onDisconnect(connection.Close)
	return connection.Channel()
}

// rabbitmqSend publishes all, and then waits for all confirmations.
func rabbitmqSend(channel *amqp.Channel, bodies [][]byte) error {
	ctx := context.Background()
	confirmations := make([]*amqp.DeferredConfirmation, len(bodies))
	for i, body := range bodies {
		var err error
		confirmations[i], err = channel.PublishWithDeferredConfirm("", daemonQueue, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			return err
		}
	}
	for _, confirmation := range confirmations {
		confirmed, err := confirmation.WaitContext(ctx)
		if err != nil {
			return err
		}
		if !confirmed {
			return errors.New("a message was refused")
		}
	}
	return nil
}

type rabbitmqConsumer struct {
	deliveries <-chan amqp.Delivery
	batch      int
	last       amqp.Delivery
	bodies     [][]byte
}

func (c *rabbitmqConsumer) receive() ([][]byte, error) {
	c.bodies = c.bodies[:0]
	timer := time.NewTimer(daemonWait)
	defer timer.Stop()
	select {
	case d, open := <-c.deliveries:
		if !open {
			return nil, amqp.ErrClosed
		}
		c.take(d)
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

func (c *rabbitmqConsumer) take(d amqp.Delivery) { c.last, c.bodies = d, append(c.bodies, d.Body) }

// ack settles the last delivery and all before it.
func (c *rabbitmqConsumer) ack() error { return c.last.Ack(true) }
