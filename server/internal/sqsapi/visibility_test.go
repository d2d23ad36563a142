package sqsapi_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/server/internal/broker"
)

// change changes the visibility of a message.
func (c *client) change(queue *string, m types.Message, seconds int32) error {
	_, err := c.ChangeMessageVisibility(c.t.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: queue, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

func TestMessageReturnsAfterVisibilityTimeout(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders", "VisibilityTimeout", "7")
		c.send(queue, "x")
		c.one(queue)
		time.Sleep(7*time.Second - time.Millisecond)
		if got := c.receive(queue); len(got) != 0 {
			t.Error("it came back too early")
		}
		time.Sleep(time.Millisecond)
		m := c.one(queue, visible(3))
		time.Sleep(2 * time.Second)
		if err := c.change(queue, m, 10); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		if got := c.receive(queue); len(got) != 0 {
			t.Error("the extension did not last")
		}
		if err := c.change(queue, m, 0); err != nil {
			t.Fatal(err)
		}
		c.one(queue)
	}))
}

func TestVisibilityEndsTwelveHoursAfterReceive(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.send(queue, "x")
		m := c.one(queue, visible(1))
		if err := c.change(queue, m, 43_200); err != nil {
			t.Errorf("the whole time at once: %v", err)
		}
		time.Sleep(time.Hour)
		if err := c.change(queue, m, 11*3600); err != nil {
			t.Errorf("what is left: %v", err)
		}
		refused(t, "a second more", c.change(queue, m, 11*3600+1), "InvalidParameterValue")
		refused(t, "more than can be said", c.change(queue, m, 43_201), "InvalidParameterValue")
	}))
}

func TestStandardQueuesForgiveOldReceipts(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.send(queue, "x")
		old := c.one(queue, visible(1))
		time.Sleep(2 * time.Second)
		if err := c.change(queue, old, 60); err != nil {
			t.Errorf("a change after the end: %v", err)
		}
		if got := c.receive(queue); len(got) != 0 {
			t.Error("a change after the end did not lease it again")
		}
		time.Sleep(time.Minute)
		again := c.one(queue)
		c.delete(queue, old) // with the receipt of an earlier delivery
		time.Sleep(time.Hour)
		if got := c.receive(queue); len(got) != 0 {
			t.Error("it was not deleted")
		}
		c.delete(queue, old)
		c.delete(queue, again)
		err := c.change(queue, again, 60)
		refused(t, "a change of a deleted message", err, "InvalidParameterValue")
		if err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("it says %v", err)
		}
	}))
}

func TestMalformedReceiptsAreRefused(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue, other := c.create("orders"), c.create("invoices")
		c.send(queue, "x")
		m := c.one(queue)
		garbage := types.Message{ReceiptHandle: aws.String("garbage")}
		_, err := c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: garbage.ReceiptHandle})
		refused(t, "delete", err, "ReceiptHandleIsInvalid")
		refused(t, "change", c.change(queue, garbage, 1), "ReceiptHandleIsInvalid")
		_, err = c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: other, ReceiptHandle: m.ReceiptHandle})
		refused(t, "the receipt of another queue", err, "ReceiptHandleIsInvalid")
	}))
}

func TestMessageDelayOverridesQueueDelay(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders", "DelaySeconds", "5")
		c.send(queue, "as the queue says")
		c.send(queue, "as the message says", func(in *sqs.SendMessageInput) { in.DelaySeconds = 2 })
		if n := c.attributes(queue)["ApproximateNumberOfMessagesDelayed"]; n != "2" {
			t.Errorf("%s are delayed", n)
		}
		time.Sleep(2*time.Second - time.Millisecond)
		if got := c.receive(queue); len(got) != 0 {
			t.Errorf("too early: %v", bodies(got))
		}
		time.Sleep(time.Millisecond)
		if got := bodies(c.receive(queue)); !slices.Equal(got, []string{"as the message says"}) {
			t.Errorf("after 2 s: %v", got)
		}
		time.Sleep(3 * time.Second)
		if got := bodies(c.receive(queue)); !slices.Equal(got, []string{"as the queue says"}) {
			t.Errorf("after 5 s: %v", got)
		}
	}))
}

func TestMessagesAreDroppedAfterRetention(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders", "MessageRetentionPeriod", "60")
		c.send(queue, "old")
		time.Sleep(30 * time.Second)
		c.send(queue, "young")
		time.Sleep(30 * time.Second)
		if got := bodies(c.receive(queue)); !slices.Equal(got, []string{"young"}) {
			t.Errorf("after a minute: %v", got)
		}
		native, err := c.d.broker.Daemon("")
		if err != nil {
			t.Fatal(err)
		}
		if stats, err := native.Stats(t.Context(), "orders"); err != nil || stats.Dead != 0 {
			t.Errorf("what was too old is kept as a dead letter: %+v, %v", stats, err)
		}
		if err := c.set(queue, "MessageRetentionPeriod", "120"); err != nil {
			t.Fatal(err)
		}
		c.send(queue, "kept longer")
		time.Sleep(119 * time.Second)
		if got := bodies(c.receive(queue)); !slices.Contains(got, "kept longer") {
			t.Errorf("after the change: %v", got)
		}
	}))
}

