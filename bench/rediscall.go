package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/redisbox"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/reply"
)

// redisCalls compares a request and its answer over Redis with the minimum: a list for
// requests, and one for the answers to each caller.
func (r *report) redisCalls() (err error) {
	server, err := startRedis(r.dir)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, server.close()) }()
	binary := r.mailboxd
	if binary == "" {
		binaries, err := os.MkdirTemp("", "mailbox-bench-bin-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(binaries) }()
		if binary, err = buildMailboxd(binaries); err != nil {
			return err
		}
	}
	loads := []load{
		{name: "LPUSH and BLPOP", open: func(string) (*target, error) { return bareCalls(server.addr) }},
		{name: "Call over redisbox", open: func(string) (*target, error) { return redisboxCalls(server.addr) }},
		{name: "Call through mailboxd", open: func(dir string) (*target, error) { return mailboxdCalls(server.addr, binary, dir) }},
	}
	err = r.latencies("request and answer over Redis, one caller and one worker", loads, map[string]promise{
		"Call over redisbox":    {middle: 3, slow: 3},
		"Call through mailboxd": {middle: 3, slow: 3},
	})
	return cmp.Or(err, r.countCommands(server.addr, loads))
}

// countCommands prints how many commands of clients the server runs for a call. A script is one; what it
// runs is not counted.
func (r *report) countCommands(addr string, loads []load) error {
	client, err := newRueidis(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	fmt.Println("\ncommands of a call")
	for _, l := range loads {
		counts, err := commandsOfCall(client, l, filepath.Join(r.dir, "mailbox-bench-commands"))
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		fmt.Printf("  %s:%s\n", l.name, counts)
	}
	return nil
}

// commandsOfCall runs calls and returns the commands that each took.
func commandsOfCall(client rueidis.Client, l load, dir string) (text string, err error) {
	defer func() { _ = os.RemoveAll(dir) }()
	target, err := l.open(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = cmp.Or(err, target.close()) }()
	const calls = 500
	call := target.newCaller()
	run := func() error {
		for range calls {
			if err := call(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := run(); err != nil { // to warm up
		return "", err
	}
	before, err := commandCounts(client)
	if err != nil {
		return "", err
	}
	if err := run(); err != nil {
		return "", err
	}
	after, err := commandCounts(client)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if each := float64(after[name]-before[name]) / calls; each >= 0.01 {
			text += fmt.Sprintf(" %s %.2f", name, each)
		}
	}
	return text, nil
}

// commandCounts returns how often each command ran since the server started.
func commandCounts(client rueidis.Client) (map[string]int, error) {
	info, err := client.Do(context.Background(), client.B().Info().Section("commandstats").Build()).ToString()
	counts := make(map[string]int)
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		number, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.Atoi(number); err == nil {
			counts[name] = n
		}
	}
	return counts, err
}

// bareCalls is a worker that echoes what it pops.
func bareCalls(addr string) (*target, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		worker, giveUp := client.Dedicate()
		defer giveUp()
		for ctx.Err() == nil {
			got, err := worker.Do(ctx, worker.B().Blpop().Key("requests").Timeout(0).Build()).AsStrSlice()
			if err != nil {
				return
			}
			key, body := got[1][:answerKeyBytes], got[1][answerKeyBytes:]
			_ = client.Do(ctx, client.B().Lpush().Key(key).Element(body).Build()).Error() // the caller would wait in vain
		}
	})
	var last atomic.Int64
	var giveUps []func()
	return &target{
		newCaller: func() func() error {
			own, giveUp := client.Dedicate()
			giveUps = append(giveUps, giveUp)
			return bareCaller(ctx, own, answerKey(int(last.Add(1))))
		},
		close: func() error {
			cancel()
			group.Wait()
			for _, giveUp := range giveUps {
				giveUp()
			}
			client.Close()
			return nil
		},
	}, nil
}

const answerKeyBytes = 16

func answerKey(n int) string { return fmt.Sprintf("answers-%08d", n) }

func bareCaller(ctx context.Context, client rueidis.DedicatedClient, answers string) func() error {
	request := answers + string(make([]byte, bodyBytes))
	return func() error {
		if err := client.Do(ctx, client.B().Lpush().Key("requests").Element(request).Build()).Error(); err != nil {
			return err
		}
		return client.Do(ctx, client.B().Blpop().Key(answers).Timeout(0).Build()).Error()
	}
}

// redisboxCalls is a client and a worker that echoes, each with connections of its
// own as if they were two processes.
func redisboxCalls(addr string) (*target, error) {
	return deskCalls(func(ctx context.Context) (*desk, error) { return newDesk(ctx, addr) })
}

// mailboxdCalls is redisboxCalls through a mailboxd on the same Redis.
func mailboxdCalls(addr, binary, dir string) (*target, error) {
	stand, err := startMailboxd(dir, binary, "redis://"+addr, daemonShape{queues: 1}, func(daemonDoor, *daemonStand) error { return nil })
	if err != nil {
		return nil, err
	}
	calls, err := deskCalls(func(ctx context.Context) (*desk, error) {
		backend, err := remotebox.Open(ctx, []string{stand.door.oap}, stand.door.token, nil)
		if err != nil {
			return nil, err
		}
		return openDesk(ctx, backend, daemonQueue, backend.Replies(), backend.Close)
	})
	if err != nil {
		return nil, errors.Join(err, stand.close())
	}
	shut := calls.close
	calls.close = func() error { return errors.Join(shut(), stand.close()) }
	return calls, nil
}

// deskCalls is a client and a worker that echoes, at desks of their own.
func deskCalls(open func(context.Context) (*desk, error)) (*target, error) {
	ctx, cancel := context.WithCancel(context.Background())
	caller, err := open(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	worker, err := open(ctx)
	if err != nil {
		cancel()
		return nil, errors.Join(err, caller.close())
	}
	handle := reply.Handle(func(_ context.Context, m *mailbox.Message[[]byte]) ([]byte, error) { return m.Body, nil },
		&reply.HandleOptions[[]byte]{Codec: mailbox.Bytes()})
	var group sync.WaitGroup
	group.Go(func() {
		for message, err := range worker.requests.Messages(ctx) {
			if err == nil {
				_ = handle(ctx, message) // the caller would get an error, or wait in vain
			}
		}
	})
	client := reply.NewClient(caller.requests, caller.replies, &reply.Options[[]byte]{Codec: mailbox.Bytes()})
	body := make([]byte, bodyBytes)
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
			return errors.Join(caller.close(), worker.close())
		},
	}, nil
}

// A desk is a mailbox for requests and a reply store.
type desk struct {
	replies  driver.ReplyStore
	requests *mailbox.Mailbox[[]byte]
	close    func() error
}

func newDesk(ctx context.Context, addr string) (*desk, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return nil, err
	}
	backend, err := redisbox.Open(ctx, client, nil)
	if err != nil {
		client.Close()
		return nil, err
	}
	return openDesk(ctx, backend, "requests-"+strconv.Itoa(bodyBytes), backend.Replies(0), func() error {
		err := backend.Close()
		client.Close()
		return err
	})
}

func openDesk(ctx context.Context, backend driver.Opener, queue string, replies driver.ReplyStore, shut func() error) (*desk, error) {
	requests, err := mailbox.Open(ctx, backend, queue, &mailbox.Options[[]byte]{Codec: mailbox.Bytes(), Replies: replies})
	if err != nil {
		return nil, errors.Join(err, shut())
	}
	return &desk{replies, requests, shut}, nil
}
