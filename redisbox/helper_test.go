package redisbox

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// hold is a visibility that does not end during a test.
const hold = 10 * time.Minute

// openQueue opens the queue that most tests use.
func openQueue(t testing.TB, b *Backend) *handle {
	t.Helper()
	return openNamed(t, b, "orders")
}

// openNamed opens a queue with another name.
func openNamed(t testing.TB, b *Backend, name string) *handle {
	t.Helper()
	q, err := b.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q.(*handle)
}

// configured opens a queue with a configuration.
func configured(t testing.TB, b *Backend, config driver.Config) *handle {
	t.Helper()
	if err := b.ConfigureQueue(t.Context(), "orders", config); err != nil {
		t.Fatal(err)
	}
	return openQueue(t, b)
}

// keyOf returns a key of the queue's first shard.
func keyOf(q *handle, name string) string {
	return q.Shards[0].Keys[slices.Index(shard.KeyNames, name)]
}

func send(t testing.TB, q driver.Queue, bodies ...string) (ids []string) {
	t.Helper()
	msgs := make([]driver.Outgoing, len(bodies))
	for i, body := range bodies {
		msgs[i].Body = []byte(body)
	}
	sent, err := q.Send(t.Context(), msgs)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sent {
		ids = append(ids, s.ID)
	}
	return ids
}

// receive receives n messages, which must be ready.
func receive(t testing.TB, q driver.Queue, n int, visibility time.Duration) []driver.Delivery {
	t.Helper()
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: n, Visibility: visibility})
	if err != nil || len(got) != n {
		t.Fatalf("receive: got %d messages, error %v; want %d", len(got), err, n)
	}
	return got
}

func wantNothing(t testing.TB, q driver.Queue) {
	t.Helper()
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: hold})
	if err != nil || len(got) > 0 {
		t.Fatalf("receive: got %d messages, error %v; want none", len(got), err)
	}
}

func wantStats(t testing.TB, q driver.Queue, want driver.Stats) {
	t.Helper()
	if got, err := q.Stats(t.Context()); err != nil || got != want {
		t.Fatalf("stats: got %+v, error %v; want %+v", got, err, want)
	}
}

func wantCode(t testing.TB, err error, want driver.Code) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %q", err, string(want))
	}
}

// deadLetters lists the dead letters of a queue.
func deadLetters(t testing.TB, q *handle) (all []driver.DeadLetter) {
	t.Helper()
	for dead, err := range q.DeadLetters(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, dead)
	}
	return all
}

// topologies returns the kinds of servers that must all behave the same.
func topologies(t testing.TB) map[string]rueidis.ClientOption {
	t.Helper()
	return map[string]rueidis.ClientOption{
		"standalone": redistest.SharedServer(t).ClientOption(),
		"sentinels":  redistest.SharedSentinel(t).ClientOption(),
		"cluster":    redistest.SharedCluster(t).ClientOption(),
	}
}

// through returns the option of a client that talks to a server through a proxy, on one
// connection and without pings of its own.
func through(server *redistest.Server, proxy *redistest.Proxy) rueidis.ClientOption {
	option := server.ClientOption()
	option.InitAddress = []string{proxy.Addr()}
	option.ForceSingleClient = true
	option.Dialer.KeepAlive = time.Minute
	return option
}

// eventually waits for a condition that must hold soon and has no signal.
func eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for !happened() {
		select {
		case <-look.C:
		case <-limit.C:
			t.Fatalf("%s: not after 2 minutes", what)
		}
	}
}

// takesLess checks that do takes less time than limit, at least once in five times: a busy machine can
// make a call slow, but not each time.
func takesLess(t testing.TB, limit time.Duration, what string, do func()) {
	t.Helper()
	var took time.Duration
	for range 5 {
		start := time.Now()
		do()
		if took = time.Since(start); took < limit {
			return
		}
	}
	t.Errorf("%s takes %v, again and again", what, took)
}

// pause waits in real time.
func pause(d time.Duration) { <-time.After(d) }

// configureFirstShard does the part of ConfigureQueue that concerns the first shard.
func configureFirstShard(t *testing.T, b *Backend, name string, config driver.Config) (*shard.Opened, error) {
	t.Helper()
	existing, err := b.server.Look(t.Context(), name)
	if err != nil {
		return nil, err
	}
	return b.configureFirst(t.Context(), name, existing, config)
}
