package redisbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// How a call is repeated.
const (
	firstPause = 2 * time.Millisecond
	longPause  = 200 * time.Millisecond
	// maxAttempt is when an unanswered attempt is given up. The server may still
	// execute it, which its turn in the session makes harmless.
	maxAttempt = 5 * time.Second
)

// tries paces the attempts of one call.
type tries struct {
	backend *Backend
	until   time.Time
	pause   time.Duration
	// abandoned reports whether all callers have left; nil means that one waits.
	abandoned func() bool
}

func (b *Backend) newTries(abandoned func() bool) *tries {
	return &tries{backend: b, until: time.Now().Add(b.options.RetryFor), pause: firstPause, abandoned: abandoned}
}

// attempt returns the context of one attempt.
func (t *tries) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := min(maxAttempt, max(time.Until(t.until), longPause))
	return context.WithTimeout(ctx, limit)
}

// again waits before the next attempt, and reports false if the call is given up.
func (t *tries) again(ctx context.Context) bool {
	left := time.Until(t.until)
	if ctx.Err() != nil || left < firstPause || (t.abandoned != nil && t.abandoned()) {
		return false
	}
	timer := time.NewTimer(min(t.pause/2+rand.N(t.pause), left)) // the last attempt is made when time is up
	defer timer.Stop()
	t.pause = min(2*t.pause, longPause)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-t.backend.closing:
		return false
	}
}

