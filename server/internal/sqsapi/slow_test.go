package sqsapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// begin sends an unsigned request of the JSON protocol. It does not read the answer.
func (d *daemon) begin(action string, body io.Reader, length int64) (*http.Response, error) {
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, "http://127.0.0.1:4566/", body)
	if err != nil {
		return nil, err
	}
	request.ContentLength = length
	request.Header.Set("Content-Type", "application/x-amz-json-1.0")
	request.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	return d.http.Do(request)
}

// slowReader reads 80 KiB a second.
type slowReader struct {
	io.Reader
	sleep func(time.Duration)
}

func (r slowReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.sleep(time.Duration(n) * time.Second / (80 << 10))
	return n, err
}

const longBody = 512 << 10

func TestLargeMessagesReachSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		c := d.clientWith("test", "test", "")
		queue := c.create("orders")
		send := fmt.Sprintf(`{"QueueUrl":"orders","MessageBody":%q}`, strings.Repeat("x", longBody))
		for range 4 {
			response, err := d.begin("SendMessage", slowReader{strings.NewReader(send), time.Sleep}, int64(len(send)))
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("a message that takes 6 seconds to send: %v, %v", response, err)
			}
			_ = response.Body.Close()
		}
		for range 2 { // as the first request of a connection, and as the next
			response, err := d.begin("ReceiveMessage", strings.NewReader(`{"QueueUrl":"orders","MaxNumberOfMessages":10,"VisibilityTimeout":600}`), -1)
			if err != nil {
				t.Fatal(err)
			}
			var answer bytes.Buffer
			_, err = io.Copy(&answer, slowReader{response.Body, time.Sleep})
			if err != nil || answer.Len() < 4*longBody {
				t.Fatalf("%d bytes of messages came, and then %v", answer.Len(), err)
			}
			_ = response.Body.Close()
			time.Sleep(10 * time.Minute)
		}
		if n := c.attributes(queue, types.QueueAttributeNameApproximateNumberOfMessages)["ApproximateNumberOfMessages"]; n != "4" {
			t.Errorf("%s messages are ready, want 4", n)
		}
	})
}

func TestUnreadMessagesAreGivenBackAfterWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		c := d.clientWith("test", "test", "")
		queue := c.create("orders")
		for range 4 {
			c.send(queue, strings.Repeat("x", longBody))
		}
		response, err := d.begin("ReceiveMessage", strings.NewReader(`{"QueueUrl":"orders","MaxNumberOfMessages":10,"VisibilityTimeout":43200}`), -1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		time.Sleep(time.Minute)
		if got := c.receive(queue); len(got) != 4 {
			t.Errorf("%d messages came back, want 4", len(got))
		}
	})
}

func TestLongPollIsCutToDaemonLimit(t *testing.T) {
	synctest.Test(t, with(setup{limits: broker.Limits{MaxWait: 5 * time.Second}}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		began := time.Now()
		if got := c.receive(queue, waiting(20)); len(got) != 0 || time.Since(began) != 5*time.Second {
			t.Errorf("%d messages after %v, want none after 5 s", len(got), time.Since(began))
		}
	}))
}
