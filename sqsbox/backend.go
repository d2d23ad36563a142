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

// Backend holds queues in SQS. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use. Any number of processes can use the
// same queues, Mailbox or not.
type Backend struct {
	client   API
	options  Options
	identity uint64 // of this backend, in receipts
	leases   *leases
	recall   *recall

	mu       sync.Mutex // guards the fields below
	queues   map[string]*queue
	requests map[*request]struct{} // under way
	idle     *sync.Cond            // there are none, or one fewer
	closed   bool
	drained  bool // Close has waited for all requests, and there are to be no more
}

// A request is one that outlives the call that made it.
type request struct{ cancel context.CancelFunc }

var (
	_ driver.Opener = (*Backend)(nil)
	_ driver.Admin  = (*Backend)(nil)
	_ driver.Pinger = (*Backend)(nil)
)

// New returns the queues that are, or will be, where client leads to: AWS, or
// whatever else speaks its protocol. It does no I/O. The client stays the caller's.
// Codes: ErrInvalid (an option).
func New(client API, options *Options) (*Backend, error) {
	b := &Backend{
		client: client, options: options.withDefaults(), identity: newIdentity(),
		leases: newLeases(), recall: newRecall(),
		queues: make(map[string]*queue), requests: make(map[*request]struct{}),
	}
	b.idle = sync.NewCond(&b.mu)
	if err := b.options.check(); err != nil {
		return nil, err
	}
	return b, nil
}

// OpenQueue returns a handle on the queue called name. A name that ends in .fifo is
// that of a FIFO queue; any other is looked for as it is, and then with .fifo after
// it. With Options.Create a queue that is not there is made.
//
// It blocks for one to four requests, unless the queue is open already. Codes:
// ErrInvalid, ErrNotFound, ErrClosed, ErrForbidden, ErrUnauthenticated,
// ErrUnavailable.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.enter(ctx, name)
	if err != nil {
		return nil, named(err, name, "open")
	}
	return newHandle(q), nil
}

// enter opens a queue, or joins those who have it open in this process.
func (b *Backend) enter(ctx context.Context, name string) (*queue, error) {
	if err := b.check(ctx, name); err != nil {
		return nil, err
	}
	if q := b.join(name); q != nil {
		return q, nil
	}
	at, err := b.find(ctx, name)
	isNew := isCode(err, driver.ErrNotFound) && b.options.Create
	if isNew {
		at, err = b.create(ctx, name, false, nil)
	}
	if err != nil {
		return nil, err
	}
	attributes, err := b.attributes(ctx, at.url)
	for limit := time.Now().Add(birth); isNew && isCode(err, driver.ErrNotFound) && time.Now().Before(limit); {
		if err = pause(ctx, birth/20); err == nil {
			attributes, err = b.attributes(ctx, at.url)
		}
	}
	if err != nil {
		return nil, err
	}
	return b.admit(newQueue(b, name, at, attributes))
}

// birth is how long SQS may not know a queue that it has made.
const birth = 5 * time.Second

// pause waits, and returns the error of ctx if that ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check returns why nothing can be done with a queue of this name.
func (b *Backend) check(ctx context.Context, name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return &driver.Error{Code: driver.ErrClosed}
	}
	return ctx.Err()
}

// join returns the queue if it is open.
func (b *Backend) join(name string) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q != nil {
		q.handles++
	}
	return q
}

// admit adds a queue that was opened, unless somebody was faster.
func (b *Backend) admit(q *queue) (*queue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, &driver.Error{Code: driver.ErrClosed}
	}
	if other := b.queues[q.name]; other != nil {
		q = other
	} else {
		b.queues[q.name] = q
	}
	q.handles++
	return q, nil
}

// leave is called once by each handle.
func (b *Backend) leave(q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q.handles--
	if q.handles == 0 && b.queues[q.name] == q {
		delete(b.queues, q.name)
	}
}

