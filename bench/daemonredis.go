package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"

	"github.com/mailboxmq/mailbox/redisbox"
)

// startRedisProcess starts Redis, with a log that is synced at each write or with no file
// at all.
func startRedisProcess(dir string, durable bool) (process *daemonProcess, address string, err error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, "", fmt.Errorf("redis-server: %w; make setup-bench installs it", errMissing)
	}
	if address, err = freeAddress(); err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(address)
	arguments := []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--loglevel", "warning"}
	if durable {
		arguments = append(arguments, "--dir", dir, "--appendonly", "yes", "--appendfsync", "always")
	}
	process, err = startDaemon(dir, []string{address}, binary, arguments...)
	return process, address, err
}

// redisStand starts Redis. Messages wait in a list and move to a list of their consumer
// while it has them, which is the least that loses none. Each worker has a connection.
func redisStand(durable bool) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		process, address, err := startRedisProcess(dir, durable)
		if err != nil {
			return nil, err
		}
		stand := &daemonStand{process: process, shape: shape}
		for i := range shape.workers {
			producer, err := dialRedis(address, stand)
			if err != nil {
				return nil, errors.Join(err, stand.close())
			}
			consumer, err := dialRedis(address, stand)
			if err != nil {
				return nil, errors.Join(err, stand.close())
			}
			sending, receiving := shape.rotation(i), shape.rotation(i)
			stand.producers = append(stand.producers, func(bodies [][]byte) error {
				return producer.push(queueName(sending.next(len(bodies))), bodies)
			})
			stand.consumers = append(stand.consumers, &redisConsumer{redisConn: consumer, batch: shape.batch, queues: receiving, own: "own" + strconv.Itoa(i)})
		}
		return stand, nil
	}
}

// redisboxStand starts Redis without a file for redisbox, whose workers share a client as
// the goroutines of a program do.
func redisboxStand(dir string, shape daemonShape) (*daemonStand, error) {
	process, address, err := startRedisProcess(dir, false)
	if err != nil {
		return nil, err
	}
	stand := &daemonStand{process: process, shape: shape}
	client, err := newRueidis(address)
	if err != nil {
		return nil, errors.Join(err, stand.close())
	}
	stand.onDisconnect(func() error {
		client.Close()
		return nil
	})
	backend, err := redisbox.Open(context.Background(), client, nil)
	if err != nil {
		return nil, errors.Join(err, stand.close())
	}
	stand.onDisconnect(backend.Close)
	if err := stand.useQueues(backend); err != nil {
		return nil, errors.Join(err, stand.close())
	}
	return stand, nil
}

// A redisConn is a connection that speaks the protocol of Redis, and does no more.
type redisConn struct {
	out *bufio.Writer
	in  *bufio.Reader
}

func dialRedis(address string, stand *daemonStand) (*redisConn, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	stand.onDisconnect(connection.Close)
	return &redisConn{out: bufio.NewWriterSize(connection, 64<<10), in: bufio.NewReaderSize(connection, 64<<10)}, nil
}

// command writes a command to the buffer.
func (c *redisConn) command(words ...string) {
	c.head('*', len(words))
	for _, word := range words {
		c.head('$', len(word))
		_, _ = c.out.WriteString(word) // Flush returns its error
		_, _ = c.out.WriteString("\r\n")
	}
}

func (c *redisConn) head(kind byte, n int) {
	buffer := append(c.out.AvailableBuffer(), kind)
	_, _ = c.out.Write(append(strconv.AppendInt(buffer, int64(n), 10), '\r', '\n'))
}

// answer reads a text or a number; nil for none.
func (c *redisConn) answer() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], line[1:len(line)-len("\r\n")]
	switch kind {
	case '$', '*':
		size, err := strconv.Atoi(string(text))
		if err != nil || size < 0 {
			return nil, err
		}
		body := make([]byte, size+len("\r\n"))
		_, err = io.ReadFull(c.in, body)
		return body[:size], err
	case '-':
		return nil, errors.New(string(text))
	}
	return text, nil
}

func (c *redisConn) push(queue string, bodies [][]byte) error {
	c.head('*', len(bodies)+2)
	for _, word := range []string{"LPUSH", queue} {
		c.head('$', len(word))
		_, _ = c.out.WriteString(word + "\r\n")
	}
	for _, body := range bodies {
		c.head('$', len(body))
		_, _ = c.out.Write(body)
		_, _ = c.out.WriteString("\r\n")
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	_, err := c.answer()
	return err
}

type redisConsumer struct {
	*redisConn
	batch  int
	queues *rotation
	own    string // the list of the consumer's messages
	bodies [][]byte
}

func (c *redisConsumer) receive() ([][]byte, error) {
	c.bodies = c.bodies[:0]
	queue := queueName(c.queues.current())
	if c.batch > 1 {
		for range c.batch {
			c.command("LMOVE", queue, c.own, "RIGHT", "LEFT")
		}
		if err := c.take(c.batch); err != nil {
			return nil, err
		}
	}
	if len(c.bodies) == 0 {
		c.command("BLMOVE", queue, c.own, "RIGHT", "LEFT", strconv.FormatFloat(daemonWait.Seconds(), 'f', -1, 64))
		if err := c.take(1); err != nil {
			return nil, err
		}
	}
	c.queues.next(len(c.bodies))
	return c.bodies, nil
}

// take sends the commands and reads as many answers.
func (c *redisConsumer) take(answers int) error {
	if err := c.out.Flush(); err != nil {
		return err
	}
	for range answers {
		body, err := c.answer()
		if err != nil {
			return err
		}
		if body != nil {
			c.bodies = append(c.bodies, body)
		}
	}
	return nil
}

// ack removes the messages from the consumer's list, from the end where the oldest is.
func (c *redisConsumer) ack() error {
	for _, body := range c.bodies {
		c.command("LREM", c.own, "-1", string(body))
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	for range c.bodies {
		removed, err := c.answer()
		if err != nil {
			return err
		}
		if string(removed) != "1" {
			return errors.New("there was nothing to remove")
		}
	}
	return nil
}
