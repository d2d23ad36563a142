package redisbox

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/redisbox/internal/shard"
)

// A failingServer answers scripts with errors, as often as failNext says.
type failingServer struct {
	*handle
	text  atomic.Pointer[string]
	times atomic.Int64 // how many calls will fail
	asked atomic.Int64 // how many calls came
}

func newFailingServer(t *testing.T) *failingServer {
	t.Helper()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := &failingServer{handle: openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)}))}
	send(t, b, "the scripts are loaded")
	if _, err := b.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Rewrite(func(args []string) []string {
		if args[0] != "EVALSHA" && args[0] != "EVAL" {
			return args
		}
		b.asked.Add(1)
		if b.times.Add(-1) < 0 {
			return args
		}
		return redistest.ErrorRequest(*b.text.Load())
	})
	return b
}

// failNext makes the next calls fail with an error.
func (b *failingServer) failNext(text string, times int64) {
	b.text.Store(&text)
	b.times.Store(times)
	b.asked.Store(0)
}

// Errors of a server that is not the primary of the slot, or not yet.
var transientErrors = []string{
	"MOVED 1234 127.0.0.1:1", "ASK 1234 127.0.0.1:1",
	"TRYAGAIN Multiple keys request during rehashing of slot",
	"CLUSTERDOWN The cluster is down",
	"READONLY You can't write against a read only replica.",
	"LOADING Redis is loading the dataset in memory",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"NOREPLICAS Not enough good replicas to write.",
	"BUSY Redis is busy running a script.",
}

func TestTransientErrorsAreRetried(t *testing.T) {
	b := newFailingServer(t)
	for _, text := range transientErrors {
		t.Run(text[:4], func(t *testing.T) {
			b.failNext(text, 2)
			send(t, b, "a")
			if asked := b.asked.Load(); asked < 3 || asked > 5 { // the shard watcher may call too
				t.Errorf("asked %d times, want twice in vain and once more", asked)
			}
			b.failNext(text, 2)
			d := receive(t, b, 1, hold)[0]
			b.failNext(text, 2)
			if err := b.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Error(err)
			}
			b.failNext(text, 2)
			wantStats(t, b, driver.Stats{})
		})
	}
}

// retries sends while the server answers only text, and checks the error when patience
// is over. It reports whether the call was repeated at least twice.
func (b *failingServer) retries(t *testing.T, text string, patience time.Duration) bool {
	t.Helper()
	b.backend.server.RetryFor = patience
	b.failNext(text, 1<<40)
	start := time.Now()
	_, err := b.Send(t.Context(), []driver.Outgoing{{}})
	wantCode(t, err, driver.ErrUnavailable)
	if driver.RetryAfter(err) <= 0 {
		t.Error("there is no hint when to try again")
	}
	if took := time.Since(start); took < patience/2 || took > 20*patience {
		t.Errorf("gave up after %v, want about %v", took, patience)
	}
	// The pause doubles with each attempt: two milliseconds, four, and so on.
	asked := b.asked.Load()
	if asked > 25*int64(patience/time.Second) {
		t.Errorf("asked %d times in %v", asked, patience)
	}
	return asked >= 3
}

func TestLastingErrorsAreUnavailableInTime(t *testing.T) {
	t.Parallel()
	b := newFailingServer(t)
	before := b.backend.server.RetryFor
	for _, text := range transientErrors {
		t.Run(text[:4], func(t *testing.T) {
			// A machine that is too busy for three attempts gets more time.
			for patience := time.Second; !b.retries(t, text, patience); patience *= 4 {
				if patience > time.Minute {
					t.Fatalf("asked %d times in %v", b.asked.Load(), patience)
				}
			}
			b.failNext("", 0)
		})
	}
	b.backend.server.RetryFor = before
	wantStats(t, b, driver.Stats{})
}

func TestPermanentErrorsAreReturnedAtOnce(t *testing.T) {
	b := newFailingServer(t)
	for text, code := range map[string]driver.Code{
		"NOPERM this user has no permissions to run the 'evalsha' command":                           driver.ErrForbidden,
		"ERR ACL failure in script: User shop has no permissions to run the 'hset' command":          driver.ErrForbidden,
		"NOAUTH Authentication required.":                                                            driver.ErrUnauthenticated,
		"WRONGPASS invalid username-password pair or user is disabled.":                              driver.ErrUnauthenticated,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @script:1.": driver.ErrConflict,
		"ERR something else": driver.ErrUnavailable,
	} {
		b.failNext(text, 1)
		_, err := b.Send(t.Context(), []driver.Outgoing{{}})
		wantCode(t, err, code)
		if asked := b.asked.Load(); asked != 1 {
			t.Errorf("%s: asked %d times, want once", text[:6], asked)
		}
		if code != driver.ErrUnavailable && driver.RetryAfter(err) != 0 {
			t.Errorf("%s: says to try again after %v", text[:6], driver.RetryAfter(err))
		}
	}
	b.failNext("OOM command not allowed when used memory > 'maxmemory'.", 1)
	_, err := b.Send(t.Context(), []driver.Outgoing{{}})
	wantCode(t, err, driver.ErrFull)
	wantStats(t, b, driver.Stats{})
}

// TestForeignKeyInQueueIsConflict uses a real server, where a script returns the error.
func TestForeignKeyInQueueIsConflict(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: prefix})
	meta := shard.Keys(prefix, "orders", 0)[0]
	if err := b.server.Client.Do(t.Context(), b.server.Client.B().Set().Key(meta).Value("mine").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	_, err := b.OpenQueue(t.Context(), "orders")
	wantCode(t, err, driver.ErrConflict)
}
