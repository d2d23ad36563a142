package container_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/mailboxtest/container"
)

// A test of a program that uses Amazon SQS.
func ExampleStart() {
	_ = func(t *testing.T) {
		daemon := container.Start(t, "ghcr.io/mailboxmq/mailboxd:sqs", nil)
		client := sqs.New(sqs.Options{
			BaseEndpoint: aws.String(daemon.SQSEndpoint()), Region: "local-1",
			Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		})
		_ = client // give it to the program
	}
}
