package sqsclients_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
	"github.com/mailboxmq/mailbox/internal/testing/volume"
	"github.com/mailboxmq/mailbox/server"
)

// Three hundred idle queues cost less than a megabyte, whether they were only created or
// have delivered a message. The daemon runs in this process, where its heap can be
// measured after garbage collection.
func TestIdleQueuesCostNextToNothing(t *testing.T) {
	volume.Measures(t)
	for _, profile := range []string{server.Micronode, server.Macronode} {
		for _, kind := range idleKinds {
			t.Run(profile+"/"+kind.name, func(t *testing.T) {
				const queues = 300
				d := embed(t, profile)
				for range 5 { // allocates what all queues share, such as buffers
					d.add(kind, 0, 20)
				}
				heap, goroutines := liveHeap(), runtime.NumGoroutine()
				d.add(kind, 20, 20+queues)
				cost, more := liveHeap()-heap, runtime.NumGoroutine()-goroutines
				t.Logf("%d idle queues: %d KiB, %d bytes each; %+d goroutines", queues, cost>>10, cost/queues, more)
				most := kind.most
				if !usesC() {
					most += 1 << 20 // the memory tables of the store are in the heap, not in C's
				}
				if cost > most {
					t.Errorf("that is more than %d KiB", most>>10)
				}
				if cost < 100*queues {
					t.Error("the measurement is implausible")
				}
				if more >= queues/10 {
					t.Errorf("queues that rest have %d goroutines", more)
				}
			})
		}
	}
}

// usesC reports whether this program was built with a C compiler.
func usesC() bool {
	info, _ := debug.ReadBuildInfo()
	return !slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"})
}

// idleKind is a kind of idle queue, and how much it may cost at most.
type idleKind struct {
	name, suffix string
	used         bool
	most         int64
}

// A used queue keeps the worker that received from it for a while. A used FIFO queue also keeps a
// dedup key, and memory for groups: 1,412 to 1,418 KiB, as other goroutines allocate a little too.
var idleKinds = []idleKind{
	{name: "created", most: 1 << 20},
	{name: "used", used: true, most: 5 << 18},
	{name: "used FIFO", used: true, suffix: ".fifo", most: 1428 << 10},
}

// embedded is a daemon in this process, and a client of it.
type embedded struct {
	t       *testing.T
	address string
	token   capability.Token
	http    *http.Client
	sqs     *sqs.Client
}

// embed runs a daemon in this process until the test ends.
func embed(t *testing.T, profile string) *embedded {
	t.Helper()
	daemon, err := server.New(server.Config{Profile: profile, DataDir: t.TempDir(), LogLevel: "error", Listen: "127.0.0.1:0", ListenOAP: server.Off}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-daemon.Started()
	token := daemon.OperatorToken()
	keys := macaroon.CredentialsOf(token.RevealBinary(nil))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	d := &embedded{t: t, address: "http://" + daemon.Address(server.HTTP), token: token, http: &http.Client{Transport: transport}}
	d.sqs = sqs.New(sqs.Options{
		Region: region, BaseEndpoint: aws.String(d.address), HTTPClient: d.http,
		Credentials: credentials.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey.Reveal(), keys.SessionToken),
	})
	return d
}

// add creates the queues with these numbers, sends a message through each if the kind is
// used, and scrapes the metrics, as every deployment does.
func (d *embedded) add(kind idleKind, from, to int) {
	d.t.Helper()
	for i := from; i < to; i++ {
		request := &sqs.CreateQueueInput{QueueName: aws.String(fmt.Sprintf("queue-%d%s", i, kind.suffix))}
		if kind.suffix != "" {
			request.Attributes = map[string]string{"FifoQueue": "true"}
		}
		made, err := d.sqs.CreateQueue(d.t.Context(), request)
		if err == nil && kind.used {
			err = d.pass(made.QueueUrl, kind.suffix != "")
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	if !kind.used {
		return
	}
	measured := fmt.Sprintf("mailbox_queue_depth{queue=\"queue-%d%s\",shard=\"0\",state=\"ready\"}", from, kind.suffix)
	for !strings.Contains(d.scrape(), measured) { // measured once a second at most
		runtime.Gosched()
	}
}

// pass sends a message to a queue, receives it and deletes it.
func (d *embedded) pass(queue *string, fifo bool) error {
	ctx := d.t.Context()
	message := &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("hello")}
	if fifo {
		message.MessageGroupId, message.MessageDeduplicationId = aws.String("group"), aws.String(rand.Text())
	}
	if _, err := d.sqs.SendMessage(ctx, message); err != nil {
		return err
	}
	got, err := d.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue})
	if err != nil {
		return err
	}
	if len(got.Messages) != 1 {
		return fmt.Errorf("received %d messages, want 1", len(got.Messages))
	}
	_, err = d.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: got.Messages[0].ReceiptHandle})
	return err
}

func (d *embedded) scrape() string {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.address+"/metrics", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.token.Reveal())
	answer, err := d.http.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %v", answer.Status, err)
	}
	return string(text)
}

// liveHeap returns the bytes of the heap that are in use after garbage collection.
func liveHeap() int64 {
	for range 3 { // finalisers and pools need several collections
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
