package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
)

// sqs returns a client of a listener with the given credentials, or with the operator's.
func (r *running) sqs(listener string, credentials ...string) *sqs.Client {
	if len(credentials) == 0 {
		c := macaroon.CredentialsOf(r.OperatorToken().RevealBinary(nil))
		credentials = []string{c.AccessKeyID, c.SecretAccessKey.Reveal(), c.SessionToken}
	}
	return sqs.New(sqs.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://" + r.Address(listener)), HTTPClient: r.client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: credentials[0], SecretAccessKey: credentials[1], SessionToken: credentials[2]}, nil
		}),
	})
}

func TestCompatibilityModesClaimManagedEncryption(t *testing.T) {
	for mode, want := range map[string]string{"": "false", "localstack": "true", "elasticmq": "true"} {
		r := start(t, server.Config{Profile: server.Micronode, ListenSQS: "127.0.0.1:0", SQS: server.SQSConfig{Unsigned: true, Compatibility: mode}})
		c := r.sqs(server.SQS, "test", "test", "")
		out, err := c.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
			QueueUrl: createSQS(t, c, "orders", nil), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameSqsManagedSseEnabled},
		})
		if err != nil || out.Attributes["SqsManagedSseEnabled"] != want {
			t.Errorf("%q: got %v, %v; want %s", mode, out, err, want)
		}
	}
}

func createSQS(t *testing.T, c *sqs.Client, name string, attributes map[string]string) *string {
	t.Helper()
	out, err := c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	return out.QueueUrl
}

func sendSQS(t *testing.T, c *sqs.Client, queue *string, body string) {
	t.Helper()
	if _, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: &body}); err != nil {
		t.Fatal(err)
	}
}

func receiveSQS(t *testing.T, c *sqs.Client, queue *string) []string {
	t.Helper()
	out, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue, MaxNumberOfMessages: 10, VisibilityTimeout: 600})
	if err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for _, m := range out.Messages {
		bodies = append(bodies, *m.Body)
	}
	return bodies
}

func TestSQSClientsAreServedBesideOthers(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode, ListenSQS: "127.0.0.1:0"})
	for _, listener := range []string{server.HTTP, server.SQS} {
		c := r.sqs(listener)
		queue := createSQS(t, c, "orders", nil)
		if want := "http://" + r.Address(listener) + "/000000000000/orders"; *queue != want {
			t.Errorf("%s, want %s", *queue, want)
		}
		sendSQS(t, c, queue, listener)
		if got := receiveSQS(t, c, queue); len(got) != 1 || got[0] != listener {
			t.Errorf("got %v", got)
		}
		if _, err := r.sqs(listener, "test", "test", "").ListQueues(t.Context(), &sqs.ListQueuesInput{}); err == nil {
			t.Error("a client without credentials was accepted")
		}
	}
	// The HTTP API works as before, and has the same queues.
	if status, stats := r.post(r.OperatorToken(), "/v1/stats", `{"topic":"orders"}`); status != http.StatusOK || stats["in_flight"] != 2.0 {
		t.Errorf("%d %v", status, stats)
	}
}

