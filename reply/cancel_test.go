package reply_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/mailboxtest"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/reply"
)

// untilEnded serves a request until its context ends, and returns the cause.
func untilEnded(ctx context.Context, _ *mailbox.Message[string]) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// onEachStore runs a test in virtual time with requests and a reply store in memory and on disk.
func onEachStore(t *testing.T, run func(t *testing.T, requests *mailbox.Mailbox[string], store driver.ReplyStore)) {
	for name, open := range map[string]func(t *testing.T) (driver.Backend, driver.ReplyStore){
		"memory": func(*testing.T) (driver.Backend, driver.ReplyStore) { return membox.New(nil), reply.NewMemory(nil) },
		"disk": func(t *testing.T) (driver.Backend, driver.ReplyStore) {
			disk := must(diskbox.Open(t.Context(), t.TempDir(), &diskbox.Options{Sync: diskbox.SyncNone}))(t)
			return disk, disk.Replies()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend, store := open(t)
				requests := must(mailbox.Open(t.Context(), backend, "requests", &mailbox.Options[string]{Replies: store}))(t)
				run(t, requests, store)
				expectError(t, errors.Join(requests.Close(), backend.Close()), nil)
			})
		})
	}
}

func receiveOne(t *testing.T, requests *mailbox.Mailbox[string]) *mailbox.Message[string] {
	t.Helper()
	messages, err := requests.Receive(t.Context())
	if err != nil || len(messages) != 1 {
		t.Fatalf("received %d messages and error %v, want 1", len(messages), err)
	}
	return messages[0]
}

func expectStats(t *testing.T, requests *mailbox.Mailbox[string], want mailbox.Stats) {
	t.Helper()
	expectEqual(t, "requests", must(requests.Stats(t.Context()))(t), want)
}

func TestCallOnEachStore(t *testing.T) {
	onEachStore(t, func(t *testing.T, requests *mailbox.Mailbox[string], store driver.ReplyStore) {
		client := reply.NewClient[string, string](requests, store, nil)
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan struct{})
		go func() {
			defer close(served)
			handle := reply.Handle(echo, nil)
			for message, err := range requests.Messages(ctx) {
				if err == nil {
					expectError(t, handle(ctx, message), nil)
				}
			}
		}()
		for _, body := range []string{"tea", "milk"} {
			expectEqual(t, "answer", must(client.Call(t.Context(), body))(t), body+"!")
		}
		_, err := client.Call(t.Context(), "coffee")
		expectError(t, err, errSoldOut)
		stop()
		<-served
		expectStats(t, requests, mailbox.Stats{})
		expectEqual(t, "slots", reply.Len(store), 0)
	})
}

func TestRPL6CancelEndsTheHandler(t *testing.T) {
	onEachStore(t, func(t *testing.T, requests *mailbox.Mailbox[string], store driver.ReplyStore) {
		client := reply.NewClient[string, string](requests, store, nil)
		for _, after := range []time.Duration{0, 500 * time.Millisecond, time.Second, 20 * time.Second} {
			future := must(client.Send(t.Context(), "tea"))(t)
			message := receiveOne(t, requests)
			var cancelled time.Time
			var cause error
			err := reply.Handle(func(ctx context.Context, m *mailbox.Message[string]) (string, error) {
				go func() {
					time.Sleep(after)
					cancelled = time.Now()
					expectError(t, future.Cancel(t.Context()), nil)
				}()
				_, cause = untilEnded(ctx, m)
				return "", cause
			}, nil)(t.Context(), message)
			expectError(t, err, nil)
			expectError(t, cause, mailbox.ErrReplyCancelled)
			if late := time.Since(cancelled); late > 5*time.Second {
				t.Errorf("cancelled after %v, the handler learned it after %v", after, late)
			}
			expectEqual(t, "settled", message.Settled(), true)
			expectStats(t, requests, mailbox.Stats{})
		}
	})
}

