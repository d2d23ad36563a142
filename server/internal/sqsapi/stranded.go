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

// The backend keeps a message that dies as a dead letter of its own queue if the queue
// for dead letters is full, or was deleted. Clients of SQS cannot see it there: AWS goes
// on delivering it. So a queue whose dead letters have nowhere to go lets nothing die,
// and what has been stranded nevertheless comes back.

const (
	// strandedAfter is how old a dead letter is that is not just on its way.
	strandedAfter = driver.DeadRetry
	// strandedStep is how many come back at a time.
	strandedStep = 100
)

// aim makes the configuration of a queue say where its dead letters go: to the queue of
// its redrive policy as long as that is there, and otherwise nowhere. It leaves queues
// alone that have no policy.
func (s *Service) aim(ctx context.Context, q *queue) error {
	policy, ok := q.redrivePolicy()
	if !ok {
		return nil
	}
	target, err := s.load(ctx, broker.TenantQueue{Tenant: q.Tenant, Queue: policy.queue})
	switch {
	case err == nil && (q.config.DeadLetterTo == target.Queue || target.takes(q)):
		q.bury(&q.config)
	case err == nil, errors.Is(err, sqswire.QueueDoesNotExist):
		q.config.MaxDeliveries, q.config.DeadLetterTo = driver.Off, ""
	default:
		return err
	}
	return nil
}

// takes reports whether a queue can be the one for the dead letters of another.
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

// mend looks after a queue that was just read: where its dead letters go, and, for who
// wants its messages or their number, whether some were stranded. What fails is tried
// again when the queue is read again.
func (r *request) mend(ctx context.Context, q *queue) *queue {
	s := r.service
	daemon, err := s.daemon(q.Tenant)
	if err != nil {
		return q
	}
	aimed := *q
	if err = s.aim(ctx, &aimed); err == nil && aimed.config.DeadLetterTo != q.config.DeadLetterTo {
		var changed *queue
		if changed, err = s.change(ctx, daemon, q.TenantQueue, func(*queue) error { return nil }); err == nil {
			q = changed
		}
	}
	wanted := r.action == sqswire.ReceiveMessage || r.action == sqswire.GetQueueAttributes
	if err == nil && wanted && q.Created != 0 { // else it was made for others, who look after its dead letters
		err = s.bringBack(ctx, daemon, q)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, driver.ErrUnavailable) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "sqs.stranded", slog.String("queue", q.Queue), slog.String("error", err.Error()))
	}
	return q
}

// bringBack makes messages ready again that were received too often and did not get to
// the queue for dead letters.
func (s *Service) bringBack(ctx context.Context, daemon broker.Caller, q *queue) error {
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
		return nil // they wait until there is room
	}
	return err
}

// buriesIn reports whether the dead letters of a queue go to another one, or would if
// that were there.
func buriesIn(name string, config *driver.Config, target string) bool {
	if config.DeadLetterTo != "" {
		return config.DeadLetterTo == target
	}
	if !strings.Contains(config.Annotation, target) { // which spares reading it
		return false
	}
	own := readSettings(name, config)
	policy, ok := own.redrivePolicy()
	return ok && policy.queue == target
}
