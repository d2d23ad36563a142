package shard

import (
	"context"
	"strconv"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/ident"
)

// Usage is the answer of usage.lua.
type Usage struct {
	driver.ShardUsage
	Keys, UniqueKeys int
}

// Usage calls usage.lua. ToForward is how many dead letters wait to be forwarded.
func (s *Shard) Usage(ctx context.Context, wants string) (u Usage, toForward int, err error) {
	a, err := s.call(ctx, UsageScript, CallOptions{}, wants)
	if err != nil {
		return u, 0, err
	}
	numbers, err := a.Rest[0].AsIntSlice()
	if err != nil || len(numbers) != 10 {
		return u, 0, UnreadableAnswer(err)
	}
	u.Stats = driver.Stats{
		Ready: int(numbers[0]), Delayed: int(numbers[1]), InFlight: int(numbers[2]), Dead: int(numbers[3]), Paused: numbers[8] != 0,
	}
	u.Bytes, u.Keys, u.UniqueKeys = int(numbers[4]), int(numbers[5]), int(numbers[9])
	u.OldestReady, u.OldestDead = time.Duration(numbers[6])*time.Microsecond, time.Duration(numbers[7])*time.Microsecond
	return u, a.ToForward, nil
}

// Available calls usage.lua, and returns how many messages could be received now.
func (s *Shard) Available(ctx context.Context, wants string) (int64, error) {
	a, err := s.call(ctx, UsageScript, CallOptions{}, wants)
	if err != nil {
		return 0, err
	}
	return a.Rest[1].AsInt64()
}

// Purge calls purge.lua, and returns how many messages it has removed.
func (s *Shard) Purge(ctx context.Context, which string) (int, error) {
	return s.count(ctx, PurgeScript, which)
}

// SetPaused calls pause.lua.
func (s *Shard) SetPaused(ctx context.Context, paused bool) error {
	_, err := s.CallDurably(ctx, PauseScript, false, Digit(paused))
	return err
}

// Discard calls discard.lua, and returns how many dead letters it has removed.
func (s *Shard) Discard(ctx context.Context, ids []string) (int, error) {
	return s.count(ctx, DiscardScript, ids...)
}

// Edit calls edit.lua until it has found the message, and returns its code. value is a wall
// time in microseconds, or a priority.
func (s *Shard) Edit(ctx context.Context, id, what string, value float64) (code string, err error) {
	for after := "0"; ; {
		a, err := s.CallDurably(ctx, EditScript, false, id, what, strconv.FormatFloat(value, 'f', 0, 64), after)
		if err != nil {
			return "", err
		}
		if len(a.Rest) != 2 {
			return "", UnreadableAnswer(nil)
		}
		if code, err = a.Rest[0].ToString(); err != nil || code != "m" {
			return code, err
		}
		if after, err = a.Rest[1].ToString(); err != nil {
			return "", UnreadableAnswer(err)
		}
	}
}

// count calls a script that returns a number.
func (s *Shard) count(ctx context.Context, sc *Script, args ...string) (int, error) {
	a, err := s.CallDurably(ctx, sc, false, args...)
	if err != nil {
		return 0, err
	}
	n, err := a.Rest[0].AsInt64()
	return int(n), err
}

// Redrive calls redrive.lua. It returns how many dead letters are ready again, and ErrFull if
// the queue is full, or ErrConflict if another message holds the unique key of one of them.
func (s *Shard) Redrive(ctx context.Context, ids []string) (moved int, err error) {
	a, err := s.CallDurably(ctx, RedriveScript, false, ids...)
	if err != nil {
		return 0, err
	}
	n, err := a.Rest[0].AsInt64()
	if err != nil {
		return 0, UnreadableAnswer(err)
	}
	full, err := a.Rest[1].AsInt64()
	if err != nil {
		return 0, UnreadableAnswer(err)
	}
	held, err := a.Rest[2].ToString()
	switch {
	case err != nil:
		return 0, UnreadableAnswer(err)
	case full != 0:
		err = &driver.Error{Code: driver.ErrFull, Detail: "the queue is full", RetryAfter: RetryAfter}
	case held != "":
		err = KeyHeld(held[:ident.TextLen], held[ident.TextLen:])
	}
	return int(n), err
}

// KeyHeld returns why a message cannot arrive: another one holds its unique key.
func KeyHeld(id, holder string) error {
	return &driver.Error{
		Code: driver.ErrConflict, MessageID: holder, Field: "UniqueKey",
		Detail: "is held by this message, so message " + id + " stays where it is",
	}
}
