package sqsapi

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// The backend keeps a dead letter in its own queue if the dead-letter queue is full or
// was deleted. SQS clients cannot see it there, while AWS would go on delivering it. So a
// queue without an existing dead-letter queue has no delivery limit, and messages that
// were stranded as dead letters are redriven.

const (
	// strandedAfter is the age of a dead letter that is not just being forwarded.
	strandedAfter = driver.DeadRetry
	// strandedStep is how many are redriven at once.
	strandedStep = 100
)

// aimDeadLetters sets the dead-letter queue in the configuration of a queue: the one of
// its redrive policy while that exists, and otherwise none. It does not change queues
// without a policy.
func (s *Service) aimDeadLetters(ctx context.Context, q *queue) error {
	policy, ok := q.redrivePolicy()
	if !ok {
		return nil
	}
	target, err := s.load(ctx, broker.TenantQueue{Tenant: q.Tenant, Queue: policy.queue})
	switch {
	case err == nil && (q.config.DeadLetterTo == target.Queue || target.takes(q)):
		q.setDeadLetters(&q.config)
	case err == nil, errors.Is(err, sqswire.QueueDoesNotExist):
		q.config.MaxDeliveries, q.config.DeadLetterTo = driver.Off, ""
	default:
		return err
	}
	return nil
}

// takes reports whether q can be the dead-letter queue of source.
func (q *queue) takes(source *queue) bool {
	if q.FIFO != source.FIFO {
		return false
	}
	if q.RedriveAllow == "" {
		return true
	}
	allow, err := parseRedriveAllowPolicy(q.RedriveAllow)
	return err == nil && allow.allows(accountOf(source.Tenant), source.Queue)
}

// repairDeadLetters updates the dead-letter queue of a queue that was just read and, for
// actions that receive or count messages, redrives stranded ones. After a failure it
// tries again when the queue is read next.
func (r *request) repairDeadLetters(ctx context.Context, q *queue) *queue {
	s := r.service
	daemon, err := s.daemon(q.Tenant)
	if err != nil {
		return q
	}
	aimed := *q
	if err = s.aimDeadLetters(ctx, &aimed); err == nil && aimed.config.DeadLetterTo != q.config.DeadLetterTo {
		var changed *queue
		if changed, err = s.change(ctx, daemon, q.TenantQueue, func(*queue) error { return nil }); err == nil {
			q = changed
		}
	}
	wanted := r.action == sqswire.ReceiveMessage || r.action == sqswire.GetQueueAttributes
	if err == nil && wanted && q.Created != 0 { // dead letters of other surfaces' queues stay
		err = s.redriveStranded(ctx, daemon, q)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, driver.ErrUnavailable) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "sqs.stranded", slog.String("queue", q.Queue), slog.String("error", err.Error()))
	}
	return q
}

// redriveStranded redrives messages that reached the delivery limit and did not get to the
// dead-letter queue.
func (s *Service) redriveStranded(ctx context.Context, daemon broker.Caller, q *queue) error {
	stats, err := daemon.Stats(ctx, q.Queue)
	if err != nil || stats.Dead == 0 {
		return err
	}
	var ids []string
	for letter, err := range daemon.DeadLetters(ctx, q.Queue) {
		if err != nil {
			return err
		}
		if len(ids) == strandedStep || time.Since(letter.DeadAt) < strandedAfter {
			break // the oldest come first
		}
		if letter.Reason == driver.ReasonMaxDeliveries {
			ids = append(ids, letter.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err = daemon.Redrive(ctx, q.Queue, ids, 0)
	if errors.Is(err, driver.ErrFull) {
		return nil // they stay until there is room
	}
	return err
}

// deadLettersTo reports whether the dead letters of a queue go to target, or would if it
// existed.
func deadLettersTo(name string, config *driver.Config, target string) bool {
	if config.DeadLetterTo != "" {
		return config.DeadLetterTo == target
	}
	if !strings.Contains(config.Annotation, target) { // saves parsing it
		return false
	}
	own := readSettings(name, config)
	policy, ok := own.redrivePolicy()
	return ok && policy.queue == target
}
