package shard

import (
	"context"
	"strconv"
	"time"
)

// Arrival calls arrival.lua, and returns a code for each arrival.
func (s *Shard) Arrival(ctx context.Context, what string, within bool, names []string) (codes string, err error) {
	a, err := s.CallDurably(ctx, arrivalScript, within, append([]string{what}, names...)...)
	if err != nil {
		return "", err
	}
	if codes, err = a.Rest[0].ToString(); err != nil || len(codes) != len(names) {
		return "", UnreadableAnswer(err)
	}
	return codes, nil
}

// A ReservedMessage is a message that is marked as moving.
type ReservedMessage struct {
	StoredMessage
	Entry   entry
	Target  string // where it moves, see TargetNote
	Resumed bool   // another process has reserved it, and stalled
}

// TargetNote identifies the queue that messages move to, by name and incarnation: an
// earlier queue with the same name may have refused or taken other messages.
func TargetNote(q *Queue) string { return q.Incarnation + " " + q.Name }

// ReserveRequest says which messages to reserve.
type ReserveRequest struct {
	Target string
	Hold   time.Duration
	Last   float64  // the latest place; 0: any
	Limit  int      // how many at most
	Named  []string // ids and places; nil: the first
}

// FinishMoves calls move_finish.lua, with an id, a nonce and an outcome for each message. It
// returns a code for each.
func (s *Shard) FinishMoves(ctx context.Context, outcomes []string) (codes string, err error) {
	a, err := s.CallDurably(ctx, MoveFinishScript, true, outcomes...)
	if err != nil {
		return "", err
	}
	codes, err = a.Rest[0].ToString()
	if err != nil || 3*len(codes) != len(outcomes) {
		return "", UnreadableAnswer(err)
	}
	return codes, nil
}

// Outbox returns the first dead letters that have to be forwarded.
func (s *Shard) Outbox(ctx context.Context) ([]StoredMessage, error) {
	return s.Peek(ctx, "outbox", "-inf", 0, peekPage, false, nil)
}

// Forwarded calls forward.lua, with an id, a death and an outcome for each dead letter.
func (s *Shard) Forwarded(ctx context.Context, outcomes []string) error {
	_, err := s.CallDurably(ctx, ForwardScript, true, outcomes...)
	return err
}

// Reserve calls move_reserve.lua. It returns the latest place that was given out, and
// whether there may be more messages.
func (s *Shard) Reserve(ctx context.Context, r ReserveRequest) (out []ReservedMessage, last float64, more bool, err error) {
	nonce := newNonce()
	args := append([]string{
		strconv.FormatUint(nonce, 10), r.Target, Decimal(Micros(r.Hold)), Decimal(r.Last),
		strconv.Itoa(r.Limit), strconv.Itoa(peekBytes),
	}, r.Named...)
	a, err := s.CallDurably(ctx, MoveReserveScript, true, args...)
	if err != nil {
		return nil, 0, false, err
	}
	texts := make([]string, len(a.Rest))
	for i := range a.Rest {
		if i == 1 { // a number
			continue
		}
		if texts[i], err = a.Rest[i].ToString(); err != nil {
			return nil, 0, false, UnreadableAnswer(err)
		}
	}
	left, err := a.Rest[1].AsInt64()
	if err != nil {
		return nil, 0, false, UnreadableAnswer(err)
	}
	for rest := texts[2:]; len(rest) >= 3; rest = rest[3:] {
		d := ReservedMessage{StoredMessage: StoredMessage{ID: rest[0], Sent: rest[2]}}
		if d.Entry, _ = ReadEntry(rest[1]); d.Entry.Nonce == 0 {
			return nil, 0, false, UnreadableAnswer(nil)
		}
		d.Target, d.Resumed = d.Entry.errorType, d.Entry.Nonce&^(NoncesPerCall-1) != nonce
		out = append(out, d)
	}
	return out, Number(texts[0]), left != 0, nil
}
