package sqsbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
)

// slowSend takes this long for each request, and records how many entries it had.
func slowSend(took time.Duration, sizes *[]int) func(context.Context, int, *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
	var mu sync.Mutex
	return func(_ context.Context, _ int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
		mu.Lock()
		*sizes = append(*sizes, len(in.Entries))
		mu.Unlock()
		<-time.After(took)
		return takeAll(in), nil
	}
}

func TestLoneSendIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		_, queue := openStub(t, &stub{send: slowSend(7*time.Millisecond, &sizes)}, "orders")
		start := time.Now()
		if _, err := queue.Send(t.Context(), outgoing("a")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 7*time.Millisecond {
			t.Errorf("a lone send took %v, and its request 7ms", took)
		}
	})
}

func TestManySendsShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		_, queue := openStub(t, &stub{send: slowSend(10*time.Millisecond, &sizes)}, "orders")
		start := time.Now()
		var group sync.WaitGroup
		for i := range 35 {
			group.Go(func() {
				if _, err := queue.Send(t.Context(), outgoing(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		total := 0
		for _, n := range sizes {
			total += n
		}
		if total != 35 || len(sizes) != 5 {
			t.Errorf("35 concurrent sends took requests of %v; want the first alone, full ones, and the rest", sizes)
		}
		if took := time.Since(start); took != 20*time.Millisecond {
			t.Errorf("35 concurrent sends took %v, want two requests' time, 20ms", took)
		}
	})
}

func TestFIFOQueueSendsOneRequestAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, bodies := 0, ""
		_, queue := openStub(t, &stub{send: func(_ context.Context, _ int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
			if out++; out > 1 {
				t.Error("two requests are under way at once")
			}
			time.Sleep(time.Millisecond)
			for _, e := range in.Entries {
				bodies += *e.MessageBody
			}
			out--
			return takeAll(in), nil
		}}, "orders.fifo")
		letters := "abcdefghijklmnopqrstuvwxyz"
		if _, err := queue.Send(t.Context(), outgoing(strings.Split(letters, "")...)); err != nil {
			t.Fatal(err)
		}
		if bodies != letters {
			t.Errorf("sent %s, arrived %s", letters, bodies)
		}
	})
}

func TestRequestsStayWithinSizeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		_, queue := openStub(t, &stub{send: slowSend(time.Millisecond, &sizes)}, "orders")
		large := strings.Repeat("x", 400_000)
		if _, err := queue.Send(t.Context(), outgoing(large, large, large, "small")); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(sizes) != "[2 2]" {
			t.Errorf("three messages of 400 kB and a small one went in requests of %v, want [2 2]", sizes)
		}
	})
}

func TestHangingRequestDelaysOthersOnlyBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queue := openStub(t, &stub{send: func(_ context.Context, n int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
			if n == 0 {
				time.Sleep(time.Minute)
			}
			return takeAll(in), nil
		}}, "orders")
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() { _, _ = queue.Send(t.Context(), outgoing("hangs")) })
		synctest.Wait()
		start := time.Now()
		if _, err := queue.Send(t.Context(), outgoing("b")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 50*time.Millisecond {
			t.Errorf("a send behind one that hangs took %v", took)
		}
	})
}

func TestRefusedEntriesKeepTheirPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queue := openStub(t, &stub{send: func(_ context.Context, _ int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
			out := takeAll(in)
			out.Successful = []types.SendMessageBatchResultEntry{out.Successful[2], out.Successful[0]} // in any order
			out.Failed = []types.BatchResultErrorEntry{{
				Id: in.Entries[1].Id, Code: aws.String("InvalidMessageContents"), Message: aws.String("bad"), SenderFault: true,
			}}
			return out, nil
		}}, "orders")
		sent, err := queue.Send(t.Context(), outgoing("a", "bad", "ccc", "lost"))
		batch, ok := errors.AsType[*driver.BatchError](err)
		if !ok {
			t.Fatalf("got %v, want a *driver.BatchError", err)
		}
		for i, want := range []error{nil, driver.ErrInvalid, nil, driver.ErrUnavailable} {
			if !errors.Is(batch.Errs[i], want) {
				t.Errorf("position %d: got %v, want %v", i, batch.Errs[i], want)
			}
			if (sent[i].ID == "") != (want != nil) {
				t.Errorf("position %d: got id %q", i, sent[i].ID)
			}
		}
		if sent[0].ID == sent[2].ID {
			t.Errorf("the answers to a and ccc are mixed up: %v", sent)
		}
	})
}

func TestFailedRequestFailsTheWholeCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queue := openStub(t, &stub{send: func(context.Context, int, *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
			return nil, fault("ThrottlingException", "Rate exceeded")
		}}, "orders")
		_, err := queue.Send(t.Context(), outgoing("a", "b"))
		if _, isBatch := errors.AsType[*driver.BatchError](err); isBatch || !errors.Is(err, driver.ErrFull) || driver.RetryAfter(err) <= 0 {
			t.Errorf("a throttled send: got %v, want a plain ErrFull with RetryAfter", err)
		}
		if e, _ := errors.AsType[*driver.Error](err); e.Queue != "orders" || e.Op != "send" {
			t.Errorf("the error does not say what failed: %v", err)
		}
	})
}

func TestSendCancelledBeforeItsRequestIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &stub{send: func(_ context.Context, _ int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
			for _, e := range in.Entries {
				if *e.MessageBody == "cancelled" {
					t.Error("a send that was cancelled before its request was sent anyway")
				}
			}
			time.Sleep(10 * time.Millisecond)
			return takeAll(in), nil
		}}
		_, queue := openStub(t, api, "orders")
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := queue.Send(t.Context(), outgoing("first")); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		group.Go(func() {
			if _, err := queue.Send(ctx, outgoing("cancelled")); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled send: got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		group.Wait()
		time.Sleep(time.Second)
		if n := api.called("send"); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

func TestCancelDoesNotAffectOtherCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queue := openStub(t, &stub{send: func(ctx context.Context, _ int, in *sqs.SendMessageBatchInput) (*sqs.SendMessageBatchOutput, error) {
			select {
			case <-time.After(10 * time.Millisecond):
				return takeAll(in), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}, "orders")
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _, _ = queue.Send(t.Context(), outgoing("first")) })
		synctest.Wait()
		group.Go(func() { _, _ = queue.Send(ctx, outgoing("leaves")) })
		synctest.Wait()
		group.Go(func() {
			if _, err := queue.Send(t.Context(), outgoing("stays")); err != nil {
				t.Errorf("a send in one request with a cancelled one: %v", err)
			}
		})
		synctest.Wait()
		time.Sleep(15 * time.Millisecond) // the second request is under way
		cancel()
		group.Wait()
	})
}
