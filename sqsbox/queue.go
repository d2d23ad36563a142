package sqsbox

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// queue is what all handles on a queue share.
type queue struct {
	backend *Backend
	name    string
	place
	arn      string
	handles  int // guarded by backend.mu
	settings atomic.Pointer[settings]

	sends   batcher[types.SendMessageBatchRequestEntry, types.SendMessageBatchResultEntry]
	acks    batcher[types.DeleteMessageBatchRequestEntry, struct{}]
	changes batcher[types.ChangeMessageVisibilityBatchRequestEntry, struct{}]
	polls   polls
	purges  purges

	ending sync.Once
	ended  chan struct{} // closed when the queue is gone, or the backend closed
	code   driver.Code   // why; readable when ended is closed
}

func newQueue(b *Backend, name string, at place, attributes map[string]string) *queue {
	q := &queue{backend: b, name: name, place: at, arn: attributes["QueueArn"], ended: make(chan struct{})}
	current := readSettings(b, at.physical, attributes)
	q.settings.Store(current)

	q.sends.backend, q.sends.parallel = b, b.options.Parallel
	if current.traits.StrictGroups {
		q.sends.parallel = 1 // two requests could overtake each other
	}
	q.sends.size = func(e types.SendMessageBatchRequestEntry) int {
		p := parcel{body: deref(e.MessageBody), attributes: e.MessageAttributes}
		return p.size()
	}
	q.sends.ask = q.askSend
	q.acks.backend, q.acks.parallel = b, b.options.Parallel
	q.acks.size = func(types.DeleteMessageBatchRequestEntry) int { return 0 }
	q.acks.ask = q.askDelete
	q.acks.forgiving = !current.traits.StrictGroups
	q.changes.backend, q.changes.parallel = b, b.options.Parallel
	q.changes.size = func(types.ChangeMessageVisibilityBatchRequestEntry) int { return 0 }
	q.changes.ask = q.askChange
	q.changes.forgiving = !current.traits.StrictGroups
	return q
}

func (q *queue) end(code driver.Code) {
	q.ending.Do(func() {
		q.code = code
		close(q.ended)
	})
}

func (q *queue) hasEnded() bool {
	select {
	case <-q.ended:
		return true
	default:
		return false
	}
}

func (q *queue) failure(code driver.Code, op string) error {
	return &driver.Error{Code: code, Op: op, Queue: q.name}
}

// trouble is the error of a request. A queue that SQS does not know any more is gone
// for every handle.
func (q *queue) trouble(ctx context.Context, err error) error {
	err = trouble(ctx, err)
	if isCode(err, driver.ErrNotFound) {
		q.backend.end(q, driver.ErrNotFound)
	}
	return err
}

// abandoned is the error of a request in the background: that of its context says that
// Close has waited for it long enough.
func (q *queue) abandoned(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Detail: "the backend was closed before SQS answered", Err: err}
	}
	return q.trouble(ctx, err)
}

// askSend, askDelete and askChange are the three requests for batches. Ids of
// entries are given here: they count from zero in every request.

func (q *queue) askSend(ctx context.Context, entries []types.SendMessageBatchRequestEntry) ([]answer[types.SendMessageBatchResultEntry], error) {
	ids := number(len(entries), func(i int, id *string) { entries[i].Id = id })
	output, err := q.backend.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: aws.String(q.url), Entries: entries}, OwnBodies)
	if err != nil {
		return nil, q.abandoned(ctx, err)
	}
	answers := sort[types.SendMessageBatchResultEntry](ids, output.Failed, false)
	for _, done := range output.Successful {
		if i, ok := ids[deref(done.Id)]; ok {
			answers[i] = answer[types.SendMessageBatchResultEntry]{result: done}
		}
	}
	return answers, nil
}

func (q *queue) askDelete(ctx context.Context, entries []types.DeleteMessageBatchRequestEntry) ([]answer[struct{}], error) {
	ids := number(len(entries), func(i int, id *string) { entries[i].Id = id })
	output, err := q.backend.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(q.url), Entries: entries}, OwnBodies)
	if err != nil {
		return nil, q.abandoned(ctx, err)
	}
	answers := sort[struct{}](ids, output.Failed, true)
	for _, done := range output.Successful {
		if i, ok := ids[deref(done.Id)]; ok {
			answers[i] = answer[struct{}]{}
		}
	}
	return answers, nil
}

func (q *queue) askChange(ctx context.Context, entries []types.ChangeMessageVisibilityBatchRequestEntry) ([]answer[struct{}], error) {
	ids := number(len(entries), func(i int, id *string) { entries[i].Id = id })
	output, err := q.backend.client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: aws.String(q.url), Entries: entries}, OwnBodies)
	if err != nil {
		return nil, q.abandoned(ctx, err)
	}
	answers := sort[struct{}](ids, output.Failed, true)
	for _, done := range output.Successful {
		if i, ok := ids[deref(done.Id)]; ok {
			answers[i] = answer[struct{}]{}
		}
	}
	return answers, nil
}

// digits are the ids of the entries of a request.
const digits = "0123456789"

// number gives each of n entries an id, and returns their positions by id.
func number(n int, set func(i int, id *string)) map[string]int {
	ids := make(map[string]int, n)
	for i := range n {
		id := strings.Clone(digits[i : i+1])
		ids[id] = i
		set(i, &id)
	}
	return ids
}

// sort puts refusals at their positions. What SQS says nothing about has an unknown
// outcome.
func sort[R any](ids map[string]int, failed []types.BatchResultErrorEntry, aboutReceipts bool) []answer[R] {
	answers := make([]answer[R], len(ids))
	for i := range answers {
		answers[i].err = &driver.Error{Code: driver.ErrUnavailable, Detail: "SQS did not say what became of it"}
	}
	for _, f := range failed {
		if i, ok := ids[deref(f.Id)]; ok {
			answers[i].err = refusal(f, aboutReceipts)
		}
	}
	return answers
}
