package sqsapi_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/revocation"
	"github.com/mailboxmq/mailbox/internal/testing/pipenet"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/guard"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
	"github.com/mailboxmq/mailbox/sqsbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is the surface on a backend, within the process.
type daemon struct {
	t       testing.TB
	ring    *keyring.Ring
	revoked *revocation.Memory
	broker  *broker.Broker
	service *sqsapi.Service
	http    *http.Client
	stop    func()
	once    sync.Once
}

// setup configures a daemon.
type setup struct {
	opener   driver.Opener
	ring     *keyring.Ring
	limits   broker.Limits
	options  sqsapi.Options
	unsigned bool
	// plain leaves all requests to package http.
	plain bool
}

// serve starts a daemon that runs until the test, or the bubble, ends.
func serve(t testing.TB, s setup) *daemon {
	t.Helper()
	d := &daemon{t: t, ring: s.ring, revoked: new(revocation.Memory)}
	if d.ring == nil {
		d.ring = keyring.New(keyring.NewKey())
	}
	if s.opener == nil {
		backend := membox.New(&membox.Options{MaxBodyBytes: sqsapi.MaxPayloadBytes, Defaults: driver.Config{MaxHold: time.Minute}})
		t.Cleanup(func() { _ = backend.Close() })
		s.opener = backend
	}
	var err error
	d.broker, err = broker.New(broker.Options{
		Opener: s.opener, Ring: d.ring, Revocations: d.revoked, Limits: s.limits,
		Verifier: verify.New(d.ring, &verify.Options{Revocations: d.revoked}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.options.Broker, s.options.TakeOver = d.broker, !s.plain
	if s.options.Hosts, err = guard.NewHosts([]string{"sqs.example"}); err != nil {
		t.Fatal(err)
	}
	d.service = sqsapi.New(s.options)
	handler := d.service.Signed()
	if s.unsigned {
		handler = d.service.Unsigned()
	}
	listener := pipenet.Listen()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: pipenet.HeaderTimeout}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	transport := &http.Transport{DialContext: listener.DialContext, MaxIdleConnsPerHost: 64}
	d.http = &http.Client{Transport: transport}
	d.stop = func() {
		d.service.Close()
		ended, cut := context.WithCancel(context.Background())
		cut()
		_ = d.service.Shutdown(ended)
		transport.CloseIdleConnections()
		_ = server.Close()
		<-done
		_ = d.broker.Close()
	}
	t.Cleanup(d.close)
	return d
}

// close stops the daemon. It may be called twice.
func (d *daemon) close() { d.once.Do(d.stop) }

// with returns a test for virtual time, with a client that may do everything.
func with(s setup, test func(t *testing.T, c *client)) func(t *testing.T) {
	return func(t *testing.T) { test(t, serve(t, s).client("")) }
}

// client is the SDK's client, with shorthands for tests.
type client struct {
	*sqs.Client
	bare *sqs.Client // without OwnBodies; within one process every answer is quick
	t    testing.TB
	d    *daemon
}

// client returns a client with the credentials of a token that allows everything, or is
// narrowed by caveats.
func (d *daemon) client(tenant string, caveats ...capability.Caveat) *client {
	d.t.Helper()
	return d.clientOf(macaroon.CredentialsOf(d.mint(tenant, caveats...).RevealBinary(nil)))
}

func (d *daemon) mint(tenant string, caveats ...capability.Caveat) capability.Token {
	d.t.Helper()
	if len(caveats) == 0 {
		caveats = append(caveats, capability.AllOperations(), capability.Queues(capability.AnyQueue()))
	}
	caveats = append(caveats, capability.ExpiresAt(time.Now().AddDate(200, 0, 0)))
	token, err := d.ring.Mint(tenant, caveats...)
	if err != nil {
		d.t.Fatal(err)
	}
	return token
}

func (d *daemon) clientOf(c macaroon.Credentials) *client {
	return d.clientWith(c.AccessKeyID, c.SecretAccessKey.Reveal(), c.SessionToken)
}

func (d *daemon) clientWith(accessKey, secret, session string) *client {
	bare := sqs.New(sqs.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://sqs.example:4566"), HTTPClient: d.http, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: accessKey, SecretAccessKey: secret, SessionToken: session}, nil
		}),
	})
	return &client{t: d.t, d: d, bare: bare, Client: sqs.New(bare.Options(), sqsbox.OwnBodies)}
}

