package sqsapi_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// edge is a limit: values within it are accepted, values beyond it refused with the code.
type edge struct {
	what           string
	within, beyond []string
	code           string
}

func TestQueueAttributesAreLimited(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		standard, fifo := c.create("orders"), c.createFIFO("orders.fifo")
		for queue, edges := range map[*string][]edge{
			standard: {
				{"VisibilityTimeout", []string{"0", "43200"}, []string{"-1", "43201", "", "x", "1.5"}, "InvalidAttributeValue"},
				{"DelaySeconds", []string{"0", "900"}, []string{"-1", "901"}, "InvalidAttributeValue"},
				{"ReceiveMessageWaitTimeSeconds", []string{"0", "20"}, []string{"-1", "21"}, "InvalidAttributeValue"},
				{"MaximumMessageSize", []string{"1024", "1048576"}, []string{"1023", "1048577"}, "InvalidAttributeValue"},
				{"MessageRetentionPeriod", []string{"60", "1209600"}, []string{"59", "1209601"}, "InvalidAttributeValue"},
				{"KmsMasterKeyId", []string{"", "alias/aws/sqs"}, nil, ""},
				{"KmsDataKeyReusePeriodSeconds", []string{"60", "86400"}, []string{"59", "86401"}, "InvalidAttributeValue"},
				{"SqsManagedSseEnabled", []string{"true", "false"}, []string{"maybe"}, "InvalidAttributeValue"},
				{"Policy", []string{`{"Version":"2012-10-17","Statement":[]}`, ""}, []string{"no", "[]", "null"}, "InvalidAttributeValue"},
				{"FifoQueue", nil, []string{"true", "false"}, "InvalidAttributeName"},
				{"ContentBasedDeduplication", nil, []string{"true"}, "InvalidAttributeName"},
				{"DeduplicationScope", nil, []string{"queue"}, "InvalidAttributeName"},
				{"FifoThroughputLimit", nil, []string{"perQueue"}, "InvalidAttributeName"},
				{"QueueArn", nil, []string{"x"}, "InvalidAttributeName"},
				{"ApproximateNumberOfMessages", nil, []string{"0"}, "InvalidAttributeName"},
				{"Nonsense", nil, []string{"1"}, "InvalidAttributeName"},
			},
			fifo: {
				{"ContentBasedDeduplication", []string{"true", "false"}, []string{"x", ""}, "InvalidAttributeValue"},
				{"FifoThroughputLimit", []string{"perQueue"}, []string{"perMessageGroupId", "x"}, "InvalidAttributeValue"},
				{"DeduplicationScope", []string{"queue", "messageGroup"}, []string{"x"}, "InvalidAttributeValue"},
			},
		} {
			for _, e := range edges {
				for _, value := range e.within {
					if err := c.set(queue, e.what, value); err != nil {
						t.Errorf("%s=%q: %v", e.what, value, err)
					}
					if got := c.attributes(queue)[e.what]; got != value {
						t.Errorf("%s is %q, was set to %q", e.what, got, value)
					}
				}
				for _, value := range e.beyond {
					refused(t, e.what+"="+value, c.set(queue, e.what, value), e.code)
				}
			}
		}
		if err := c.set(fifo, "FifoThroughputLimit", "perMessageGroupId", "DeduplicationScope", "messageGroup"); err != nil {
			t.Errorf("high throughput: %v", err)
		}
		refused(t, "half of it", c.set(fifo, "DeduplicationScope", "queue"), "InvalidAttributeValue")
	}))
}

func TestNumbersOfRequestsAreLimited(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		receive := func(most, visibility, wait int32) error {
			_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
				QueueUrl: queue, MaxNumberOfMessages: most, VisibilityTimeout: visibility, WaitTimeSeconds: wait,
			})
			return err
		}
		send := func(size int, delay int32) error {
			_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String(strings.Repeat("x", size)), DelaySeconds: delay})
			return err
		}
		list := func(most int32) error {
			_, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{MaxResults: &most})
			return err
		}
		for what, err := range map[string]error{
			"10 messages": receive(10, 1, 0), "12 hours": receive(1, 43_200, 0), "20 s": receive(1, 1, 20),
			"1 byte": send(1, 0), "1 MiB": send(1<<20, 0), "15 minutes": send(1, 900), "a page of 1": list(1), "a page of 1000": list(1000),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, err := range map[string]error{
			"11 messages": receive(11, 1, 0), "fewer than none": receive(-1, 1, 0), "more than 12 hours": receive(1, 43_201, 0),
			"less than no visibility": receive(1, -1, 0), "21 s": receive(1, 1, 21), "less than no wait": receive(1, 1, -1),
			"1 MiB and a byte": send(1<<20+1, 0), "a second more": send(1, 901), "less than no delay": send(1, -1),
			"a page of 0": list(0), "a page of 1001": list(1001),
		} {
			refused(t, what, err, "InvalidParameterValue")
		}
		refused(t, "no body", send(0, 0), "MissingParameter")
	}))
}

