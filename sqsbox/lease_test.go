package sqsbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// lend opens a queue with one message, and receives it.
func lend(t *testing.T, api *stub, name string, visibility time.Duration) (driver.Queue, driver.Delivery) {
	t.Helper()
	api.receive = func(context.Context, int, *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
		return &sqs.ReceiveMessageOutput{Messages: []types.Message{message(1, "a")}}, nil
	}
	_, queue := openStub(t, api, name)
	got, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: visibility})
	if err != nil || len(got) != 1 {
		t.Fatalf("receive: %v, %v", got, err)
	}
	return queue, got[0]
}

func TestAckAfterTheDeadlineDoesNotReachSQS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{}
		queue, held := lend(t, api, "orders", 30*time.Second)
		time.Sleep(30 * time.Second)
		if err := queue.Ack(t.Context(), []driver.Receipt{held.Receipt}); !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("got %v, want ErrReceiptExpired", err)
		}
		if api.called("remove") != 0 {
			t.Error("SQS was asked to delete, and would have done so")
		}
	})
}

func TestAckThatWaitedPastDeadlineIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{remove: func(_ context.Context, _ int, in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error) {
			<-time.After(10 * time.Millisecond)
			return deleteAll(in), nil
		}}
		queue, held := lend(t, api, "orders", time.Second)
		other := driver.Receipt{}
		api.receive = func(context.Context, int, *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			return &sqs.ReceiveMessageOutput{Messages: []types.Message{message(2, "b")}}, nil
		}
		if got, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err != nil {
			t.Fatal(err)
		} else {
			other = got[0].Receipt
		}
		time.Sleep(995 * time.Millisecond)
		go func() { _ = queue.Ack(t.Context(), []driver.Receipt{other}) }()
		synctest.Wait()
		if err := queue.Ack(t.Context(), []driver.Receipt{held.Receipt}); !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("an ack whose request left after the deadline: got %v, want ErrReceiptExpired", err)
		}
	})
}

// SQS confirms a delete with an expired receipt, and may not delete.
func TestConfirmationAfterDeadlineIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, want := range map[string]error{"orders": driver.ErrUnavailable, "orders.fifo": nil} {
			api := &stub{remove: func(_ context.Context, _ int, in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error) {
				<-time.After(time.Minute)
				return deleteAll(in), nil
			}}
			queue, held := lend(t, api, name, 30*time.Second)
			if err := queue.Ack(t.Context(), []driver.Receipt{held.Receipt}); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
	})
}

func TestReceiptExpiresAtRequestedFractionOfSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue, held := lend(t, &stub{}, "invoices", 1500*time.Millisecond)
		time.Sleep(1500 * time.Millisecond)
		if err := queue.Ack(t.Context(), []driver.Receipt{held.Receipt}); !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("ack at the deadline, before the end of the second: got %v, want ErrReceiptExpired", err)
		}
		queue, held = lend(t, &stub{}, "orders", 1500*time.Millisecond)
		time.Sleep(1499 * time.Millisecond)
		if _, err := queue.Extend(t.Context(), []driver.Extension{{Receipt: held.Receipt, Visibility: 2500 * time.Millisecond}}); err != nil {
			t.Errorf("extend before the deadline: %v", err)
		}
		time.Sleep(2500 * time.Millisecond)
		if err := queue.Ack(t.Context(), []driver.Receipt{held.Receipt}); !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("ack at the deadline: got %v, want ErrReceiptExpired", err)
		}
	})
}

func TestFailedAckCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{remove: func(_ context.Context, n int, in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error) {
			if n == 0 {
				return nil, errors.New("the connection broke")
			}
			return deleteAll(in), nil
		}}
		queue, held := lend(t, api, "orders", time.Minute)
		receipts := []driver.Receipt{held.Receipt}
		for i, want := range []error{driver.ErrUnavailable, nil, driver.ErrReceiptExpired} {
			if err := queue.Ack(t.Context(), receipts); !errors.Is(err, want) {
				t.Errorf("ack %d: got %v, want %v", i+1, err, want)
			}
		}
	})
}

func TestReceiptsOfAnotherProcessGoToSQS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{}
		_, held := lend(t, api, "orders.fifo", time.Minute)
		_, elsewhere := openStub(t, api, "orders.fifo") // a backend of its own
		if _, err := elsewhere.Extend(t.Context(), []driver.Extension{{Receipt: held.Receipt, Visibility: time.Hour}}); err != nil {
			t.Errorf("extend: %v", err)
		}
		api.remove = func(_ context.Context, _ int, in *sqs.DeleteMessageBatchInput) (*sqs.DeleteMessageBatchOutput, error) {
			return &sqs.DeleteMessageBatchOutput{Failed: []types.BatchResultErrorEntry{{
				Id: in.Entries[0].Id, SenderFault: true, Code: aws.String("InvalidParameterValue"),
				Message: aws.String("Value handle-1 for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."),
			}}}, nil
		}
		if err := elsewhere.Ack(t.Context(), []driver.Receipt{held.Receipt}); !errors.Is(err, driver.ErrReceiptExpired) {
			t.Errorf("ack of what SQS says has expired: got %v", err)
		}
	})
}

func TestExtensionsStayWithinTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []int32
		api := &stub{change: func(_ context.Context, _ int, in *sqs.ChangeMessageVisibilityBatchInput) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
			out := &sqs.ChangeMessageVisibilityBatchOutput{}
			for _, e := range in.Entries {
				asked = append(asked, e.VisibilityTimeout)
				out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
			}
			return out, nil
		}}
		queue, held := lend(t, api, "orders", 11*time.Hour)
		time.Sleep(10 * time.Hour)
		for _, extension := range []time.Duration{90 * time.Minute, 12 * time.Hour} {
			if _, err := queue.Extend(t.Context(), []driver.Extension{{Receipt: held.Receipt, Visibility: extension}}); err != nil {
				t.Fatal(err)
			}
		}
		if fmt.Sprint(asked) != "[5400 7200]" {
			t.Errorf("after 10h, extensions by 90m and 12h became %v seconds; want the second cut to what is left", asked)
		}
	})
}

func TestNackOfLastDeliveryIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []int32
		api := &stub{attributes: map[string]string{
			"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:1:dead","maxReceiveCount":"1"}`,
		}}
		api.change = func(_ context.Context, _ int, in *sqs.ChangeMessageVisibilityBatchInput) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
			asked = append(asked, in.Entries[0].VisibilityTimeout)
			return &sqs.ChangeMessageVisibilityBatchOutput{Successful: []types.ChangeMessageVisibilityBatchResultEntry{{Id: in.Entries[0].Id}}}, nil
		}
		queue, held := lend(t, api, "orders", time.Minute)
		if err := queue.Nack(t.Context(), []driver.Nack{{Receipt: held.Receipt, Delay: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(asked) != "[0]" {
			t.Errorf("the last nack was delayed by %v seconds; SQS would move the message so much later", asked)
		}
	})
}
