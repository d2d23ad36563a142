package redisbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// How a call is tried again.
const (
	firstPause = 2 * time.Millisecond
	longPause  = 200 * time.Millisecond
	// An attempt that is not answered in this time is given up. It may still be
	// carried out, which the turn in its session makes harmless.
	longAttempt = 5 * time.Second
)

// tries paces the attempts of one call.
type tries struct {
	backend *Backend
	until   time.Time
	pause   time.Duration
	// idle says that nobody waits for the outcome any more; nil: somebody does.
	idle func() bool
}

func (b *Backend) newTries(idle func() bool) *tries {
	return &tries{backend: b, until: time.Now().Add(b.options.RetryFor), pause: firstPause, idle: idle}
}

// attempt returns the context of one attempt.
func (t *tries) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := min(longAttempt, max(time.Until(t.until), longPause))
	return context.WithTimeout(ctx, limit)
}

// again waits before the next attempt, and reports false if there is to be none.
func (t *tries) again(ctx context.Context) bool {
	left := time.Until(t.until)
	if ctx.Err() != nil || left < firstPause || (t.idle != nil && t.idle()) {
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

// attend returns what ask returns, or the error of ctx when that ends before: a
// client that has to connect does not look at the context it is given. A caller
// who cannot leave waits in any case.
func attend[T any](ctx context.Context, b *Backend, canLeave bool, ask func() (T, error)) (answer T, err error) {
	if !canLeave {
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

// request asks the server something that can be asked again until it is answered.
func request[T any](ctx context.Context, b *Backend, ask func(context.Context) (T, error)) (T, error) {
	for tries := b.newTries(nil); ; {
		attempt, cancel := tries.attempt(ctx)
		answer, err := attend(attempt, b, ctx.Done() != nil, func() (T, error) { return ask(attempt) })
		cancel()
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case !passing(err) || !tries.again(ctx):
			if ctx.Err() != nil {
				return answer, ctx.Err()
			}
			return answer, unavailable(err)
		}
	}
}

// eval runs a script once. Where replicas are asked for, it returns only when
// that many have what the script, and everything before it, has written.
func (b *Backend) eval(ctx context.Context, s *script, keys, args []string, replicas int) ([]rueidis.RedisMessage, error) {
	if err := s.check(args); err != nil {
		return nil, &driver.Error{Code: driver.ErrInvalid, Err: err}
	}
	if replicas > 0 {
		return b.evalDurably(ctx, s, keys, args, replicas)
	}
	reply, err := b.client.Do(ctx, command(b.client, s, keys, args, false)).ToArray()
	if isNoScript(err) {
		reply, err = b.client.Do(ctx, command(b.client, s, keys, args, true)).ToArray()
	}
	return reply, err
}

// evalDurably uses a connection of its own, because WAIT waits for what was
// written on the connection it is sent on.
func (b *Backend) evalDurably(ctx context.Context, s *script, keys, args []string, replicas int) (reply []rueidis.RedisMessage, err error) {
	failure := b.client.Dedicated(func(client rueidis.DedicatedClient) error {
		for _, load := range []bool{false, true} {
			wait := client.B().Wait().Numreplicas(int64(replicas)).Timeout(b.options.ReplicaTimeout.Milliseconds()).Build()
			results := client.DoMulti(ctx, command(client, s, keys, args, load), wait)
			reply, err = results[0].ToArray()
			if isNoScript(err) {
				continue
			}
			if err != nil {
				return err
			}
			reached, err := results[1].AsInt64()
			if err == nil && reached < int64(replicas) {
				err = &replicaError{asked: replicas, reached: int(reached)}
			}
			return err
		}
		return err
	})
	return reply, failure
}

// replicaError says that too few replicas have confirmed.
type replicaError struct{ asked, reached int }

func (e *replicaError) Error() string {
	return fmt.Sprintf("%d of %d replicas have confirmed", e.reached, e.asked)
}

type builder interface{ B() rueidis.Builder }

// command is the command that runs a script, by its name or, to load it, by its
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

// passing reports whether an error may be gone at the next attempt: the
// connection is lost, or the server is not, or not yet, the one to ask.
func passing(err error) bool {
	if _, short := errors.AsType[*replicaError](err); short {
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

// unavailable turns an error of the server or of the connection into one of
// ours. A server without memory is full, and what a server refuses however often it
// is asked has a code that is not tried again; everything else is not available.
func unavailable(err error) error {
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
			return &driver.Error{Code: driver.ErrConflict, Detail: "a key of the queue holds something of another program; use a prefix", Err: err}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) { // of an attempt: the caller's own is returned as it is
		err = errors.New("no answer from the server")
	}
	return &driver.Error{Code: driver.ErrUnavailable, RetryAfter: retryAfter, Err: err}
}

// retryAfter is the hint that goes with a full queue and an absent server:
// nobody knows when that ends, so it is only a pace.
const retryAfter = time.Second

// try runs a script that can be repeated until it is answered.
func (b *Backend) try(ctx context.Context, s *script, keys, args []string) ([]rueidis.RedisMessage, error) {
	return request(ctx, b, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		return b.eval(ctx, s, keys, args, b.options.Replicas)
	})
}

// An answer is what a script on a shard has to say.
type answer struct {
	// next is when something happens by itself; +Inf if nothing does.
	next float64
	// wall is the server's wall time.
	wall float64
	// letters is how many dead letters wait to be forwarded, or negative if moves of
	// other messages have stalled.
	letters int
	rest    []rueidis.RedisMessage
}

// how says how a script is called.
type how struct {
	// session makes it safe to repeat; nil for what changes nothing.
	session *session
	// replicas is how many must have it.
	replicas int
	// idle says that nobody waits for the outcome any more; nil: somebody does.
	idle func() bool
	// within: the call is part of moving messages, and moves none itself.
	within bool
}

// durably is how calls are made that must not be lost or doubled.
func (b *Backend) durably(sess *session) how { return how{session: sess, replicas: b.options.Replicas} }

// call runs a script on the shard until it is answered.
func (s *shard) call(ctx context.Context, sc *script, how how, args ...string) (answer, error) {
	q := s.queue
	name, turn := "", "0"
	if how.session != nil {
		how.session.next()
		name, turn = how.session.name, strconv.FormatInt(how.session.turn, 10)
	}
	for tries := q.backend.newTries(how.idle); ; {
		now, term := s.clock.floor()
		full := make([]string, 0, len(onShard)+len(args)) // an attempt that was given up may still look at its own
		full = append(full, q.incarnation, decimal(now), decimal(term), name, turn)
		full = append(full, args...)
		attempt, cancel := tries.attempt(ctx)
		reply, err := attend(attempt, q.backend, ctx.Done() != nil, func() ([]rueidis.RedisMessage, error) {
			reply, err := q.backend.eval(attempt, sc, s.keys, full, how.replicas)
			s.tell(reply) // here: what ended is told even if the caller has left
			return reply, err
		})
		cancel()
		status := ""
		if err == nil {
			status, err = s.read(ctx, reply)
		}
		switch {
		case status == "ok":
			return s.answered(ctx, reply, how.within)
		case status == "again": // it has done what it could, and goes on
			if ctx.Err() != nil {
				return answer{}, ctx.Err()
			}
		case ctx.Err() != nil:
			return answer{}, ctx.Err()
		case !passing(err) || !tries.again(ctx):
			if ctx.Err() != nil {
				return answer{}, ctx.Err()
			}
			return answer{}, unavailable(err)
		}
	}
}

// errStale: an earlier primary has answered than one that was seen before.
var errStale = errors.New("the server that has answered is not the primary any more")

// errLate: a call was repeated for so long that the next one of its session is done.
var errLate = &driver.Error{Code: driver.ErrUnavailable, Detail: "a later call of the same session was faster"}

// read returns the status of a reply, and the error it stands for.
func (s *shard) read(ctx context.Context, reply []rueidis.RedisMessage) (status string, err error) {
	if len(reply) == 0 {
		return "", errors.New("the server has answered nothing")
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

// readSchema handles the reply of a script that found another schema: an earlier one
// is migrated. It is there after a restore, or a failover that lost the migration.
func (s *shard) readSchema(ctx context.Context, reply []rueidis.RedisMessage) (status string, err error) {
	number, err := schemaOf(reply)
	if err != nil {
		return "", err
	}
	if !isOldSchema(number) {
		return "schema", newerSchema(number)
	}
	if err := s.queue.openAgain(ctx, s); err != nil {
		return "", err
	}
	return "again", nil
}

// schemaOf returns the number that goes with the status schema.
func schemaOf(reply []rueidis.RedisMessage) (string, error) {
	if len(reply) < 2 {
		return "", unreadable(nil)
	}
	return reply[1].ToString()
}

// answered takes in what every answer tells.
func (s *shard) answered(ctx context.Context, reply []rueidis.RedisMessage, within bool) (answer, error) {
	head, err := reply[1].ToString()
	if err != nil || len(head) < headBytes {
		return answer{}, &driver.Error{Code: driver.ErrUnavailable, Detail: "the server's answer cannot be read", Err: err}
	}
	a := answer{next: doubleAt(head, 2), wall: doubleAt(head, 1), letters: int(doubleAt(head, 5)), rest: reply[2:]}
	s.clock.saw(doubleAt(head, 0), doubleAt(head, 1), doubleAt(head, 4))
	s.minder.expect(ctx, a.next)
	if version := int64(doubleAt(head, 3)); version != s.queue.settings.Load().version {
		s.queue.reload(ctx, s, version)
	}
	switch {
	case within:
	case a.letters > 0:
		s.forward(ctx)
	case a.letters < 0:
		s.resumeMoves(ctx)
	}
	return a, nil
}

// decimal writes a whole number as scripts read it.
func decimal(number float64) string { return strconv.FormatFloat(number, 'f', 0, 64) }

// number reads what a script wrote; what is no number is 0.
func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n
}
