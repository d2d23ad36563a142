package sqsapi_test

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

const noQueue = "AWS.SimpleQueueService.NonExistentQueue"

func TestNewQueueHasDefaultsOfAWS(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		now := fmt.Sprint(time.Now().Unix())
		want := map[string]string{
			"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesDelayed": "0", "ApproximateNumberOfMessagesNotVisible": "0",
			"CreatedTimestamp": now, "LastModifiedTimestamp": now, "DelaySeconds": "0", "MaximumMessageSize": "1048576",
			"MessageRetentionPeriod": "345600", "ReceiveMessageWaitTimeSeconds": "0", "VisibilityTimeout": "30",
			"QueueArn": "arn:aws:sqs:eu-central-1:000000000000:orders", "SqsManagedSseEnabled": "false",
		}
		if got := c.attributes(c.create("orders")); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v", got)
		}
		want["QueueArn"] += ".fifo"
		want["FifoQueue"], want["ContentBasedDeduplication"], want["DeduplicationScope"], want["FifoThroughputLimit"] = "true", "false", "queue", "perQueue"
		if got := c.attributes(c.createFIFO("orders.fifo")); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v", got)
		}
	}))
}

func TestCreatingSameQueueAgainSucceeds(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		first := c.create("orders", "VisibilityTimeout", "60", "Policy", `{"a":1,"b":2}`)
		for _, attributes := range [][]string{nil, {"VisibilityTimeout", "60"}, {"DelaySeconds", "0"}, {"Policy", `{ "b": 2, "a": 1 }`}} {
			if again := c.create("orders", attributes...); *again != *first {
				t.Errorf("%v: %s", attributes, *again)
			}
		}
		_, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("orders"), Attributes: map[string]string{"VisibilityTimeout": "61"}})
		refused(t, "another value", err, "QueueAlreadyExists")
		if err == nil || !strings.Contains(err.Error(), "VisibilityTimeout") {
			t.Errorf("it says %v", err)
		}
	}))
}

func TestMissingQueuesAreRefused(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		gone := c.create("orders")
		c.send(gone, "x")
		m := c.one(gone)
		if _, err := c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: gone}); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []*string{gone, aws.String("http://elsewhere/000000000000/never"), aws.String("never"), aws.String("http://sqs.example:4566/000000000000/")} {
			_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("x")})
			refused(t, *queue+": send", err, noQueue)
			_, err = c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue})
			refused(t, *queue+": receive", err, noQueue)
			_, err = c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: m.ReceiptHandle})
			refused(t, *queue+": delete", err, noQueue)
			_, err = c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue})
			refused(t, *queue+": attributes", err, noQueue)
			_, err = c.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: queue})
			refused(t, *queue+": purge", err, noQueue)
			_, err = c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: queue})
			refused(t, *queue+": delete queue", err, noQueue)
		}
		_, err := c.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("orders")})
		refused(t, "its URL", err, noQueue)
		c.create("orders", "VisibilityTimeout", "1") // a new queue of the same name is empty
		if got := c.receive(gone); len(got) != 0 {
			t.Errorf("it has messages: %v", bodies(got))
		}
	}))
}

func TestDeletedQueueIsGoneForOtherClients(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		native, err := c.d.broker.Daemon("")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(2*time.Second, func() { _ = native.Delete(t.Context(), "orders") })
		out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue, WaitTimeSeconds: 20})
		if err != nil || len(out.Messages) > 0 {
			t.Errorf("a long poll got %v, %v; want no messages", out, err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it ended after %v", took)
		}
		_, err = c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("x")})
		refused(t, "a send", err, noQueue)
	}))
}

