package dynamotest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// couriers is how many requests can be under way at the same time.
const couriers = 64

// Outside sends HTTP requests from goroutines that belong to no synctest bubble.
// A connection that was made inside a bubble would keep its time from passing,
// because somebody always waits for what it may bring. Who waits for a courier
// does not count as idle either, but only until the answer is there.
type Outside struct {
	client *http.Client
	free   chan *courier
	ended  context.CancelFunc
	group  sync.WaitGroup
}

// A courier is a goroutine that carries one request at a time. Its channels are
// made outside of any bubble, and so can be used from all.
type courier struct {
	errands chan errand
	stop    chan struct{} // holds one order to give up
	answers chan answer
}

// An errand is a request without what belongs to a bubble.
type errand struct {
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
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: couriers}},
		free:   make(chan *courier, couriers), ended: cancel,
	}
	for range couriers {
		c := &courier{errands: make(chan errand), stop: make(chan struct{}, 1), answers: make(chan answer)}
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

// Do sends a request and returns the answer, read to its end. When the context
// of the request ends, the request is given up.
func (o *Outside) Do(request *http.Request) (*http.Response, error) {
	e := errand{method: request.Method, url: request.URL.String(), host: request.Host, header: request.Header.Clone()}
	if request.Body != nil {
		var err error
		if e.body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close() // it was read
	}
	c := <-o.free
	defer func() { o.free <- c }()
	c.errands <- e
	select {
	case got := <-c.answers:
		return got.response, got.err
	case <-request.Context().Done():
		c.stop <- struct{}{}
		<-c.answers
		return nil, request.Context().Err()
	}
}

func (o *Outside) run(ctx context.Context, c *courier) {
	for {
		select {
		case e := <-c.errands:
			got := o.carry(ctx, c, e)
			c.answers <- got
			select {
			case <-c.stop: // it came too late
			default:
			}
		case <-ctx.Done():
			return
		}
	}
}

// carry sends a request, and gives up when it is told to.
func (o *Outside) carry(ctx context.Context, c *courier, e errand) answer {
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

func (o *Outside) send(ctx context.Context, e errand) answer {
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
	_ = response.Body.Close() // it was read, as far as it goes
	if err != nil {
		return answer{err: fmt.Errorf("read the answer: %w", err)}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return answer{response: response}
}
