package sqsapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// by returns a test with a protocol and an unsigned daemon of its own.
func by(p protocol, options sqsapi.Options, test func(t *testing.T, c *client)) func(t *testing.T) {
	return func(t *testing.T) {
		t.Log(p.name)
		test(t, serve(t, setup{unsigned: true, options: options}).client(""))
	}
}

func TestSendMessageBatchFIFOFailsWholeAndSendsNothing(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			queue := c.createFIFO("orders.fifo")
			good := fields{"Id": "a", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
			for _, bad := range []fields{
				{"Id": "b", "MessageBody": "x", "MessageDeduplicationId": "2"},
				{"Id": "b", "MessageBody": "x", "MessageGroupId": "g"},
				{"Id": "b", "MessageBody": "x", "MessageGroupId": "g g", "MessageDeduplicationId": "2"},
				{"Id": "b", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "2", "DelaySeconds": 1},
			} {
				a := c.d.call(p, sqswire.SendMessageBatch, fields{"QueueUrl": *queue, "Entries": []fields{good, bad}})
				if code, _ := a.failure(t); a.status != 400 || code != "InvalidParameterValue" {
					t.Errorf("%v: %d %s", bad, a.status, a.body)
				}
			}
			if n := c.count(queue); n != "0" {
				t.Errorf("%s messages were sent", n)
			}
		}))
	}
}

func TestSendMessageBatchOversizedEntryFailsAlone(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			queue := c.create("orders", "MaximumMessageSize", "1024")
			a := c.d.done(p, sqswire.SendMessageBatch, fields{"QueueUrl": *queue, "Entries": []fields{
				{"Id": "a", "MessageBody": strings.Repeat("a", 1024)}, {"Id": "b", "MessageBody": strings.Repeat("a", 1025)},
			}})
			if !strings.Contains(a.body, "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.") || c.count(queue) != "1" {
				t.Errorf("got %s", a.body)
			}
		}))
	}
}