func TestHostAndAccountOfQueueURLAreIgnored(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		c.create("orders")
		for _, queue := range []string{"orders", "https://sqs.us-east-1.amazonaws.com/123456789012/orders", "http://localhost:9324/queue/orders"} {
			c.send(&queue, "x")
		}
		out, err := c.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("orders"), QueueOwnerAWSAccountId: aws.String("000000000000")})
		if err != nil || *out.QueueUrl != "http://sqs.example:4566/000000000000/orders" {
			t.Errorf("got %v, %v", out, err)
		}
		_, err = c.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("orders"), QueueOwnerAWSAccountId: aws.String("123456789012")})
		refused(t, "another owner", err, noQueue)
	}))
}

func TestQueuesAreListedByPrefixAndPage(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		if out, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil || len(out.QueueUrls) != 0 {
			t.Errorf("got %v, %v", out, err)
		}
		for _, name := range []string{"b2", "a", "b3", "b1", "c"} {
			c.create(name)
		}
		var pages [][]string
		var next *string
		for {
			out, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{QueueNamePrefix: aws.String("b"), MaxResults: aws.Int32(2), NextToken: next})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, url := range out.QueueUrls {
				names = append(names, url[strings.LastIndexByte(url, '/')+1:])
			}
			pages = append(pages, names)
			if next = out.NextToken; next == nil {
				break
			}
		}
		if want := [][]string{{"b1", "b2"}, {"b3"}}; !reflect.DeepEqual(pages, want) {
			t.Errorf("got %v", pages)
		}
		_, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{NextToken: aws.String("?")})
		refused(t, "a bad token", err, "InvalidParameterValue")
	}))
}

func TestSetAttributesAreInForceAtOnce(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		time.Sleep(time.Minute)
		if err := c.set(queue, "VisibilityTimeout", "2", "MaximumMessageSize", "1024", "DelaySeconds", "1"); err != nil {
			t.Fatal(err)
		}
		got := c.attributes(queue, "VisibilityTimeout", "MaximumMessageSize", "LastModifiedTimestamp", "CreatedTimestamp")
		if len(got) != 4 || got["VisibilityTimeout"] != "2" || got["LastModifiedTimestamp"] == got["CreatedTimestamp"] {
			t.Errorf("got %v", got)
		}
		_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String(strings.Repeat("x", 1025))})
		refused(t, "a long message", err, "InvalidParameterValue")
		c.send(queue, "x")
		if got := c.receive(queue); len(got) != 0 {
			t.Error("it is not delayed")
		}
		_, err = c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue, AttributeNames: []types.QueueAttributeName{"Nonsense"}})
		refused(t, "an attribute that there is not", err, "InvalidAttributeName")
	}))
}

func TestPurgeRemovesAllMessages(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		for range 3 {
			c.send(queue, "x")
		}
		c.one(queue)
		for range 2 { // twice in a row, as the tests of client libraries do
			if _, err := c.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: queue}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if got := c.receive(queue); len(got) != 0 {
			t.Errorf("%d are left", len(got))
		}
	}))
}

func TestStrictMinuteRefusesReuseAndSecondPurge(t *testing.T) {
	synctest.Test(t, with(setup{options: sqsapi.Options{StrictMinute: true}}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		purge := func() error {
			_, err := c.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: queue})
			return err
		}
		if err := purge(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Millisecond)
		refused(t, "a purge within a minute", purge(), "AWS.SimpleQueueService.PurgeQueueInProgress")
		time.Sleep(time.Millisecond)
		if err := purge(); err != nil {
			t.Errorf("a purge after a minute: %v", err)
		}
		if _, err := c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: queue}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Millisecond)
		_, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("orders")})
		refused(t, "the same name within a minute", err, "AWS.SimpleQueueService.QueueDeletedRecently")
		time.Sleep(time.Millisecond)
		c.create("orders")
	}))
}