// end makes every handle on a queue answer with a code from now on.
func (b *Backend) end(q *queue, code driver.Code) {
	b.mu.Lock()
	if b.queues[q.name] == q {
		delete(b.queues, q.name)
	}
	b.mu.Unlock()
	q.end(code)
}

// known returns the queue if it is open, under one name or two.
func (b *Backend) known(physical string) (found []*queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		if q.physical == physical {
			found = append(found, q)
		}
	}
	return found
}

// A place is where a queue is.
type place struct {
	url      string
	physical string
}

// find looks for a queue under the names it may have at SQS. Codes: ErrNotFound.
func (b *Backend) find(ctx context.Context, name string) (place, error) {
	err := error(&driver.Error{Code: driver.ErrNotFound})
	tried := ""
	for _, fifo := range []bool{false, true} {
		physical := physicalName(b.options.Prefix, name, fifo)
		if physical == tried {
			break
		}
		tried = physical
		var output *sqs.GetQueueUrlOutput
		output, err = b.client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(physical)}, OwnBodies)
		if err == nil {
			return place{url: deref(output.QueueUrl), physical: physical}, nil
		}
		if err = trouble(ctx, err); !isCode(err, driver.ErrNotFound) {
			return place{}, err
		}
	}
	return place{}, err
}

// create makes a queue, with attributes beyond those that every queue has.
func (b *Backend) create(ctx context.Context, name string, fifo bool, attributes map[string]string) (place, error) {
	physical := physicalName(b.options.Prefix, name, fifo)
	input := &sqs.CreateQueueInput{QueueName: aws.String(physical), Attributes: newQueueAttributes(physical, attributes)}
	if isCut(physical) {
		input.Tags = tagsOf(name)
	}
	output, err := b.client.CreateQueue(ctx, input, OwnBodies)
	if err == nil {
		return place{url: deref(output.QueueUrl), physical: physical}, nil
	}
	if err = trouble(ctx, err); isCode(err, driver.ErrConflict) {
		return b.find(ctx, name) // somebody was faster, and has other attributes in mind
	}
	return place{}, err
}

// attributes returns all attributes of a queue.
func (b *Backend) attributes(ctx context.Context, url string) (map[string]string, error) {
	output, err := b.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(url), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	}, OwnBodies)
	if err != nil {
		return nil, trouble(ctx, err)
	}
	return output.Attributes, nil
}

// Ping asks SQS for the names of queues, one at most, and so needs the permission to
// list them. Codes: ErrClosed, ErrForbidden, ErrUnauthenticated, ErrUnavailable.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.check(ctx, "ping"); err != nil {
		return named(err, "", "ping")
	}
	_, err := b.client.ListQueues(ctx, &sqs.ListQueuesInput{MaxResults: aws.Int32(1)}, OwnBodies)
	return named(trouble(ctx, err), "", "ping")
}

// start does something in the background that must go on when the caller of ctx has
// left: its context ends only when Close has waited long enough. It reports false
// when that is so already.
func (b *Backend) start(ctx context.Context, do func(context.Context)) bool {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &request{cancel: cancel}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained {
		cancel()
		return false
	}
	b.requests[r] = struct{}{}
	go func() {
		do(ctx)
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.requests, r)
		b.idle.Broadcast()
	}()
	return true
}

// Close closes all handles, so that receives that wait return at once, and waits for
// the requests that are under way, so that messages they bring can be given back:
// for Options.Linger at most. Messages are not touched. Closing twice is fine.
func (b *Backend) Close() error {
	b.mu.Lock()
	queues := b.queues
	b.queues = make(map[string]*queue)
	b.closed = true
	b.mu.Unlock()
	for _, q := range queues {
		q.end(driver.ErrClosed)
	}
	abandon := time.AfterFunc(b.options.Linger, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for r := range b.requests {
			r.cancel()
		}
	})
	defer abandon.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.requests) > 0 {
		b.idle.Wait()
	}
	b.drained = true
	return nil
}