func TestLargestSQSMessagesReachOtherSurfaces(t *testing.T) {
	r := start(t, server.Config{Profile: server.Micronode})
	c := r.sqs(server.HTTP)
	queue := createSQS(t, c, "orders", nil)
	// Bytes that JSON and base64 make longer, and attributes that are packed after them.
	body := strings.Repeat("\t", 900<<10)
	value := strings.Repeat("\"", 1<<20-len(body)-len("a")-len("String"))
	for range 2 {
		if _, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{
			"a": {DataType: aws.String("String"), StringValue: &value},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	status, answer := r.post(r.OperatorToken(), "/v1/recv", `{"topic":"orders","visibility_ms":60000,"max_messages":1}`)
	if messages, _ := answer["messages"].([]any); status != http.StatusOK || len(messages) != 1 {
		t.Errorf("over HTTP: %d, %d messages", status, len(messages))
	}
	client := remotebox.New([]string{r.Address(server.OAP)}, r.OperatorToken().Reveal(), nil)
	defer client.Close()
	q, err := client.OpenQueue(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
	if err != nil || len(got) != 1 || !strings.HasPrefix(string(got[0].Body), body) {
		t.Errorf("over OAP: %d messages, %v", len(got), err)
	}
}

func TestUnsignedAppliesToSQSListenerOnly(t *testing.T) {
	r := start(t, server.Config{
		Profile: server.Micronode, ListenSQS: "127.0.0.1:0", SQS: server.SQSConfig{Unsigned: true, Compatibility: "localstack"},
	})
	c := r.sqs(server.SQS, "test", "test", "")
	queue := createSQS(t, c, "orders", nil)
	sendSQS(t, c, queue, "x")
	if _, err := r.sqs(server.HTTP, "test", "test", "").ListQueues(t.Context(), &sqs.ListQueuesInput{}); err == nil {
		t.Error("the other listener accepts unsigned requests too")
	}
	if body := r.get("/readyz"); !strings.Contains(body, "unsigned") {
		t.Errorf("readiness does not show it: %s", body)
	}
	if body := r.get("/metrics"); !strings.Contains(body, "mailbox_sqs_unsigned 1") {
		t.Error("the metrics do not show it")
	}
	health, err := r.client.Get("http://" + r.Address(server.SQS) + "/_localstack/health")
	if err != nil || health.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", health, err)
	}
	_ = health.Body.Close()
}

// TestTakeOverIsSettingAndOnByDefault tells the two writers of answers apart by the order of
// their headers: package http sorts them.
func TestTakeOverIsSettingAndOnByDefault(t *testing.T) {
	file := func(value string) []string {
		return []string{"--config=" + writeFile(t, "[sqs]\ntake_over = "+value+"\n")}
	}
	const taken, left = "X-Amzn-Requestid", "Content-Length"
	for _, test := range []struct {
		args, environ []string
		want          string
	}{
		{nil, nil, taken},
		{[]string{"--sqs-take-over=false"}, nil, left},
		{nil, []string{"MAILBOXD_SQS_TAKE_OVER=false"}, left},
		{file("false"), nil, left},
		{file("false"), []string{"MAILBOXD_SQS_TAKE_OVER=true"}, taken},
	} {
		args := append([]string{"--profile=micronode", "--listen=127.0.0.1:0", "--listen-oap=127.0.0.1:0", "--listen-sqs=127.0.0.1:0", "--sqs-unsigned"}, test.args...)
		config, err := server.Load(args, test.environ, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, config)
		conn, err := net.Dial("tcp", r.Address(server.SQS))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var answers strings.Builder
		in := bufio.NewReader(io.TeeReader(conn, &answers))
		for n := range 2 {
			answers.Reset()
			_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.ListQueues\r\nContent-Length: 2\r\n\r\n{}")
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, answer.Body)
			if !strings.HasPrefix(answers.String(), "HTTP/1.1 200 OK\r\n"+test.want+":") || err != nil {
				t.Errorf("%v %v, request %d: got %q, %v; want %s first", test.args, test.environ, n, answers.String(), err, test.want)
			}
		}
		r.halt()
	}
}

func TestReloadReadsCredentialsAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	config := server.Config{Profile: server.Micronode, SQS: server.SQSConfig{CredentialsFile: path}}
	r := start(t, config)
	c := r.sqs(server.HTTP, "AKIASHOP", "secret", "")
	if _, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err == nil {
		t.Error("an unknown access key was accepted")
	}
	write("AKIASHOP secret " + r.OperatorToken().Reveal() + "\n")
	if err := r.Reload(r.Config()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil {
		t.Errorf("an access key that was added to the file: %v", err)
	}
	write("nonsense\n")
	if err := r.Reload(r.Config()); err == nil {
		t.Error("an unreadable file was accepted")
	}
	if _, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil {
		t.Errorf("the previous credentials are lost: %v", err)
	}
}

func TestSQSQueuesSurviveRestart(t *testing.T) {
	config := server.Config{DataDir: t.TempDir(), LogLevel: "error"}
	r := start(t, config)
	c := r.sqs(server.HTTP)
	dead := createSQS(t, c, "dead", nil)
	createSQS(t, c, "orders.fifo", map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"})
	arn := "arn:aws:sqs:eu-central-1:000000000000:"
	queue := createSQS(t, c, "orders", map[string]string{
		"VisibilityTimeout": "1", "RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":"%sdead","maxReceiveCount":"1"}`, arn),
	})
	if _, err := c.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: queue, Tags: map[string]string{"team": "shop"}}); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 1<<20)
	sendSQS(t, c, queue, large)
	for range 20 {
		sendSQS(t, c, dead, "letter")
	}
	if _, err := c.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{
		SourceArn: aws.String(arn + "dead"), DestinationArn: aws.String(arn + "orders"), MaxNumberOfMessagesPerSecond: aws.Int32(5),
	}); err != nil {
		t.Fatal(err)
	}
	r.halt()

	r = start(t, config)
	c = r.sqs(server.HTTP)
	tags, err := c.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: aws.String("orders")})
	if err != nil || tags.Tags["team"] != "shop" {
		t.Errorf("got %v, %v", tags, err)
	}
	for patience := time.After(2 * time.Minute); ; {
		tasks, err := c.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(arn + "dead")})
		if err != nil || len(tasks.Results) != 1 {
			t.Fatalf("got %+v, %v", tasks, err)
		}
		if task := tasks.Results[0]; *task.Status == "COMPLETED" {
			if task.ApproximateNumberOfMessagesMoved != 20 {
				t.Errorf("%d have moved", task.ApproximateNumberOfMessagesMoved)
			}
			break
		}
		select {
		case <-patience:
			t.Fatal("the task is not resumed")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if got := receiveSQS(t, c, aws.String("orders")); len(got) != 10 || got[0] != large {
		t.Errorf("got %d messages", len(got))
	}
}

func TestFileDeclaresSQSQueues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mailboxd.toml")
	if err := os.WriteFile(path, []byte(`
profile = "micronode"
[sqs.queues.orders]
VisibilityTimeout = 60
RedrivePolicy = { deadLetterTargetArn = "orders-dead", maxReceiveCount = 3 }
tags = { team = "shop" }
[sqs.queues.orders-dead]
[sqs.queues."orders.fifo"]
FifoQueue = true
ContentBasedDeduplication = true
`), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := server.Load([]string{"--config=" + path, "--listen=127.0.0.1:0", "--listen-oap=off"}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, config)
	out, err := r.sqs(server.HTTP).GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: aws.String("orders"), AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil || out.Attributes["VisibilityTimeout"] != "60" || !strings.Contains(out.Attributes["RedrivePolicy"], ":orders-dead") {
		t.Errorf("got %v, %v", out, err)
	}
	list, err := r.sqs(server.HTTP).ListQueues(t.Context(), &sqs.ListQueuesInput{})
	if err != nil || len(list.QueueUrls) != 3 {
		t.Errorf("got %v, %v", list, err)
	}
}

func TestReloadChangesDeclaredQueues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mailboxd.toml")
	load := func(queues string) server.Config {
		t.Helper()
		if err := os.WriteFile(path, []byte("profile = \"micronode\"\n"+queues), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := server.Load([]string{"--config=" + path, "--listen=127.0.0.1:0", "--listen-oap=off"}, nil, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	r := start(t, load("[sqs.queues.orders]\nVisibilityTimeout = 60\nDelaySeconds = 7\n[sqs.queues.gone]\n"))
	visibility := func(queue string) string {
		t.Helper()
		out, err := r.sqs(server.HTTP).GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &queue, AttributeNames: []types.QueueAttributeName{"All"}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Attributes["VisibilityTimeout"] + " " + out.Attributes["DelaySeconds"]
	}
	next := load("[sqs.queues.orders]\nVisibilityTimeout = 90\n[sqs.queues.more]\nVisibilityTimeout = 5\n")
	if err := r.Reload(next); err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]string{"orders": "90 7", "more": "5 0", "gone": "30 0"} {
		if got := visibility(queue); got != want {
			t.Errorf("%s has %s, want %s", queue, got, want)
		}
	}
	if got := r.Config().SQS.Queues; len(got) != 2 {
		t.Errorf("the current configuration declares %v", got)
	}
	bad := load("[sqs.queues.orders]\nVisibilityTimeout = 1\nRedrivePolicy = { deadLetterTargetArn = \"nowhere\", maxReceiveCount = 3 }\n")
	if err := r.Reload(bad); err == nil || !strings.Contains(err.Error(), "orders") {
		t.Errorf("a policy with an unknown target: %v", err)
	}
	if got := visibility("orders"); got != "90 7" {
		t.Errorf("after a refused reload it has %s", got)
	}
}

func TestBadSQSSettingsAreRefusedWithReason(t *testing.T) {
	for _, test := range []struct {
		args []string
		file string
		want string
	}{
		{args: []string{"--sqs-unsigned"}, want: "sqs.unsigned (--sqs-unsigned) needs listen.sqs"},
		{args: []string{"--sqs-unsigned", "--listen-sqs=0.0.0.0:4566"}, want: "plaintext"},
		{args: []string{"--sqs-unsigned", "--listen-sqs=0.0.0.0:4566", "--tls-cert=x", "--tls-key=y"}, want: "every client do everything"},
		{args: []string{"--listen-sqs=here"}, want: `listen.sqs (--listen-sqs): invalid value "here"; want HOST:PORT`},
		{args: []string{"--sqs-compatibility=goaws"}, want: "localstack or elasticmq"},
		{file: "[sqs.queues.orders]\nDelaySeconds = 901", want: `sqs.queues.orders.DelaySeconds: invalid value "901"; want a whole number from 0 to 900`},
		{file: "[sqs.queues.\"a.fifo\"]\nFifoQueue = true\nDeduplicationScope = 'group'", want: `sqs.queues."a.fifo".DeduplicationScope: invalid value "group"; want queue or messageGroup`},
		{file: "[sqs.queues.a]\nDeduplicationScope = 'queue'", want: "sqs.queues.a.DeduplicationScope: only FIFO queues have it; set FifoQueue = true"},
		{file: "[sqs.queues.a]\nRedrivePolicy = 'dead'", want: `sqs.queues.a.RedrivePolicy: invalid value "dead"; want a table`},
		{file: "[sqs.queues.orders]\nVisibilityTimeut = 60", want: "sqs.queues.orders.VisibilityTimeut: is not an attribute of SQS queues; did you mean VisibilityTimeout?"},
		{file: "[sqs.queues.orders]\nNonsense = 1", want: "sqs.queues.orders.Nonsense: is not an attribute"},
		{file: "[sqs.queues.orders]\nDelaySeconds = 1.5", want: "sqs.queues.orders.DelaySeconds: invalid value; want"},
		{file: "[sqs]\nqueues = 3", want: "sqs.queues: want a table"},
		{file: "[sqs.queues.\"a b\"]\n", want: `sqs.queues."a b": Can only include`},
	} {
		args := test.args
		if test.file != "" {
			args = append(args, "--config="+writeFile(t, test.file))
		}
		if _, err := server.Load(args, nil, io.Discard); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v %q: got %v, want %q", test.args, test.file, err, test.want)
		}
	}
	config, err := server.New(server.Config{Profile: server.Micronode, SQS: server.SQSConfig{Compatibility: "elasticmq"}}, nil)
	if err != nil || config.Config().ListenSQS != "127.0.0.1:9324" {
		t.Errorf("ElasticMQ is not served at its port: %v", err)
	}
}
