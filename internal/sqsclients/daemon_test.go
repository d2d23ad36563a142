package sqsclients_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/internal/testing/proctest"
	"github.com/mailboxmq/mailbox/sqsbox"
)

// region is part of the ARNs of queues. It is the one that mailbox cap aws prints.
const region = "local-1"

// A daemon is mailboxd in a process of its own.
type daemon struct {
	*proctest.Process // the latest
	t                 testing.TB
	dir               string
	args              []string
	address           string // host:port for HTTP, where clients of SQS are served too
	keys              keys
	http              *http.Client
}

// keys are the credentials of the operator for AWS clients.
type keys struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string
	SessionToken    string
}

// start runs a daemon on the disk and on a free port, until the test ends.
func start(t testing.TB, args ...string) *daemon {
	t.Helper()
	d := &daemon{
		t: t, dir: t.TempDir(), args: args, address: "127.0.0.1:0",
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
	}
	t.Cleanup(d.http.CloseIdleConnections)
	d.launch()
	d.keys = d.readKeys()
	return d
}

// launch starts the process, on the address of the previous one if there was one.
func (d *daemon) launch() {
	d.t.Helper()
	args := append([]string{"--data-dir=" + d.dir, "--listen=" + d.address, "--listen-oap=off", "--log-level=info"}, d.args...)
	command := exec.Command(filepath.Join(programs(d.t), "mailboxd"), args...)
	command.Dir = d.dir
	d.Process = proctest.Start(d.t, command)
	line := d.AwaitLog(d.t, "started")
	if line == nil {
		d.t.Fatalf("mailboxd %s ended: %v\n%s", strings.Join(args, " "), d.Err(), d.Stderr.String())
	}
	d.address, _ = line["http"].(string)
}

// readKeys gets the credentials of the operator from mailbox cap aws.
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

// environment returns the environment variables that every AWS client reads.
func (d *daemon) environment() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + d.keys.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + d.keys.SecretAccessKey,
		"AWS_SESSION_TOKEN=" + d.keys.SessionToken, "AWS_DEFAULT_REGION=" + region, "AWS_REGION=" + region,
		"AWS_CONFIG_FILE=none", "AWS_SHARED_CREDENTIALS_FILE=none", "AWS_EC2_METADATA_DISABLED=true",
		"SQS_ENDPOINT=" + d.endpoint(), "PYTHONDONTWRITEBYTECODE=1",
	}
}

// client returns the Go SDK with this many attempts and OwnBodies.
func (d *daemon) client(attempts int) *sqs.Client { return d.bareClient(attempts, sqsbox.OwnBodies) }

// bareClient returns the Go SDK without OwnBodies.
func (d *daemon) bareClient(attempts int, options ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: region, BaseEndpoint: aws.String(d.endpoint()), HTTPClient: d.http,
		Credentials: credentials.NewStaticCredentialsProvider(d.keys.AccessKeyID, d.keys.SecretAccessKey, d.keys.SessionToken),
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = attempts, 200*time.Millisecond
			o.RateLimiter = ratelimit.None
		}),
	}, options...)
}

// create creates a queue and returns its URL.
func (d *daemon) create(name string, attributes map[string]string) *string {
	d.t.Helper()
	out, err := d.client(3).CreateQueue(d.t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		d.t.Fatal(err)
	}
	return out.QueueUrl
}

func arn(name string) string { return fmt.Sprintf("arn:aws:sqs:%s:000000000000:%s", region, name) }
