package gates_test

import (
	"context"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/driver"
	mailboxv1 "github.com/mailboxmq/mailbox/gen/mailbox/v1"
	"github.com/mailboxmq/mailbox/gen/mailbox/v1/mailboxv1connect"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// The attacks that need their own client.

// rpc returns a client on a new connection.
func (a *attacker) rpc(n int) (*rpcSurface, func()) {
	transport := &http.Transport{DialContext: a.dialer.DialContext, Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	client := mailboxv1connect.NewMailboxClient(&http.Client{Transport: transport}, "http://"+a.http, connect.WithGRPC())
	return &rpcSurface{client, a.token(n)}, transport.CloseIdleConnections
}

func (a *attacker) makeQueuesRPC(ctx context.Context, n int) error {
	r, end := a.rpc(n)
	defer end()
	for range 100 {
		if _, _, err := r.send(ctx, someName(), "k", nil); err != nil {
			return err
		}
	}
	return nil
}

// sqs returns a client that signs with a token of the tenant.
func (a *attacker) sqs(n int) (*sqs.Client, error) {
	token, err := capability.Parse(a.token(n))
	if err != nil {
		return nil, err
	}
	c := macaroon.CredentialsOf(token.RevealBinary(nil))
	return sqs.New(sqs.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String("http://" + a.http), HTTPClient: a.client, RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey.Reveal(), SessionToken: c.SessionToken}, nil
		}),
	}), nil
}

func (a *attacker) makeQueuesSQS(ctx context.Context, n int) error {
	client, err := a.sqs(n)
	if err != nil {
		return err
	}
	_, err = client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(someName())})
	return err
}

// holdSQS sends, and receives with a visibility of twelve hours.
func (a *attacker) holdSQS(ctx context.Context, n int) error {
	client, err := a.sqs(n)
	if err != nil {
		return err
	}
	made, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("held-sqs")})
	if err != nil {
		return err
	}
	for range 50 {
		entries := make([]types.SendMessageBatchRequestEntry, 10)
		for i := range entries {
			entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String("x")}
		}
		if _, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: made.QueueUrl, Entries: entries}); err != nil {
			return err
		}
		if _, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: made.QueueUrl, MaxNumberOfMessages: 10, VisibilityTimeout: 43200}); err != nil {
			return err
		}
	}
	return nil
}

// streamHTTP waits on many streams at the same time.
func (a *attacker) streamHTTP(ctx context.Context, n int) error {
	h := a.surface(n)
	if _, _, err := h.send(ctx, "streams", someName(), nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var streams sync.WaitGroup
	for range 200 {
		streams.Go(func() {
			path := []string{"/v1/recv/stream", "/v1/recv"}[mathrand.IntN(2)]
			_ = h.post(ctx, path, object{"topic": "streams", "wait_ms": 600_000, "visibility_ms": 43_200_000}, nil)
		})
	}
	streams.Wait()
	return nil
}

// streamRPC opens many streams on one connection.
func (a *attacker) streamRPC(ctx context.Context, n int) error {
	r, end := a.rpc(n)
	defer end()
	if _, _, err := r.send(ctx, "streams", someName(), nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var streams sync.WaitGroup
	for range 240 {
		streams.Go(func() {
			s, err := r.client.RecvStream(r.with(ctx))
			if err != nil {
				return
			}
			if s.Send(&mailboxv1.RecvStreamRequest{Topic: "streams", Credit: 10_000}) == nil {
				_, _ = s.Receive()
			}
			<-ctx.Done()
			_ = s.CloseRequest()
			_ = s.CloseResponse()
		})
	}
	streams.Wait()
	return nil
}

// subscribe opens many waiting receives on one connection, for many queues.
func (a *attacker) subscribe(ctx context.Context, n int) error {
	box := a.box(n)
	defer box.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var waiting sync.WaitGroup
	for i := range 500 {
		waiting.Go(func() {
			q, err := box.OpenQueue(ctx, fmt.Sprintf("waits-%d", i))
			if err != nil {
				return
			}
			if _, err := q.Send(ctx, []driver.Outgoing{{}}); err != nil {
				return
			}
			for ctx.Err() == nil {
				if _, err := q.Receive(ctx, driver.ReceiveRequest{Max: 256, Visibility: time.Duration(i+1) * time.Minute, Wait: time.Hour}); err != nil {
					return
				}
			}
		})
	}
	waiting.Wait()
	return nil
}

// read peeks, lists and counts.
func (a *attacker) read(ctx context.Context, n int) error {
	h := a.surface(n)
	for _, call := range []struct {
		path string
		body object
	}{
		{"/v1/peek", object{"topic": "held", "attrs": object{"no": "such"}}},
		{"/v1/peek", object{"topic": "large"}},
		{"/v1/queues/list", object{}},
		{"/v1/stats", object{"topic": "held"}},
		{"/v1/dlq/list", object{"topic": "dead"}},
		{"/v1/traits", object{"topic": someName()}},
		{"/v1/recv", object{"topic": someName(), "wait_ms": 60_000}},
	} {
		_ = h.post(ctx, call.path, call.body, nil)
	}
	return nil
}

// deadLetter makes dead letters, and redrives them.
func (a *attacker) deadLetter(ctx context.Context, n int) error {
	box := a.box(n)
	defer box.Close()
	q, err := box.OpenQueue(ctx, "dead")
	if err != nil {
		return err
	}
	if _, err := q.Send(ctx, batch(256, 100)); err != nil {
		return err
	}
	got, err := q.Receive(ctx, driver.ReceiveRequest{Max: 256, Visibility: time.Minute})
	if err != nil {
		return err
	}
	burials := make([]driver.DeadLetterRequest, len(got))
	for i := range got {
		burials[i] = driver.DeadLetterRequest{Receipt: got[i].Receipt, Reason: driver.ReasonFatal, Error: strings.Repeat("e", 2000)}
	}
	letters := q
	if err := letters.DeadLetter(ctx, burials); err != nil {
		return err
	}
	if n%4 == 0 {
		_, err = letters.Redrive(ctx, nil, 1000)
	}
	return err
}

// narrow sends tokens that were each narrowed differently, as long as they may
// be, with quotas that are used up at once.
func (a *attacker) narrow(ctx context.Context, n int) error {
	token, err := capability.Parse(a.token(n))
	if err != nil {
		return err
	}
	caveats := []capability.Caveat{capability.MessagesPerSecond(1 + int64(mathrand.IntN(1<<30))), capability.BytesPerSecond(1)}
	for range mathrand.IntN(20) {
		caveats = append(caveats, capability.MaxBodyBytes(1<<20+int64(mathrand.IntN(1<<20))))
	}
	narrowed, err := token.Narrow(caveats...)
	if err != nil {
		return err
	}
	h := &httpSurface{a.client, "http://" + a.http, narrowed.Reveal()}
	_, _, err = h.send(ctx, "quotas", someName(), make([]byte, 1000))
	return err
}

// neverRead requests large answers, and does not read them.
func (a *attacker) neverRead(ctx context.Context, n int) error {
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for range 50 {
		c, err := a.dialer.DialContext(ctx, "tcp", a.http)
		if err != nil {
			return err
		}
		held = append(held, c)
		const body = `{"topic":"large","max_messages":256,"max_bytes":8000000,"visibility_ms":250}`
		for range 20 {
			if _, err := fmt.Fprintf(c, "POST /v1/recv HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", a.token(n), len(body), body); err != nil {
				return err
			}
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
	_, err := io.WriteString(held[0], "\r\n")
	return err
}
