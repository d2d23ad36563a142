package sqsapi_test

import (
	"fmt"
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

	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

const arnPrefix = "arn:aws:sqs:eu-central-1:000000000000:"

// redrive returns a policy that dead-letters messages to a queue after count receives.
func redrive(queue string, count any) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":"%s%s","maxReceiveCount":%v}`, arnPrefix, queue, count)
}

func TestMessagesReceivedTooOftenAreDeadLettered(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		dead := c.create("dead")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 2), "VisibilityTimeout", "1")
		id := c.send(queue, "x", func(in *sqs.SendMessageInput) {
			in.MessageAttributes = map[string]types.MessageAttributeValue{"a": str("1")}
		})
		for range 2 {
			c.one(queue)
			time.Sleep(time.Second)
		}
		if got := c.receive(queue); len(got) != 0 {
			t.Error("it is delivered a third time")
		}
		m := c.one(dead)
		if *m.MessageId != id || *m.Body != "x" || m.Attributes["DeadLetterQueueSourceArn"] != arnPrefix+"orders" || len(m.MessageAttributes) != 1 {
			t.Errorf("got %+v", m)
		}
		c.delete(dead, m)
	}))
}

// sources lists the queues whose dead letters go to a queue.
func (c *client) sources(queue *string) (names []string) {
	c.t.Helper()
	out, err := c.ListDeadLetterSourceQueues(c.t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: queue})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, url := range out.QueueUrls {
		names = append(names, url[strings.LastIndexByte(url, '/')+1:])
	}
	return names
}

func TestReceiveCountGoesOnInDeadLetterQueue(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		last := c.create("last")
		dead := c.create("dead", "RedrivePolicy", redrive("last", 1), "VisibilityTimeout", "1")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 2), "VisibilityTimeout", "1")
		c.send(queue, "x")
		for i, from := range []*string{queue, queue, dead, last} {
			m := c.one(from, waiting(2))
			if got := m.Attributes["ApproximateReceiveCount"]; got != fmt.Sprint(i+1) {
				t.Errorf("receive %d says %s", i+1, got)
			}
		}
		if got := c.sources(dead); !slices.Equal(got, []string{"orders"}) {
			t.Errorf("sources of dead: %v", got)
		}
		if got := c.sources(last); !slices.Equal(got, []string{"dead"}) {
			t.Errorf("sources of last: %v", got)
		}
	}))
}

func TestQueueCanBeItsOwnDeadLetterQueue(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		made := c.create("made", "RedrivePolicy", redrive("made", 1), "VisibilityTimeout", "1")
		queue := c.create("orders", "VisibilityTimeout", "1")
		if err := c.set(queue, "RedrivePolicy", redrive("orders", 2)); err != nil {
			t.Fatal(err)
		}
		for _, queue := range []*string{made, queue} {
			id := c.send(queue, "x")
			for i := range 5 {
				m := c.one(queue, waiting(2))
				if got := m.Attributes["ApproximateReceiveCount"]; *m.MessageId != id || got != fmt.Sprint(i+1) {
					t.Errorf("receive %d of %s says %s", i+1, *queue, got)
				}
			}
		}
		if got := c.sources(queue); !slices.Equal(got, []string{"orders"}) {
			t.Errorf("sources: %v", got)
		}
	}))
}

func TestOwnDeadLetterQueueOverQueryProtocol(t *testing.T) {
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
		query("Action=CreateQueue&QueueName=orders&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=1")
		query("Action=SetQueueAttributes&QueueUrl=orders&Attribute.1.Name=RedrivePolicy&Attribute.1.Value=" + url.QueryEscape(redrive("orders", 1)))
		if body := query("Action=ListDeadLetterSourceQueues&QueueUrl=orders"); !strings.Contains(body, "/orders</QueueUrl>") {
			t.Errorf("sources: %s", body)
		}
		query("Action=SendMessage&QueueUrl=orders&MessageBody=x")
		for i := range 3 {
			body := query("Action=ReceiveMessage&QueueUrl=orders&AttributeName.1=ApproximateReceiveCount&WaitTimeSeconds=2")
			if !strings.Contains(body, fmt.Sprintf("<Value>%d</Value>", i+1)) {
				t.Errorf("receive %d: %s", i+1, body)
			}
		}
	})
}

