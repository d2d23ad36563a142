package sqsbox

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// handle is one open handle on a queue.
type handle struct {
	driver.Unsupported
	*queue
	closed  chan struct{}
	closing sync.Once
}

var _ driver.Queue = (*handle)(nil)

func newHandle(q *queue) *handle { return &handle{queue: q, closed: make(chan struct{})} }

// check returns an error if the handle or the queue is closed, or ctx over.
func (h *handle) check(ctx context.Context, op string) error {
	select {
	case <-h.closed:
		return h.failure(driver.ErrClosed, op)
	default:
	}
	if h.hasEnded() {
		return h.failure(h.code, op)
	}
	return ctx.Err()
}

func (h *handle) Traits() driver.Traits { return h.settings.Load().traits }

func (h *handle) Close() error {
	h.closing.Do(func() {
		close(h.closed)
		h.backend.release(h.queue)
	})
	return nil
}

func (h *handle) Stats(ctx context.Context) (driver.Stats, error) {
	if err := h.check(ctx, "stats"); err != nil {
		return driver.Stats{}, err
	}
	stats, err := h.count(ctx)
	return stats, driver.Annotate(err, h.name, "stats")
}

// count returns the estimates of SQS. Dead letters are in another queue.
func (q *queue) count(ctx context.Context) (driver.Stats, error) {
	output, err := q.backend.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(q.url),
		AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameApproximateNumberOfMessages,
			types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
			types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		},
	}, OwnBodies)
	if err != nil {
		return driver.Stats{}, q.requestError(ctx, err)
	}
	number := func(name types.QueueAttributeName) int { return readNumber(output.Attributes[string(name)], 0) }
	return driver.Stats{
		Ready:    number(types.QueueAttributeNameApproximateNumberOfMessages),
		Delayed:  number(types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
		InFlight: number(types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
	}, nil
}

// purges enforces the limit of SQS: one purge of a queue per minute.
type purges struct {
	mu   sync.Mutex // guards last
	last time.Time
}

// begin returns how long to wait before the next purge; 0 means that it may start.
func (p *purges) begin() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := purgeCooldown - time.Since(p.last); !p.last.IsZero() && wait > 0 {
		return wait
	}
	p.last = time.Now()
	return 0
}

func (p *purges) failed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Time{}
}

// Purge returns the estimate of SQS just before the purge.
func (h *handle) Purge(ctx context.Context) (removed int, err error) {
	if err := h.check(ctx, "purge"); err != nil {
		return 0, err
	}
	if wait := h.purges.begin(); wait > 0 {
		return 0, &driver.Error{
			Code: driver.ErrFull, Op: "purge", Queue: h.name, RetryAfter: wait,
			Detail: "SQS allows one purge of a queue in " + purgeCooldown.String(),
		}
	}
	stats, err := h.count(ctx)
	if err == nil {
		_, err = h.backend.client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: aws.String(h.url)}, OwnBodies)
		err = h.requestError(ctx, err)
	}
	if err != nil {
		h.purges.failed()
		return 0, driver.Annotate(err, h.name, "purge")
	}
	h.backend.leases.forget(h.physical)
	return stats.Waiting(), nil
}

// asBatch returns the error of a batch with these errors at its positions.
func asBatch(errs []error) error { return driver.NewBatchError(errs) }
