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

// maxTransit is how long a response may take from SQS to here: a lease may be that
// much older than its arrival.
const maxTransit = 50 * time.Millisecond

// zeroVisibility is requested, in seconds, for a receiver that wants a visibility of 0,
// which the SDK cannot express. The messages are made visible again at once.
const zeroVisibility = 10

// A poll is one request for messages. It is not cancelled when its receiver stops
// waiting: SQS may just then deliver a message to it, which would stay hidden until
// its visibility ends although no receiver has it. The next receiver takes the poll
// over. If there is none, the messages are given back.
type poll struct {
	shape shape
	ends  time.Time     // latest time of its response
	back  chan struct{} // closed when a receiver has the response

	// The response; readable when back is closed.
	messages []types.Message
	arrived  time.Time
	taken    time.Time // earliest time at which SQS may have delivered them
	err      error
}

// shape is the part of a request that must fit for a receiver to take a poll over.
type shape struct {
	max        int32
	visibility int32 // in seconds
}

// polls are the requests under way for a queue.
type polls struct {
	mu        sync.Mutex // guards the fields below, and which receiver gets a response
	abandoned []*poll    // polls without a receiver, oldest first
}

// poll takes over an abandoned request, or makes one that waits for wait, and for
// Options.Poll at most.
func (q *queue) poll(ctx context.Context, req driver.ReceiveRequest, wait time.Duration) *poll {
	want := shape{max: int32(req.Max), visibility: int32(wholeSeconds(req.Visibility))}
	if wait > 0 {
		if p := q.polls.adopt(want); p != nil {
			return p
		}
	}
	wholeWait := wholeSeconds(min(wait, q.backend.options.Poll))
	if wholeWait == 0 && q.settings.Load().waits {
		wholeWait = 1 // the SDK cannot send 0, and the queue's own wait may be longer
	}
	p := &poll{shape: want, ends: time.Now().Add(time.Duration(wholeWait) * time.Second), back: make(chan struct{})}
	if !q.backend.start(ctx, func(ctx context.Context) { q.fetch(ctx, p, int32(wholeWait)) }) {
		p.err = &driver.Error{Code: driver.ErrClosed}
		close(p.back)
	}
	return p
}

// adopt returns an abandoned poll that asks for no more messages than wanted, and for
// the same visibility.
func (s *polls) adopt(want shape) *poll {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.abandoned {
		if p.shape.visibility == want.visibility && p.shape.max <= want.max {
			s.abandoned = slices.Delete(s.abandoned, i, i+1)
			return p
		}
	}
	return nil
}

// fetch makes the request. Its messages go to the receiver, or back to SQS if there is
// none.
func (q *queue) fetch(ctx context.Context, p *poll, wait int32) {
	start := time.Now()
	visibility := p.shape.visibility
	if visibility == 0 {
		visibility = zeroVisibility
	}
	input := &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(q.url), MaxNumberOfMessages: p.shape.max,
		VisibilityTimeout: visibility, WaitTimeSeconds: wait,
		MessageAttributeNames: allAttributes, MessageSystemAttributeNames: systemAttributes,
	}
	if q.settings.Load().traits.StrictGroups {
		// If the response is lost, the SDK's repetition gets the same messages.
		input.ReceiveRequestAttemptId = aws.String(ulid.Make().String())
	}
	output, err := q.backend.client.ReceiveMessage(ctx, input, OwnBodies)
	p.arrived = time.Now()
	if p.taken = p.arrived.Add(-maxTransit); p.taken.Before(start) {
		p.taken = start
	}
	if err != nil {
		p.err = q.backgroundError(ctx, err)
	} else {
		p.messages = output.Messages
	}
	if !q.polls.deliver(p) && len(p.messages) > 0 {
		q.unseen(p.messages)
		q.giveBack(ctx, p.messages)
	}
}

// deliver hands the response of a poll to its receiver, and reports false if there is
// none.
func (s *polls) deliver(p *poll) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.abandoned, p); i >= 0 {
		s.abandoned = slices.Delete(s.abandoned, i, i+1)
		return false
	}
	close(p.back)
	return true
}

// leavePoll is called once by the receiver of a poll. It returns the response if that
// has arrived, and abandons the poll otherwise.
func (q *queue) leavePoll(p *poll) (messages []types.Message, finished bool, err error) {
	q.polls.mu.Lock()
	defer q.polls.mu.Unlock()
	select {
	case <-p.back:
		return p.messages, true, p.err
	default:
		q.polls.abandoned = append(q.polls.abandoned, p)
		return nil, false, nil
	}
}