func TestDeliveriesAreUnlimitedWithoutRedrivePolicy(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders", "VisibilityTimeout", "1")
		c.send(queue, "x")
		for i := range 20 {
			if m := c.one(queue); m.Attributes["ApproximateReceiveCount"] != fmt.Sprint(i+1) {
				t.Errorf("delivery %d says %s", i+1, m.Attributes["ApproximateReceiveCount"])
			}
			time.Sleep(time.Second)
		}
	}))
}

func TestRedrivePoliciesAreChecked(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		queue := c.create("orders")
		c.create("dead")
		c.createFIFO("dead.fifo")
		for _, count := range []any{1, 1000, `"5"`} {
			if err := c.set(queue, "RedrivePolicy", redrive("dead", count)); err != nil {
				t.Errorf("%v: %v", count, err)
			}
			want := redrive("dead", strings.Trim(fmt.Sprint(count), `"`)) // always a number
			if got := c.attributes(queue)["RedrivePolicy"]; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		for what, policy := range map[string]string{
			"a count of 0": redrive("dead", 0), "a count of 1001": redrive("dead", 1001), "a count in words": redrive("dead", `"many"`),
			"no such queue": redrive("none", 1), "another kind": redrive("dead.fifo", 1),
			"no count":        `{"deadLetterTargetArn":"` + arnPrefix + `dead"}`,
			"no target":       `{"maxReceiveCount":1}`,
			"no ARN":          `{"deadLetterTargetArn":"dead","maxReceiveCount":1}`,
			"another account": `{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:123456789012:dead","maxReceiveCount":1}`,
		} {
			refused(t, what, c.set(queue, "RedrivePolicy", policy), "InvalidParameterValue")
		}
		if err := c.set(queue, "RedrivePolicy", ""); err != nil {
			t.Error(err)
		}
		if policy, left := c.attributes(queue)["RedrivePolicy"]; left {
			t.Errorf("left is %s", policy)
		}
	}))
}

func TestRedriveAllowPoliciesAreEnforced(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		dead, one, two := c.create("dead"), c.create("one"), c.create("two")
		use := func(queue *string) error { return c.set(queue, "RedrivePolicy", redrive("dead", 1)) }
		allow := func(policy string) error { return c.set(dead, "RedriveAllowPolicy", policy) }
		if err := allow(`{"redrivePermission":"byQueue","sourceQueueArns":["` + arnPrefix + `one"]}`); err != nil {
			t.Fatal(err)
		}
		if err := use(one); err != nil {
			t.Errorf("who is named: %v", err)
		}
		refused(t, "who is not", use(two), "InvalidParameterValue")
		if err := allow(`{"redrivePermission":"denyAll"}`); err != nil {
			t.Fatal(err)
		}
		refused(t, "with denyAll", use(one), "InvalidParameterValue")
		if err := allow(`{"redrivePermission":"allowAll"}`); err != nil {
			t.Fatal(err)
		}
		if err := use(two); err != nil {
			t.Errorf("with allowAll: %v", err)
		}
		eleven := strings.TrimSuffix(strings.Repeat(`"`+arnPrefix+`one",`, 11), ",")
		for what, policy := range map[string]string{
			"byQueue of none": `{"redrivePermission":"byQueue"}`,
			"allowAll of one": `{"redrivePermission":"allowAll","sourceQueueArns":["` + arnPrefix + `one"]}`,
			"byQueue of 11":   `{"redrivePermission":"byQueue","sourceQueueArns":[` + eleven + `]}`,
		} {
			refused(t, what, allow(policy), "InvalidParameterValue")
		}
		for what, policy := range map[string]string{"no permission": `{}`, "an unknown one": `{"redrivePermission":"some"}`} {
			refused(t, what, allow(policy), "InvalidAttributeValue")
		}
	}))
}

