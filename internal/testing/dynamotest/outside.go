package dynamotest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// senders bounds the requests that are under way at the same time.
const senders = 64

// Outside sends HTTP requests from goroutines that belong to no synctest bubble. A connection
// made inside a bubble would keep its time from passing, because its reader never counts as
// idle. A goroutine that waits for a sender does not count as idle either, but only until the
// response is there.
type Outside struct {
	client *http.Client
	free   chan *sender
	ended  context.CancelFunc
	group  sync.WaitGroup
}

// A sender is a goroutine that sends one request at a time. Its channels are made outside of
// any bubble, so goroutines of all bubbles can use them.
type sender struct {
	requests chan outsideRequest
	stop     chan struct{} // has room for one request to give up
	answers  chan answer
}

// An outsideRequest is a request without the parts that belong to a bubble.
type outsideRequest struct {
	method, url, host string
	header            http.Header
	body              []byte
}

type answer struct {
	response *http.Response // with its body read
	err      error
}

func newOutside(ctx context.Context) *Outside {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o := &Outside{
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders}},
		free:   make(chan *sender, senders), ended: cancel,
	}
	for range senders {
		c := &sender{requests: make(chan outsideRequest), stop: make(chan struct{}, 1), answers: make(chan answer)}
		o.group.Go(func() { o.run(ctx, c) })
		o.free <- c
	}
	return o
}

func (o *Outside) close() {
	o.ended()
	o.group.Wait()
	o.client.CloseIdleConnections()
}

// Do sends a request and returns the response with its body read. When the context of the
// request ends, Do gives up.
func (o *Outside) Do(request *http.Request) (*http.Response, error) {
	e := outsideRequest{method: request.Method, url: request.URL.String(), host: request.Host, header: request.Header.Clone()}
	if request.Body != nil {
		var err error
		if e.body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close() // already read
	}
	c := <-o.free
	defer func() { o.free <- c }()
	c.requests <- e
	select {
	case got := <-c.answers:
		return got.response, got.err
	case <-request.Context().Done():
		c.stop <- struct{}{}
		<-c.answers
		return nil, request.Context().Err()
	}
}

func (o *Outside) run(ctx context.Context, c *sender) {
	for {
		select {
		case e := <-c.requests:
			got := o.sendUntilStopped(ctx, c, e)
			c.answers <- got
			select {
			case <-c.stop: // too late: the response is there
			default:
			}
		case <-ctx.Done():
			return
		}
	}
}

// sendUntilStopped sends a request, and gives up when c.stop says so.
func (o *Outside) sendUntilStopped(ctx context.Context, c *sender, e outsideRequest) answer {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan answer, 1)
	go func() { done <- o.send(ctx, e) }()
	defer cancel()
	select {
	case got := <-done:
		return got
	case <-c.stop:
		cancel()
		return <-done
	}
}

func (o *Outside) send(ctx context.Context, e outsideRequest) answer {
	request, err := http.NewRequestWithContext(ctx, e.method, e.url, bytes.NewReader(e.body))
	if err != nil {
		return answer{err: err}
	}
	request.Header, request.Host = e.header, e.host
	response, err := o.client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // already read, or failed
	if err != nil {
		return answer{err: fmt.Errorf("read the response: %w", err)}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return answer{response: response}
}
