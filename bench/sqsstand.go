package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// sqsServers builds mailboxd from the module that is measured, and returns the directory
// in which tools/fauxqs.sh has put the emulator.
func sqsServers(dir string) (mailboxd, fauxqs string, err error) {
	const module = "github.com/mailboxmq/mailbox"
	source, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("the SQS suite builds its server, and must be run in the folder of the benchmark: %w", err)
	}
	root := strings.TrimSpace(string(source))
	fauxqs = filepath.Join(root, ".cache", "fauxqs")
	if _, err := os.Stat(filepath.Join(fauxqs, "node_modules", "fauxqs")); err != nil {
		return "", "", fmt.Errorf("fauxqs is needed for this suite, and make servers installs it: %w", err)
	}
	if mailboxd, err = buildMailboxd(dir); err != nil {
		return "", "", err
	}
	return mailboxd, fauxqs, nil
}

// sqsMailboxd starts mailboxd with default settings except for its address and its
// directory. Signatures are verified.
func sqsMailboxd(binary string, durable bool) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		backend := "memory:"
		if durable {
			backend = "disk:" + filepath.Join(dir, "queues")
		}
		process, err := startDaemon(dir, []string{address}, binary,
			"--data-dir", dir, "--backend", backend, "--listen", address, "--listen-oap", "off", "--log-level", "warn")
		if err != nil {
			return nil, err
		}
		stand := &daemonStand{process: process, shape: shape}
		text, err := os.ReadFile(filepath.Join(dir, "operator.token"))
		if err != nil {
			return nil, errors.Join(err, stand.close())
		}
		token, err := capability.Parse(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, errors.Join(err, stand.close())
		}
		keys := token.Credentials()
		return stand.dialSQS(address, keys.AccessKeyID, keys.SecretAccessKey.Reveal(), keys.SessionToken)
	}
}

// fauxqsScript runs the emulator from a directory at a port.
const fauxqsScript = `import(require('node:url').pathToFileURL(process.argv[2] + '/node_modules/fauxqs/dist/app.js')).then(async ({ buildApp }) => {
  const server = buildApp({ logger: false })
  server.server.keepAliveTimeout = 60 * 60 * 1000
  await server.listen({ port: Number(process.argv[3]), host: '127.0.0.1' })
})`

func sqsFauxqs(installed string) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		// With -e the script is not an argument, so "fauxqs" takes its position.
		process, err := startDaemon(dir, []string{address}, "node", "-e", fauxqsScript, "fauxqs", installed, port)
		if err != nil {
			return nil, err
		}
		return (&daemonStand{process: process, shape: shape}).dialSQS(address, "test", "test", "")
	}
}

// dialSQS creates the queue and connects the workers, which share one client.
func (s *daemonStand) dialSQS(address string, key, secret, session string) (*daemonStand, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 4 * s.shape.workers}
	client := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://" + address), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider(key, secret, session),
	}, sqsbox.OwnBodies)
	s.disconnect = func() error {
		transport.CloseIdleConnections()
		return nil
	}
	out, err := client.CreateQueue(context.Background(), &sqs.CreateQueueInput{
		QueueName: aws.String(daemonQueue), Attributes: map[string]string{"VisibilityTimeout": strconv.Itoa(int(daemonVisibility.Seconds()))},
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	queue := &sqsQueue{client: client, url: out.QueueUrl}
	for range s.shape.workers {
		s.producers = append(s.producers, queue.send)
		s.consumers = append(s.consumers, &sqsConsumer{sqsQueue: queue, batch: s.shape.batch})
	}
	return s, nil
}

// sqsQueue is a queue, which takes texts only: bodies are in base64.
type sqsQueue struct {
	client *sqs.Client
	url    *string
}

func (q *sqsQueue) send(bodies [][]byte) error {
	ctx := context.Background()
	if len(bodies) == 1 {
		_, err := q.client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: q.url, MessageBody: aws.String(base64.StdEncoding.EncodeToString(bodies[0]))})
		return err
	}
	entries := make([]types.SendMessageBatchRequestEntry, len(bodies))
	for i, body := range bodies {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(base64.StdEncoding.EncodeToString(body))}
	}
	out, err := q.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: q.url, Entries: entries})
	if err == nil && len(out.Failed) > 0 {
		err = fmt.Errorf("a message of a batch was refused: %s", aws.ToString(out.Failed[0].Message))
	}
	return err
}

type sqsConsumer struct {
	*sqsQueue
	batch    int
	receipts []*string
}

func (c *sqsConsumer) receive() ([][]byte, error) {
	got, err := c.client.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{QueueUrl: c.url, MaxNumberOfMessages: int32(c.batch), WaitTimeSeconds: 1})
	if err != nil {
		return nil, err
	}
	bodies := make([][]byte, len(got.Messages))
	c.receipts = c.receipts[:0]
	for i := range got.Messages {
		if bodies[i], err = base64.StdEncoding.DecodeString(*got.Messages[i].Body); err != nil {
			return nil, err
		}
		c.receipts = append(c.receipts, got.Messages[i].ReceiptHandle)
	}
	return bodies, nil
}

func (c *sqsConsumer) ack() error {
	ctx := context.Background()
	if len(c.receipts) == 1 {
		_, err := c.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: c.url, ReceiptHandle: c.receipts[0]})
		return err
	}
	entries := make([]types.DeleteMessageBatchRequestEntry, len(c.receipts))
	for i, receipt := range c.receipts {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: receipt}
	}
	out, err := c.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: c.url, Entries: entries})
	if err == nil && len(out.Failed) > 0 {
		err = fmt.Errorf("a deletion of a batch was refused: %s", aws.ToString(out.Failed[0].Message))
	}
	return err
}
