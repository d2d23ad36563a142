package sqsapi_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

const denied = "AccessDenied"

func TestTokenAllowsOnlyItsOperationsAndQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{})
		root := d.client("")
		queue, other := root.create("orders"), root.create("invoices")
		root.send(queue, "x")
		orders := capability.Queues(capability.Queue("orders"))
		sender := d.client("", capability.Operations(capability.OpSend), orders)
		worker := d.client("", capability.Operations(capability.OpRecv, capability.OpAck, capability.OpExtend), orders)
		sender.send(queue, "y")
		if _, err := sender.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("orders")}); err != nil {
			t.Errorf("a caller with any permission may get the URL: %v", err)
		}
		for what, err := range map[string]error{
			"a receive":           second(sender.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue})),
			"another queue":       second(sender.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: other, MessageBody: aws.String("x")})),
			"no queue":            second(sender.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String("none"), MessageBody: aws.String("x")})),
			"the URL of another":  second(sender.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("invoices")})),
			"counting":            second(sender.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue, AttributeNames: all})),
			"a purge":             second(worker.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: queue})),
			"the end of a queue":  second(worker.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: queue})),
			"a new queue":         second(worker.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("new")})),
			"an old queue":        second(worker.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("orders")})),
			"a list":              second(worker.ListQueues(t.Context(), &sqs.ListQueuesInput{})),
			"attributes":          worker.set(queue, "VisibilityTimeout", "1"),
			"tags":                second(worker.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: queue, Tags: map[string]string{"a": "b"}})),
			"reading tags":        second(worker.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: queue})),
			"permissions":         second(worker.RemovePermission(t.Context(), &sqs.RemovePermissionInput{QueueUrl: queue, Label: aws.String("x")})),
			"sources":             second(worker.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: queue})),
			"a task":              second(worker.start("orders", "", 0)),
			"garbage to delete":   second(sender.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: aws.String("garbage")})),
			"garbage to prolong":  sender.change(queue, garbageMessage, 1),
			"a list of the tasks": second(worker.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: aws.String(arnPrefix + "orders")})),
		} {
			refused(t, what, err, denied)
			var answer interface{ HTTPStatusCode() int }
			if !errors.As(err, &answer) || answer.HTTPStatusCode() != http.StatusForbidden {
				t.Errorf("%s: the status is not 403: %v", what, err)
			}
		}
		err := second(sender.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue}))
		if want := `because the token does not allow "recv" on queue "orders"; it allows send on orders`; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "sqs:receivemessage") {
			t.Errorf("got %v, want %s", err, want)
		}
		m := worker.one(queue)
		if err := worker.change(queue, m, 60); err != nil {
			t.Error(err)
		}
		worker.delete(queue, m)
	})
}

func second[T any](_ T, err error) error { return err }

func TestBadCredentialsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{})
		queue := d.client("").create("orders")
		good := macaroon.CredentialsOf(d.mint("").RevealBinary(nil))
		stranger, err := keyring.New(keyring.NewKey()).Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
		if err != nil {
			t.Fatal(err)
		}
		short, err := d.ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		gone := d.mint("")
		if err := d.revoked.Revoke(t.Context(), revocation.Revocation{Token: gone.ID(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		use := func(c *client) error {
			_, err := c.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("x")})
			return err
		}
		if err := use(d.clientOf(macaroon.CredentialsOf(short.RevealBinary(nil)))); err != nil {
			t.Errorf("before it expires: %v", err)
		}
		time.Sleep(time.Minute)
		for what, test := range map[string]struct {
			client *client
			code   string
		}{
			"another secret":    {d.clientWith(good.AccessKeyID, "x", good.SessionToken), "SignatureDoesNotMatch"},
			"another service's": {d.clientOf(macaroon.CredentialsOf(stranger.RevealBinary(nil))), "SignatureDoesNotMatch"},
			"no session token":  {d.clientWith(good.AccessKeyID, good.SecretAccessKey.Reveal(), ""), "InvalidClientTokenId"},
			"test and test":     {d.clientWith("test", "test", ""), "InvalidClientTokenId"},
			"expired":           {d.clientOf(macaroon.CredentialsOf(short.RevealBinary(nil))), "ExpiredToken"},
			"revoked":           {d.clientOf(macaroon.CredentialsOf(gone.RevealBinary(nil))), "InvalidClientTokenId"},
		} {
			refused(t, what, use(test.client), test.code)
		}
		if m := d.client("").receive(queue); len(m) != 1 {
			t.Errorf("%d messages were sent", len(m))
		}
		status, _, body := d.post(t, "/", "Action=ListQueues", nil)
		if status != http.StatusForbidden || !strings.Contains(body, "MissingAuthenticationToken") {
			t.Errorf("unsigned: %d %s", status, body)
		}
	})
}

