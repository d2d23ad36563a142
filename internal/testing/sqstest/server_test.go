package sqstest

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

func TestMain(m *testing.M) { Main(m) }

func TestRestartedServerHasNoQueues(t *testing.T) {
	for range 2 {
		server := Start(t)
		client := server.Client()
		queues, err := client.ListQueues(t.Context(), &sqs.ListQueuesInput{})
		if err != nil {
			t.Fatal(err)
		}
		if len(queues.QueueUrls) != 0 {
			t.Fatalf("a new server has queues: %q", queues.QueueUrls)
		}
		if _, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("orders")}); err != nil {
			t.Fatal(err)
		}
		server.Close()
	}
}

func TestPrefixesDiffer(t *testing.T) {
	if one, two := Prefix(), Prefix(); one == two {
		t.Fatalf("two prefixes are %q", one)
	}
}
