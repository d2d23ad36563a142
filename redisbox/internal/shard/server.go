package shard

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/endings"
)

// A Server is the connection to the servers that hold queues and reply slots, and how calls
// on it are made and repeated. It is safe for concurrent use.
type Server struct {
	Options
	Client    rueidis.Client
	Observers endings.Observers
	Running   goroutines
	closing   chan struct{} // closed by close
}

// Options are the options of a server.
type Options struct {
	Prefix         string        // of all keys
	Replicas       int           // that must confirm durable calls
	ReplicaTimeout time.Duration // how long to wait for them
	RetryFor       time.Duration // how long a call is repeated
	Logger         *slog.Logger
}

// NewServer returns a server. It does no I/O.
func NewServer(client rueidis.Client, options Options) *Server {
	return &Server{Options: options, Client: client, closing: make(chan struct{})}
}

// Close ends the pauses between attempts. It must be called once.
func (s *Server) Close() { close(s.closing) }

// How a call is repeated.
const (
	firstPause = 2 * time.Millisecond
	LongPause  = 200 * time.Millisecond
	// MaxAttempt is when an unanswered attempt is given up. The server may still
	// execute it, which its turn in the session makes harmless.
	MaxAttempt = 5 * time.Second
)

// tries paces the attempts of one call.
type tries struct {
	server *Server
	until  time.Time
	pause  time.Duration
	// abandoned reports whether all callers have left; nil means that one waits.
	abandoned func() bool
}

// NewTries begins the attempts of a call.
func (s *Server) NewTries(abandoned func() bool) *tries {
	return &tries{server: s, until: time.Now().Add(s.RetryFor), pause: firstPause, abandoned: abandoned}
}

// attempt returns the context of one attempt.
func (t *tries) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := min(MaxAttempt, max(time.Until(t.until), LongPause))
	return context.WithTimeout(ctx, limit)
}

// Again waits before the next attempt, and reports false if the call is given up.
func (t *tries) Again(ctx context.Context) bool {
	left := time.Until(t.until)
	if ctx.Err() != nil || left < firstPause || (t.abandoned != nil && t.abandoned()) {
		return false
	}
	timer := time.NewTimer(min(t.pause/2+rand.N(t.pause), left)) // the last attempt is made when time is up
	defer timer.Stop()
	t.pause = min(2*t.pause, LongPause)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-t.server.closing:
		return false
	}
}

// CallCancellable returns what ask returns, or the error of ctx if that ends first: a
// client that is connecting ignores its context. A caller that cannot be cancelled
// waits in any case.
func CallCancellable[T any](ctx context.Context, s *Server, cancellable bool, ask func() (T, error)) (answer T, err error) {
	if !cancellable {
		return ask()
	}
	type reply struct {
		answer T
		err    error
	}
	replies := make(chan reply, 1)
	s.Running.Start(func() {
		answer, err := ask()
		replies <- reply{answer, err}
	})
	select {
	case r := <-replies:
		return r.answer, r.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// Request repeats a request that is safe to repeat until it is answered.
func Request[T any](ctx context.Context, s *Server, ask func(context.Context) (T, error)) (T, error) {
	for tries := s.NewTries(nil); ; {
		attempt, cancel := tries.attempt(ctx)
		answer, err := CallCancellable(attempt, s, ctx.Done() != nil, func() (T, error) { return ask(attempt) })
		cancel()
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case !isTransient(err) || !tries.Again(ctx):
			if ctx.Err() != nil {
				return answer, ctx.Err()
			}
			return answer, AsDriverError(err)
		}
	}
}

// isTransient reports whether an error may be gone at the next attempt: the connection
// is lost, or the server is not, or not yet, the primary of the slot.
func isTransient(err error) bool {
	if _, ok := errors.AsType[*replicaError](err); ok {
		return false
	}
	if _, ours := errors.AsType[*driver.Error](err); ours {
		return false
	}
	redisErr, ok := rueidis.IsRedisErr(err)
	if !ok {
		return !rueidis.IsRedisNil(err) && !rueidis.IsParseErr(err)
	}
	word, _, _ := strings.Cut(redisErr.Error(), " ")
	switch word {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "BUSY", "UNBLOCKED":
		return true
	}
	return false
}

// AsDriverError turns an error of the server or of the connection into a driver.Error.
// A server without memory is ErrFull, and a permanent refusal has a code that is not
// retried; everything else is ErrUnavailable.
func AsDriverError(err error) error {
	if _, ours := errors.AsType[*driver.Error](err); ours {
		return err
	}
	if redisErr, ok := rueidis.IsRedisErr(err); ok {
		text := redisErr.Error()
		word, _, _ := strings.Cut(text, " ")
		switch {
		case word == "OOM":
			return &driver.Error{Code: driver.ErrFull, Detail: "the server is out of memory", RetryAfter: RetryAfter, Err: err}
		case word == "NOAUTH", word == "WRONGPASS":
			return &driver.Error{Code: driver.ErrUnauthenticated, Detail: "the server wants another user or password", Err: err}
		case word == "NOPERM", strings.Contains(text, "ACL failure in script"), strings.Contains(text, "user executing the script can't"):
			return &driver.Error{Code: driver.ErrForbidden, Detail: "the user of the server lacks a permission; docs/redis.md lists them", Err: err}
		case word == "WRONGTYPE":
			return &driver.Error{Code: driver.ErrConflict, Detail: "a key of the queue holds data of another program; use a prefix", Err: err}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) { // of an attempt: the caller's own is returned as it is
		err = errors.New("no answer from the server")
	}
	return &driver.Error{Code: driver.ErrUnavailable, RetryAfter: RetryAfter, Err: err}
}

// RetryAfter is the hint that goes with a full queue and an absent server. When either
// ends is unknown, so it is only a pace.
const RetryAfter = time.Second

// try runs a script that can be repeated until it is answered.
func (s *Server) try(ctx context.Context, sc *Script, keys, args []string) ([]rueidis.RedisMessage, error) {
	return Request(ctx, s, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		return s.Eval(ctx, sc, keys, args, s.Replicas)
	})
}

// goroutines counts goroutines that can be waited for. Unlike a WaitGroup it allows new
// ones to start during wait.
type goroutines struct {
	mu    sync.Mutex // guards the fields below
	size  int
	empty chan struct{} // closed when size becomes 0; nil if no wait is running
}

// Start runs f in a new goroutine.
func (g *goroutines) Start(f func()) {
	g.mu.Lock()
	g.size++
	g.mu.Unlock()
	go func() {
		defer g.done()
		f()
	}()
}

func (g *goroutines) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.size--
	if g.size == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// Wait waits until none is running.
func (g *goroutines) Wait() {
	g.mu.Lock()
	if g.size == 0 {
		g.mu.Unlock()
		return
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	empty := g.empty
	g.mu.Unlock()
	<-empty
}

// UnreadableAnswer returns the error for an answer that no script gives.
func UnreadableAnswer(err error) error {
	return &driver.Error{Code: driver.ErrUnavailable, Detail: "the server's answer cannot be read", Err: err}
}
