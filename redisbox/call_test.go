package redisbox

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/redistest"
)

// A babbling server answers scripts with errors, as often as it is told to.
type babbling struct {
	*handle
	text  atomic.Pointer[string]
	times atomic.Int64 // how often it still does
	asked atomic.Int64 // how often it was asked to run a script
}

func newBabbling(t *testing.T) *babbling {
	t.Helper()
	server := redistest.SharedServer(t)
	proxy := redistest.NewProxy(t, server.Addr())
	b := &babbling{handle: openQueue(t, open(t, connect(t, through(server, proxy)), &Options{Prefix: redistest.Prefix(t)}))}
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
		return redistest.Saying(*b.text.Load())
	})
	return b
}

// say has the next so many scripts answered with an error.
func (b *babbling) say(text string, times int64) {
	b.text.Store(&text)
	b.times.Store(times)
	b.asked.Store(0)
}

// What a server says while it is not the one to ask, or not yet.
var passingErrors = []string{
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
	b := newBabbling(t)
	for _, text := range passingErrors {
		t.Run(text[:4], func(t *testing.T) {
			b.say(text, 2)
			send(t, b, "a")
			if asked := b.asked.Load(); asked < 3 || asked > 5 { // the minder may ask too
				t.Errorf("asked %d times, want twice in vain and once more", asked)
			}
			b.say(text, 2)
			d := receive(t, b, 1, hold)[0]
			b.say(text, 2)
			if err := b.Ack(t.Context(), []driver.Receipt{d.Receipt}); err != nil {
				t.Error(err)
			}
			b.say(text, 2)
			wantStats(t, b, driver.Stats{})
		})
	}
}

// asksAgain sends while the server says nothing but text, and checks what comes of it
// when patience is over. It reports whether the server was asked again and again.
func (b *babbling) asksAgain(t *testing.T, text string, patience time.Duration) bool {
	t.Helper()
	b.backend.options.RetryFor = patience
	b.say(text, 1<<40)
	start := time.Now()
	_, err := b.Send(t.Context(), []driver.Outgoing{{}})
	wantCode(t, err, driver.ErrUnavailable)
	if driver.RetryAfter(err) <= 0 {
		t.Error("there is no hint when to try again")
	}
	if took := time.Since(start); took < patience/2 || took > 20*patience {
		t.Errorf("gave up after %v, want about %v", took, patience)
	}
	// Twice as long before each attempt: two milliseconds, four, and so on.
	asked := b.asked.Load()
	if asked > 25*int64(patience/time.Second) {
		t.Errorf("asked %d times in %v", asked, patience)
	}
	return asked >= 3
}

func TestLastingErrorsAreUnavailableInTime(t *testing.T) {
	t.Parallel()
	b := newBabbling(t)
	before := b.backend.options.RetryFor
	for _, text := range passingErrors {
		t.Run(text[:4], func(t *testing.T) {
			// A machine that is too busy to ask three times gets more time for it.
			for patience := time.Second; !b.asksAgain(t, text, patience); patience *= 4 {
				if patience > time.Minute {
					t.Fatalf("asked %d times in %v", b.asked.Load(), patience)
				}
			}
			b.say("", 0)
		})
	}
	b.backend.options.RetryFor = before
	wantStats(t, b, driver.Stats{})
}

func TestPermanentErrorsAreReturnedAtOnce(t *testing.T) {
	b := newBabbling(t)
	for text, code := range map[string]driver.Code{
		"NOPERM this user has no permissions to run the 'evalsha' command":                           driver.ErrForbidden,
		"ERR ACL failure in script: User shop has no permissions to run the 'hset' command":          driver.ErrForbidden,
		"NOAUTH Authentication required.":                                                            driver.ErrUnauthenticated,
		"WRONGPASS invalid username-password pair or user is disabled.":                              driver.ErrUnauthenticated,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @script:1.": driver.ErrConflict,
		"ERR something else": driver.ErrUnavailable,
	} {
		b.say(text, 1)
		_, err := b.Send(t.Context(), []driver.Outgoing{{}})
		wantCode(t, err, code)
		if asked := b.asked.Load(); asked != 1 {
			t.Errorf("%s: asked %d times, want once", text[:6], asked)
		}
		if code != driver.ErrUnavailable && driver.RetryAfter(err) != 0 {
			t.Errorf("%s: says to try again after %v", text[:6], driver.RetryAfter(err))
		}
	}
	b.say("OOM command not allowed when used memory > 'maxmemory'.", 1)
	_, err := b.Send(t.Context(), []driver.Outgoing{{}})
	wantCode(t, err, driver.ErrFull)
	wantStats(t, b, driver.Stats{})
}

// TestForeignKeyInQueueIsConflict uses a real server, where a script returns the error.
func TestForeignKeyInQueueIsConflict(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	b := open(t, connect(t, redistest.SharedServer(t).ClientOption()), &Options{Prefix: prefix})
	meta := shardKeys(prefix, "orders", 0)[0]
	if err := b.client.Do(t.Context(), b.client.B().Set().Key(meta).Value("mine").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	_, err := b.OpenQueue(t.Context(), "orders")
	wantCode(t, err, driver.ErrConflict)
}