// create creates a queue and returns its URL.
func (c *client) create(name string, attributes ...string) *string {
	c.t.Helper()
	out, err := c.CreateQueue(c.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
	if err != nil {
		c.t.Fatalf("create %s: %v", name, err)
	}
	return out.QueueUrl
}

// createFIFO creates a FIFO queue.
func (c *client) createFIFO(name string, attributes ...string) *string {
	c.t.Helper()
	return c.create(name, append(attributes, "FifoQueue", "true")...)
}

func pairs(list []string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i]] = list[i+1]
	}
	return m
}

// send sends a message and returns its id.
func (c *client) send(queue *string, body string, change ...func(*sqs.SendMessageInput)) string {
	c.t.Helper()
	input := &sqs.SendMessageInput{QueueUrl: queue, MessageBody: &body}
	for _, f := range change {
		f(input)
	}
	out, err := c.SendMessage(c.t.Context(), input)
	if err != nil {
		c.t.Fatalf("send %.40q: %v", body, err)
	}
	return *out.MessageId
}

// group puts a message into a group, with a dedup id.
func group(name, dedup string) func(*sqs.SendMessageInput) {
	return func(in *sqs.SendMessageInput) {
		in.MessageGroupId = &name
		if dedup != "" {
			in.MessageDeduplicationId = &dedup
		}
	}
}

// receive receives up to ten messages with all attributes.
func (c *client) receive(queue *string, change ...func(*sqs.ReceiveMessageInput)) []types.Message {
	c.t.Helper()
	input := &sqs.ReceiveMessageInput{
		QueueUrl: queue, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}
	for _, f := range change {
		f(input)
	}
	out, err := c.ReceiveMessage(c.t.Context(), input)
	if err != nil {
		c.t.Fatalf("receive: %v", err)
	}
	return out.Messages
}

// one receives exactly one message.
func (c *client) one(queue *string, change ...func(*sqs.ReceiveMessageInput)) types.Message {
	c.t.Helper()
	messages := c.receive(queue, append(change, func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = 1 })...)
	if len(messages) != 1 {
		c.t.Fatalf("got %d messages, want one", len(messages))
	}
	return messages[0]
}

func visible(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = seconds }
}

func waiting(seconds int32) func(*sqs.ReceiveMessageInput) {
	return func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = seconds }
}

func (c *client) delete(queue *string, m types.Message) {
	c.t.Helper()
	if _, err := c.DeleteMessage(c.t.Context(), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: m.ReceiptHandle}); err != nil {
		c.t.Fatalf("delete: %v", err)
	}
}

// attributes returns attributes of a queue, all if none are named.
func (c *client) attributes(queue *string, names ...types.QueueAttributeName) map[string]string {
	c.t.Helper()
	if len(names) == 0 {
		names = []types.QueueAttributeName{types.QueueAttributeNameAll}
	}
	out, err := c.GetQueueAttributes(c.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue, AttributeNames: names})
	if err != nil {
		c.t.Fatalf("get attributes: %v", err)
	}
	return out.Attributes
}

// set sets attributes of a queue.
func (c *client) set(queue *string, attributes ...string) error {
	_, err := c.SetQueueAttributes(c.t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: queue, Attributes: pairs(attributes)})
	return err
}

func bodies(messages []types.Message) []string {
	var texts []string
	for _, m := range messages {
		texts = append(texts, *m.Body)
	}
	return texts
}

// codeOf returns the code of an AWS error.
func codeOf(err error) string {
	var e smithy.APIError
	if errors.As(err, &e) {
		return e.ErrorCode()
	}
	return ""
}

// refused checks that something failed with a code.
func refused(t *testing.T, what string, err error, code string) {
	t.Helper()
	if got := codeOf(err); got != code {
		t.Errorf("%s: got %q (%v), want %q", what, got, err, code)
	}
}

// all asks for all attributes of a queue.
var all = []types.QueueAttributeName{types.QueueAttributeNameAll}

// garbageMessage has a malformed receipt.
var garbageMessage = types.Message{ReceiptHandle: aws.String("garbage")}