func TestDeadLetterSourcesAreListedByPage(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		dead := c.create("dead")
		c.create("bystander")
		for _, name := range []string{"c", "a", "b"} {
			c.create(name, "RedrivePolicy", redrive("dead", 1))
		}
		out, err := c.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: dead, MaxResults: aws.Int32(2)})
		if err != nil || len(out.QueueUrls) != 2 || !strings.HasSuffix(out.QueueUrls[1], "/b") || out.NextToken == nil {
			t.Fatalf("got %+v, %v", out, err)
		}
		out, err = c.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: dead, MaxResults: aws.Int32(2), NextToken: out.NextToken})
		if err != nil || len(out.QueueUrls) != 1 || !strings.HasSuffix(out.QueueUrls[0], "/c") || out.NextToken != nil {
			t.Errorf("got %+v, %v", out, err)
		}
	}))
}

// die dead-letters n messages from each of the queues.
func (c *client) die(n int, queues ...*string) {
	c.t.Helper()
	for _, queue := range queues {
		for i := range n {
			c.send(queue, fmt.Sprintf("%s %d", (*queue)[strings.LastIndexByte(*queue, '/')+1:], i))
		}
		for len(c.receive(queue)) > 0 {
		}
	}
	for _, queue := range queues {
		c.receive(queue, waiting(2)) // until their visibility ends
	}
}

// start starts a task.
func (c *client) start(source, destination string, rate int32) (*string, error) {
	input := &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(arnPrefix + source)}
	if destination != "" {
		input.DestinationArn = aws.String(arnPrefix + destination)
	}
	if rate != 0 {
		input.MaxNumberOfMessagesPerSecond = &rate
	}
	out, err := c.StartMessageMoveTask(c.t.Context(), input)
	if err != nil {
		return nil, err
	}
	return out.TaskHandle, nil
}

// task returns the newest task of a source.
func (c *client) task(source string) types.ListMessageMoveTasksResultEntry {
	c.t.Helper()
	out, err := c.ListMessageMoveTasks(c.t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(arnPrefix + source)})
	if err != nil || len(out.Results) != 1 {
		c.t.Fatalf("got %+v, %v", out, err)
	}
	return out.Results[0]
}

func (c *client) count(queue *string) string {
	c.t.Helper()
	return c.attributes(queue)["ApproximateNumberOfMessages"]
}

func TestMoveTaskReturnsDeadLettersToTheirSources(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		dead := c.create("dead")
		one := c.create("one", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		two := c.create("two", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		c.die(3, one, two)
		c.send(dead, "sent here, without a source")
		if n := c.count(dead); n != "7" {
			t.Fatalf("%s are dead", n)
		}
		if _, err := c.start("dead", "", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if c.count(one) != "3" || c.count(two) != "3" || c.count(dead) != "1" {
			t.Errorf("%s, %s, and left are %s", c.count(one), c.count(two), c.count(dead))
		}
		task := c.task("dead")
		if *task.Status != "FAILED" || *task.FailureReason != "CouldNotDetermineMessageSource" || task.ApproximateNumberOfMessagesMoved != 6 || *task.ApproximateNumberOfMessagesToMove != 7 ||
			task.TaskHandle != nil || *task.SourceArn != arnPrefix+"dead" || task.StartedTimestamp == 0 {
			t.Errorf("got %+v", task)
		}
		if m := c.one(one); m.Attributes["ApproximateReceiveCount"] != "1" || m.Attributes["DeadLetterQueueSourceArn"] != "" {
			t.Errorf("got %v", m.Attributes)
		}
	}))
}

func TestMoveTaskKeepsItsRateAndCanBeCancelled(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		dead, other := c.create("dead"), c.create("other")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		c.die(10, queue)
		handle, err := c.start("dead", "other", 2)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Second + time.Millisecond)
		if n := c.count(other); n != "6" { // at once, after one second, and after two
			t.Errorf("%s have moved after 2 s at 2 a second", n)
		}
		_, err = c.start("dead", "", 0)
		refused(t, "a second task", err, "InvalidParameterValue")
		running := c.task("dead")
		if *running.Status != "RUNNING" || *running.TaskHandle != *handle || *running.MaxNumberOfMessagesPerSecond != 2 || *running.DestinationArn != arnPrefix+"other" {
			t.Errorf("got %+v", running)
		}
		out, err := c.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: handle})
		if err != nil || out.ApproximateNumberOfMessagesMoved != 6 {
			t.Fatalf("got %+v, %v", out, err)
		}
		time.Sleep(time.Minute)
		if task := c.task("dead"); *task.Status != "CANCELLED" || task.ApproximateNumberOfMessagesMoved != 6 || c.count(dead) != "4" {
			t.Errorf("got %+v, and left are %s", task, c.count(dead))
		}
		_, err = c.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: handle})
		refused(t, "to cancel it again", err, "InvalidParameterValue")
		if m := c.one(other); !strings.HasPrefix(*m.Body, "orders ") {
			t.Errorf("got %q", *m.Body)
		}
	}))
}