func TestPermissionsAreStoredInPolicy(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		add := func(label string, accounts []string, actions ...string) error {
			_, err := c.AddPermission(t.Context(), &sqs.AddPermissionInput{QueueUrl: queue, Label: &label, AWSAccountIds: accounts, Actions: actions})
			return err
		}
		if err := add("one", []string{"111111111111"}, "SendMessage"); err != nil {
			t.Fatal(err)
		}
		want := `{"Version":"2008-10-17","Id":"arn:aws:sqs:eu-central-1:000000000000:orders/SQSDefaultPolicy","Statement":[` +
			`{"Sid":"one","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111111111111:root"},"Action":"SQS:SendMessage","Resource":"arn:aws:sqs:eu-central-1:000000000000:orders"}]}`
		if got := c.attributes(queue)["Policy"]; got != want {
			t.Errorf("got %s", got)
		}
		seven := slices.Repeat([]string{"SendMessage"}, 7)
		if err := add("two", []string{"111111111111", "222222222222"}, seven...); err != nil {
			t.Errorf("seven actions: %v", err)
		}
		refused(t, "eight actions", add("three", []string{"111111111111"}, append(seven, "SendMessage")...), "OverLimit")
		refused(t, "the same label", add("one", []string{"111111111111"}, "SendMessage"), "InvalidParameterValue")
		refused(t, "no account", add("three", []string{"12"}, "SendMessage"), "InvalidParameterValue")
		refused(t, "no action", add("three", []string{"111111111111"}, "Nonsense"), "InvalidParameterValue")
		refused(t, "no label", add("a b", []string{"111111111111"}, "SendMessage"), "InvalidParameterValue")
		remove := func(label string) error {
			_, err := c.RemovePermission(t.Context(), &sqs.RemovePermissionInput{QueueUrl: queue, Label: &label})
			return err
		}
		refused(t, "a label that there is not", remove("none"), "InvalidParameterValue")
		for _, label := range []string{"one", "two"} {
			if err := remove(label); err != nil {
				t.Error(err)
			}
		}
		if policy, left := c.attributes(queue)["Policy"]; left {
			t.Errorf("left is %s", policy)
		}
	}))
}

func TestQueuesOfOtherSurfacesCanBeUsed(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		native, err := c.d.broker.Daemon("")
		if err != nil {
			t.Fatal(err)
		}
		if err := native.Configure(t.Context(), "orders", driver.Config{MaxDeliveries: 3, Annotation: "mine", RetainReady: driver.Retention{Age: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		queue := aws.String("orders")
		got := c.attributes(queue)
		if got["VisibilityTimeout"] != "30" || got["MessageRetentionPeriod"] != "3600" {
			t.Errorf("got %v", got)
		}
		if err := c.set(queue, "VisibilityTimeout", "5"); err != nil {
			t.Fatal(err)
		}
		config, err := native.Config(t.Context(), "orders")
		if err != nil || config.MaxDeliveries != 3 || config.DropExpired || !strings.Contains(config.Annotation, "mine") {
			t.Errorf("what was configured otherwise has changed: %+v, %v", config, err)
		}
		c.send(queue, "x")
		c.one(queue)
	}))
}

func TestChangesByAnotherDaemonAreSeenWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		one := serve(t, setup{opener: backend, options: sqsapi.Options{Shared: true}})
		two := serve(t, setup{opener: backend, ring: one.ring, options: sqsapi.Options{Shared: true}})
		queue := one.client("").create("orders")
		if got := two.client("").attributes(queue)["VisibilityTimeout"]; got != "30" {
			t.Fatalf("got %s", got)
		}
		if err := one.client("").set(queue, "VisibilityTimeout", "5"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := two.client("").attributes(queue)["VisibilityTimeout"]; got != "5" {
			t.Errorf("got %s", got)
		}
	})
}

func TestSettingsThatDoNotFitAreRefused(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		refused(t, "a long policy", c.set(queue, "Policy", `{"x":"`+strings.Repeat("y", driver.MaxAnnotationBytes)+`"}`), "OverLimit")
		c.send(queue, "x") // the queue is unchanged
		c.one(queue)
	}))
}

