package gates_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/remotebox"
)

// TestSQSMessageOfMiBIsDeliveredOnEachWire: requests are bounded, answers carry what the store
// has. The body is longer than a frame of OAP/1.
func TestSQSMessageOfMiBIsDeliveredOnEachWire(t *testing.T) { // SVC-5
	d := start(t, inMemory...)
	token, err := capability.Parse(d.token)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	credentials := macaroon.CredentialsOf(token.RevealBinary(nil))
	aws4 := sqs.New(sqs.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://" + d.http), HTTPClient: client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: credentials.AccessKeyID, SecretAccessKey: credentials.SecretAccessKey.Reveal(), SessionToken: credentials.SessionToken}, nil
		}),
	})
	body := bytes.Repeat([]byte("tea "), 1<<18)
	overJSON, overRPC := openHTTP(t, d.http, d.token), overGRPC(t, d, d.token).(*rpcSurface)
	frames := overOAP(t, d, d.token).(*oapSurface)

	for name, deliver := range map[string]bodyOf{
		"HTTP-receive": received(overJSON), "HTTP-stream": listed(overJSON, "/v1/recv/stream"),
		"HTTP-peek": listed(overJSON, "/v1/peek"), "HTTP-dead": dead(frames, listed(overJSON, "/v1/dlq/list")),
		"gRPC-receive": received(overRPC),
		"gRPC-stream": func(t *testing.T, queue string) ([]byte, error) {
			ctx, cancel := context.WithCancel(overRPC.with(t.Context()))
			defer cancel()
			stream, err := overRPC.client.RecvStream(ctx)
			if err != nil {
				return nil, err
			}
			if err := stream.Send(&mailboxv1.RecvStreamRequest{Topic: queue, Credit: 1}); err != nil {
				return nil, err
			}
			got, err := stream.Receive()
			if err != nil {
				return nil, err
			}
			return got.GetMessages()[0].GetPayload(), nil
		},
		"gRPC-peek": func(t *testing.T, queue string) ([]byte, error) {
			stream, err := overRPC.client.Peek(overRPC.with(t.Context()), &mailboxv1.PeekRequest{Topic: queue})
			if err != nil || !stream.Receive() {
				return nil, errors.Join(err, stream.Err())
			}
			defer stream.Close()
			return stream.Msg().GetMessages()[0].GetPayload(), nil
		},
		"gRPC-dead": dead(frames, func(t *testing.T, queue string) ([]byte, error) {
			stream, err := overRPC.client.DeadLetters(overRPC.with(t.Context()), &mailboxv1.DeadLettersRequest{Topic: queue})
			if err != nil || !stream.Receive() {
				return nil, errors.Join(err, stream.Err())
			}
			defer stream.Close()
			return stream.Msg().GetMessages()[0].GetPayload(), nil
		}),
		"OAP-receive": received(frames),
		"OAP-subscribe": framed(frames, func(ctx context.Context, q driver.Queue) ([]byte, error) {
			for d, err := range q.(remotebox.Subscriber).Subscribe(ctx, time.Minute, 1) {
				return d.Body, err
			}
			return nil, nil
		}),
		"OAP-peek": framed(frames, func(ctx context.Context, q driver.Queue) ([]byte, error) {
			for p, err := range q.Peek(ctx, driver.Query{}) {
				return p.Body, err
			}
			return nil, nil
		}),
		"OAP-dead": dead(frames, framed(frames, func(ctx context.Context, q driver.Queue) ([]byte, error) {
			for l, err := range q.DeadLetters(ctx) {
				return l.Body, err
			}
			return nil, nil
		})),
	} {
		t.Run(name, func(t *testing.T) {
			made, err := aws4.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String(name)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := aws4.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: made.QueueUrl, MessageBody: aws.String(string(body))}); err != nil {
				t.Fatal(err)
			}
			got, err := deliver(t, name)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("a body of %d bytes, %v", len(got), err)
			}
		})
	}
}

// bodyOf returns the body of the first message of a queue, over one protocol.
type bodyOf func(t *testing.T, queue string) ([]byte, error)

func listed(h *httpSurface, path string) bodyOf {
	return func(t *testing.T, queue string) ([]byte, error) {
		text, err := h.ask(t.Context(), path, object{"topic": queue})
		if err != nil {
			return nil, err
		}
		var line struct {
			Body []byte `json:"payload_b64"`
		}
		err = json.NewDecoder(bytes.NewReader(text)).Decode(&line)
		return line.Body, err
	}
}

func received(s surface) bodyOf {
	return func(t *testing.T, queue string) ([]byte, error) {
		got, err := s.receive(t.Context(), queue, wanted{most: 10, visibility: time.Minute})
		if err != nil || len(got) != 1 {
			return nil, fmt.Errorf("%d messages, %w", len(got), err)
		}
		return got[0].body, nil
	}
}

// dead dead-letters the message first.
func dead(o *oapSurface, list bodyOf) bodyOf {
	return func(t *testing.T, queue string) ([]byte, error) {
		err := o.use(t.Context(), queue, func(q driver.Queue) error {
			got, err := q.Receive(t.Context(), driver.ReceiveRequest{Max: 1, Visibility: time.Minute})
			if err != nil || len(got) == 0 {
				return errors.Join(err, errors.New("nothing to dead-letter"))
			}
			return q.DeadLetter(t.Context(), []driver.DeadLetterRequest{{Receipt: got[0].Receipt, Reason: driver.ReasonFatal}})
		})
		if err != nil {
			return nil, err
		}
		return list(t, queue)
	}
}

func framed(o *oapSurface, first func(ctx context.Context, q driver.Queue) ([]byte, error)) bodyOf {
	return func(t *testing.T, queue string) (body []byte, err error) {
		err = o.use(t.Context(), queue, func(q driver.Queue) (err error) {
			body, err = first(t.Context(), q)
			return err
		})
		return body, err
	}
}
