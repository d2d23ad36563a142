package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsStand starts a NATS server with one stream that is a work queue, kept in a
// file that is synced at each write or in memory. Consumers pull, and the server
// sends some messages ahead; every publication and every ack is confirmed. Each worker has
// a connection. The server is built, in the version that this module requires.
func natsStand(binaries string, durable bool) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		binary, err := buildServer(".", filepath.Join(binaries, "nats-server"), "github.com/nats-io/nats-server/v2")
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		settings := filepath.Join(dir, "settings")
		text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, sync_interval: always }\n", address, filepath.Join(dir, "streams"))
		if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
			return nil, err
		}
		process, err := startDaemon(dir, []string{address}, binary, "-c", settings)
		if err != nil {
			return nil, err
		}
		stand := &daemonStand{process: process, shape: shape}
		if err := stand.dialNATS(address, durable); err != nil {
			return nil, errors.Join(err, stand.close())
		}
		return stand, nil
	}
}

func (s *daemonStand) dialNATS(address string, durable bool) error {
	ctx := context.Background()
	first, err := s.connectNATS(address)
	if err != nil {
		return err
	}
	storage := jetstream.MemoryStorage
	if durable {
		storage = jetstream.FileStorage
	}
	if _, err := first.CreateStream(ctx, jetstream.StreamConfig{
		Name: daemonQueue, Subjects: []string{daemonQueue}, Retention: jetstream.WorkQueuePolicy, Storage: storage,
	}); err != nil {
		return err
	}
	if _, err := first.CreateConsumer(ctx, daemonQueue, jetstream.ConsumerConfig{
		Durable: daemonQueue, AckPolicy: jetstream.AckExplicitPolicy, AckWait: daemonVisibility,
	}); err != nil {
		return err
	}
	for range s.shape.workers {
		producer, err := s.connectNATS(address)
		if err != nil {
			return err
		}
		s.producers = append(s.producers, natsProducer(producer))
		own, err := s.connectNATS(address)
		if err != nil {
			return err
		}
		consumer, err := own.Consumer(ctx, daemonQueue, daemonQueue)
		if err != nil {
			return err
		}
		messages, err := consumer.Messages(jetstream.PullMaxMessages(daemonAhead * s.shape.batch))
		if err != nil {
			return err
		}
		s.consumers = append(s.consumers, &natsConsumer{messages: messages, batch: s.shape.batch})
	}
	return nil
}

func (s *daemonStand) connectNATS(address string) (jetstream.JetStream, error) {
	connection, err := nats.Connect("nats://" + address)
	if err != nil {
		return nil, err
	}
	s.onDisconnect(func() error {
		connection.Close()
		return nil
	})
	return jetstream.New(connection)
}

// natsProducer publishes one message and waits, or a batch and then waits for all.
func natsProducer(stream jetstream.JetStream) func([][]byte) error {
	ctx := context.Background()
	return func(bodies [][]byte) error {
		if len(bodies) == 1 {
			_, err := stream.Publish(ctx, daemonQueue, bodies[0])
			return err
		}
		confirmations := make([]jetstream.PubAckFuture, len(bodies))
		for i, body := range bodies {
			var err error
			if confirmations[i], err = stream.PublishAsync(daemonQueue, body); err != nil {
				return err
			}
		}
		for _, confirmation := range confirmations {
			select {
			case <-confirmation.Ok():
			case err := <-confirmation.Err():
				return err
			}
		}
		return nil
	}
}

type natsConsumer struct {
	messages jetstream.MessagesContext
	batch    int
	got      []jetstream.Msg
}

func (c *natsConsumer) receive() ([][]byte, error) {
	c.got = c.got[:0]
	var bodies [][]byte
	for wait := daemonWait; len(c.got) < c.batch; wait = time.Microsecond { // what has come already
		message, err := c.messages.Next(jetstream.NextMaxWait(wait))
		if errors.Is(err, nats.ErrTimeout) {
			break
		}
		if err != nil {
			return nil, err
		}
		c.got, bodies = append(c.got, message), append(bodies, message.Data())
	}
	return bodies, nil
}

func (c *natsConsumer) ack() error {
	if len(c.got) == 1 {
		return c.got[0].DoubleAck(context.Background())
	}
	errs := make(chan error, len(c.got))
	for _, message := range c.got {
		go func() { errs <- message.DoubleAck(context.Background()) }()
	}
	var err error
	for range c.got {
		err = errors.Join(err, <-errs)
	}
	return err
}
