package sqsapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"syscall"
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

// BenchmarkTakeOver sends, receives and deletes a message over one connection of TCP, with
// and without connections that are taken over. "cpu-ns/op" is the processor time of the
// process: that of the daemon, and little for a client that writes prepared requests.
func BenchmarkTakeOver(b *testing.B) {
	for _, takeOver := range []bool{true, false} {
		b.Run(fmt.Sprint(takeOver), func(b *testing.B) {
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
			service := sqsapi.New(sqsapi.Options{Broker: node, Hosts: hosts, TakeOver: takeOver})
			server := httptest.NewServer(service.Unsigned())
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			caller := &benchConn{conn: conn, in: bufio.NewReader(conn)}
			caller.call(b, "CreateQueue", `{"QueueName":"orders"}`)
			before := processorTime(b)
			b.ReportAllocs()
			for b.Loop() {
				caller.call(b, "SendMessage", `{"QueueUrl":"http://sqs.example/000000000000/orders","MessageBody":"hello"}`)
				_, receipt, found := bytes.Cut(caller.call(b, "ReceiveMessage", `{"QueueUrl":"http://sqs.example/000000000000/orders"}`), []byte(`"ReceiptHandle":"`))
				receipt, _, ended := bytes.Cut(receipt, []byte(`"`))
				if !found || !ended {
					b.Fatalf("received %s", caller.body)
				}
				caller.call(b, "DeleteMessage", `{"QueueUrl":"http://sqs.example/000000000000/orders","ReceiptHandle":"`+string(receipt)+`"}`)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// A benchConn is a client that does as little as possible.
type benchConn struct {
	conn      net.Conn
	in        *bufio.Reader
	out, body []byte
}

// call returns the body of the answer, until the next call.
func (c *benchConn) call(b *testing.B, action, body string) []byte {
	c.out = fmt.Appendf(c.out[:0], "POST / HTTP/1.1\r\nHost: sqs.example\r\nContent-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.%s\r\nContent-Length: %d\r\n\r\n%s", action, len(body), body)
	if _, err := c.conn.Write(c.out); err != nil {
		b.Fatal(err)
	}
	size := 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if len(line) == len("\r\n") {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				b.Fatal(err)
			}
		}
	}
	c.body = append(c.body[:0], make([]byte, size)...)
	if _, err := io.ReadFull(c.in, c.body); err != nil || bytes.Contains(c.body, []byte("__type")) {
		b.Fatalf("%s: %v, %s", action, err, c.body)
	}
	return c.body
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
