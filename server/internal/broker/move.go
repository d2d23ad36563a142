package broker

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// Move moves waiting messages of a queue to another one of the same tenant, as
// driver.Queue does and with the same codes; an empty to means the source of each dead
// letter. It needs a token for dlq and, if to is not empty, for sending to that queue.
// It blocks until the backend is done. Further codes: ErrUnsupported (the backend cannot
// move).
func (c Caller) Move(ctx context.Context, queue, to string, limit int) (moved int, err error) {
	if err := c.May(ctx, capability.OpDLQ, queue); err != nil {
		return 0, err
	}
	target := ""
	if to != "" {
		if err := c.May(ctx, capability.OpSend, to); err != nil {
			return 0, err
		}
		if target, err = backendName(c.tenant, to); err != nil {
			return 0, err
		}
	}
	defer func() { c.record("move", queue, to, moved, err) }()
	return inQueue(ctx, &c, "move", queue, lastForWrites, func(q *queueUse) (int, error) {
		if err := q.lacks(q.handle.Traits().Move, "move", "backend does not support moving messages"); err != nil {
			return 0, err
		}
		moved, err := q.handle.Move(ctx, target, limit)
		if err != nil && to != "" && errors.Is(err, driver.ErrNotFound) {
			// The target does not exist, not the source: hiding the code keeps the handle
			// of the source open.
			err = &driver.Error{Code: driver.ErrInvalid, Op: "move", Queue: queue, Field: "to", Detail: "queue does not exist", Err: errNoTarget}
		}
		q.meter.Redriven(moved)
		return moved, err
	})
}

// errNoTarget distinguishes a missing target from other errors.
var errNoTarget = errors.New("no target")

// NoTarget reports whether err of Move says that the target queue does not exist.
func NoTarget(err error) bool { return errors.Is(err, errNoTarget) }

// CanMove reports whether messages of a queue can be moved. It is authorised like
// Traits. Codes: as Traits.
func (c Caller) CanMove(ctx context.Context, queue string) (bool, error) {
	if err := c.authorizeUse(ctx, queue); err != nil {
		return false, err
	}
	return inQueue(ctx, &c, "open", queue, lastForReads, func(q *queueUse) (bool, error) {
		return q.handle.Traits().Move, nil
	})
}

// AllQueues lists the queues of all tenants, for work of the daemon itself. It may
// block on I/O; an error ends the sequence. It lists nothing if the backend's
// queues cannot be listed.
func (b *Broker) AllQueues(ctx context.Context) iter.Seq2[TenantQueue, error] {
	return func(yield func(TenantQueue, error) bool) {
		if b.admin == nil {
			return
		}
		for name, err := range b.admin.Queues(ctx) {
			if err != nil {
				yield(TenantQueue{}, err)
				return
			}
			if isReserved(name) {
				continue
			}
			if !yield(tenantQueueOf(name), nil) {
				return
			}
		}
	}
}

// tenantQueueOf reverses backendName for any tenant.
func tenantQueueOf(name string) TenantQueue {
	if rest, marked := strings.CutPrefix(name, tenantMark); marked {
		if tenant, queue, ok := strings.Cut(rest, tenantMark); ok {
			return TenantQueue{tenant, queue}
		}
	}
	return TenantQueue{"", name}
}
