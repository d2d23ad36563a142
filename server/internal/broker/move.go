package broker

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
)

// Move moves waiting messages of a topic to another one of the same tenant, as
// driver.Queue does and with the same codes; an empty to means where each of them
// died. It needs a token for dead letters, and one for sending to the other topic
// if that is named. It blocks until the backend has done it. Codes besides:
// ErrUnsupported (the backend cannot move).
func (c Caller) Move(ctx context.Context, topic, to string, limit int) (moved int, err error) {
	if err := c.May(ctx, capability.OpDLQ, topic); err != nil {
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
	defer func() { c.record("move", topic, to, moved, err) }()
	return inTopic(ctx, &c, "move", topic, lastForWrites, func(t *topicUse) (int, error) {
		if err := t.lacks(t.queue.Traits().Move, "move", "the backend cannot move messages"); err != nil {
			return 0, err
		}
		moved, err := t.queue.Move(ctx, target, limit)
		if err != nil && to != "" && errors.Is(err, driver.ErrNotFound) {
			// The handle is good; it is the other topic that is not there. Hiding the
			// code keeps the handle.
			err = &driver.Error{Code: driver.ErrInvalid, Op: "move", Queue: topic, Field: "to", Detail: "there is no such topic", Err: errNoTarget}
		}
		t.meter.Redriven(moved)
		return moved, err
	})
}

// errNoTarget tells a target that is gone from other errors.
var errNoTarget = errors.New("no target")

// NoTarget reports whether err of Move says that the other topic is not there.
func NoTarget(err error) bool { return errors.Is(err, errNoTarget) }

// CanMove reports whether messages of a topic can be moved. It is authorised like
// Traits. Codes: as Traits.
func (c Caller) CanMove(ctx context.Context, topic string) (bool, error) {
	if err := c.authorizeUse(ctx, topic); err != nil {
		return false, err
	}
	return inTopic(ctx, &c, "open", topic, lastForReads, func(t *topicUse) (bool, error) {
		return t.queue.Traits().Move, nil
	})
}

// A Place is a topic of a tenant.
type Place struct{ Tenant, Topic string }

// Places lists the topics of all tenants, for work of the daemon itself. It may
// block on I/O; an error ends the sequence. It lists nothing if the backend's
// queues cannot be listed.
func (b *Broker) Places(ctx context.Context) iter.Seq2[Place, error] {
	return func(yield func(Place, error) bool) {
		if b.admin == nil {
			return
		}
		for name, err := range b.admin.Queues(ctx) {
			if err != nil {
				yield(Place{}, err)
				return
			}
			if isReserved(name) {
				continue
			}
			if !yield(placeOf(name), nil) {
				return
			}
		}
	}
}

// placeOf is the reverse of backendName for any tenant.
func placeOf(name string) Place {
	if rest, marked := strings.CutPrefix(name, tenantMark); marked {
		if tenant, topic, ok := strings.Cut(rest, tenantMark); ok {
			return Place{tenant, topic}
		}
	}
	return Place{"", name}
}
