package sqsbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// arrival is a queue in which one message arrives after a while. It ignores that a
// request is cancelled.
func arrival(after time.Duration) func(context.Context, int, *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
	due := time.Now().Add(after)
	arrived := false
	return func(_ context.Context, _ int, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
		wait := time.Duration(in.WaitTimeSeconds) * time.Second
		if arrived || time.Until(due) > wait {
			<-time.After(wait)
			return &sqs.ReceiveMessageOutput{}, nil
		}
		<-time.After(time.Until(due))
		arrived = true
		return &sqs.ReceiveMessageOutput{Messages: []types.Message{message(1, "a")}}, nil
	}
}

func TestALongWaitIsSliced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []int32
		api := &stub{}
		api.receive = func(_ context.Context, _ int, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			waits = append(waits, in.WaitTimeSeconds)
			<-time.After(time.Duration(in.WaitTimeSeconds) * time.Second)
			return &sqs.ReceiveMessageOutput{}, nil
		}
		_, queue := openStub(t, api, "orders")
		start := time.Now()
		got, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 500, Visibility: time.Minute, Wait: 50 * time.Second})
		if err != nil || len(got) != 0 {
			t.Fatalf("got %v, %v", got, err)
		}
		if took := time.Since(start); took != 50*time.Second || fmt.Sprint(waits) != "[20 20 10]" {
			t.Errorf("a wait of 50s took %v, in requests of %v", took, waits)
		}
	})
}

func TestWaitOfFractionOfSecondEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queue := openStub(t, &stub{receive: arrival(time.Hour)}, "orders")
		start := time.Now()
		if _, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute, Wait: 300 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Errorf("a wait of 300ms took %v", took)
		}
	})
}

func TestWhatArrivesAfterACancelIsGivenBackUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{receive: arrival(5 * time.Second)}
		var given []string
		api.change = func(_ context.Context, _ int, in *sqs.ChangeMessageVisibilityBatchInput) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
			out := &sqs.ChangeMessageVisibilityBatchOutput{}
			for _, e := range in.Entries {
				given = append(given, fmt.Sprint(*e.ReceiptHandle, " ", e.VisibilityTimeout))
				out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
			}
			return out, nil
		}
		_, queue := openStub(t, api, "orders")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := queue.Receive(ctx, driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: 20 * time.Second})
		if err != context.DeadlineExceeded { //nolint:errorlint // unwrapped is the promise
			t.Fatalf("got %v, want the bare error of the context", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if fmt.Sprint(given) != "[handle-1 0]" {
			t.Fatalf("given back: %q, want the message, at once", given)
		}

		again := message(1, "a")
		again.Attributes["ApproximateReceiveCount"] = "2"
		api.receive = func(context.Context, int, *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			return &sqs.ReceiveMessageOutput{Messages: []types.Message{again}}, nil
		}
		got, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour})
		if err != nil || len(got) != 1 || got[0].Deliveries != 1 {
			t.Errorf("got %+v, %v; want one message in the first delivery that a receiver gets", got, err)
		}
	})
}

func TestNextReceiverTakesOverAbandonedPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{receive: arrival(5 * time.Second)}
		_, queue := openStub(t, api, "orders")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req := driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: 20 * time.Second}
		if _, err := queue.Receive(ctx, req); err == nil {
			t.Fatal("a receive outlived its context")
		}
		got, err := queue.Receive(t.Context(), req)
		if err != nil || len(got) != 1 {
			t.Fatalf("got %v, %v; want the message", got, err)
		}
		if api.called("receive") != 1 || api.called("change") != 0 {
			t.Errorf("%d requests for messages and %d to give back, want 1 and 0", api.called("receive"), api.called("change"))
		}
	})
}

func TestCloseWaitsForPollAndGivesMessagesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{receive: arrival(3 * time.Second)}
		backend, queue := openStub(t, api, "orders")
		done := make(chan error, 1)
		go func() {
			_, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: 20 * time.Second})
			done <- err
		}()
		synctest.Wait()
		start := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- backend.Close() }()
		if err := <-done; !errors.Is(err, driver.ErrClosed) || time.Since(start) != 0 {
			t.Errorf("a receive whose backend is closed: got %v after %v", err, time.Since(start))
		}
		if err := <-closed; err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("close: %v after %v, want it to wait for the message", err, time.Since(start))
		}
		if api.called("change") != 1 {
			t.Error("the message was not given back")
		}
	})
}

func TestCloseGivesUpAfterLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{receive: func(ctx context.Context, _ int, _ *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		backend, err := sqsbox.Open(t.Context(), api, &sqsbox.Options{Linger: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		queue, err := backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: time.Hour})
		}()
		synctest.Wait()
		start := time.Now()
		if err := backend.Close(); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("close: %v after %v, want it to give up after 2s", err, time.Since(start))
		}
		if _, err := queue.Stats(t.Context()); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("stats after close: %v", err)
		}
	})
}

func TestServerThatDoesNotWaitIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{}
		_, queue := openStub(t, api, "orders")
		if _, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour, Wait: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if n := api.called("receive"); n > 100 {
			t.Errorf("%d requests in 10s to a server that answers at once", n)
		}
	})
}

func TestQueuesOwnWaitDoesNotDelayReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int32
		_, queue := openStub(t, &stub{
			attributes: map[string]string{"ReceiveMessageWaitTimeSeconds": "20"},
			receive: func(_ context.Context, _ int, in *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
				asked = in.WaitTimeSeconds
				return &sqs.ReceiveMessageOutput{}, nil
			},
		}, "orders")
		if _, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if asked != 1 {
			t.Errorf("asked SQS to wait %ds, want 1: the SDK cannot send 0, and the queue's own wait is 20", asked)
		}
	})
}

func TestDeletedByOthersIsNotFoundForAllHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{}
		backend, queue := openStub(t, api, "orders")
		other, err := backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		api.receive = func(context.Context, int, *sqs.ReceiveMessageInput) (*sqs.ReceiveMessageOutput, error) {
			return nil, fault("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
		}
		for _, q := range []driver.Queue{queue, other} {
			if _, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Hour}); !errors.Is(err, driver.ErrNotFound) {
				t.Errorf("got %v, want ErrNotFound", err)
			}
		}
		if n := api.called("receive"); n != 1 {
			t.Errorf("%d requests, want 1: the other handle must not make one", n)
		}
	})
}
