package sqsclients_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Queues are in this region, which is part of their names in full.
const region = "eu-central-1"

// A daemon is mailboxd in a process of its own.
type daemon struct {
	t       testing.TB
	dir     string
	args    []string
	address string // host:port for HTTP, where clients of SQS are served too
	stderr  output
	command *exec.Cmd
	ended   chan struct{} // closed when the process is gone
	err     error         // what it ended with; set before ended is closed
	keys    keys
	http    *http.Client
}

// keys are the credentials of the operator, as clients of AWS want them.
type keys struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string
	SessionToken    string
}

// An output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs a daemon on the disk and on a free port, until the test ends.
func start(t testing.TB, args ...string) *daemon {
	t.Helper()
	d := &daemon{
		t: t, dir: t.TempDir(), args: args, address: "127.0.0.1:0",
		http: &http.Client{Transport: ownedBodies{&http.Transport{MaxIdleConnsPerHost: 256}}},
	}
	t.Cleanup(func() {
		d.kill()
		d.http.CloseIdleConnections()
	})
	d.launch()
	d.keys = d.readKeys()
	return d
}

// launch starts the process, where it was before if it ran before.
func (d *daemon) launch() {
	d.t.Helper()
	args := append([]string{"--data-dir=" + d.dir, "--listen=" + d.address, "--listen-oap=off", "--log-level=info"}, d.args...)
	d.command = exec.Command(filepath.Join(programs(d.t), "mailboxd"), args...)
	d.command.Dir = d.dir
	d.stderr = output{}
	d.command.Stderr = &d.stderr
	d.command.SysProcAttr = dieWithParent()
	if err := d.command.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan struct{})
	d.ended = ended
	go func() {
		d.err = d.command.Wait()
		close(ended)
	}()
	eventually(d.t, time.Minute, "started", func() bool {
		select {
		case <-ended:
			d.t.Fatalf("mailboxd %s ended: %v\n%s", strings.Join(args, " "), d.err, d.stderr.String())
		default:
		}
		for text := range strings.Lines(d.stderr.String()) {
			var line struct{ Msg, HTTP string }
			if json.Unmarshal([]byte(text), &line) == nil && line.Msg == "started" {
				d.address = line.HTTP
				return true
			}
		}
		return false
	})
}

// kill is kill -9, and waits until the process is gone.
func (d *daemon) kill() {
	_ = d.command.Process.Signal(syscall.SIGKILL) // it may be gone
	<-d.ended
}

// stop tells the daemon to stop, and waits until it has.
func (d *daemon) stop() {
	d.t.Helper()
	if err := d.command.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	<-d.ended
	if d.err != nil {
		d.t.Errorf("an orderly stop: %v\n%s", d.err, d.stderr.String())
	}
}

// readKeys asks the command line for the credentials of the operator.
func (d *daemon) readKeys() (k keys) {
	d.t.Helper()
	command := exec.Command(filepath.Join(programs(d.t), "mailbox"), "cap", "aws", "--json", filepath.Join(d.dir, "operator.token"))
	text, err := command.Output()
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil || k.SecretAccessKey == "" {
		d.t.Fatalf("mailbox cap aws: %v, %s", err, text)
	}
	return k
}

func (d *daemon) endpoint() string { return "http://" + d.address }

// environment is what every client of AWS reads.
func (d *daemon) environment() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + d.keys.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + d.keys.SecretAccessKey,
		"AWS_SESSION_TOKEN=" + d.keys.SessionToken, "AWS_DEFAULT_REGION=" + region, "AWS_REGION=" + region,
		"AWS_CONFIG_FILE=none", "AWS_SHARED_CREDENTIALS_FILE=none", "AWS_EC2_METADATA_DISABLED=true",
		"SQS_ENDPOINT=" + d.endpoint(), "PYTHONDONTWRITEBYTECODE=1",
	}
}

// client returns the Go SDK, which tries so often.
func (d *daemon) client(attempts int) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: region, BaseEndpoint: aws.String(d.endpoint()), HTTPClient: d.http,
		Credentials: credentials.NewStaticCredentialsProvider(d.keys.AccessKeyID, d.keys.SecretAccessKey, d.keys.SessionToken),
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = attempts, 200*time.Millisecond
			o.RateLimiter = ratelimit.None
		}),
	})
}

// create makes a queue, and returns its URL.
func (d *daemon) create(name string, attributes map[string]string) *string {
	d.t.Helper()
	out, err := d.client(3).CreateQueue(d.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		d.t.Fatal(err)
	}
	return out.QueueUrl
}

func arn(name string) string { return fmt.Sprintf("arn:aws:sqs:%s:000000000000:%s", region, name) }
