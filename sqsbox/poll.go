package sqsbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/oklog/ulid/v2"

	"github.com/mailboxmq/mailbox/driver"
)

// travel is how long an answer may have been on its way: a lease of SQS may be so
// much older than its arrival.
const travel = 50 * time.Millisecond

// unaskable is asked for, in seconds, where a receiver wants no visibility at all,
// which the SDK cannot say. What comes is made visible again at once.
const unaskable = 10

// A poll is one request for messages. It is not cancelled when its receiver leaves,
// because SQS may just then be handing out a message to it, which would stay hidden
// until its visibility ends, and belong to nobody. The next receiver takes the poll
// over; what comes back when there is none is given back.
type poll struct {
	shape shape
	ends  time.Time     // when it comes back, at the latest
	back  chan struct{} // closed when it has come back to a receiver

	// What it brought; readable when back is closed.
	messages []types.Message
	arrived  time.Time
	taken    time.Time // when SQS handed them out, at the earliest
	err      error
}

// shape is what a receiver must ask for to take a poll over.
type shape struct {
	max        int32
	visibility int32 // in seconds
}

// polls are those under way for a queue.
type polls struct {
	mu       sync.Mutex // guards the fields below, and who gets what a poll brings
	deserted []*poll    // those whose receivers have left, oldest first
}

// poll takes over a request, or makes one, that waits for so long at most, or for
// Options.Poll.
func (q *queue) poll(ctx context.Context, req driver.ReceiveRequest, wait time.Duration) *poll {
	want := shape{max: int32(req.Max), visibility: int32(wholeSeconds(req.Visibility))}
	if wait > 0 {
		if p := q.polls.adopt(want); p != nil {
			return p
		}
	}
	wholeWait := wholeSeconds(min(wait, q.backend.options.Poll))
	if wholeWait == 0 && q.settings.Load().waits {
		wholeWait = 1 // the SDK cannot ask for none, and the queue's own would be longer
	}
	p := &poll{shape: want, ends: time.Now().Add(time.Duration(wholeWait) * time.Second), back: make(chan struct{})}
	if !q.backend.start(ctx, func(ctx context.Context) { q.fetch(ctx, p, int32(wholeWait)) }) {
		p.err = &driver.Error{Code: driver.ErrClosed}
		close(p.back)
	}
	return p
}

// adopt returns a deserted poll that asks for no more than wanted, and for the same
// visibility.
func (s *polls) adopt(want shape) *poll {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.deserted {
		if p.shape.visibility == want.visibility && p.shape.max <= want.max {
			s.deserted = slices.Delete(s.deserted, i, i+1)
			return p
		}
	}
	return nil
}

// fetch makes the request, and gives what it brings to its receiver or back.
func (q *queue) fetch(ctx context.Context, p *poll, wait int32) {
	start := time.Now()
	visibility := p.shape.visibility
	if visibility == 0 {
		visibility = unaskable
	}
	input := &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(q.url), MaxNumberOfMessages: p.shape.max,
		VisibilityTimeout: visibility, WaitTimeSeconds: wait,
		MessageAttributeNames: allAttributes, MessageSystemAttributeNames: systemAttributes,
	}
	if q.settings.Load().traits.StrictGroups {
		// When the answer is lost and the SDK asks again, it gets the same messages.
		input.ReceiveRequestAttemptId = aws.String(ulid.Make().String())
	}
	output, err := q.backend.client.ReceiveMessage(ctx, input, OwnBodies)
	p.arrived = time.Now()
	if p.taken = p.arrived.Add(-travel); p.taken.Before(start) {
		p.taken = start
	}
	if err != nil {
		p.err = q.abandoned(ctx, err)
	} else {
		p.messages = output.Messages
	}
	if !q.polls.deliver(p) && len(p.messages) > 0 {
		q.unseen(p.messages)
		q.giveBack(ctx, p.messages)
	}
}

// deliver hands a poll that has come back to its receiver, and reports false if there
// is none.
func (s *polls) deliver(p *poll) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.deserted, p); i >= 0 {
		s.deserted = slices.Delete(s.deserted, i, i+1)
		return false
	}
	close(p.back)
	return true
}

// leave is called once by the receiver of a poll, and returns what it brought if it
// is back.
func (q *queue) leave(p *poll) (messages []types.Message, finished bool, err error) {
	q.polls.mu.Lock()
	defer q.polls.mu.Unlock()
	select {
	case <-p.back:
		return p.messages, true, p.err
	default:
		q.polls.deserted = append(q.polls.deserted, p)
		return nil, false, nil
	}
}
