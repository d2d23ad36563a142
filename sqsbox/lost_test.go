package sqsbox_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// A loser drops the responses to the first requests for one action.
type loser struct {
	action string
	left   atomic.Int64
}

func (l *loser) Do(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultClient.Do(request)
	if err == nil && strings.HasSuffix(request.Header.Get("X-Amz-Target"), "."+l.action) && l.left.Add(-1) >= 0 {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return nil, syscall.ECONNRESET
	}
	return response, err
}

// The SDK repeats a request whose response is lost. The backend gives every message of a
// FIFO queue a dedup id, so that SQS recognizes the repetition.
func TestLostResponseDuplicatesNothingInFIFOQueue(t *testing.T) {
	t.Parallel()
	lost := &loser{action: "SendMessageBatch"}
	lost.left.Store(2)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	client := sqstest.Shared(t).Client(func(o *sqs.Options) { o.HTTPClient = lost })
	backend, err := sqsbox.Open(t.Context(), client, &sqsbox.Options{Prefix: sqstest.Prefix(), Create: true, Poll: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = backend.Close() }()
	queue, err := backend.OpenQueue(t.Context(), "orders.fifo")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Send(t.Context(), []driver.Outgoing{{Body: []byte("a"), Group: "1"}, {Body: []byte("b"), Group: "2"}}); err != nil {
		t.Fatal(err)
	}
	if lost.left.Load() >= 0 {
		t.Fatal("no response was lost")
	}
	stats, err := queue.Stats(t.Context())
	if err != nil || stats.Ready != 2 {
		t.Errorf("got %+v, %v; want two messages", stats, err)
	}
}
