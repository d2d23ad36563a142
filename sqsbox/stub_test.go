package sqsbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// A stub is an SQS with the responses of a test. By default it accepts everything and
// has no messages. It works in virtual time.
type stub struct {
	sqsbox.API // nil: methods that are not overridden panic

	send    func(ctx context.Context, n int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error)
	receive func(ctx context.Context, n int, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error)
	change  func(ctx context.Context, n int, in *sqs.ChangeMessageVisibilityBatchInput) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	remove  func(ctx context.Context, n int, in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error)

	attributes map[string]string // of all queues
	queues     []string          // that exist; nil: all

	mu    sync.Mutex // guards calls
	calls map[string]int
}

// count counts a call, and returns how many there were before.
func (s *stub) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = make(map[string]int)
	}
	s.calls[name]++
	return s.calls[name] - 1
}

func (s *stub) called(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

// fault returns an error of SQS.
func fault(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message, Fault: smithy.FaultClient}
}

//nolint:staticcheck // the name in the SDK
func (s *stub) GetQueueUrl(_ context.Context, in *sqs.GetQueueUrlInput, _ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	for _, name := range s.queues {
		if name == *in.QueueName {
			return &sqs.GetQueueUrlOutput{QueueUrl: aws.String("http://sqs/1/" + name)}, nil
		}
	}
	if s.queues != nil {
		return nil, fault("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: aws.String("http://sqs/1/" + *in.QueueName)}, nil
}

func (s *stub) GetQueueAttributes(_ context.Context, in *sqs.GetQueueAttributesInput, _ ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	attributes := map[string]string{"QueueArn": "arn:aws:sqs:eu-central-1:1:" + (*in.QueueUrl)[len("http://sqs/1/"):]}
	for name, value := range s.attributes {
		attributes[name] = value
	}
	return &sqs.GetQueueAttributesOutput{Attributes: attributes}, nil
}

func (s *stub) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	if n := s.count("send"); s.send != nil {
		return s.send(ctx, n, in)
	}
	return takeAll(in), nil
}

// takeAll returns the response to a send that succeeds.
func takeAll(in *sqs.SendMessageBatchInput) *sqs.SendMessageBatchOutput {
	out := &sqs.SendMessageBatchOutput{}
	for _, e := range in.Entries {
		out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: e.Id, MessageId: aws.String(fmt.Sprintf("%032x", len(*e.MessageBody)))})
	}
	return out
}

func (s *stub) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	n := s.count("receive")
	if s.receive == nil {
		return &sqs.ReceiveMessageOutput{}, nil
	}
	return s.receive(ctx, n, in)
}

func (s *stub) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	if n := s.count("change"); s.change != nil {
		return s.change(ctx, n, in)
	}
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	for _, e := range in.Entries {
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

func (s *stub) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	if n := s.count("remove"); s.remove != nil {
		return s.remove(ctx, n, in)
	}
	return deleteAll(in), nil
}

func deleteAll(in *sqs.DeleteMessageBatchInput) *sqs.DeleteMessageBatchOutput {
	out := &sqs.DeleteMessageBatchOutput{}
	for _, e := range in.Entries {
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	return out
}

// message returns a message as SQS delivers it.
func message(number int, body string) types.Message {
	return types.Message{
		MessageId: aws.String(fmt.Sprintf("%032x", number)), ReceiptHandle: aws.String(fmt.Sprint("handle-", number)),
		Body: aws.String(body), Attributes: map[string]string{"ApproximateReceiveCount": "1", "SentTimestamp": "1700000000000"},
	}
}

// openStub opens a queue on a stub. Both are closed when the test ends.
func openStub(t *testing.T, s *stub, name string) (*sqsbox.Backend, driver.Queue) {
	t.Helper()
	backend, err := sqsbox.Open(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Close() })
	queue, err := backend.OpenQueue(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return backend, queue
}

// outgoing returns messages with these bodies.
func outgoing(bodies ...string) []driver.Outgoing {
	msgs := make([]driver.Outgoing, len(bodies))
	for i, body := range bodies {
		msgs[i].Body = []byte(body)
	}
	return msgs
}
