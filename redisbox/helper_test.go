package redisbox

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// hold is a visibility that does not end during a test.
const hold = 10 * time.Minute

// openQueue opens a queue of the name that tests use.
func openQueue(t testing.TB, b *Backend) *handle {
	t.Helper()
	return openNamed(t, b, "orders")
}

// openNamed opens a queue of another name.
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

// keyOf is a key of the queue's first shard.
func keyOf(q *handle, name string) string { return q.shards[0].keys[slices.Index(keyNames, name)] }

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

// receive takes n messages, which must be there.
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

// letters lists the dead letters of a queue.
func letters(t testing.TB, q *handle) (all []driver.DeadLetter) {
	t.Helper()
	for letter, err := range q.DeadLetters(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, letter)
	}
	return all
}

// topologies are the kinds of servers that must all behave the same.
func topologies(t testing.TB) map[string]rueidis.ClientOption {
	t.Helper()
	return map[string]rueidis.ClientOption{
		"standalone": redistest.SharedServer(t).ClientOption(),
		"sentinels":  redistest.SharedSentinel(t).ClientOption(),
		"cluster":    redistest.SharedCluster(t).ClientOption(),
	}
}

// through is the option of a client that talks to a server through a proxy, on
// one connection and without pings of its own.
func through(server *redistest.Server, proxy *redistest.Proxy) rueidis.ClientOption {
	option := server.ClientOption()
	option.InitAddress = []string{proxy.Addr()}
	option.ForceSingleClient = true
	option.Dialer.KeepAlive = time.Minute
	return option
}

// eventually waits for something that must happen soon, without a signal.
func eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for !happened() {
		select {
		case <-look.C:
		case <-limit.C:
			t.Fatalf("%s: not after 20 s", what)
		}
	}
}

// pause lets time pass on all clocks.
func pause(d time.Duration) { <-time.After(d) }

// configureFirstShard does what ConfigureQueue does before it goes on to the other
// shards.
func configureFirstShard(t *testing.T, b *Backend, name string, config driver.Config) (*opened, error) {
	t.Helper()
	existing, err := b.look(t.Context(), name)
	if err != nil {
		return nil, err
	}
	return b.configureFirst(t.Context(), name, existing, config)
}
