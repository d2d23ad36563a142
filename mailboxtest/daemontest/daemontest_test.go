package daemontest_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest/daemontest"
	"github.com/mailboxmq/mailbox/remotebox"
)

// TestDaemonServesEveryClient sends by each protocol, and receives everything over OAP/1.
func TestDaemonServesEveryClient(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("one test", func(t *testing.T) {
		daemon := daemontest.Start(t)
		ctx := t.Context()

		backend := remotebox.New([]string{daemon.OAP}, daemon.Token, nil)
		defer backend.Close()
		queue, err := backend.OpenQueue(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		defer queue.Close()
		if _, err := queue.Send(ctx, []driver.Outgoing{{Body: []byte("frames")}}); err != nil {
			t.Fatal(err)
		}

		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		web := &http.Client{Transport: transport}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, daemon.HTTP+"/v1/send",
			strings.NewReader(`{"topic":"orders","idem_key":"1","payload_b64":"d2Vi"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+daemon.Token)
		if answer, err := web.Do(request); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v", answer, err)
		} else if err := answer.Body.Close(); err != nil {
			t.Fatal(err)
		}

		client := sqs.New(sqs.Options{
			BaseEndpoint: &daemon.SQS, Region: "local-1", HTTPClient: web,
			Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		})
		address, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("orders")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: address.QueueUrl, MessageBody: aws.String("sqs")}); err != nil {
			t.Fatal(err)
		}

		got, err := queue.Receive(ctx, driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
		if err != nil || len(got) != 3 || string(got[0].Body)+string(got[1].Body)+string(got[2].Body) != "frameswebsqs" {
			t.Fatalf("got %v, %v", got, err)
		}
	})
}

func TestDaemonsDoNotShareQueues(t *testing.T) {
	for i := range 2 {
		daemon := daemontest.Start(t)
		backend := remotebox.New([]string{daemon.OAP}, daemon.Token, nil)
		defer backend.Close()
		queue, err := backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		defer queue.Close()
		if _, err := queue.Send(t.Context(), []driver.Outgoing{{Body: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
		if stats, err := queue.Stats(t.Context()); err != nil || stats.Ready != 1 {
			t.Errorf("daemon %d: %+v, %v", i, stats, err)
		}
	}
}
