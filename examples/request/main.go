// Request sends and serves requests for the prime factors of a number: two processes
// that share only a Redis server.
//
//	go run ./examples/request -serve
//	go run ./examples/request 600851475143
//
// The client prints the id of the request first. If it crashes before the answer
// arrives, another process gets the answer by that id:
//
//	go run ./examples/request -id 01KA…
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/reply"
)

// answersLast is the time for a request and for reading its answer.
const answersLast = 10 * time.Minute

// settings are the flags.
type settings struct {
	redis  string
	serve  bool
	id     string // of a request that was sent before
	number uint64 // to ask for, without an id
}

func main() {
	var s settings
	flag.StringVar(&s.redis, "redis", "127.0.0.1:6379", "the address of the Redis server")
	flag.BoolVar(&s.serve, "serve", false, "answer requests until interrupted")
	flag.StringVar(&s.id, "id", "", "wait for the answer to this request, which was sent before")
	flag.Parse()
	var err error
	if !s.serve && s.id == "" {
		if s.number, err = strconv.ParseUint(flag.Arg(0), 10, 64); err != nil {
			err = fmt.Errorf("%q is not a number to ask for", flag.Arg(0))
		}
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		err = run(ctx, s, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "request:", err)
		os.Exit(1)
	}
}

// run connects to the server, and sends or serves requests.
func run(ctx context.Context, s settings, out io.Writer) (err error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.redis}})
	if err != nil {
		return err
	}
	defer client.Close()
	backend, err := redisbox.Open(ctx, client, &redisbox.Options{Prefix: "factors:"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	store := backend.Replies(0)
	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[uint64]{Replies: store})
	if err != nil {
		return err
	}
	if s.serve {
		return serve(ctx, requests, out)
	}
	// Keep leaves the answer in the store, for a process that crashes before it has
	// printed it.
	return ask(ctx, reply.NewClient(requests, store, &reply.Options[[]uint64]{TTL: answersLast, Keep: true}), s, out)
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, requests *mailbox.Mailbox[uint64], out io.Writer) error {
	handle := reply.Handle(func(_ context.Context, request *mailbox.Message[uint64]) ([]uint64, error) {
		_, err := fmt.Fprintf(out, "asked for %d\n", request.Body)
		return factors(request.Body), err
	}, nil)
	for request, err := range requests.Messages(ctx, mailbox.WithVisibility(time.Minute)) {
		if err == nil {
			err = handle(ctx, request) // answers, then acks; a failed request comes back after a minute
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil // interrupted
}

// ask sends a request, or finds an earlier one, and waits for the answer.
func ask(ctx context.Context, client *reply.Client[uint64, []uint64], s settings, out io.Writer) error {
	future := client.Future(s.id)
	if s.id == "" {
		sent, err := client.Send(ctx, s.number)
		if err != nil {
			return err
		}
		future = sent
		if _, err := fmt.Fprintln(out, "request", future.ID()); err != nil {
			return err
		}
	}
	answer, err := future.Wait(ctx)
	if err == nil {
		_, err = fmt.Fprintln(out, "factors", answer)
	}
	return err
}

// factors returns the prime factors of n, the smallest first.
func factors(n uint64) []uint64 {
	var all []uint64
	for p := uint64(2); p <= n/p; p++ {
		for n%p == 0 {
			all = append(all, p)
			n /= p
		}
	}
	if n > 1 {
		all = append(all, n)
	}
	return all
}
