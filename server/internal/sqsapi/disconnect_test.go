package sqsapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
)

// leaseHook is a backend that calls a function when a message was leased, before the
// receive returns.
type leaseHook struct {
	*membox.Backend
	leased func()
}

func (p *leaseHook) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	q, err := p.Backend.OpenQueue(ctx, name)
	return &leaseHookQueue{q, p}, err
}

type leaseHookQueue struct {
	driver.Queue
	backend *leaseHook
}

func (q *leaseHookQueue) Receive(ctx context.Context, req driver.ReceiveRequest) ([]driver.Delivery, error) {
	held, err := q.Queue.Receive(ctx, req)
	if leased := q.backend.leased; leased != nil && len(held) > 0 {
		leased()
		<-ctx.Done()
	}
	return held, err
}

func TestMessagesLeasedForDisconnectedClientAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &leaseHook{Backend: membox.New(nil)}
		defer backend.Close()
		c := serve(t, setup{opener: backend}).client("")
		queue := c.create("orders")
		c.send(queue, "x")
		ctx, leave := context.WithCancel(t.Context())
		backend.leased = leave
		if _, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, WaitTimeSeconds: 20}); err == nil {
			t.Error("it was answered")
		}
		synctest.Wait()
		backend.leased = nil
		c.one(queue) // long before its visibility ends
	})
}

// brokenWriter is a client that reads no answer.
type brokenWriter struct{ header http.Header }

func (d *brokenWriter) Header() http.Header       { return d.header }
func (d *brokenWriter) WriteHeader(int)           {}
func (d *brokenWriter) Write([]byte) (int, error) { return 0, errors.New("connection closed") }

func TestMessagesThatCannotBeWrittenAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		c := d.clientWith("test", "test", "")
		queue := c.create("orders")
		c.send(queue, "x")
		r, err := http.NewRequest(http.MethodPost, "http://sqs.example/", strings.NewReader(`{"QueueUrl":"orders"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-amz-json-1.0")
		r.Header.Set("X-Amz-Target", "AmazonSQS.ReceiveMessage")
		d.service.Unsigned().ServeHTTP(&brokenWriter{make(http.Header)}, r)
		c.one(queue)
	})
}
