package sqsbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// A quickServer reads requests to their end and responds, with plain net/http. On its
// network a write of a request returns only while the response is being read, which
// happens now and then on a busy machine, and here always. It works in virtual time.
type quickServer struct {
	conns  chan net.Conn
	once   sync.Once
	begun  chan struct{} // has a token while a response is being read
	answer string        // response to requests for messages
}

func (s *quickServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the client reports an error here
	answer := s.answer
	switch _, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); action {
	case "GetQueueUrl":
		answer = `{"QueueUrl":"http://sqs.example/1/orders"}`
	case "GetQueueAttributes":
		answer = `{"Attributes":{"QueueArn":"arn:aws:sqs:eu-central-1:1:orders"}}`
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_, _ = io.WriteString(w, answer)
}

func (s *quickServer) Accept() (net.Conn, error) {
	if c, open := <-s.conns; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (s *quickServer) Close() error {
	s.once.Do(func() { close(s.conns) })
	return nil
}

func (s *quickServer) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// slowSender is the client's end of a connection.
type slowSender struct {
	net.Conn
	begun chan struct{}
}

func (c slowSender) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if strings.HasSuffix(string(p), "}") { // the end of a body
		<-c.begun
	}
	return n, err
}

// A beginning is a response body; reading it first lets the sender go on.
type beginning struct {
	io.ReadCloser
	begin func()
}

func (b beginning) Read(p []byte) (int, error) {
	b.begin()
	return b.ReadCloser.Read(p)
}

type doFunc func(*http.Request) (*http.Response, error)

func (f doFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

const longBody = 64 << 10 // more than one read of the connection returns

// serveQuickly returns a client of a quick server that has one message for everybody.
func serveQuickly(t *testing.T, options ...func(*sqs.Options)) *sqs.Client {
	s := &quickServer{conns: make(chan net.Conn), begun: make(chan struct{}, 1)}
	s.answer = fmt.Sprintf(`{"Messages":[{"MessageId":"00000000-0000-0000-0000-000000000001","ReceiptHandle":"r","Body":"%s"}]}`, strings.Repeat("x", longBody))
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		s.conns <- theirs
		return slowSender{ours, s.begun}, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	})
	return sqs.New(sqs.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://sqs.example"), Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
		HTTPClient: doFunc(func(r *http.Request) (*http.Response, error) {
			response, err := transport.RoundTrip(r)
			if err == nil {
				response.Body = beginning{response.Body, sync.OnceFunc(func() {
					s.begun <- struct{}{}
					synctest.Wait() // the sender has finished
				})}
			}
			return response, err
		}),
	}, options...)
}

// This is the defect that OwnBodies works around. When the test fails because the SDK has
// fixed it, OwnBodies is not needed any more.
func TestSDKAloneLosesQuickResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := serveQuickly(t).ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("http://sqs.example/1/orders")})
		if !errors.Is(err, io.ErrClosedPipe) { // on a socket it would be net.ErrClosed
			t.Errorf("got %v", err)
		}
	})
}

func TestOwnBodiesKeepsQuickResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := serveQuickly(t, sqsbox.OwnBodies, sqsbox.OwnBodies) // applying it twice is safe
		for range 3 {
			got, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("http://sqs.example/1/orders")})
			if err != nil || len(got.Messages) != 1 || len(*got.Messages[0].Body) != longBody {
				t.Errorf("got %v, %v", got, err)
			}
		}
	})
}

func TestBackendAppliesOwnBodiesToAnyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend, err := sqsbox.Open(t.Context(), serveQuickly(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer backend.Close()
		queue, err := backend.OpenQueue(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		got, err := queue.Receive(t.Context(), driver.ReceiveRequest{Max: 10, Visibility: time.Minute})
		if err != nil || len(got) != 1 || len(got[0].Body) != longBody {
			t.Errorf("got %d, %v", len(got), err)
		}
	})
}