func TestMoveTasksAreChecked(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		c.create("dead")
		c.createFIFO("orders.fifo")
		c.create("orders", "RedrivePolicy", redrive("dead", 1))
		for what, test := range map[string]struct {
			source, destination string
			rate                int32
			code                string
		}{
			"no such source":      {"none", "", 0, "ResourceNotFoundException"},
			"no such destination": {"dead", "none", 0, "ResourceNotFoundException"},
			"no dead letters":     {"orders", "", 0, "InvalidParameterValue"},
			"to itself":           {"dead", "dead", 0, "InvalidParameterValue"},
			"another kind":        {"dead", "orders.fifo", 0, "InvalidParameterValue"},
			"too fast":            {"dead", "", 501, "InvalidParameterValue"},
			"too slow":            {"dead", "", -1, "InvalidParameterValue"},
		} {
			_, err := c.start(test.source, test.destination, test.rate)
			refused(t, what, err, test.code)
		}
		for _, rate := range []int32{1, 500} {
			if _, err := c.start("dead", "", rate); err != nil {
				t.Errorf("%d: %v", rate, err)
			}
			time.Sleep(time.Second)
		}
		for _, most := range []int32{0, 11} {
			_, err := c.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(arnPrefix + "dead"), MaxResults: &most})
			refused(t, fmt.Sprint("a list of ", most), err, "InvalidParameterValue")
		}
		for range 12 {
			if _, err := c.start("dead", "", 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		out, err := c.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(arnPrefix + "dead"), MaxResults: aws.Int32(10)})
		if err != nil || len(out.Results) != 10 || !slices.IsSortedFunc(out.Results, func(a, b types.ListMessageMoveTasksResultEntry) int {
			return int(b.StartedTimestamp - a.StartedTimestamp)
		}) {
			t.Errorf("got %d, %v", len(out.Results), err)
		}
		_, err = c.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: aws.String("garbage")})
		refused(t, "a bad handle", err, "InvalidParameterValue")
	}))
}

func TestMoveTaskEndsWithItsQueue(t *testing.T) {
	synctest.Test(t, with(setup{}, func(t *testing.T, c *client) {
		dead := c.create("dead")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		c.die(10, queue)
		if _, err := c.start("dead", "orders", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if _, err := c.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: dead}); err != nil {
			t.Fatal(err)
		}
		c.create("dead") // a new queue, which must not be emptied
		for range 3 {
			c.send(dead, "new")
		}
		time.Sleep(5 * time.Second)
		if n := c.count(dead); n != "3" {
			t.Errorf("%s are left", n)
		}
	}))
}

func TestAnotherDaemonResumesMoveTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := membox.New(nil)
		defer backend.Close()
		one := serve(t, setup{opener: backend, options: sqsapi.Options{Shared: true}})
		two := serve(t, setup{opener: backend, ring: one.ring, options: sqsapi.Options{Shared: true}})
		c := one.client("")
		dead := c.create("dead")
		queue := c.create("orders", "RedrivePolicy", redrive("dead", 1), "VisibilityTimeout", "1")
		c.die(10, queue)
		if _, err := c.start("dead", "", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		resume(t, two)
		time.Sleep(time.Second)
		one.service.Close() // as in a drain
		left := c.count(dead)
		time.Sleep(30 * time.Second)
		if task := two.client("").task("dead"); *task.Status != "COMPLETED" || task.ApproximateNumberOfMessagesMoved != 10 || left == "0" {
			t.Errorf("got %+v; %s were left when the first daemon ended", task, left)
		}
		if n := c.count(queue); n != "10" {
			t.Errorf("%s are back", n)
		}
	})
}