func TestNarrowedTokenSignsWithItsOwnCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{})
		queue := d.client("").create("orders")
		narrow, err := d.mint("").Narrow(capability.Operations(capability.OpSend)) // without the daemon
		if err != nil {
			t.Fatal(err)
		}
		c := d.clientOf(macaroon.CredentialsOf(narrow.RevealBinary(nil)))
		c.send(queue, "x")
		_, err = c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue})
		refused(t, "a receive", err, denied)
	})
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{})
		acme, umbrella, root := d.client("acme"), d.client("umbrella"), d.client("")
		ours, theirs := acme.create("orders"), umbrella.create("orders", "VisibilityTimeout", "7")
		if *ours == *theirs || strings.Contains(*ours, "/000000000000/") {
			t.Errorf("the same account: %s and %s", *ours, *theirs)
		}
		if again := serve(t, setup{}).client("acme").create("orders"); *again != *ours {
			t.Errorf("another daemon calls it %s, not %s", *again, *ours)
		}
		acme.send(ours, "x")
		if got := umbrella.receive(theirs); len(got) != 0 {
			t.Errorf("a message of another tenant: %v", bodies(got))
		}
		if got := umbrella.receive(ours); len(got) != 0 { // the account in a URL grants nothing
			t.Errorf("a message of another tenant: %v", bodies(got))
		}
		m := acme.one(ours)
		_, err := umbrella.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: theirs, ReceiptHandle: m.ReceiptHandle})
		refused(t, "a receipt of another tenant", err, "ReceiptHandleIsInvalid")
		if m.Attributes["SenderId"] == "000000000000" {
			t.Errorf("got %v", m.Attributes)
		}
		for name, c := range map[string]*client{"acme": acme, "umbrella": umbrella} {
			out, err := c.ListQueues(t.Context(), &sqs.ListQueuesInput{})
			if err != nil || len(out.QueueUrls) != 1 {
				t.Errorf("%s: got %v, %v", name, out, err)
			}
		}
		if out, err := root.ListQueues(t.Context(), &sqs.ListQueuesInput{}); err != nil || len(out.QueueUrls) != 0 {
			t.Errorf("got %v, %v", out, err)
		}
		account := strings.Split(*theirs, "/")[3]
		err = acme.set(ours, "RedrivePolicy", `{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:`+account+`:orders","maxReceiveCount":1}`)
		refused(t, "another tenant's dead letters", err, "InvalidParameterValue")
	})
}

func TestCredentialsFileMapsKeysToTokens(t *testing.T) {
	ring := keyring.New(keyring.NewKey())
	token, err := ring.Mint("", capability.Operations(capability.OpSend, capability.OpAdmin), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "credentials")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	good := "# for the shop\n\nAKIASHOP  s3cr3t/+  " + token.Reveal() + "\n"
	write(good, 0o600)
	credentials, err := sqsapi.ReadCredentials(path)
	if err != nil {
		t.Fatal(err)
	}
	d := serve(t, setup{ring: ring, options: sqsapi.Options{Credentials: credentials}})
	c := d.clientWith("AKIASHOP", "s3cr3t/+", "")
	queue := c.create("orders")
	c.send(queue, "x")
	_, err = c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue})
	refused(t, "a receive", err, denied)
	_, err = d.clientWith("AKIASHOP", "wrong", "").SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("x")})
	refused(t, "another secret", err, "SignatureDoesNotMatch")
	for what, text := range map[string]string{
		"two fields": "AKIA secret\n", "no token": "AKIA secret canary\n", "twice": good + good,
	} {
		write(text, 0o600)
		if _, err := sqsapi.ReadCredentials(path); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", what, err)
		}
	}
	write(good, 0o644)
	if _, err := sqsapi.ReadCredentials(path); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("readable by others: %v", err)
	}
}

// post sends a form and returns the answer.
func (d *daemon) post(t *testing.T, path, form string, header http.Header) (status int, headers http.Header, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://sqs.example:4566"+path, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return d.do(t, r)
}

func (d *daemon) do(t *testing.T, r *http.Request) (status int, headers http.Header, body string) {
	t.Helper()
	response, err := d.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

func TestPresignedURLsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{})
		queue := d.client("").create("orders")
		credentials := macaroon.CredentialsOf(d.mint("").RevealBinary(nil))
		r, err := http.NewRequest(http.MethodGet, *queue+"?Action=SendMessage&MessageBody=hello&X-Amz-Expires=60", nil)
		if err != nil {
			t.Fatal(err)
		}
		empty := sha256.Sum256(nil)
		signed, _, err := v4.NewSigner().PresignHTTP(t.Context(), aws.Credentials{
			AccessKeyID: credentials.AccessKeyID, SecretAccessKey: credentials.SecretAccessKey.Reveal(), SessionToken: credentials.SessionToken,
		}, r, hex.EncodeToString(empty[:]), "sqs", "eu-central-1", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		get := func(target string) (int, string) {
			r, err := http.NewRequest(http.MethodGet, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			status, _, body := d.do(t, r)
			return status, body
		}
		if status, body := get(signed); status != http.StatusOK || !strings.Contains(body, "<MessageId>") {
			t.Errorf("%d %s", status, body)
		}
		if status, body := get(strings.Replace(signed, "hello", "other", 1)); status != http.StatusForbidden {
			t.Errorf("another body: %d %s", status, body)
		}
		time.Sleep(61 * time.Second)
		if status, body := get(signed); status == http.StatusOK {
			t.Errorf("when its time is over: %d %s", status, body)
		}
		if m := d.client("").one(queue); *m.Body != "hello" {
			t.Errorf("got %q", *m.Body)
		}
	})
}

func TestUnsignedHandlerAcceptsAnyRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		c := d.clientWith("test", "test", "")
		queue := c.create("orders")
		if *queue != "http://sqs.example:4566/000000000000/orders" || c.attributes(queue)["QueueArn"] != arnPrefix+"orders" {
			t.Errorf("got %s", *queue)
		}
		status, header, body := d.post(t, "/000000000000/orders", "Action=SendMessage&MessageBody="+url.QueryEscape("a <b>"), nil)
		if status != http.StatusOK || header.Get("X-Amzn-Requestid") == "" || !strings.Contains(body, "<SendMessageResponse") {
			t.Errorf("%d %v %s", status, header, body)
		}
		status, _, body = d.post(t, "/", "Action=ReceiveMessage&QueueUrl=orders&AttributeName.1=All", nil)
		if status != http.StatusOK || !strings.Contains(body, "<Body>a &lt;b&gt;</Body>") || !strings.Contains(body, "ApproximateReceiveCount") {
			t.Errorf("%d %s", status, body)
		}
		status, _, body = d.post(t, "/", "Action=ReceiveMessage&QueueUrl=none", nil)
		if status != http.StatusBadRequest || !strings.Contains(body, "AWS.SimpleQueueService.NonExistentQueue") {
			t.Errorf("%d %s", status, body)
		}
		status, _, body = d.post(t, "/", "Action=Nonsense", nil)
		if status != http.StatusBadRequest || !strings.Contains(body, "InvalidAction") {
			t.Errorf("%d %s", status, body)
		}
	})
}

// target asks for an action in JSON.
func (d *daemon) target(t *testing.T, action, body string) (int, http.Header, string) {
	t.Helper()
	return d.post(t, "/", body, http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amz-Target": {"AmazonSQS." + action}})
}

func TestVisibilityOfZeroLeavesMessageReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		c := d.clientWith("test", "test", "")
		c.send(c.create("orders"), "x")
		for i := range 3 { // the Go SDK cannot send zero
			status, _, body := d.target(t, "ReceiveMessage", `{"QueueUrl":"orders","VisibilityTimeout":0,"MessageSystemAttributeNames":["ApproximateReceiveCount"]}`)
			if status != http.StatusOK || !strings.Contains(body, fmt.Sprintf(`"ApproximateReceiveCount":"%d"`, i+1)) {
				t.Errorf("%d %s", status, body)
			}
		}
		status, header, body := d.target(t, "ReceiveMessage", `{"QueueUrl":"none"}`)
		if status != http.StatusBadRequest || header.Get("X-Amzn-Query-Error") != "AWS.SimpleQueueService.NonExistentQueue;Sender" ||
			!strings.Contains(body, `"__type":"com.amazonaws.sqs#QueueDoesNotExist"`) {
			t.Errorf("%d %v %s", status, header, body)
		}
	})
}

func TestRequestsAreCountedByActionAndCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, setup{unsigned: true})
		c := d.clientWith("test", "test", "")
		queue := c.create("orders")
		c.send(queue, "x")
		c.send(queue, "y")
		d.target(t, "SendMessage", `{"QueueUrl":"none","MessageBody":"x"}`)
		d.target(t, "Nonsense", `{}`)
		families, err := d.broker.Metrics().Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		counts := make(map[string]float64)
		for _, family := range families {
			if family.GetName() == "mailbox_sqs_requests_total" {
				for _, m := range family.GetMetric() {
					counts[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		want := map[string]float64{"CreateQueue ": 1, "SendMessage ": 2, "SendMessage QueueDoesNotExist": 1, "other UnknownOperationException": 1}
		if fmt.Sprint(counts) != fmt.Sprint(want) {
			t.Errorf("got %v", counts)
		}
	})
}

func TestHealthChecksOfEmulatorsAreAnswered(t *testing.T) {
	d := serve(t, setup{unsigned: true})
	handler := sqsapi.Compatible(d.service.Unsigned())
	for path, want := range map[string]string{"/health": "OK", "/_localstack/health": `"sqs":"running"`} {
		r, err := http.NewRequest(http.MethodGet, "http://localhost:4566"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &recorder{header: make(http.Header)}
		handler.ServeHTTP(w, r)
		if !strings.Contains(w.body.String(), want) {
			t.Errorf("%s: %s", path, w.body.String())
		}
	}
}

// recorder is a http.ResponseWriter.
type recorder struct {
	header http.Header
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
