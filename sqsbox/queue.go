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

// queue is the state that all handles on a queue share.
type queue struct {
	backend *Backend
	name    string
	location
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
	code   driver.Code   // the reason; readable when ended is closed
}

func newQueue(b *Backend, name string, at location, attributes map[string]string) *queue {
	q := &queue{backend: b, name: name, location: at, arn: attributes["QueueArn"], ended: make(chan struct{})}
	current := readSettings(b, at.physical, attributes)
	q.settings.Store(current)

	q.sends.backend, q.sends.parallel = b, b.options.Parallel
	if current.traits.StrictGroups {
		q.sends.parallel = 1 // one request could overtake another
	}
	q.sends.size = func(e types.SendMessageBatchRequestEntry) int {
		p := wireMessage{body: deref(e.MessageBody), attributes: e.MessageAttributes}
		return p.size()
	}
	q.sends.ask = q.askSend
	q.acks.backend, q.acks.parallel = b, b.options.Parallel
	q.acks.size = func(types.DeleteMessageBatchRequestEntry) int { return 0 }
	q.acks.ask = q.askDelete
	q.acks.confirmsLate = !current.traits.StrictGroups
	q.changes.backend, q.changes.parallel = b, b.options.Parallel
	q.changes.size = func(types.ChangeMessageVisibilityBatchRequestEntry) int { return 0 }
	q.changes.ask = q.askChange
	q.changes.confirmsLate = !current.traits.StrictGroups
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

// requestError translates the error of a request. If SQS does not know the queue any
// more, all its handles end.
func (q *queue) requestError(ctx context.Context, err error) error {
	err = driverError(ctx, err)
	if isCode(err, driver.ErrNotFound) {
		q.backend.end(q, driver.ErrNotFound)
	}
	return err
}

// backgroundError translates the error of a request in the background, whose context
// ends only when Close has waited for Options.Linger.
func (q *queue) backgroundError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &driver.Error{Code: driver.ErrUnavailable, Detail: "the backend was closed before SQS responded", Err: err}
	}
	return q.requestError(ctx, err)
}

// askSend, askDelete and askChange make the three batch requests. They number the
// entries of each request from zero.

func (q *queue) askSend(ctx context.Context, entries []types.SendMessageBatchRequestEntry) ([]answer[types.SendMessageBatchResultEntry], error) {
	ids := number(len(entries), func(i int, id *string) { entries[i].Id = id })
	output, err := q.backend.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: aws.String(q.url), Entries: entries}, OwnBodies)
	if err != nil {
		return nil, q.backgroundError(ctx, err)
	}
	answers := refusals[types.SendMessageBatchResultEntry](ids, output.Failed, false)
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
		return nil, q.backgroundError(ctx, err)
	}
	answers := refusals[struct{}](ids, output.Failed, true)
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
		return nil, q.backgroundError(ctx, err)
	}
	answers := refusals[struct{}](ids, output.Failed, true)
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

// refusals puts the failed entries at their positions. The outcome of an entry that SQS
// does not mention is unknown.
func refusals[R any](ids map[string]int, failed []types.BatchResultErrorEntry, aboutReceipts bool) []answer[R] {
	answers := make([]answer[R], len(ids))
	for i := range answers {
		answers[i].err = &driver.Error{Code: driver.ErrUnavailable, Detail: "the response of SQS has no result for this entry"}
	}
	for _, f := range failed {
		if i, ok := ids[deref(f.Id)]; ok {
			answers[i].err = refusal(f, aboutReceipts)
		}
	}
	return answers
}
