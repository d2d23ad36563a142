package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

const (
	wakeupSends  = 5_000
	wakeupPeriod = time.Second / 500
	wakeupTurns  = 10 // each contender sends a part of them in each
	mostBehind   = 2 * time.Millisecond
	idleFor      = 5 * time.Second
)

// A sleeper is a receiver that a message wakes.
type sleeper struct {
	name string
	send func(ctx context.Context, body []byte) error
	// wait returns the next message as soon as it arrives.
	wait  func(ctx context.Context) (body []byte, err error)
	close func()

	turns [][]time.Duration // how long it took, sorted
}

// wakeups compares how long it takes from a send until a receiver that waits has
// the message with what a bare blocking command takes.
func (r *report) wakeups() (err error) {
	server, err := startRedis(r.dir)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, server.close()) }()
	bare, err := newBareSleeper(server.addr)
	if err != nil {
		return err
	}
	defer bare.close()
	ours, err := newRedisboxSleeper(server.addr)
	if err != nil {
		return err
	}
	defer ours.close()
	for range wakeupTurns {
		for _, s := range []*sleeper{bare, ours} {
			if err := s.measure(wakeupSends / wakeupTurns); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	showWakeups(bare, ours)
	return showIdle(server)
}

// measure sends n messages at a steady pace to a receiver that waits.
func (s *sleeper) measure(n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	delays := make([]time.Duration, 0, n)
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for range n {
			body, err := s.wait(ctx)
			if err != nil {
				failed <- err
				return
			}
			delays = append(delays, time.Since(start)-time.Duration(binary.BigEndian.Uint64(body)))
		}
	}()
	ticker := time.NewTicker(wakeupPeriod)
	defer ticker.Stop()
	for range n {
		<-ticker.C
		if err := s.send(ctx, binary.BigEndian.AppendUint64(nil, uint64(time.Since(start)))); err != nil {
			return err
		}
	}
	err := <-failed
	slices.Sort(delays)
	s.turns = append(s.turns, delays)
	return err
}

// newBareSleeper is a list and BLPOP.
func newBareSleeper(addr string) (*sleeper, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return nil, err
	}
	waiting, giveUp := client.Dedicate()
	return &sleeper{
		name: "BLPOP",
		send: func(ctx context.Context, body []byte) error {
			return client.Do(ctx, client.B().Rpush().Key("bare").Element(string(body)).Build()).Error()
		},
		wait: func(ctx context.Context) ([]byte, error) {
			got, err := waiting.Do(ctx, waiting.B().Blpop().Key("bare").Timeout(0).Build()).AsStrSlice()
			if err != nil {
				return nil, err
			}
			return []byte(got[1]), nil
		},
		close: func() { giveUp(); client.Close() },
	}, nil
}

// newRedisboxSleeper is a queue of ours and a long poll. Sender and receiver are
// like two processes: they share only the server. Messages are acked while the receiver
// waits for the next.
func newRedisboxSleeper(addr string) (*sleeper, error) {
	var closers []func()
	done := func() {
		for _, f := range slices.Backward(closers) {
			f()
		}
	}
	var queues []driver.Queue
	for range 2 {
		client, err := newRueidis(addr)
		if err != nil {
			done()
			return nil, err
		}
		closers = append(closers, client.Close)
		q, closeBackend, err := openRedisQueue(client)
		if err != nil {
			done()
			return nil, err
		}
		closers = append(closers, func() { _ = closeBackend() })
		queues = append(queues, q)
	}
	there, here := queues[0], queues[1]
	acks := make(chan driver.Receipt, wakeupSends)
	acked := make(chan struct{})
	go func() {
		defer close(acked)
		for receipt := range acks {
			_ = here.Ack(context.Background(), []driver.Receipt{receipt}) // not part of the measurement
		}
	}()
	return &sleeper{
		name: "redisbox",
		send: func(ctx context.Context, body []byte) error {
			_, err := there.Send(ctx, []driver.Outgoing{{Body: body}})
			return err
		},
		wait: func(ctx context.Context) ([]byte, error) {
			got, err := here.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Minute})
			if err != nil {
				return nil, err
			}
			if len(got) == 0 {
				return nil, errors.New("nothing came")
			}
			acks <- got[0].Receipt
			return got[0].Body, nil
		},
		close: func() {
			close(acks)
			<-acked
			done()
		},
	}, nil
}

func showWakeups(bare, ours *sleeper) {
	fmt.Printf("\nfrom a send until a receiver that waits has it: %d sends, %d a second\n", wakeupSends, time.Second/wakeupPeriod)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tp50 µs\tp90\tp99\tmost")
	for _, s := range []*sleeper{bare, ours} {
		all := slices.Sorted(slices.Values(slices.Concat(s.turns...)))
		fmt.Fprintf(table, "  %s\t%d\t%d\t%d\t%d\n", s.name,
			at(all, 0.5).Microseconds(), at(all, 0.9).Microseconds(), at(all, 0.99).Microseconds(), at(all, 1).Microseconds())
	}
	_ = table.Flush()
	// A slow spell of the machine hits a turn or two, and does not decide.
	behind := make([]float64, len(ours.turns))
	for i, turn := range ours.turns {
		behind[i] = float64(at(turn, 0.99) - at(bare.turns[i], 0.99))
	}
	late := time.Duration(median(behind))
	fmt.Printf("  p99 is %v behind %s; promised at most %v: %s\n", late.Round(time.Microsecond), bare.name, mostBehind, kept(late <= mostBehind))
}

// at returns a quantile of sorted delays.
func at(delays []time.Duration, quantile float64) time.Duration {
	return delays[int(quantile*float64(len(delays)-1))]
}

// showIdle counts the commands of a receiver that waits without messages.
func showIdle(server *redisServer) error {
	client, err := newRueidis(server.addr)
	if err != nil {
		return err
	}
	defer client.Close()
	q, closeBackend, err := openRedisQueue(client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = q.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: time.Hour}) // until it is cancelled
	}()
	time.Sleep(idleFor / 5) // until it waits
	before, err := server.traffic()
	if err != nil {
		return err
	}
	time.Sleep(idleFor)
	after, err := server.traffic()
	asked := after.reads - before.reads - 1 // the question itself
	fmt.Printf("  while it waits in vain it asks the server %d times in %v; promised less than once a second: %s\n",
		asked, idleFor, kept(float64(asked) < idleFor.Seconds()))
	cancel()
	<-waited
	return errors.Join(err, closeBackend())
}
