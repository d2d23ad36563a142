package daemontest_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/mailboxtest/daemontest"
)

// A test of a program that uses Amazon SQS.
func ExampleStart() {
	_ = func(t *testing.T) {
		daemon := daemontest.Start(t)
		client := sqs.New(sqs.Options{
			BaseEndpoint: &daemon.SQS, Region: "local-1",
			Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		})
		_ = client // give it to the program
	}
}