func TestWantsRecognizesRequestsByHead(t *testing.T) {
	for _, test := range []struct {
		method, target string
		header         string
		want           bool
	}{
		{"POST", "/", "", true},
		{"POST", "/", "X-Amz-Target: AmazonSQS.ListQueues", true},
		{"GET", "/?Action=ListQueues", "", true},
		{"POST", "/000000000000/orders", "", true},
		{"GET", "/000000000000/orders", "", true},
		{"POST", "/v1/send", "Authorization: AWS4-HMAC-SHA256 Credential=x", true},
		{"POST", "/v1/send", "Authorization: Bearer x", false},
		{"POST", "/v1/send", "", false},
		{"GET", "/metrics", "", false},
		{"GET", "/", "", false},
		{"GET", "/metrics?x=1", "", false},
	} {
		r, err := http.NewRequest(test.method, "http://mailbox"+test.target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if name, value, ok := strings.Cut(test.header, ": "); ok {
			r.Header.Set(name, value)
		}
		if got := sqsapi.Wants(r); got != test.want {
			t.Errorf("%+v: got %v", test, got)
		}
	}
}

func TestDeclaredQueuesAreCreatedAndUpdated(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		declared := []sqsapi.Declaration{
			{Name: "orders", Attributes: map[string]string{
				"VisibilityTimeout": "60", "RedrivePolicy": `{"deadLetterTargetArn":"` + sqsapi.QueueARN("orders-dead") + `","maxReceiveCount":3}`,
			}, Tags: map[string]string{"team": "shop"}},
			{Name: "orders-dead"},
			{Name: "orders.fifo", Attributes: map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"}},
		}
		for range 2 { // as when a daemon is restarted
			if err := c.d.service.Declare(t.Context(), declared); err != nil {
				t.Fatal(err)
			}
		}
		declared[0].Attributes["VisibilityTimeout"] = "90"
		if err := c.d.service.Declare(t.Context(), declared); err != nil {
			t.Fatal(err)
		}
		if got := c.attributes(aws.String("orders"))["VisibilityTimeout"]; got != "90" {
			t.Errorf("got %s", got)
		}
		if out, err := c.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: aws.String("orders")}); err != nil || out.Tags["team"] != "shop" {
			t.Errorf("got %v, %v", out, err)
		}
		if got := c.attributes(aws.String("orders.fifo"))["ContentBasedDeduplication"]; got != "true" {
			t.Errorf("got %s", got)
		}
		bad := sqsapi.Declaration{Name: "x", Attributes: map[string]string{"DelaySeconds": "901"}}
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), "DelaySeconds") {
			t.Errorf("got %v", err)
		}
	}))
}

// TestSlowReadDoesNotUndoChange lets a change overtake a read of a queue's settings.
func TestSlowReadDoesNotUndoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := &slowConfig{Backend: membox.New(nil)}
		defer backend.Close()
		d := serve(t, setup{opener: backend})
		defer d.close()
		c := d.client("")
		q := c.create("orders", "VisibilityTimeout", "60")
		<-time.After(2 * time.Second) // the cached settings have expired
		backend.slow.Store(true)
		var reads sync.WaitGroup
		reads.Go(func() { c.attributes(q, "VisibilityTimeout") })
		synctest.Wait()
		backend.slow.Store(false)
		<-time.After(time.Millisecond)
		if err := c.set(q, "VisibilityTimeout", "90"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second / 2) // the read ends
		reads.Wait()
		if got := c.attributes(q, "VisibilityTimeout")["VisibilityTimeout"]; got != "90" {
			t.Errorf("VisibilityTimeout is %s after it was set to 90", got)
		}
	})
}

// slowConfig is a backend that returns the configuration of a queue slowly.
type slowConfig struct {
	*membox.Backend
	slow atomic.Bool
}

func (b *slowConfig) QueueConfig(ctx context.Context, name string) (driver.Config, error) {
	config, err := b.Backend.QueueConfig(ctx, name)
	if b.slow.Load() {
		<-time.After(time.Second / 4)
	}
	return config, err
}
