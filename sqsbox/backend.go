package sqsbox

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/backoff"
)

// Backend holds queues in SQS. It is a driver.Opener, a driver.Admin and a
// driver.Pinger, and safe for concurrent use. Any number of processes can use the
// same queues, Mailbox or not.
type Backend struct {
	client   API
	options  Options
	identity uint64 // identifies this backend in receipts
	leases   *leases
	local    *localState

	mu       sync.Mutex // guards the fields below
	queues   map[string]*queue
	requests map[*request]struct{} // under way
	idle     *sync.Cond            // signalled when a request ends
	closed   bool
	drained  bool // Close has waited for all requests; no more may start
}

// A request to SQS that outlives the call that made it.
type request struct{ cancel context.CancelFunc }

var (
	_ driver.Opener = (*Backend)(nil)
	_ driver.Admin  = (*Backend)(nil)
	_ driver.Pinger = (*Backend)(nil)
)

// Open returns a backend for the queues that client reaches: at AWS, or at another
// server that speaks the protocol. It checks the options, and does no I/O. The caller keeps the client.
// Codes: ErrInvalid (an option).
func Open(ctx context.Context, client API, options *Options) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := &Backend{
		client: client, options: options.withDefaults(), identity: newIdentity(),
		leases: newLeases(), local: newLocalState(),
		queues: make(map[string]*queue), requests: make(map[*request]struct{}),
	}
	b.idle = sync.NewCond(&b.mu)
	if err := b.options.check(); err != nil {
		return nil, err
	}
	return b, nil
}

// OpenQueue returns a handle on the queue called name. A name that ends in .fifo is
// that of a FIFO queue; any other is looked up unchanged, and then with .fifo
// appended. With Options.Create a queue that does not exist is created.
//
// It blocks for one to four requests, unless the queue is open already. Codes:
// ErrInvalid, ErrNotFound, ErrClosed, ErrForbidden, ErrUnauthenticated,
// ErrUnavailable.
func (b *Backend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := b.acquire(ctx, name)
	if err != nil {
		return nil, driver.Annotate(err, name, "open")
	}
	return newHandle(q), nil
}

// acquire returns the queue if it is open in this process, and opens it otherwise.
// Each call needs one release.
func (b *Backend) acquire(ctx context.Context, name string) (*queue, error) {
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
	for limit := time.Now().Add(createPropagation); isNew && isCode(err, driver.ErrNotFound) && time.Now().Before(limit); {
		if err = backoff.Pause(ctx, createPropagation/20); err == nil {
			attributes, err = b.attributes(ctx, at.url)
		}
	}
	if err != nil {
		return nil, err
	}
	return b.admit(newQueue(b, name, at, attributes))
}

// createPropagation is how long SQS may report a new queue as missing.
const createPropagation = 5 * time.Second

// check returns an error if the name is invalid, the backend closed or ctx over.
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

// join returns the queue and counts a handle on it, if it is open.
func (b *Backend) join(name string) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[name]
	if q != nil {
		q.handles++
	}
	return q
}

// admit adds a queue that was opened, or returns the one that another goroutine
// added first.
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

// release is called once for each handle, and forgets the queue with the last one.
func (b *Backend) release(q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q.handles--
	if q.handles == 0 && b.queues[q.name] == q {
		delete(b.queues, q.name)
	}
}

// end makes every operation on the queue fail with code from now on.
func (b *Backend) end(q *queue, code driver.Code) {
	b.mu.Lock()
	if b.queues[q.name] == q {
		delete(b.queues, q.name)
	}
	b.mu.Unlock()
	q.end(code)
}

// known returns the open queues with a name at SQS: a FIFO queue can be open with and
// without its suffix.
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

// A location is where SQS has a queue.
type location struct {
	url      string
	physical string // its name at SQS
}

// find looks up a queue by the names it may have at SQS. Codes: ErrNotFound.
func (b *Backend) find(ctx context.Context, name string) (location, error) {
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
			return location{url: deref(output.QueueUrl), physical: physical}, nil
		}
		if err = driverError(ctx, err); !isCode(err, driver.ErrNotFound) {
			return location{}, err
		}
	}
	return location{}, err
}

// create creates a queue, with attributes besides those that every queue gets.
func (b *Backend) create(ctx context.Context, name string, fifo bool, attributes map[string]string) (location, error) {
	physical := physicalName(b.options.Prefix, name, fifo)
	input := &sqs.CreateQueueInput{QueueName: aws.String(physical), Attributes: newQueueAttributes(physical, attributes)}
	if isCut(physical) {
		input.Tags = tagsOf(name)
	}
	output, err := b.client.CreateQueue(ctx, input, OwnBodies)
	if err == nil {
		return location{url: deref(output.QueueUrl), physical: physical}, nil
	}
	if err = driverError(ctx, err); isCode(err, driver.ErrConflict) {
		return b.find(ctx, name) // created concurrently, with other attributes
	}
	return location{}, err
}

// attributes returns all attributes of a queue.
func (b *Backend) attributes(ctx context.Context, url string) (map[string]string, error) {
	output, err := b.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: aws.String(url), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	}, OwnBodies)
	if err != nil {
		return nil, driverError(ctx, err)
	}
	return output.Attributes, nil
}

// Ping lists one queue at most, and so needs the permission ListQueues. Codes:
// ErrClosed, ErrForbidden, ErrUnauthenticated, ErrUnavailable.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.check(ctx, "ping"); err != nil {
		return driver.Annotate(err, "", "ping")
	}
	_, err := b.client.ListQueues(ctx, &sqs.ListQueuesInput{MaxResults: aws.Int32(1)}, OwnBodies)
	return driver.Annotate(driverError(ctx, err), "", "ping")
}

// start runs do in the background, with a context that outlives ctx and ends only when
// Close has waited for Options.Linger. It reports false, and does nothing, after Close.
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

// Close closes all handles, so that waiting receives return at once, and waits up to
// Options.Linger for the requests under way, so that messages they return can be given
// back. Messages are not touched. Closing twice is safe.
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
