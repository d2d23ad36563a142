package redisbox

import (
	"context"
	"strconv"
	"time"
)

// arrival calls arrival.lua, and returns a code for each arrival.
func (s *shard) arrival(ctx context.Context, what string, within bool, names []string) (codes string, err error) {
	a, err := s.callDurably(ctx, arrivalScript, within, append([]string{what}, names...)...)
	if err != nil {
		return "", err
	}
	if codes, err = a.rest[0].ToString(); err != nil || len(codes) != len(names) {
		return "", unreadableAnswer(err)
	}
	return codes, nil
}

// A reservedMessage is a message that is marked as moving.
type reservedMessage struct {
	storedMessage
	entry   entry
	target  string // where it moves, see targetNote
	resumed bool   // another process has reserved it, and stalled
}

// targetNote identifies the queue that messages move to, by name and incarnation: an
// earlier queue with the same name may have refused or taken other messages.
func targetNote(q *shardQueue) string { return q.incarnation + " " + q.name }

// reserveRequest says which messages to reserve.
type reserveRequest struct {
	target string
	hold   time.Duration
	last   float64  // the latest place; 0: any
	limit  int      // how many at most
	named  []string // ids and places; nil: the first
}

// finishMoves calls move_finish.lua, with an id, a nonce and an outcome for each message. It
// returns a code for each.
func (s *shard) finishMoves(ctx context.Context, outcomes []string) (codes string, err error) {
	a, err := s.callDurably(ctx, moveFinishScript, true, outcomes...)
	if err != nil {
		return "", err
	}
	codes, err = a.rest[0].ToString()
	if err != nil || 3*len(codes) != len(outcomes) {
		return "", unreadableAnswer(err)
	}
	return codes, nil
}

// outbox returns the first dead letters that have to be forwarded.
func (s *shard) outbox(ctx context.Context) ([]storedMessage, error) {
	return s.peek(ctx, "outbox", "-inf", 0, peekPage, false, nil)
}

// forwarded calls forward.lua, with an id, a death and an outcome for each dead letter.
func (s *shard) forwarded(ctx context.Context, outcomes []string) error {
	_, err := s.callDurably(ctx, forwardScript, true, outcomes...)
	return err
}

// reserve calls move_reserve.lua. It returns the latest place that was given out, and
// whether there may be more messages.
func (s *shard) reserve(ctx context.Context, r reserveRequest) (out []reservedMessage, last float64, more bool, err error) {
	nonce := newNonce()
	args := append([]string{
		strconv.FormatUint(nonce, 10), r.target, decimal(micros(r.hold)), decimal(r.last),
		strconv.Itoa(r.limit), strconv.Itoa(peekBytes),
	}, r.named...)
	a, err := s.callDurably(ctx, moveReserveScript, true, args...)
	if err != nil {
		return nil, 0, false, err
	}
	texts := make([]string, len(a.rest))
	for i := range a.rest {
		if i == 1 { // a number
			continue
		}
		if texts[i], err = a.rest[i].ToString(); err != nil {
			return nil, 0, false, unreadableAnswer(err)
		}
	}
	left, err := a.rest[1].AsInt64()
	if err != nil {
		return nil, 0, false, unreadableAnswer(err)
	}
	for rest := texts[2:]; len(rest) >= 3; rest = rest[3:] {
		d := reservedMessage{storedMessage: storedMessage{id: rest[0], sent: rest[2]}}
		if d.entry, _ = readEntry(rest[1]); d.entry.nonce == 0 {
			return nil, 0, false, unreadableAnswer(nil)
		}
		d.target, d.resumed = d.entry.errorType, d.entry.nonce&^(noncesPerCall-1) != nonce
		out = append(out, d)
	}
	return out, number(texts[0]), left != 0, nil
}
