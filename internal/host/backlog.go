package host

import (
	"errors"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// shelf is the journal as the engine of a shard reads it.
type backlog struct {
	engine.Reader
	shard *shard
}

// CatchUp writes down what happened of itself. The shard is locked: the engine
// calls it from inside.
func (s *backlog) CatchUp(effects []engine.Effect) {
	for _, effect := range effects {
		s.shard.recordEffect(effect)
	}
}

// broken returns why a journal cannot be read, or nil. What was read before is
// fine, and so is writing.
func (q *queue) broken(op string) error {
	if q.journal == nil {
		return nil
	}
	for _, sh := range q.shards {
		sh.lock()
		err := sh.reader.Err()
		sh.unlock()
		switch {
		case err == nil:
		case errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnavailable):
			return q.named(err, op)
		default:
			return &driver.Error{Code: driver.ErrIntegrity, Op: op, Queue: q.name, Err: err}
		}
	}
	return nil
}
