package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"

	"github.com/redis/rueidis"
)

// redisStand starts Redis, with a log that is synced at each write or with no file
// at all. Messages wait in one list and move to a list of their consumer while it has
// them, which is the least that loses none. All workers share a client, which pipelines
// concurrent commands; blocking commands have connections of their own.
func redisStand(durable bool) func(string, int) (*daemonStand, error) {
	return func(dir string, batch int) (*daemonStand, error) {
		binary, err := exec.LookPath("redis-server")
		if err != nil {
			return nil, fmt.Errorf("the daemon suite needs redis-server: use make bench, or run tools/redis.sh once, which installs it (%w)", err)
		}
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(address)
		arguments := []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--loglevel", "warning"}
		if durable {
			arguments = append(arguments, "--dir", dir, "--appendonly", "yes", "--appendfsync", "always")
		}
		process, err := startDaemon(dir, []string{address}, binary, arguments...)
		if err != nil {
			return nil, err
		}
		stand := &daemonStand{process: process}
		client, err := newRueidis(address)
		if err != nil {
			return nil, errors.Join(err, stand.close())
		}
		stand.disconnect = func() error {
			client.Close()
			return nil
		}
		for i := range daemonWorkers {
			stand.producers = append(stand.producers, func(bodies [][]byte) error {
				push := client.B().Lpush().Key(daemonQueue).Element()
				for _, body := range bodies {
					push = push.Element(rueidis.BinaryString(body))
				}
				return client.Do(context.Background(), push.Build()).Error()
			})
			stand.consumers = append(stand.consumers, &redisConsumer{client: client, batch: batch, own: daemonQueue + strconv.Itoa(i)})
		}
		return stand, nil
	}
}

type redisConsumer struct {
	client rueidis.Client
	batch  int
	own    string // the list of the consumer's messages
	texts  []string
}

func (c *redisConsumer) receive() ([][]byte, error) {
	ctx := context.Background()
	c.texts = c.texts[:0]
	if c.batch > 1 {
		moves := make(rueidis.Commands, c.batch)
		for i := range moves {
			moves[i] = c.client.B().Lmove().Source(daemonQueue).Destination(c.own).Right().Left().Build()
		}
		for _, result := range c.client.DoMulti(ctx, moves...) {
			if err := c.take(result); err != nil {
				return nil, err
			}
		}
	}
	if len(c.texts) == 0 {
		move := c.client.B().Blmove().Source(daemonQueue).Destination(c.own).Right().Left().Timeout(daemonWait.Seconds()).Build()
		if err := c.take(c.client.Do(ctx, move)); err != nil {
			return nil, err
		}
	}
	bodies := make([][]byte, len(c.texts))
	for i, text := range c.texts {
		bodies[i] = []byte(text)
	}
	return bodies, nil
}

func (c *redisConsumer) take(result rueidis.RedisResult) error {
	text, err := result.ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return nil
	case err != nil:
		return err
	}
	c.texts = append(c.texts, text)
	return nil
}

func (c *redisConsumer) ack() error {
	removals := make(rueidis.Commands, len(c.texts))
	for i, text := range c.texts {
		removals[i] = c.client.B().Lrem().Key(c.own).Count(1).Element(text).Build()
	}
	for _, result := range c.client.DoMulti(context.Background(), removals...) {
		removed, err := result.AsInt64()
		if err != nil {
			return err
		}
		if removed != 1 {
			return errors.New("there was nothing to remove")
		}
	}
	return nil
}
