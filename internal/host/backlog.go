package host

import (
	"errors"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/engine"
)

// backlog is the engine.Backlog of a shard: its messages in the journal.
type backlog struct {
	engine.Reader
	shard *shard
}

// CatchUp records effects. The shard is locked, because its engine calls it.
func (s *backlog) CatchUp(effects []engine.Effect) {
	for _, effect := range effects {
		s.shard.recordEffect(effect)
	}
}

// broken returns why the journal cannot be read, or nil. Messages that were read
// before stay valid, and writing is not affected.
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
