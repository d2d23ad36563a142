package sqsbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// A movingStub is an SQS whose move tasks take three steps.
type movingStub struct {
	stub
	refused   error // returned when a task is started
	ends      string
	target    *string
	steps     int
	cancelled bool
}

func (s *movingStub) StartMessageMoveTask(_ context.Context, in *sqs.StartMessageMoveTaskInput, _ ...func(*sqs.Options)) (*sqs.StartMessageMoveTaskOutput, error) {
	s.target = in.DestinationArn
	if s.refused != nil {
		return nil, s.refused
	}
	return &sqs.StartMessageMoveTaskOutput{TaskHandle: aws.String("task")}, nil
}

func (s *movingStub) ListMessageMoveTasks(context.Context, *sqs.ListMessageMoveTasksInput, ...func(*sqs.Options)) (*sqs.ListMessageMoveTasksOutput, error) {
	s.steps++
	result := types.ListMessageMoveTasksResultEntry{ApproximateNumberOfMessagesMoved: int64(100 * s.steps), Status: aws.String("RUNNING")}
	if s.steps == 3 {
		result.Status, result.FailureReason = aws.String(s.ends), aws.String("CouldNotDetermineMessageSource")
	}
	return &sqs.ListMessageMoveTasksOutput{Results: []types.ListMessageMoveTasksResultEntry{result}}, nil
}

func (s *movingStub) CancelMessageMoveTask(context.Context, *sqs.CancelMessageMoveTaskInput, ...func(*sqs.Options)) (*sqs.CancelMessageMoveTaskOutput, error) {
	s.cancelled = true
	return &sqs.CancelMessageMoveTaskOutput{}, nil
}

func openMoving(t *testing.T, api *movingStub) driver.Queue {
	t.Helper()
	backend := newBackend(t, api)
	queue, err := backend.OpenQueue(t.Context(), "dead")
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

func TestAllOfADeadLetterQueueMovesByATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for to, want := range map[string]string{"": "", "orders": "arn:aws:sqs:eu-central-1:1:orders"} {
			api := &movingStub{ends: "COMPLETED"}
			moved, err := openMoving(t, api).Move(t.Context(), to, 0)
			if moved != 300 || err != nil {
				t.Errorf("move to %q: got %d, %v; want 300", to, moved, err)
			}
			if got := aws.ToString(api.target); got != want {
				t.Errorf("move to %q went to %q, want %q", to, got, want)
			}
		}
	})
}

func TestFailedMoveTaskReportsItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moved, err := openMoving(t, &movingStub{ends: "FAILED"}).Move(t.Context(), "orders", 0)
		if moved != 300 || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("got %d, %v; want 300 and ErrUnavailable", moved, err)
		}
	})
}

func TestFailedTaskGoesOnByHandWithoutTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &movingStub{ends: "FAILED"}
		moved, err := openMoving(t, api).Move(t.Context(), "", 0)
		if moved != 300 || err != nil {
			t.Errorf("got %d, %v; want 300", moved, err)
		}
		if api.called("receive") == 0 {
			t.Error("no message was moved by hand")
		}
	})
}

func TestCancellingAMoveStopsItsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &movingStub{ends: "COMPLETED"}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		moved, err := openMoving(t, api).Move(ctx, "", 0)
		if moved != 100 || err != context.DeadlineExceeded { //nolint:errorlint // unwrapped is the promise
			t.Errorf("got %d, %v; want what was moved and the bare error of the context", moved, err)
		}
		if !api.cancelled {
			t.Error("the task goes on")
		}
	})
}

func TestRunningTaskIsNotJoinedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &movingStub{refused: &types.RequestThrottled{}}
		if _, err := openMoving(t, api).Move(t.Context(), "", 0); !errors.Is(err, driver.ErrFull) {
			t.Errorf("got %v, want ErrFull", err)
		}
		if api.called("receive") != 0 {
			t.Error("messages were moved by hand")
		}
	})
}

// Attributes of other producers keep their types.
func TestMessageMovedByHandStaysTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &movingStub{refused: fault("AWS.SimpleQueueService.UnsupportedOperation", "Source queue must be configured as a Dead Letter Queue.")}
		m := message(7, "body")
		m.MessageAttributes = map[string]types.MessageAttributeValue{
			"price":               {DataType: aws.String("Number"), StringValue: aws.String("1")},
			"image":               {DataType: aws.String("Binary"), BinaryValue: []byte{1}},
			"mailbox":             {DataType: aws.String("Number"), StringValue: aws.String("2")},
			"mailbox.dead.source": {DataType: aws.String("String"), StringValue: aws.String("orders")},
		}
		m.Attributes["MessageGroupId"] = "group"
		api.receive = func(_ context.Context, n int, _ *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			if n > 0 {
				return &sqs.ReceiveMessageOutput{}, nil
			}
			return &sqs.ReceiveMessageOutput{Messages: []types.Message{m}}, nil
		}
		var sent types.SendMessageBatchRequestEntry
		api.send = func(_ context.Context, _ int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
			sent = in.Entries[0]
			return takeAll(in), nil
		}
		moved, err := openMoving(t, api).Move(t.Context(), "shelter.fifo", 0)
		if moved != 1 || err != nil || api.called("remove") != 1 {
			t.Fatalf("got %d, %v, %d deletes; want 1 moved and deleted", moved, err, api.called("remove"))
		}
		attributes := sent.MessageAttributes
		if *sent.MessageBody != "body" || *sent.MessageGroupId != "group" || *attributes["price"].DataType != "Number" ||
			string(attributes["image"].BinaryValue) != "\x01" || attributes["mailbox.dead.source"].DataType != nil {
			t.Errorf("sent %+v", sent)
		}
		const metadata = `{"id":"00000000000000000000000007","enqueued":1700000000000,"attributes":{"mailbox":"2"}}`
		if got := aws.ToString(attributes["mailbox"].StringValue); got != metadata {
			t.Errorf("got the metadata %s, want %s", got, metadata)
		}
		if *sent.MessageDeduplicationId != "mailbox.moved."+*m.MessageId {
			t.Errorf("a repeated move would duplicate the message: %s", *sent.MessageDeduplicationId)
		}
	})
}
