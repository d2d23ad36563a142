package sqsapi_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/keyring"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/verify"
	"github.com/mailboxmq/mailbox/membox"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/guard"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi"
)

// BenchmarkLife sends, receives and deletes a message, without a network and, except
// for the signatures, without the work of a client.
func BenchmarkLife(b *testing.B) {
	for _, signed := range []bool{false, true} {
		b.Run(fmt.Sprintf("signed=%v", signed), func(b *testing.B) {
			backend := membox.New(nil)
			defer backend.Close()
			ring := keyring.New(keyring.NewKey())
			node, err := broker.New(broker.Options{Opener: backend, Ring: ring, Verifier: verify.New(ring, nil)})
			if err != nil {
				b.Fatal(err)
			}
			defer node.Close()
			hosts, err := guard.NewHosts([]string{"sqs.example"})
			if err != nil {
				b.Fatal(err)
			}
			service := sqsapi.New(sqsapi.Options{Broker: node, Hosts: hosts})
			handler := service.Unsigned()
			if signed {
				handler = service.Signed()
			}
			token, err := ring.Mint("", capability.AllOperations(), capability.Queues(capability.AnyQueue()), capability.ExpiresAt(time.Now().Add(time.Hour)))
			if err != nil {
				b.Fatal(err)
			}
			c := macaroon.CredentialsOf(token.RevealBinary(nil))
			caller := &benchClient{handler: handler, signer: v4.NewSigner(), credentials: aws.Credentials{
				AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey.Reveal(), SessionToken: c.SessionToken,
			}}
			caller.signed = signed
			caller.call(b, "CreateQueue", `{"QueueName":"orders"}`)
			send := caller.prepare(b, "SendMessage", `{"QueueUrl":"http://sqs.example/000000000000/orders","MessageBody":"hello"}`)
			receive := caller.prepare(b, "ReceiveMessage", `{"QueueUrl":"http://sqs.example/000000000000/orders"}`)
			b.ReportAllocs()
			for b.Loop() {
				caller.do(b, send)
				var answer struct {
					Messages []struct{ ReceiptHandle string }
				}
				if err := json.Unmarshal(caller.do(b, receive), &answer); err != nil || len(answer.Messages) != 1 {
					b.Fatal(err)
				}
				caller.call(b, "DeleteMessage", `{"QueueUrl":"http://sqs.example/000000000000/orders","ReceiptHandle":"`+answer.Messages[0].ReceiptHandle+`"}`)
			}
		})
	}
}

type benchClient struct {
	handler     http.Handler
	signer      *v4.Signer
	credentials aws.Credentials
	signed      bool
	w           recorder
}

type prepared struct {
	*http.Request
	body []byte
}

func (c *benchClient) prepare(b *testing.B, action, body string) prepared {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://sqs.example/", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	r.ContentLength = int64(len(body))
	if c.signed {
		sum := sha256.Sum256([]byte(body))
		if err := c.signer.SignHTTP(b.Context(), c.credentials, r, hex.EncodeToString(sum[:]), "sqs", "eu-central-1", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	return prepared{r, []byte(body)}
}

func (c *benchClient) do(b *testing.B, p prepared) []byte {
	p.Body = io.NopCloser(bytes.NewReader(p.body))
	c.w.body.Reset()
	c.w.header = make(http.Header)
	c.handler.ServeHTTP(&c.w, p.Request)
	if bytes.Contains(c.w.body.Bytes(), []byte("__type")) {
		b.Fatalf("%s", c.w.body.Bytes())
	}
	return c.w.body.Bytes()
}

func (c *benchClient) call(b *testing.B, action, body string) { c.do(b, c.prepare(b, action, body)) }
