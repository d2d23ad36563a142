package shard

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/mailboxmq/mailbox/driver"
)

// An Answer is the answer of a script on a shard.
type Answer struct {
	// Next is the next deadline of the shard; +Inf if there is none.
	Next float64
	// wall is the server's wall time.
	wall float64
	// Version is that of the configuration in force.
	Version int64
	// ToForward is how many dead letters wait to be forwarded, or negative if moves of
	// other messages have stalled.
	ToForward int
	Rest      []rueidis.RedisMessage
}

// CallOptions say how a script is called.
type CallOptions struct {
	// Session makes the call safe to repeat; nil for a call that changes nothing.
	Session *Session
	// replicas is how many replicas must confirm.
	replicas int
	// abandoned reports whether all callers have left; nil means that one waits.
	abandoned func() bool
	// within: the call is part of a forwarding or a move, and starts none itself.
	within bool
	// SlotKeys are keys of reply slots; see ofShardAndSlots.
	slotKeys []string
}

// call runs a script on the shard until it is answered.
func (s *Shard) call(ctx context.Context, sc *Script, opts CallOptions, args ...string) (Answer, error) {
	q := s.Queue
	name, turn := "", "0"
	if opts.Session != nil {
		opts.Session.next()
		name, turn = opts.Session.name, strconv.FormatInt(opts.Session.turn, 10)
	}
	keys := s.Keys
	if sc.keys == ofShardAndSlots {
		keys = append(keys[:len(KeyNames):len(KeyNames)], opts.slotKeys...)
	}
	for tries := q.Server.NewTries(opts.abandoned); ; {
		now, term := s.Clock.Floor()
		full := make([]string, 0, len(onShard)+len(args)) // a new slice: an attempt that was given up may still read its own
		full = append(full, q.Incarnation, Decimal(now), Decimal(term), name, turn)
		full = append(full, args...)
		attempt, cancel := tries.attempt(ctx)
		reply, err := CallCancellable(attempt, q.Server, ctx.Done() != nil, func() ([]rueidis.RedisMessage, error) {
			reply, err := q.Server.Eval(attempt, sc, keys, full, opts.replicas)
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
			return Answer{}, ErrSlotsApart
		case status == "again": // the server has advanced the shard as far as one call may
			if ctx.Err() != nil {
				return Answer{}, ctx.Err()
			}
		case ctx.Err() != nil:
			return Answer{}, ctx.Err()
		case !isTransient(err) || !tries.Again(ctx):
			if ctx.Err() != nil {
				return Answer{}, ctx.Err()
			}
			return Answer{}, AsDriverError(err)
		}
	}
}

// errStale: an earlier primary has answered than one that was seen before.
var errStale = errors.New("the server that has answered is not the primary any more")

// errLate: the next call of the session is done before this one, which was repeated.
var errLate = &driver.Error{Code: driver.ErrUnavailable, Detail: "a later call of the same session was first"}

// ErrSlotsApart: the slots of a batch have to be created before it. Nothing was done.
var ErrSlotsApart = errors.New("reply slots have to be created first")

// read returns the status of a reply, and the error it stands for.
func (s *Shard) read(ctx context.Context, reply []rueidis.RedisMessage) (status string, err error) {
	if len(reply) == 0 {
		return "", errors.New("empty answer from the server")
	}
	status, err = reply[0].ToString()
	if err != nil {
		return "", err
	}
	switch status {
	case "missing":
		if err := s.Queue.Owner.OpenAgain(ctx, s, true); err != nil {
			return "", err
		}
		return "again", nil
	case "schema":
		return s.readSchema(ctx, reply)
	case "gone":
		s.Queue.Owner.Gone()
		return status, &driver.Error{Code: driver.ErrNotFound}
	case "stale":
		s.Clock.SawStale()
		return status, errStale
	case "late":
		return status, errLate
	}
	return status, nil
}

// answered applies the head of an answer, and tells the owner.
func (s *Shard) answered(ctx context.Context, reply []rueidis.RedisMessage, within bool) (Answer, error) {
	head, err := reply[1].ToString()
	if err != nil || len(head) < headBytes {
		return Answer{}, UnreadableAnswer(err)
	}
	a := Answer{Next: DoubleAt(head, 2), wall: DoubleAt(head, 1), ToForward: int(DoubleAt(head, 5)), Rest: reply[2:]}
	s.Clock.Saw(DoubleAt(head, 0), DoubleAt(head, 1), DoubleAt(head, 4))
	a.Version = int64(DoubleAt(head, 3))
	s.Queue.Owner.Answered(ctx, s, &a, within)
	return a, nil
}

// headBytes is the length of the head of an answer; endings follow it.
const headBytes = 8 * 6

// tellObservers tells observers which messages ended in a call.
func (s *Shard) tellObservers(reply []rueidis.RedisMessage) {
	observers := &s.Queue.Server.Observers
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
		ending.Queue = s.Queue.Name
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
	ending.Count, ending.Deliveries = int(DoubleAt(told[1:], 0)), int(DoubleAt(told[1:], 1))
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

// CallDurably calls a script, once and confirmed by replicas, without a batcher.
func (s *Shard) CallDurably(ctx context.Context, sc *Script, within bool, args ...string) (Answer, error) {
	sess := s.sessions.take()
	defer s.sessions.put(sess)
	opts := s.Queue.Server.Durable(sess)
	opts.within = within
	return s.call(ctx, sc, opts, args...)
}

// Durable returns the options of single calls that replicas must confirm, and that a
// session makes safe to repeat. Batches have the same: see batch.go.
func (s *Server) Durable(sess *Session) CallOptions {
	return CallOptions{Session: sess, replicas: s.Replicas}
}
