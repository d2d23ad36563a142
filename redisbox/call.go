package redisbox

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// An answer is the answer of a script on a shard.
type answer struct {
	// next is the next deadline of the shard; +Inf if there is none.
	next float64
	// wall is the server's wall time.
	wall float64
	// version is that of the configuration in force.
	version int64
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
	for tries := q.server.newTries(opts.abandoned); ; {
		now, term := s.clock.floor()
		full := make([]string, 0, len(onShard)+len(args)) // a new slice: an attempt that was given up may still read its own
		full = append(full, q.incarnation, decimal(now), decimal(term), name, turn)
		full = append(full, args...)
		attempt, cancel := tries.attempt(ctx)
		reply, err := callCancellable(attempt, q.server, ctx.Done() != nil, func() ([]rueidis.RedisMessage, error) {
			reply, err := q.server.eval(attempt, sc, keys, full, opts.replicas)
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
		if err := s.queue.owner.OpenAgain(ctx, s, true); err != nil {
			return "", err
		}
		return "again", nil
	case "schema":
		return s.readSchema(ctx, reply)
	case "gone":
		s.queue.owner.Gone()
		return status, &driver.Error{Code: driver.ErrNotFound}
	case "stale":
		s.clock.sawStale()
		return status, errStale
	case "late":
		return status, errLate
	}
	return status, nil
}

// answered applies the head of an answer, and tells the owner.
func (s *shard) answered(ctx context.Context, reply []rueidis.RedisMessage, within bool) (answer, error) {
	head, err := reply[1].ToString()
	if err != nil || len(head) < headBytes {
		return answer{}, unreadableAnswer(err)
	}
	a := answer{next: doubleAt(head, 2), wall: doubleAt(head, 1), toForward: int(doubleAt(head, 5)), rest: reply[2:]}
	s.clock.saw(doubleAt(head, 0), doubleAt(head, 1), doubleAt(head, 4))
	a.version = int64(doubleAt(head, 3))
	s.queue.owner.Answered(ctx, s, &a, within)
	return a, nil
}

// headBytes is the length of the head of an answer; endings follow it.
const headBytes = 8 * 6

// tellObservers tells observers which messages ended in a call.
func (s *shard) tellObservers(reply []rueidis.RedisMessage) {
	observers := &s.queue.server.observers
	if len(reply) < 2 || !observers.Any() {
		return
	}
	status, _ := reply[0].ToString()
	told, err := reply[1].ToString()
	if err != nil {
		return
	}
	switch {
	case status == "again":
	case status == "ok" && len(told) > headBytes:
		told = told[headBytes:]
	default:
		return
	}
	for told != "" {
		var ending driver.Ending
		var ok bool
		if ending, told, ok = readEnding(told); !ok {
			return
		}
		ending.Queue = s.queue.name
		observers.Tell(ending)
	}
}

// readEnding reads an ending as engine.ended in shard.lua packs it.
func readEnding(told string) (ending driver.Ending, rest string, ok bool) {
	const fixed = 1 + 8 + 8
	if len(told) < fixed {
		return ending, "", false
	}
	switch told[0] {
	case 'd':
		ending.Kind = driver.EndingDied
	case 'r':
		ending.Kind = driver.EndingRemoved
	case 'x':
		ending.Kind = driver.EndingDropped
	}
	ending.Count, ending.Deliveries = int(doubleAt(told[1:], 0)), int(doubleAt(told[1:], 1))
	rest = told[fixed:]
	var reason string
	for _, field := range []struct {
		text *string
		size int // of the length
	}{{&ending.ID, 1}, {&reason, 1}, {&ending.LastError, 2}} {
		if len(rest) < field.size {
			return ending, "", false
		}
		n := int(rest[0])
		if field.size == 2 {
			n |= int(rest[1]) << 8
		}
		if rest = rest[field.size:]; len(rest) < n {
			return ending, "", false
		}
		*field.text, rest = rest[:n], rest[n:]
	}
	ending.Reason = driver.Reason(reason)
	return ending, rest, true
}

// callDurably calls a script, once and confirmed by replicas, without a batcher.
func (s *shard) callDurably(ctx context.Context, sc *script, within bool, args ...string) (answer, error) {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	opts := s.queue.server.durable(sess)
	opts.within = within
	return s.call(ctx, sc, opts, args...)
}

// durable returns the options of single calls that replicas must confirm, and that a
// session makes safe to repeat. Batches have the same: see batch.go.
func (s *server) durable(sess *session) callOptions {
	return callOptions{session: sess, replicas: s.replicas}
}