func TestMessageAttributesCountAndAreLimited(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders", "MaximumMessageSize", "1024")
		send := func(body string, attributes map[string]types.MessageAttributeValue) error {
			_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: &body, MessageAttributes: attributes})
			return err
		}
		ten := make(map[string]types.MessageAttributeValue)
		for i := range 10 {
			ten[fmt.Sprint("a", i)] = str("v")
		}
		eleven := maps.Clone(ten)
		eleven["b"] = str("v")
		if err := send("x", ten); err != nil {
			t.Errorf("ten: %v", err)
		}
		refused(t, "eleven", send("x", eleven), "InvalidParameterValue")
		one := map[string]types.MessageAttributeValue{"name": str("value")} // 4, 6 and 5 bytes
		if err := send(strings.Repeat("x", 1024-15), one); err != nil {
			t.Errorf("as large as allowed: %v", err)
		}
		refused(t, "a byte more", send(strings.Repeat("x", 1024-14), one), "InvalidParameterValue")
		for _, name := range []string{"AWS.x", "Amazon.x", ".x", "x.", "a..b", "a b", strings.Repeat("n", 257)} {
			refused(t, name, send("x", map[string]types.MessageAttributeValue{name: str("v")}), "InvalidParameterValue")
		}
		refused(t, "an empty value", send("x", map[string]types.MessageAttributeValue{"a": str("")}), "InvalidParameterValue")
		refused(t, "an unknown type", send("x", map[string]types.MessageAttributeValue{"a": {DataType: aws.String("Date"), StringValue: aws.String("x")}}), "InvalidParameterValue")
		refused(t, "a bad character", send("\x01", nil), "InvalidMessageContents")
	}))
}

func TestNamesOfQueuesAreLimited(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		create := func(name string, attributes ...string) error {
			_, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
			return err
		}
		for _, name := range []string{"a", "A-z_9", strings.Repeat("n", 80)} {
			if err := create(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"", strings.Repeat("n", 81), "a.b", "a b", "a/b", "ä", "orders.fifo"} {
			refused(t, name, create(name), "InvalidParameterValue")
		}
		if err := create(strings.Repeat("n", 75)+".fifo", "FifoQueue", "true"); err != nil {
			t.Error(err)
		}
		for _, name := range []string{strings.Repeat("n", 76) + ".fifo", "orders", ".fifo"} {
			refused(t, name, create(name, "FifoQueue", "true"), "InvalidParameterValue")
		}
		refused(t, "FifoQueue=false", create("orders", "FifoQueue", "false"), "InvalidAttributeName")
	}))
}

func TestTagsAreLimited(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		tag := func(tags map[string]string) error {
			_, err := c.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: queue, Tags: tags})
			return err
		}
		fifty := make(map[string]string)
		for i := range 50 {
			fifty[fmt.Sprint("key", i)] = "value"
		}
		if err := tag(fifty); err != nil {
			t.Errorf("fifty: %v", err)
		}
		refused(t, "one more", tag(map[string]string{"more": ""}), "InvalidParameterValue")
		if err := tag(map[string]string{"key0": strings.Repeat("ü", 256)}); err != nil {
			t.Errorf("a long value: %v", err)
		}
		refused(t, "a longer one", tag(map[string]string{"key0": strings.Repeat("ü", 257)}), "InvalidParameterValue")
		if _, err := c.UntagQueue(t.Context(), &sqs.UntagQueueInput{QueueUrl: queue, TagKeys: []string{"key1", "none"}}); err != nil {
			t.Error(err)
		}
		refused(t, "a long key", tag(map[string]string{strings.Repeat("k", 129): ""}), "InvalidParameterValue")
		refused(t, "a reserved key", tag(map[string]string{"aws:x": ""}), "InvalidParameterValue")
		if err := tag(map[string]string{strings.Repeat("k", 128): ""}); err != nil {
			t.Error(err)
		}
		out, err := c.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: queue})
		if err != nil || len(out.Tags) != 50 || out.Tags["key1"] != "" || out.Tags["key2"] != "value" {
			t.Errorf("got %d tags, %v", len(out.Tags), err)
		}
	}))
}
