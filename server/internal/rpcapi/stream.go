package rpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/backoff"
	"github.com/mailboxmq/mailbox/server/internal/broker"
)

const (
	// maxCredit bounds the open credit of a client.
	maxCredit = 1 << 16
	// longestWait is how long a stream waits before it verifies its token again.
	longestWait = 20 * time.Second
	// retryDrained is the RetryAfter while the daemon drains: this daemon, or another one,
	// will be up by then.
	retryDrained = 2 * time.Second
)

type receiveStream = connect.BidiStream[mailboxv1.RecvStreamRequest, mailboxv1.RecvStreamResponse]

// RecvStream leases messages for as long as there is credit.
func (s *service) RecvStream(ctx context.Context, stream *receiveStream) error {
	first, err := stream.Receive()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return schemaError("body", "is empty: the first request says what is wanted")
		}
		return err
	}
	p, err := s.newPush(ctx, stream, first)
	if err != nil {
		return err
	}
	// The context of the receives ends when the client stops.
	wanted, cancel := context.WithCancel(ctx)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		p.listen(cancel)
	}()
	err = p.run(ctx, wanted)
	cancel()
	// The listener still waits for the client. Where there are no deadlines it ends
	// a moment later, when the server closes the body.
	if p.call.control.SetReadDeadline(time.Now()) == nil {
		<-listening
	}
	return err
}

// A push is a stream of deliveries to a client.
type push struct {
	call    *call
	stream  *receiveStream
	queue   string
	request driver.ReceiveRequest
	idle    time.Duration
	slice   time.Duration
	once    bool

	mu     sync.Mutex // guards the fields below
	credit int
	// last says that no more credit will come; flaw is set if that is an error.
	last bool
	flaw error
	// changed is closed, and replaced, when one of them changes.
	changed chan struct{}
}

func (s *service) newPush(ctx context.Context, stream *receiveStream, first *mailboxv1.RecvStreamRequest) (*push, error) {
	c := callOf(ctx)
	if err := c.asWorker(); err != nil {
		return nil, err
	}
	p := &push{
		call: c, stream: stream, queue: first.GetTopic(), idle: duration(first.GetIdleMs()), slice: longestWait,
		request: driver.ReceiveRequest{MaxBytes: maxReceiveBytes, Visibility: s.handler.options.Visibility},
		once:    first.GetOnce(), changed: make(chan struct{}),
	}
	if first.GetMaxBytes() != 0 {
		p.request.MaxBytes = min(number(first.GetMaxBytes()), maxReceiveBytes)
	}
	if first.VisibilityMs != nil {
		p.request.Visibility = duration(first.GetVisibilityMs())
	}
	if p.idle < 0 {
		return nil, schemaError("idle_ms", "is negative; 0 means no bound")
	}
	if err := p.add(first, false); err != nil {
		return nil, err
	}
	traits, err := c.caller.Traits(ctx, p.queue)
	if err != nil {
		return nil, err
	}
	if traits.MaxWait > 0 {
		p.slice = min(p.slice, traits.MaxWait)
	}
	return p, nil
}

// listen reads the requests of the client until their end. stop ends the receives.
func (p *push) listen(stop context.CancelFunc) {
	for {
		r, err := p.stream.Receive()
		if err == nil {
			err = p.add(r, true)
		}
		switch {
		case err == nil && r.GetStop():
			stop()
			return
		case errors.Is(err, io.EOF):
			p.change(func() { p.last = true })
			return
		case err != nil:
			p.change(func() { p.last, p.credit, p.flaw = true, 0, err })
			stop()
			return
		}
	}
}

func (p *push) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// add adds the credit of a later request, which can carry nothing else.
func (p *push) add(r *mailboxv1.RecvStreamRequest, later bool) error {
	switch {
	case later && (r.GetTopic() != "" || r.VisibilityMs != nil || r.GetIdleMs() != 0 || r.GetMaxBytes() != 0 || r.GetOnce()):
		return p.call.fault(schemaError("topic", "and all other fields but credit are allowed in the first request only"))
	case r.GetCredit() < 0:
		return p.call.fault(schemaError("credit", "is negative"))
	}
	var err error
	p.change(func() {
		switch {
		case r.GetStop():
			p.last, p.credit = true, 0
		case p.credit+int(r.GetCredit()) > maxCredit:
			err = p.call.fault(schemaError("credit", fmt.Sprintf("more than %d would be open", maxCredit)))
		default:
			p.credit += int(r.GetCredit())
		}
	})
	return err
}

// open waits for credit and returns it; 0 means that no more will come.
func (p *push) open(ctx context.Context) (int, error) {
	for {
		p.mu.Lock()
		credit, last, flaw, changed := p.credit, p.last, p.flaw, p.changed
		p.mu.Unlock()
		if credit > 0 || last {
			return credit, flaw
		}
		select {
		case <-changed:
		case <-p.call.handler.drain.Begun():
			return 0, &driver.Error{
				Code: driver.ErrUnavailable, Op: "receive", Queue: p.queue, RetryAfter: retryDrained, Detail: "the daemon is draining",
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// run delivers messages until the credit is used up and no more comes, or the stream was
// idle for too long. ctx is the context of the call; wanted ends when the client stops.
func (p *push) run(ctx, wanted context.Context) error {
	var quiet time.Duration // time without messages
	for {
		credit, err := p.open(ctx)
		if credit == 0 || err != nil {
			return err
		}
		request := p.request
		request.Max, request.Wait = credit, p.slice
		if p.idle > 0 {
			request.Wait = min(p.slice, p.idle-quiet)
		}
		began := time.Now()
		got, err := p.call.caller.Receive(wanted, p.queue, request)
		if len(got) > 0 {
			quiet = 0
			if err := p.hand(ctx, got); err != nil || p.once {
				return err
			}
			continue
		}
		full := errors.Is(err, driver.ErrFull)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case wanted.Err() != nil: // the client has stopped, or sent an invalid request
			continue
		case errors.Is(err, driver.ErrIntegrity): // it was dead-lettered, and others follow
			continue
		case err != nil && !full:
			return err
		}
		quiet += time.Since(began)
		if p.idle > 0 && quiet >= p.idle {
			return err
		}
		if full { // until a receiver settles something
			rest := driver.RetryAfter(err)
			if p.idle > 0 {
				rest = min(rest, p.idle-quiet)
			}
			_ = backoff.Pause(wanted, max(rest, time.Millisecond))
			quiet += rest
		}
	}
}

// hand sends deliveries in chunks. When the client is gone it gives back those it could
// not send.
func (p *push) hand(ctx context.Context, got []broker.Delivery) error {
	for rest := got; len(rest) > 0; {
		response := &mailboxv1.RecvStreamResponse{}
		for size := 0; len(response.Messages) < len(rest) && size < chunkBytes; {
			message := delivery(&rest[len(response.Messages)])
			size += proto.Size(message)
			response.Messages = append(response.Messages, message)
		}
		err := ctx.Err()
		if err == nil {
			err = p.stream.Send(response)
		}
		if err != nil {
			p.call.giveBack(ctx, p.queue, rest)
			return err
		}
		rest = rest[len(response.Messages):]
	}
	p.call.answers.Done()
	p.change(func() { p.credit = max(0, p.credit-len(got)) })
	return nil
}
