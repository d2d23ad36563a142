package redisbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/registry"
	"github.com/mailboxmq/mailbox/reply"
)

// aloneVariable makes the test process run a single test.
const aloneVariable = "MAILBOX_REDIS_TEST_ALONE"

// TestManyReplyAddressesInRedisCostBoundedMemory answers requests that name 10,000 queues
// for their answers, through one resolver, and 2,000 that name slots, and logs the cost.
// It runs in a process of its own, so that no other test affects the figures.
func TestManyReplyAddressesInRedisCostBoundedMemory(t *testing.T) {
	volume.Measures(t)
	if os.Getenv(aloneVariable) != "" {
		answerManyAddresses(t)
		return
	}
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), aloneVariable+"=1")
	out, err := command.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func answerManyAddresses(t *testing.T) {
	const addresses, workers, cached = 10_000, 8, 100
	server := redistest.Standalone(t)
	backend := openBackend(t, server.ClientOption(), nil)
	queues := registry.New(&registry.Options{Fallback: backend, CacheMax: cached})
	defer queues.Close()
	store := backend.Replies(0)
	requests, err := mailbox.Open(t.Context(), backend, "requests", &mailbox.Options[int]{Resolver: queues, Replies: store})
	if err != nil {
		t.Fatal(err)
	}
	handle := reply.Handle(func(_ context.Context, m *mailbox.Message[int]) (int, error) { return m.Body, nil }, nil)
	client := reply.NewClient(requests, store, &reply.Options[int]{Keep: true})
	serve := func(ctx context.Context) error {
		messages, err := requests.Receive(ctx, mailbox.WithVisibility(time.Minute))
		if err != nil || len(messages) == 0 {
			return errors.Join(err, fmt.Errorf("%d requests to serve", len(messages)))
		}
		return handle(ctx, messages[0])
	}
	for _, kind := range []struct {
		name      string
		addresses int
		ask       func(ctx context.Context, i int) error
	}{
		{"mailboxes", addresses, func(ctx context.Context, i int) error {
			_, err := requests.Send(ctx, i, mailbox.WithReplyTo("client-"+strconv.Itoa(i)))
			return err
		}},
		{"slots", addresses / 5, func(ctx context.Context, i int) error {
			_, err := client.Send(ctx, i)
			return err
		}},
	} {
		all := func(from, to int) {
			var group sync.WaitGroup
			for w := range workers {
				group.Go(func() {
					for i := from + w; i < to; i += workers {
						if err := errors.Join(kind.ask(t.Context(), i), serve(t.Context())); err != nil {
							t.Errorf("%s, %d: %v", kind.name, i, err)
							return
						}
					}
				})
			}
			group.Wait()
		}
		all(0, cached*2) // fills the caches
		before, reserve := measure(t, server), queues.Stats()
		all(cached*2, kind.addresses)
		after := measure(t, server)
		t.Logf("%d %s: before %v; after %v; %d queues open in the resolver", kind.addresses, kind.name, before, after, queues.Stats().Cached)
		if after.goroutines > before.goroutines+2*workers || after.connections > before.connections {
			t.Errorf("%s: from %v to %v", kind.name, before, after)
		}
		if grown := after.heap - before.heap; grown > 4<<20 {
			t.Errorf("%s: the heap grew by %d KiB", kind.name, grown>>10)
		}
		if stats := queues.Stats(); stats.Cached > cached || stats.InUse != reserve.InUse {
			t.Errorf("%s: the resolver holds %+v", kind.name, stats)
		}
	}
	expectAnswers(t, backend, addresses)
}

// expectAnswers checks a sample of the queues: each has its own answer.
func expectAnswers(t *testing.T, backend *redisbox.Backend, addresses int) {
	t.Helper()
	for i := 0; i < addresses; i += addresses / 50 {
		answers, err := mailbox.Open[int](t.Context(), backend, "client-"+strconv.Itoa(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := answers.Receive(t.Context(), mailbox.WithMax(10))
		if err != nil || len(got) != 1 || got[0].Body != i {
			t.Fatalf("client %d: got %d answers, %v", i, len(got), err)
		}
		if err := answers.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A measurement is the resource use of this process and its server.
type measurement struct {
	goroutines, connections int
	heap                    int64 // bytes in use
	server                  int64 // bytes that the server uses
}

func (m measurement) String() string {
	return fmt.Sprintf("%d goroutines, %d connections, a heap of %d KiB here and %d KiB in the server",
		m.goroutines, m.connections, m.heap>>10, m.server>>10)
}

func measure(t *testing.T, server *redistest.Server) measurement {
	t.Helper()
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m := measurement{goroutines: runtime.NumGoroutine(), heap: int64(stats.HeapAlloc)}
	for section, number := range map[string]func(info map[string]string) error{
		"clients": func(info map[string]string) (err error) {
			m.connections, err = strconv.Atoi(info["connected_clients"])
			return err
		},
		"memory": func(info map[string]string) (err error) {
			m.server, err = strconv.ParseInt(strings.TrimSpace(info["used_memory"]), 10, 64)
			return err
		},
	} {
		info, err := server.Info(t.Context(), section)
		if err == nil {
			err = number(info)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}