// callCancellable returns what ask returns, or the error of ctx if that ends first: a
// client that is connecting ignores its context. A caller that cannot be cancelled
// waits in any case.
func callCancellable[T any](ctx context.Context, b *Backend, cancellable bool, ask func() (T, error)) (answer T, err error) {
	if !cancellable {
		return ask()
	}
	type reply struct {
		answer T
		err    error
	}
	replies := make(chan reply, 1)
	b.running.start(func() {
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

// request repeats a request that is safe to repeat until it is answered.
func request[T any](ctx context.Context, b *Backend, ask func(context.Context) (T, error)) (T, error) {
	for tries := b.newTries(nil); ; {
		attempt, cancel := tries.attempt(ctx)
		answer, err := callCancellable(attempt, b, ctx.Done() != nil, func() (T, error) { return ask(attempt) })
		cancel()
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case !isTransient(err) || !tries.again(ctx):
			if ctx.Err() != nil {
				return answer, ctx.Err()
			}
			return answer, asDriverError(err)
		}
	}
}

// eval runs a script once. With replicas it returns only when that many have
// everything written so far; see evalAndWait.
func (b *Backend) eval(ctx context.Context, s *script, keys, args []string, replicas int) ([]rueidis.RedisMessage, error) {
	if err := s.check(args); err != nil {
		return nil, &driver.Error{Code: driver.ErrInvalid, Err: err}
	}
	if replicas > 0 {
		return b.evalAndWait(ctx, s, keys, args, replicas)
	}
	reply, err := b.client.Do(ctx, command(b.client, s, keys, args, false)).ToArray()
	if isNoScript(err) {
		reply, err = b.client.Do(ctx, command(b.client, s, keys, args, true)).ToArray()
	}
	return reply, err
}

type builder interface{ B() rueidis.Builder }

// command returns the command that runs a script, by its hash or, to load it, by its
// text.
func command(client builder, s *script, keys, args []string, load bool) rueidis.Completed {
	if s.keys == ofShard {
		keys = keys[:len(keyNames)]
	}
	if load {
		return client.B().Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
	}
	return client.B().Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func isNoScript(err error) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	return ok && redisErr.IsNoScript()
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

// asDriverError turns an error of the server or of the connection into a driver.Error.
// A server without memory is ErrFull, and a permanent refusal has a code that is not
// retried; everything else is ErrUnavailable.
func asDriverError(err error) error {
	if _, ours := errors.AsType[*driver.Error](err); ours {
		return err
	}
	if redisErr, ok := rueidis.IsRedisErr(err); ok {
		text := redisErr.Error()
		word, _, _ := strings.Cut(text, " ")
		switch {
		case word == "OOM":
			return &driver.Error{Code: driver.ErrFull, Detail: "the server is out of memory", RetryAfter: retryAfter, Err: err}
		case word == "NOAUTH", word == "WRONGPASS":
			return &driver.Error{Code: driver.ErrUnauthenticated, Detail: "the server wants another user or password", Err: err}
		case word == "NOPERM", strings.Contains(text, "ACL failure in script"):
			return &driver.Error{Code: driver.ErrForbidden, Detail: "the user of the server lacks a permission; docs/redis.md lists them", Err: err}
		case word == "WRONGTYPE":
			return &driver.Error{Code: driver.ErrConflict, Detail: "a key of the queue holds data of another program; use a prefix", Err: err}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) { // of an attempt: the caller's own is returned as it is
		err = errors.New("no answer from the server")
	}
	return &driver.Error{Code: driver.ErrUnavailable, RetryAfter: retryAfter, Err: err}
}

// retryAfter is the hint that goes with a full queue and an absent server. When either
// ends is unknown, so it is only a pace.
const retryAfter = time.Second

// try runs a script that can be repeated until it is answered.
func (b *Backend) try(ctx context.Context, s *script, keys, args []string) ([]rueidis.RedisMessage, error) {
	return request(ctx, b, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		return b.eval(ctx, s, keys, args, b.options.Replicas)
	})
}

// An answer is the answer of a script on a shard.
type answer struct {
	// next is the next deadline of the shard; +Inf if there is none.
	next float64
	// wall is the server's wall time.
	wall float64
	// toForward is how many dead letters wait to be forwarded, or negative if moves of
	// other messages have stalled.
	toForward int
	rest      []rueidis.RedisMessage
}

// callOptions say how a script is called.
type callOptions struct {
	// session makes the call safe to repeat; nil for a call that changes nothing.
	session *session
	// replicas is how many replicas must confirm.
	replicas int
	// abandoned reports whether all callers have left; nil means that one waits.
	abandoned func() bool
	// within: the call is part of a forwarding or a move, and starts none itself.
	within bool
	// slotKeys are keys of reply slots; see ofShardAndSlots.
	slotKeys []string
}

// call runs a script on the shard until it is answered.
func (s *shard) call(ctx context.Context, sc *script, opts callOptions, args ...string) (answer, error) {
	q := s.queue
	name, turn := "", "0"
	if opts.session != nil {
		opts.session.next()
		name, turn = opts.session.name, strconv.FormatInt(opts.session.turn, 10)
	}
	keys := s.keys
	if sc.keys == ofShardAndSlots {
		keys = append(keys[:len(keyNames):len(keyNames)], opts.slotKeys...)
	}
	for tries := q.backend.newTries(opts.abandoned); ; {
		now, term := s.clock.floor()
		full := make([]string, 0, len(onShard)+len(args)) // a new slice: an attempt that was given up may still read its own
		full = append(full, q.incarnation, decimal(now), decimal(term), name, turn)
		full = append(full, args...)
		attempt, cancel := tries.attempt(ctx)
		reply, err := callCancellable(attempt, q.backend, ctx.Done() != nil, func() ([]rueidis.RedisMessage, error) {
			reply, err := q.backend.eval(attempt, sc, keys, full, opts.replicas)
			s.tellObservers(reply) // here, so that endings are told even if the caller has left
			return reply, err
		})
		cancel()
		status := ""
		if err == nil {
			status, err = s.read(ctx, reply)
		}
		switch {
		case status == "ok":
			return s.answered(ctx, reply, opts.within)
		case status == "apart":
			return answer{}, errSlotsApart
		case status == "again": // the server has advanced the shard as far as one call may
			if ctx.Err() != nil {
				return answer{}, ctx.Err()
			}
		case ctx.Err() != nil:
			return answer{}, ctx.Err()
		case !isTransient(err) || !tries.again(ctx):
			if ctx.Err() != nil {
				return answer{}, ctx.Err()
			}
			return answer{}, asDriverError(err)
		}
	}
}

// errStale: an earlier primary has answered than one that was seen before.
var errStale = errors.New("the server that has answered is not the primary any more")

// errLate: the next call of the session is done before this one, which was repeated.
var errLate = &driver.Error{Code: driver.ErrUnavailable, Detail: "a later call of the same session was first"}

// errSlotsApart: the slots of a batch have to be created before it. Nothing was done.
var errSlotsApart = errors.New("reply slots have to be created first")

// read returns the status of a reply, and the error it stands for.
func (s *shard) read(ctx context.Context, reply []rueidis.RedisMessage) (status string, err error) {
	if len(reply) == 0 {
		return "", errors.New("empty answer from the server")
	}
	status, err = reply[0].ToString()
	if err != nil {
		return "", err
	}
	switch status {
	case "missing":
		if err := s.queue.heal(ctx, s); err != nil {
			return "", err
		}
		return "again", nil
	case "schema":
		return s.readSchema(ctx, reply)
	case "gone":
		s.queue.end(driver.ErrNotFound)
		return status, &driver.Error{Code: driver.ErrNotFound}
	case "stale":
		s.clock.sawStale()
		return status, errStale
	case "late":
		return status, errLate
	}
	return status, nil
}

// answered applies the head of an answer: time, deadline, version, and moves to resume.
func (s *shard) answered(ctx context.Context, reply []rueidis.RedisMessage, within bool) (answer, error) {
	head, err := reply[1].ToString()
	if err != nil || len(head) < headBytes {
		return answer{}, unreadableAnswer(err)
	}
	a := answer{next: doubleAt(head, 2), wall: doubleAt(head, 1), toForward: int(doubleAt(head, 5)), rest: reply[2:]}
	s.clock.saw(doubleAt(head, 0), doubleAt(head, 1), doubleAt(head, 4))
	s.watcher.noteDeadline(ctx, a.next)
	if version := int64(doubleAt(head, 3)); version != s.queue.settings.Load().version {
		s.queue.reload(ctx, s, version)
	}
	switch {
	case within:
	case a.toForward > 0:
		s.forward(ctx)
	case a.toForward < 0:
		s.resumeMoves(ctx)
	}
	return a, nil
}

// decimal writes a whole number as scripts read it.
func decimal(number float64) string { return strconv.FormatFloat(number, 'f', 0, 64) }

// number reads a number that a script wrote; other text is 0.
func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}
