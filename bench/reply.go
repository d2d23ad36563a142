package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/dispatch"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

// replySuite compares requests with answers, in memory and on disk, with the
// least they could cost: the same goroutines, and a channel each way. It also
// measures the cost of finding a mailbox, and of publishing an event.
func replySuite(r *report) {
	if err := errors.Join(r.calls(), r.callLatencies()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r.resolving()
	r.dispatching()
}

// callShare is the target for a call in memory as a part of the rate of two channels: a
// tenth.
const callShare = 0.1

func (r *report) calls() error {
	for _, callers := range []int{1, 16} {
		loads := []load{
			{name: "two channels", open: channelPair(callers)},
			{name: "Call in memory", atLeast: callShare, open: memoryCalls(callers, mailbox.Bytes(), make([]byte, bodyBytes))},
			{name: "Call in memory, JSON", open: memoryCalls(callers, mailbox.JSON[order](), order{ID: 7, Item: "tea"})},
			{name: "Call, requests on disk", open: diskCalls(callers)},
		}
		paces, err := r.race(loads, callers, 1)
		if err != nil {
			return err
		}
		r.show(fmt.Sprintf("request and answer of %d bytes, callers and workers: %d each", bodyBytes, callers), loads, paces)
	}
	return nil
}

type order struct {
	ID   int    `json:"id"`
	Item string `json:"item"`
}

func (r *report) callLatencies() error {
	loads := []load{
		{name: "two channels", open: channelPair(1)},
		{name: "Call in memory", open: memoryCalls(1, mailbox.Bytes(), make([]byte, bodyBytes))},
		{name: "Call, requests on disk", open: diskCalls(1)},
	}
	return r.latencies("request and answer, one caller and one worker", loads, nil)
}

// channelPair is a worker for each caller, with one channel for all requests and
// one for the answers to each caller.
func channelPair(workers int) func(string) (*target, error) {
	type request struct {
		body    []byte
		answers chan []byte
	}
	return func(string) (*target, error) {
		requests := make(chan request)
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for request := range requests {
					request.answers <- request.body
				}
			})
		}
		body := make([]byte, bodyBytes)
		return &target{
			newCaller: func() func() error {
				answers := make(chan []byte)
				return func() error {
					requests <- request{body, answers}
					<-answers
					return nil
				}
			},
			close: func() error { close(requests); group.Wait(); return nil },
		}, nil
	}
}

func memoryCalls[T any](workers int, codec mailbox.Codec[T], body T) func(string) (*target, error) {
	return func(string) (*target, error) {
		backend := membox.New(nil)
		return callsOn(backend, backend.Close, workers, codec, body)
	}
}

func diskCalls(workers int) func(string) (*target, error) {
	return func(path string) (*target, error) {
		backend, err := diskbox.Open(context.Background(), path, nil)
		if err != nil {
			return nil, err
		}
		return callsOn(backend, backend.Close, workers, mailbox.Bytes(), make([]byte, bodyBytes))
	}
}

// callsOn is a client and workers that echo, on a backend, with answers in
// memory.
func callsOn[T any](backend driver.Opener, shut func() error, workers int, codec mailbox.Codec[T], body T) (*target, error) {
	ctx, cancel := context.WithCancel(context.Background())
	store := reply.NewMemory(nil)
	requests, err := mailbox.Open(ctx, backend, "requests", &mailbox.Options[T]{Codec: codec, Replies: store})
	if err != nil {
		cancel()
		return nil, err
	}
	handle := reply.Handle(func(_ context.Context, m *mailbox.Message[T]) (T, error) { return m.Body, nil },
		&reply.HandleOptions[T]{Codec: codec})
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for message, err := range requests.Messages(ctx) {
				if err == nil {
					_ = handle(ctx, message) // the caller would get an error, or wait in vain
				}
			}
		})
	}
	client := reply.NewClient(requests, store, &reply.Options[T]{Codec: codec})
	return &target{
		newCaller: func() func() error {
			return func() error {
				_, err := client.Call(ctx, body)
				return err
			}
		},
		close: func() error {
			cancel()
			group.Wait()
			if left := store.(interface{ Len() int }).Len(); left > 0 {
				return fmt.Errorf("%d slots are left", left)
			}
			return shut()
		},
	}, nil
}

// resolving measures the cost of finding a mailbox by its name.
func (r *report) resolving() {
	ctx := context.Background()
	const cacheMax = 1024
	resolve := func(queues *registry.Registry, name func(i int) string) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				queue, err := queues.Resolve(ctx, name(i))
				if err != nil {
					b.Fatal(err)
				}
				_ = queue.Close() // a handle holds nothing open
			}
		}
	}
	always := func(name string) func(int) string { return func(int) string { return name } }
	names := make([]string, 16*cacheMax)
	for i := range names {
		names[i] = fmt.Sprint("client-", i)
	}
	queues := registry.New(&registry.Options{Fallback: mailboxtest.Null{}, CacheMax: cacheMax})
	queue, err := mailboxtest.Null{}.OpenQueue(ctx, "registered")
	if err == nil {
		err = queues.Register("registered", queue)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	table := map[string]bool{"registered": true}
	var mu sync.Mutex // guards table
	r.compare("finding a mailbox", []contender{
		{name: "map and mutex", run: func(b *testing.B) {
			for range b.N {
				mu.Lock()
				found := table["registered"]
				mu.Unlock()
				if !found {
					b.Fatal("not found")
				}
			}
		}},
		{name: "registered", ours: true, run: resolve(queues, always("registered"))},
		{name: "cached", run: resolve(queues, always("cached"))},
		{name: "cached, 512 names", run: resolve(queues, func(i int) string { return names[i%512] })},
		{name: "opened and evicted", run: resolve(queues, func(i int) string { return names[i%len(names)] })},
	})
}

// dispatching measures the cost of publishing an event.
func (r *report) dispatching() {
	type event struct{ at time.Time }
	publish := func(subscribers int) func(*testing.B) {
		return func(b *testing.B) {
			var dispatcher dispatch.Dispatcher
			told := 0
			for range subscribers {
				dispatch.Subscribe(&dispatcher, func(context.Context, event) error { told++; return nil })
			}
			ctx := context.Background()
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := dispatch.Publish(ctx, &dispatcher, event{}); err != nil {
					b.Fatal(err)
				}
			}
			if told != b.N*subscribers {
				b.Fatalf("told %d times", told)
			}
		}
	}
	r.compare("telling of an event", []contender{
		{name: "function call", run: func(b *testing.B) {
			told := 0
			tell := func(context.Context, event) error { told++; return nil }
			for range b.N {
				if err := tell(context.Background(), event{}); err != nil {
					b.Fatal(err)
				}
			}
		}},
		{name: "no subscriber", ours: true, run: publish(0)},
		{name: "1 subscriber", run: publish(1)},
		{name: "8 subscribers", run: publish(8)},
	})
}
