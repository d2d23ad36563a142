package redisbox

import (
	"context"
	"time"

	"github.com/mailboxmq/mailbox/driver"
)

// usage is the answer of usage.lua.
type usage struct {
	driver.ShardUsage
	keys int
}

// usage calls usage.lua. toForward is how many dead letters wait to be forwarded.
func (s *shard) usage(ctx context.Context, wants string) (u usage, toForward int, err error) {
	a, err := s.call(ctx, usageScript, callOptions{}, wants)
	if err != nil {
		return u, 0, err
	}
	numbers, err := a.rest[0].AsIntSlice()
	if err != nil || len(numbers) != 8 {
		return u, 0, unreadableAnswer(err)
	}
	u.Stats = driver.Stats{Ready: int(numbers[0]), Delayed: int(numbers[1]), InFlight: int(numbers[2]), Dead: int(numbers[3])}
	u.Bytes, u.keys = int(numbers[4]), int(numbers[5])
	u.OldestReady, u.OldestDead = time.Duration(numbers[6])*time.Microsecond, time.Duration(numbers[7])*time.Microsecond
	return u, a.toForward, nil
}

// available calls usage.lua, and returns how many messages could be received now.
func (s *shard) available(ctx context.Context, wants string) (int64, error) {
	a, err := s.call(ctx, usageScript, callOptions{}, wants)
	if err != nil {
		return 0, err
	}
	return a.rest[1].AsInt64()
}

// purge calls purge.lua, and returns how many messages it has removed.
func (s *shard) purge(ctx context.Context, which string) (int, error) {
	return s.count(ctx, purgeScript, which)
}

// discard calls discard.lua, and returns how many dead letters it has removed.
func (s *shard) discard(ctx context.Context, ids []string) (int, error) {
	return s.count(ctx, discardScript, ids...)
}

// count calls a script that returns a number.
func (s *shard) count(ctx context.Context, sc *script, args ...string) (int, error) {
	a, err := s.callDurably(ctx, sc, false, args...)
	if err != nil {
		return 0, err
	}
	n, err := a.rest[0].AsInt64()
	return int(n), err
}

// redrive calls redrive.lua. It returns how many dead letters are ready again, and whether
// the queue is full.
func (s *shard) redrive(ctx context.Context, ids []string) (moved int, full bool, err error) {
	a, err := s.callDurably(ctx, redriveScript, false, ids...)
	if err != nil {
		return 0, false, err
	}
	n, err := a.rest[0].AsInt64()
	if err != nil {
		return 0, false, unreadableAnswer(err)
	}
	stopped, err := a.rest[1].AsInt64()
	return int(n), stopped != 0, err
}