func TestLongPollWakesForMessagesAndTimesOut(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders", "ReceiveMessageWaitTimeSeconds", "4")
		began := time.Now()
		if got := c.receive(queue); len(got) != 0 || time.Since(began) != 4*time.Second {
			t.Errorf("the wait of the queue: %d messages after %v", len(got), time.Since(began))
		}
		began = time.Now()
		if got := c.receive(queue, waiting(20)); len(got) != 0 || time.Since(began) != 20*time.Second {
			t.Errorf("a wait of its own: %d messages after %v", len(got), time.Since(began))
		}
		began = time.Now()
		time.AfterFunc(3*time.Second, func() { c.send(queue, "x") })
		c.one(queue, waiting(20), visible(5))
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it was woken by a send after %v", took)
		}
		c.one(queue, waiting(20))
		if took := time.Since(began); took != 8*time.Second {
			t.Errorf("it was woken by the end of visibility after %v", took)
		}
		c.send(queue, "late", func(in *sqs.SendMessageInput) { in.DelaySeconds = 6 })
		c.one(queue, waiting(20))
		if took := time.Since(began); took != 14*time.Second {
			t.Errorf("it was woken by the end of a delay after %v", took)
		}
	}))
}

func TestCancelledLongPollTakesNoMessage(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := c.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, WaitTimeSeconds: 20})
			done <- err
		}()
		synctest.Wait()
		leave()
		if err := <-done; err == nil {
			t.Error("it was answered")
		}
		synctest.Wait()
		c.send(queue, "x")
		c.one(queue)
	}))
}

func TestDrainEndsLongPollsAndStillDeletes(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.send(queue, "x")
		m := c.one(queue)
		began := time.Now()
		time.AfterFunc(time.Second, func() { c.d.broker.SetState(broker.StateSettling) })
		if got := c.receive(queue, waiting(20)); len(got) != 0 || time.Since(began) != time.Second {
			t.Errorf("%d messages after %v", len(got), time.Since(began))
		}
		time.Sleep(5 * time.Second) // the cached settings of the queue have expired
		c.delete(queue, m)
		_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("y")})
		refused(t, "a send", err, "ServiceUnavailable")
	}))
}

func TestTooManyInFlightIsOverLimit(t *testing.T) {
	synctest.Test(t, with(setup{limits: broker.Limits{MaxInFlight: 3}}, func(t *testing.T, c *client) {
		queue, fifo := c.create("orders"), c.createFIFO("orders.fifo", "ContentBasedDeduplication", "true")
		for _, body := range []string{"a", "b", "c", "d"} {
			c.send(queue, body)
			c.send(fifo, body, group(body, ""))
		}
		if got := c.receive(queue); len(got) != 3 {
			t.Errorf("got %d", len(got))
		}
		_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue})
		refused(t, "one more", err, "OverLimit")
		if got := c.receive(fifo); len(got) != 0 {
			t.Errorf("a FIFO queue gave %d", len(got))
		}
	}))
}

func TestInFlightLimitFailsOnlyShortPolls(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		native, err := c.d.broker.Daemon("")
		if err != nil {
			t.Fatal(err)
		}
		config, err := native.Config(t.Context(), "orders")
		if err != nil || config.MaxInFlight != 120_000 {
			t.Fatalf("%d may be in flight, %v", config.MaxInFlight, err)
		}
		config.MaxInFlight = 2
		if err := native.Configure(t.Context(), "orders", config); err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{"a", "b", "c"} {
			c.send(queue, body)
		}
		if got := c.receive(queue); len(got) != 2 {
			t.Errorf("got %d", len(got))
		}
		_, err = c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue})
		refused(t, "a short poll", err, "OverLimit")
		began := time.Now()
		if got := c.receive(queue, waiting(5)); len(got) != 0 || time.Since(began) != 5*time.Second {
			t.Errorf("a long poll got %d after %v", len(got), time.Since(began))
		}
	}))
}

func TestLateChangeOfVisibilityLeasesAgain(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.send(queue, "x")
		m := c.one(queue, visible(1))
		time.Sleep(2 * time.Second)
		if err := c.change(queue, m, 10); err != nil {
			t.Fatal(err)
		}
		if got := c.receive(queue); len(got) != 0 {
			t.Error("the message was delivered to another receiver although a late change was told yes")
		}
		time.Sleep(10 * time.Second)
		if again := c.one(queue); again.Attributes["ApproximateReceiveCount"] != "2" {
			t.Errorf("receive count is %s; leasing again is not a receive", again.Attributes["ApproximateReceiveCount"])
		}
	}))
}

func TestSupersededReceiptChangesNoVisibility(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.send(queue, "x")
		first := c.one(queue, visible(1))
		time.Sleep(time.Second)
		second := c.one(queue, visible(5))
		if err := c.change(queue, first, 0); err != nil {
			t.Errorf("a superseded receipt: %v; AWS answers yes", err)
		}
		if got := c.receive(queue); len(got) != 0 {
			t.Error("a superseded receipt ended the lease of the new holder")
		}
		c.delete(queue, second)
	}))
}

func TestLateChangeOverQueryProtocolLeasesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		query := func(parameters string) string {
			t.Helper()
			status, _, body := d.post(t, "/", parameters, nil)
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", parameters, status, body)
			}
			return body
		}
		query("Action=CreateQueue&QueueName=orders")
		query("Action=SendMessage&QueueUrl=orders&MessageBody=x")
		_, rest, _ := strings.Cut(query("Action=ReceiveMessage&QueueUrl=orders&VisibilityTimeout=1"), "<ReceiptHandle>")
		handle, _, _ := strings.Cut(rest, "</ReceiptHandle>")
		time.Sleep(2 * time.Second)
		query("Action=ChangeMessageVisibility&QueueUrl=orders&VisibilityTimeout=10&ReceiptHandle=" + url.QueryEscape(handle))
		if body := query("Action=ReceiveMessage&QueueUrl=orders"); strings.Contains(body, "<Body>") {
			t.Errorf("the message was delivered although a late change was told yes: %s", body)
		}
	})
}