func TestRedrivePolicyCountIsReadAsNumber(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			c.create("dead")
			queue := c.create("orders")
			policy := `{ "maxReceiveCount":"1", "deadLetterTargetArn":"` + deadQueue + `" }`
			c.d.done(p, sqswire.SetQueueAttributes, fields{"QueueUrl": *queue, "Attributes": map[string]string{"RedrivePolicy": policy}})
			if got, want := c.attributes(queue)["RedrivePolicy"], `{"deadLetterTargetArn":"`+deadQueue+`","maxReceiveCount":1}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			c.d.done(p, sqswire.CreateQueue, fields{"QueueName": "orders", "Attributes": map[string]string{"RedrivePolicy": policy}})
		}))
	}
}

func TestStartMessageMoveTaskRefusesSecondTask(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			dead := c.create("dead")
			c.create("orders", "RedrivePolicy", `{"deadLetterTargetArn":"`+deadQueue+`","maxReceiveCount":1}`)
			for range 3 {
				c.send(dead, "x")
			}
			in := fields{"SourceArn": deadQueue, "DestinationArn": ordersARN, "MaxNumberOfMessagesPerSecond": 1}
			c.d.done(p, sqswire.StartMessageMoveTask, in)
			c.d.call(p, sqswire.StartMessageMoveTask, in).expect(t, sqswire.InvalidParameterValue,
				"There is already a task running. Only one active task is allowed for a source queue arn at a given time.")
		}))
	}
}

func TestMoveTaskFailsWhenMessagesHaveNoSource(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			dead := c.create("dead")
			c.create("orders", "RedrivePolicy", redriveHere("dead", 1))
			c.send(dead, "sent here")
			c.send(dead, "sent here too")
			c.d.done(p, sqswire.StartMessageMoveTask, fields{"SourceArn": deadQueue})
			time.Sleep(2 * time.Second)
			a := c.d.done(p, sqswire.ListMessageMoveTasks, fields{"SourceArn": deadQueue})
			for _, want := range []string{"FAILED", "CouldNotDetermineMessageSource"} {
				if !strings.Contains(a.body, want) {
					t.Errorf("no %s in %s", want, a.body)
				}
			}
			if n := c.count(dead); n != "2" {
				t.Errorf("%s are left", n)
			}
		}))
	}
}

func TestMoveTaskFailsWhenSourceQueueIsDeleted(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			dead := c.create("dead")
			gone := c.create("gone", "RedrivePolicy", redriveHere("dead", 1), "VisibilityTimeout", "1")
			c.create("orders", "RedrivePolicy", redriveHere("dead", 1))
			c.die(1, gone)
			if _, err := c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: gone}); err != nil {
				t.Fatal(err)
			}
			c.d.done(p, sqswire.StartMessageMoveTask, fields{"SourceArn": deadQueue})
			time.Sleep(2 * time.Second)
			if a := c.d.done(p, sqswire.ListMessageMoveTasks, fields{"SourceArn": deadQueue}); !strings.Contains(a.body, "AWS.SimpleQueueService.NonExistentQueue") {
				t.Errorf("got %s, and %s are left", a.body, c.count(dead))
			}
		}))
	}
}

func TestMoveTaskCompletesWhenConsumersTookTheRest(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			dead := c.create("dead")
			c.create("orders", "RedrivePolicy", redriveHere("dead", 1))
			for range 3 {
				c.send(dead, "x")
			}
			c.d.done(p, sqswire.StartMessageMoveTask, fields{"SourceArn": deadQueue, "DestinationArn": ordersARN, "MaxNumberOfMessagesPerSecond": 1})
			time.Sleep(time.Millisecond)
			for _, m := range c.receive(dead) {
				c.delete(dead, m)
			}
			time.Sleep(3 * time.Second)
			if a := c.d.done(p, sqswire.ListMessageMoveTasks, fields{"SourceArn": deadQueue}); !strings.Contains(a.body, "COMPLETED") {
				t.Errorf("got %s", a.body)
			}
		}))
	}
}

// redriveHere returns a redrive policy for unsigned requests.
func redriveHere(queue string, count int) string {
	text, _ := json.Marshal(map[string]any{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:" + queue, "maxReceiveCount": count})
	return string(text)
}

func TestTraceHeaderBecomesSystemAttribute(t *testing.T) {
	const trace, own = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1", "Root=1-own"
	attribute := map[string]fields{"AWSTraceHeader": {"DataType": "String", "StringValue": own}}
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			queue := c.create("orders")
			for what, sent := range map[string]struct {
				action       sqswire.Action
				header, want string
				in           fields
			}{
				"alone":        {sqswire.SendMessage, trace, trace, fields{"MessageBody": "x"}},
				"in a batch":   {sqswire.SendMessageBatch, trace, trace, fields{"Entries": []fields{{"Id": "a", "MessageBody": "x"}}}},
				"beside one":   {sqswire.SendMessage, trace, own, fields{"MessageBody": "x", "MessageSystemAttributes": attribute}},
				"none":         {sqswire.SendMessage, "", "", fields{"MessageBody": "x"}},
				"far too long": {sqswire.SendMessage, strings.Repeat("x", 1025), "", fields{"MessageBody": "x"}},
			} {
				sent.in["QueueUrl"] = *queue
				r := p.request(sent.action, "/", sent.in)
				r.Header.Set("X-Amzn-Trace-Id", sent.header)
				if a := c.d.exchange(r); a.status != http.StatusOK {
					t.Fatalf("%s: %d %s", what, a.status, a.body)
				}
				m := c.one(queue)
				if got := m.Attributes["AWSTraceHeader"]; got != sent.want {
					t.Errorf("%s: got %q, want %q", what, got, sent.want)
				}
				c.delete(queue, m)
			}
		}))
	}
}

func TestManagedEncryptionIsClaimedOnlyForCompatibility(t *testing.T) {
	for _, claimed := range []string{"false", "true"} {
		for _, p := range protocols {
			synctest.Test(t, by(p, sqsapi.Options{ManagedSSE: claimed == "true"}, func(t *testing.T, c *client) {
				sse := func(queue string) string { return c.attributes(&queue)["SqsManagedSseEnabled"] }
				c.d.done(p, sqswire.CreateQueue, fields{"QueueName": "orders"})
				if got := sse("orders"); got != claimed {
					t.Errorf("a new queue says %s, want %s", got, claimed)
				}
				c.d.done(p, sqswire.CreateQueue, fields{"QueueName": "plain", "Attributes": map[string]string{"SqsManagedSseEnabled": "false"}})
				c.d.done(p, sqswire.CreateQueue, fields{"QueueName": "keyed", "Attributes": map[string]string{"KmsMasterKeyId": "key"}})
				if sse("plain") != "false" || sse("keyed") != "false" {
					t.Errorf("got %s where it is off, and %s with a key", sse("plain"), sse("keyed"))
				}
			}))
		}
	}
}

func TestSetQueueAttributesAcceptsFifoQueueTrue(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			queue := c.createFIFO("orders.fifo")
			c.d.done(p, sqswire.SetQueueAttributes, fields{"QueueUrl": *queue, "Attributes": map[string]string{"FifoQueue": "true", "DelaySeconds": "7"}})
			if got := c.attributes(queue); got["FifoQueue"] != "true" || got["DelaySeconds"] != "7" {
				t.Errorf("got %v", got)
			}
		}))
	}
}

func TestKMSReusePeriodGoesWithItsKey(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{ManagedSSE: true}, func(t *testing.T, c *client) {
			queue := c.create("orders")
			set := func(attributes map[string]string) map[string]string {
				c.d.done(p, sqswire.SetQueueAttributes, fields{"QueueUrl": *queue, "Attributes": attributes})
				found := make(map[string]string)
				for name, value := range c.attributes(queue) {
					if strings.HasPrefix(name, "Kms") || strings.HasPrefix(name, "SqsManaged") {
						found[name] = value
					}
				}
				return found
			}
			same := func(what string, got map[string]string, want string) {
				if text, _ := json.Marshal(got); string(text) != want {
					t.Errorf("%s: got %s, want %s", what, text, want)
				}
			}
			same("without a key", set(map[string]string{"KmsDataKeyReusePeriodSeconds": "6000"}), `{"SqsManagedSseEnabled":"true"}`)
			same("with a key", set(map[string]string{"KmsMasterKeyId": "key", "KmsDataKeyReusePeriodSeconds": "6000"}),
				`{"KmsDataKeyReusePeriodSeconds":"6000","KmsMasterKeyId":"key","SqsManagedSseEnabled":"false"}`)
			same("the key gone", set(map[string]string{"KmsMasterKeyId": ""}), `{"SqsManagedSseEnabled":"false"}`)
			same("another key", set(map[string]string{"KmsMasterKeyId": "other"}), `{"KmsDataKeyReusePeriodSeconds":"300","KmsMasterKeyId":"other","SqsManagedSseEnabled":"false"}`)
			same("encrypted by SQS", set(map[string]string{"SqsManagedSseEnabled": "true"}), `{"SqsManagedSseEnabled":"true"}`)
		}))
	}
}

func TestAttributeNamesMayHaveForeignLetters(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			queue := c.create("orders")
			const name = "attr.1øßä名"
			c.d.done(p, sqswire.SendMessage, fields{"QueueUrl": *queue, "MessageBody": "x", "MessageAttributes": attribute(name, fields{"DataType": "String", "StringValue": "v"})})
			m := c.one(queue) // the SDK has verified the checksums
			if got := m.MessageAttributes[name]; got.StringValue == nil || *got.StringValue != "v" {
				t.Errorf("got %v", m.MessageAttributes)
			}
			a := c.d.call(p, sqswire.SendMessage, fields{"QueueUrl": *queue, "MessageBody": "x", "MessageAttributes": attribute("a§b", fields{"DataType": "String", "StringValue": "v"})})
			if code, _ := a.failure(t); code != "InvalidParameterValue" {
				t.Errorf("got %s", a.body)
			}
		}))
	}
}

func TestQueueURLTakesNoActionsOfTheRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, setup{unsigned: true}).client("")
		c.create("orders")
		for _, p := range protocols {
			for _, action := range []sqswire.Action{sqswire.CreateQueue, sqswire.ListQueues} {
				a := c.d.exchange(p.request(action, "/000000000000/orders", fields{"QueueName": "new"}))
				if p.name == "JSON" { // PHP sends everything to the URL of a queue
					if a.status != http.StatusOK {
						t.Errorf("%s in JSON: %s", action, a.body)
					}
					_, _ = c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: new("new")})
					continue
				}
				a.expect(t, sqswire.UnknownOperation, "The action "+string(action)+" is not valid for this endpoint.")
			}
		}
		if out, err := c.ListQueues(t.Context(), nil); err != nil || len(out.QueueUrls) != 1 {
			t.Errorf("there are %v, %v", out.QueueUrls, err)
		}
	})
}

func TestRequestsWithoutActionAreAnsweredInXML(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, setup{unsigned: true}).client("")
		c.create("orders")
		for _, accept := range []string{"", "text/xml", "application/json"} {
			for _, path := range []string{"/", "/000000000000/orders"} {
				r := newRequest(http.MethodGet, path, "")
				r.Header.Set("Accept", accept)
				a := c.d.exchange(r)
				if a.status != http.StatusNotFound || strings.TrimSpace(a.body) != "<UnknownOperationException/>" || a.header.Get("Content-Type") != "text/xml" {
					t.Errorf("GET %s accepting %q: %d %v %s", path, accept, a.status, a.header, a.body)
				}
			}
		}
	})
}

func TestEmptyResultsAreWrittenAsAWSDoes(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			queue := c.create("orders")
			url := fields{"QueueUrl": *queue}
			for action, in := range map[sqswire.Action]fields{
				sqswire.ReceiveMessage: url, sqswire.GetQueueAttributes: url, sqswire.ListQueueTags: url,
				sqswire.ListDeadLetterSourceQueues: url, sqswire.ListQueues: {"QueueNamePrefix": "none"},
			} {
				want := "{}"
				if p.name != "JSON" {
					want = "<" + string(action) + "Result/>"
				}
				if a := c.d.done(p, action, in); !strings.Contains(a.body, want) {
					t.Errorf("%s: got %s, want %s", action, a.body, want)
				}
			}
			a := c.d.done(p, sqswire.PurgeQueue, url)
			if p.name == "JSON" && a.body != "" || strings.Contains(a.body, "Result") {
				t.Errorf("an action without results: got %q", a.body)
			}
		}))
	}
}

func TestLongPollEndsEmptyWhenQueueIsDeleted(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			queue := c.create("orders")
			began := time.Now()
			time.AfterFunc(2*time.Second, func() { _, _ = c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: queue}) })
			a := c.d.done(p, sqswire.ReceiveMessage, fields{"QueueUrl": *queue, "WaitTimeSeconds": 20})
			if strings.Contains(a.body, "Message>") || strings.Contains(a.body, "Messages") || time.Since(began) != 2*time.Second {
				t.Errorf("after %v: %s", time.Since(began), a.body)
			}
			a = c.d.call(p, sqswire.ReceiveMessage, fields{"QueueUrl": *queue, "WaitTimeSeconds": 20})
			if code, _ := a.failure(t); code != noQueue {
				t.Errorf("the next one: %s", a.body)
			}
		}))
	}
}

func TestCancelMessageMoveTaskRefusesFinishedTask(t *testing.T) {
	for _, p := range protocols {
		synctest.Test(t, by(p, sqsapi.Options{}, func(t *testing.T, c *client) {
			c.create("dead")
			c.create("orders", "RedrivePolicy", redriveHere("dead", 1))
			out, err := c.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: new(strings.Replace(deadQueue, "us-east-1", "eu-central-1", 1))})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			c.d.call(p, sqswire.CancelMessageMoveTask, fields{"TaskHandle": *out.TaskHandle}).expect(t, sqswire.InvalidParameterValue, "Only active tasks can be cancelled.")
		}))
	}
}

func TestMoveTaskWaitsForMessagesBehindOneInFlight(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		dead := c.createFIFO("dead.fifo")
		c.createFIFO("orders.fifo", "RedrivePolicy", redrive("dead.fifo", 1))
		c.createFIFO("other.fifo")
		c.send(dead, "1", group("g", "1"))
		c.send(dead, "2", group("g", "2"))
		m := c.one(dead)
		if _, err := c.start("dead.fifo", "other.fifo", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if task := c.task("dead.fifo"); *task.Status != "RUNNING" || task.ApproximateNumberOfMessagesMoved != 0 {
			t.Errorf("while the group is held: %+v", task)
		}
		c.delete(dead, m)
		time.Sleep(5 * time.Second)
		if task := c.task("dead.fifo"); *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved != 1 {
			t.Errorf("when it is free: %s, %d moved", *task.Status, task.ApproximateNumberOfMessagesMoved)
		}
	}))
}