// A deadline of Call cancels the request, and so ends the work on it.
func TestRPL6DeadlineOfCallEndsTheHandler(t *testing.T) {
	onEachStore(t, func(t *testing.T, requests *mailbox.Mailbox[string], store driver.ReplyStore) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := reply.NewClient[string, string](requests, store, nil).Call(ctx, "tea")
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		expectError(t, reply.Handle(untilEnded, nil)(t.Context(), receiveOne(t, requests)), nil)
		if took := time.Since(began); took < 10*time.Second || took > 15*time.Second {
			t.Errorf("the handler ended after %v", took)
		}
		err := <-done
		expectError(t, err, mailbox.ErrTimeout)
		expectError(t, err, context.DeadlineExceeded)
	})
}

// A request whose cancellation was confirmed before it was received is never started.
func TestRPL6CancelledRequestIsNotStarted(t *testing.T) {
	onEachStore(t, func(t *testing.T, requests *mailbox.Mailbox[string], store driver.ReplyStore) {
		future := must(reply.NewClient[string, string](requests, store, nil).Send(t.Context(), "tea"))(t)
		expectError(t, future.Cancel(t.Context()), nil)
		served := 0
		expectError(t, reply.Handle(counted(&served, echo), nil)(t.Context(), receiveOne(t, requests)), nil)
		expectEqual(t, "times it was served", served, 0)
		expectStats(t, requests, mailbox.Stats{})
	})
}

// A handler that returns an answer although the request was cancelled gets it acked all the same.
func TestAnswerAfterCancelIsDroppedAndAcked(t *testing.T) {
	onEachStore(t, func(t *testing.T, requests *mailbox.Mailbox[string], store driver.ReplyStore) {
		future := must(reply.NewClient[string, string](requests, store, nil).Send(t.Context(), "tea"))(t)
		message := receiveOne(t, requests)
		err := reply.Handle(func(ctx context.Context, _ *mailbox.Message[string]) (string, error) {
			expectError(t, future.Cancel(ctx), nil)
			<-ctx.Done()
			return "late", nil
		}, nil)(t.Context(), message)
		expectError(t, err, nil)
		_, err = future.Wait(t.Context())
		expectError(t, err, mailbox.ErrReplyCancelled)
		expectStats(t, requests, mailbox.Stats{})
	})
}

// While the store fails, the handler works on; when it is back, the cancellation arrives.
func TestCancelArrivesAfterStoreFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newEnv(t)
		future := must(o.client(nil).Send(t.Context(), "tea"))(t)
		message := o.receive(t, mailbox.WithVisibility(time.Hour))
		failing := o.faults.Add(mailboxtest.Fault{Op: "wait", Err: mailbox.ErrUnavailable})
		go func() {
			time.Sleep(time.Minute)
			expectError(t, future.Cancel(t.Context()), nil)
			time.Sleep(time.Minute)
			failing()
		}()
		began := time.Now()
		expectError(t, reply.Handle(untilEnded, nil)(t.Context(), message), nil)
		if took := time.Since(began); took < 2*time.Minute || took > 2*time.Minute+5*time.Second {
			t.Errorf("the handler ended after %v", took)
		}
	})
}

// Handlers of requests that are answered, have expired or are not cancelled are not ended.
func TestHandlerOfLivingRequestIsNotEnded(t *testing.T) {
	onEachStore(t, func(t *testing.T, requests *mailbox.Mailbox[string], store driver.ReplyStore) {
		client := reply.NewClient[string, string](requests, store, &reply.Options[string]{TTL: time.Minute})
		must(client.Send(t.Context(), "tea"))(t)
		messages := must(requests.Receive(t.Context(), mailbox.WithVisibility(time.Hour)))(t)
		expectError(t, reply.Handle(func(ctx context.Context, _ *mailbox.Message[string]) (string, error) {
			time.Sleep(3 * time.Minute) // the slot expires meanwhile
			return "late", ctx.Err()
		}, nil)(t.Context(), messages[0]), nil)
		expectStats(t, requests, mailbox.Stats{})
	})
}
